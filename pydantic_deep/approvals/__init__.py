"""Approvals: a person decides before a tool runs, whoever provides it and at whatever depth.

`Approvals` makes calls wait; `pending_approvals` lists what waits, `render_approval` shows it, `answer_approvals`
takes the decisions. Nothing waits in memory: all that is needed is in the serialized `Conversation`.
"""

from pydantic_deep._pending import DecisionKind, Preview

from ._answers import answer_approvals
from ._capability import Approvals
from ._errors import (
    ApprovalError,
    InvalidDecisionError,
    MalformedApprovalError,
    NothingPendingError,
    UnansweredApprovalError,
    UnknownApprovalError,
)
from ._listing import pending_approvals
from ._render import render_approval
from ._types import ApprovalRule, Approve, Decision, Deny, Edit, InterruptOn, PendingApproval, Respond

__all__ = (
    'ApprovalError',
    'ApprovalRule',
    'Approvals',
    'Approve',
    'Decision',
    'DecisionKind',
    'Deny',
    'Edit',
    'InterruptOn',
    'InvalidDecisionError',
    'MalformedApprovalError',
    'NothingPendingError',
    'PendingApproval',
    'Preview',
    'Respond',
    'UnansweredApprovalError',
    'UnknownApprovalError',
    'answer_approvals',
    'pending_approvals',
    'render_approval',
)
