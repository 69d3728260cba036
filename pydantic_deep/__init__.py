"""Deep agents on pydantic-ai: they plan, work on files they cannot leave, delegate, and wait for a person."""

import logging

from pydantic_deep_backends import (
    CompositeBackend,
    LocalBackend,
    OverlayBackend,
    ReadOnlyBackend,
    StateBackend,
)

from ._workspace import DepsWorkspace, as_workspace
from .agent import create_deep_agent, default_capabilities
from .approvals import (
    ApprovalRule,
    Approvals,
    Approve,
    Deny,
    Edit,
    PendingApproval,
    Respond,
    answer_approvals,
    pending_approvals,
    render_approval,
)
from .deps import DeepAgentDeps, Upload
from .errors import DeepAgentError, InvalidUploadError
from .failures import ToolFailures
from .filesystem import Filesystem
from .skills import (
    BUNDLED_SKILLS,
    BackendSkills,
    Skill,
    SkillCatalog,
    SkillDiagnostic,
    SkillDirectory,
    Skills,
    discover_skills,
)
from .subagents import Shared, Subagent, SubagentEvent, Subagents
from .todos import Todo, Todos

logging.getLogger(__name__).addHandler(logging.NullHandler())  # what is logged shows where you configure logging

__all__ = (
    'BUNDLED_SKILLS',
    'ApprovalRule',
    'Approvals',
    'Approve',
    'BackendSkills',
    'CompositeBackend',
    'DeepAgentDeps',
    'DeepAgentError',
    'Deny',
    'DepsWorkspace',
    'Edit',
    'Filesystem',
    'InvalidUploadError',
    'LocalBackend',
    'OverlayBackend',
    'PendingApproval',
    'ReadOnlyBackend',
    'Respond',
    'Shared',
    'Skill',
    'SkillCatalog',
    'SkillDiagnostic',
    'SkillDirectory',
    'Skills',
    'StateBackend',
    'Subagent',
    'SubagentEvent',
    'Subagents',
    'Todo',
    'Todos',
    'ToolFailures',
    'Upload',
    'answer_approvals',
    'as_workspace',
    'create_deep_agent',
    'default_capabilities',
    'discover_skills',
    'pending_approvals',
    'render_approval',
)
