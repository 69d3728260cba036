"""Approvals: a person decides before a tool runs, for every tool and at every depth of subagents.

`Approvals` defers calls, `pending_approvals` lists the pending ones, `render_approval` prints one, and
`answer_approvals` turns decisions into the input of the next run. Every user interface renders the same `ApprovalView`.
Nothing is held in memory: the serialized `Conversation` contains everything that is needed to resume.
"""

from pydantic_deep._messages.deferred_metadata import DecisionKind, Preview
from pydantic_deep._messages.form_fields import FieldKind, FormField
from pydantic_deep._text.escapes import EscapedText
from pydantic_deep._text.line_diff import DiffHunk, DiffLine, DiffView, view_diff

from ._answers import answer_approvals, check_decisions
from ._capability import Approvals
from ._errors import (
    ApprovalChangedError,
    ApprovalError,
    InvalidDecisionError,
    MalformedApprovalError,
    NothingPendingError,
    UnansweredApprovalError,
    UnknownApprovalError,
)
from ._listing import pending_approvals
from ._render import field_text, render_approval, render_view
from ._types import ApprovalRule, Approve, Decision, Deny, Edit, InterruptOn, PendingApproval, Respond
from ._view import ApprovalView, ArgumentView, FieldView, PreviewView, view_approval

__all__ = (
    'ApprovalChangedError',
    'ApprovalError',
    'ApprovalRule',
    'ApprovalView',
    'Approvals',
    'Approve',
    'ArgumentView',
    'Decision',
    'DecisionKind',
    'Deny',
    'DiffHunk',
    'DiffLine',
    'DiffView',
    'Edit',
    'EscapedText',
    'FieldKind',
    'FieldView',
    'FormField',
    'InterruptOn',
    'InvalidDecisionError',
    'MalformedApprovalError',
    'NothingPendingError',
    'PendingApproval',
    'Preview',
    'PreviewView',
    'Respond',
    'UnansweredApprovalError',
    'UnknownApprovalError',
    'answer_approvals',
    'check_decisions',
    'field_text',
    'pending_approvals',
    'render_approval',
    'render_view',
    'view_approval',
    'view_diff',
)
