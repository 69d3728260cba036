"""Subagents: the tool `task` delegates work to an agent with its own history, for any pydantic-ai agent."""

from ._capability import Subagents
from ._children import Builder
from ._errors import InvalidSubagentError
from ._events import SubagentEvent
from ._shared_capability import Shared
from ._tree_position import TreePosition, position_of
from ._types import Isolation, Subagent

__all__ = (
    'Builder',
    'InvalidSubagentError',
    'Isolation',
    'Shared',
    'Subagent',
    'SubagentEvent',
    'Subagents',
    'TreePosition',
    'position_of',
)
