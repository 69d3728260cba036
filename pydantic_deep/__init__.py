"""Deep agents on pydantic-ai: they plan, work on files they cannot leave, delegate, and wait for a person."""

import logging
from importlib import import_module
from typing import TYPE_CHECKING

from . import _installation_check

if TYPE_CHECKING:
    from pydantic_deep_backends import (
        CompositeBackend,
        LocalBackend,
        OverlayBackend,
        ReadOnlyBackend,
        SandboxBackend,
        SandboxLimits,
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
    from .ask_user import AskUser
    from .audit import Audit
    from .budgets import Budget, Budgets
    from .deps import DeepAgentDeps, Upload
    from .errors import DeepAgentError, InvalidUploadError
    from .failures import ToolFailures
    from .filesystem import Filesystem
    from .fluent import Conversation, MessageList, prompt
    from .loops import LoopDetection
    from .models import Model
    from .plan_mode import PlanMode
    from .project_context import ProjectContext
    from .retries import Retries
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
    from .store import open_store
    from .streaming import stream_agent
    from .subagents import Shared, Subagent, SubagentEvent, Subagents
    from .summarization import Summarization
    from .todos import Todo, Todos
    from .untrusted import UntrustedContent
    from .usage import usage_report
    from .versions import AgentVersion, ApprovalInbox, VersionedAgent

_MODULE_BY_NAME = {
    'AgentVersion': 'pydantic_deep.versions',
    'ApprovalInbox': 'pydantic_deep.versions',
    'ApprovalRule': 'pydantic_deep.approvals',
    'Approvals': 'pydantic_deep.approvals',
    'Approve': 'pydantic_deep.approvals',
    'AskUser': 'pydantic_deep.ask_user',
    'Audit': 'pydantic_deep.audit',
    'BUNDLED_SKILLS': 'pydantic_deep.skills',
    'BackendSkills': 'pydantic_deep.skills',
    'Budget': 'pydantic_deep.budgets',
    'Budgets': 'pydantic_deep.budgets',
    'CompositeBackend': 'pydantic_deep_backends',
    'Conversation': 'pydantic_deep.fluent',
    'DeepAgentDeps': 'pydantic_deep.deps',
    'DeepAgentError': 'pydantic_deep.errors',
    'Deny': 'pydantic_deep.approvals',
    'DepsWorkspace': 'pydantic_deep._workspace',
    'Edit': 'pydantic_deep.approvals',
    'Filesystem': 'pydantic_deep.filesystem',
    'InvalidUploadError': 'pydantic_deep.errors',
    'LocalBackend': 'pydantic_deep_backends',
    'LoopDetection': 'pydantic_deep.loops',
    'MessageList': 'pydantic_deep.fluent',
    'Model': 'pydantic_deep.models',
    'OverlayBackend': 'pydantic_deep_backends',
    'PendingApproval': 'pydantic_deep.approvals',
    'PlanMode': 'pydantic_deep.plan_mode',
    'ProjectContext': 'pydantic_deep.project_context',
    'ReadOnlyBackend': 'pydantic_deep_backends',
    'Respond': 'pydantic_deep.approvals',
    'Retries': 'pydantic_deep.retries',
    'SandboxBackend': 'pydantic_deep_backends',
    'SandboxLimits': 'pydantic_deep_backends',
    'Shared': 'pydantic_deep.subagents',
    'Skill': 'pydantic_deep.skills',
    'SkillCatalog': 'pydantic_deep.skills',
    'SkillDiagnostic': 'pydantic_deep.skills',
    'SkillDirectory': 'pydantic_deep.skills',
    'Skills': 'pydantic_deep.skills',
    'StateBackend': 'pydantic_deep_backends',
    'Subagent': 'pydantic_deep.subagents',
    'SubagentEvent': 'pydantic_deep.subagents',
    'Subagents': 'pydantic_deep.subagents',
    'Summarization': 'pydantic_deep.summarization',
    'Todo': 'pydantic_deep.todos',
    'Todos': 'pydantic_deep.todos',
    'ToolFailures': 'pydantic_deep.failures',
    'UntrustedContent': 'pydantic_deep.untrusted',
    'Upload': 'pydantic_deep.deps',
    'VersionedAgent': 'pydantic_deep.versions',
    'answer_approvals': 'pydantic_deep.approvals',
    'as_workspace': 'pydantic_deep._workspace',
    'create_deep_agent': 'pydantic_deep.agent',
    'default_capabilities': 'pydantic_deep.agent',
    'discover_skills': 'pydantic_deep.skills',
    'open_store': 'pydantic_deep.store',
    'pending_approvals': 'pydantic_deep.approvals',
    'prompt': 'pydantic_deep.fluent',
    'render_approval': 'pydantic_deep.approvals',
    'stream_agent': 'pydantic_deep.streaming',
    'usage_report': 'pydantic_deep.usage',
}
"""The modules of all public names. Each is imported when one of its names is first used.

So the console command runs code of ours at once, which handles Ctrl-C during the import of pydantic-ai.
"""

_installation_check.warn_if_mixed(__path__)

# Otherwise warnings would appear in programs that do not configure logging.
logging.getLogger(__name__).addHandler(logging.NullHandler())

__all__ = (
    'BUNDLED_SKILLS',
    'AgentVersion',
    'ApprovalInbox',
    'ApprovalRule',
    'Approvals',
    'Approve',
    'AskUser',
    'Audit',
    'BackendSkills',
    'Budget',
    'Budgets',
    'CompositeBackend',
    'Conversation',
    'DeepAgentDeps',
    'DeepAgentError',
    'Deny',
    'DepsWorkspace',
    'Edit',
    'Filesystem',
    'InvalidUploadError',
    'LocalBackend',
    'LoopDetection',
    'MessageList',
    'Model',
    'OverlayBackend',
    'PendingApproval',
    'PlanMode',
    'ProjectContext',
    'ReadOnlyBackend',
    'Respond',
    'Retries',
    'SandboxBackend',
    'SandboxLimits',
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
    'Summarization',
    'Todo',
    'Todos',
    'ToolFailures',
    'UntrustedContent',
    'Upload',
    'VersionedAgent',
    'answer_approvals',
    'as_workspace',
    'create_deep_agent',
    'default_capabilities',
    'discover_skills',
    'open_store',
    'pending_approvals',
    'prompt',
    'render_approval',
    'stream_agent',
    'usage_report',
)


if not TYPE_CHECKING:  # otherwise a type checker would accept any name

    def __getattr__(name: str) -> object:
        """Import a name on first use."""
        if name not in _MODULE_BY_NAME:
            raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
        globals()[name] = value = getattr(import_module(_MODULE_BY_NAME[name]), name)
        return value


def __dir__() -> list[str]:
    """Return all public names, imported or not."""
    return sorted({*globals(), *__all__})
