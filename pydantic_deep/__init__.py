"""Deep agents on pydantic-ai: agents that plan, and that work on files they cannot leave."""

import logging

from pydantic_deep_backends import CompositeBackend, LocalBackend, ReadOnlyBackend, StateBackend

from ._workspace import DepsWorkspace, as_workspace
from .agent import create_deep_agent, default_capabilities
from .deps import DeepAgentDeps, Upload
from .errors import DeepAgentError, InvalidUploadError
from .failures import ToolFailures
from .filesystem import Filesystem
from .todos import Todo, Todos

logging.getLogger(__name__).addHandler(logging.NullHandler())  # what is logged shows where you configure logging

__all__ = (
    'CompositeBackend',
    'DeepAgentDeps',
    'DeepAgentError',
    'DepsWorkspace',
    'Filesystem',
    'InvalidUploadError',
    'LocalBackend',
    'ReadOnlyBackend',
    'StateBackend',
    'Todo',
    'Todos',
    'ToolFailures',
    'Upload',
    'as_workspace',
    'create_deep_agent',
    'default_capabilities',
)
