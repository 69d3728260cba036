"""Version control for agents: every step of every run is a version, to go back to, branch from, compare and resume."""

from ._conversation import VersionedConversation
from ._instructions_check import InstructionsWarning
from ._subagent_threads import SubagentThread, ThreadEvent
from ._turn_stream import TurnStream
from ._version import AgentVersion, Lineage
from ._versioned_agent import VersionedAgent
from .comparison._version_diff import FileDiff, Replay, RequestDifference, VersionDiff
from .errors import (
    ApprovalsPendingError,
    ConversationNotFoundError,
    MergeConflictError,
    NoCommonVersionError,
    NoFilesError,
    NothingAnsweredError,
    UnversionedBackendError,
    UnversionedChangesError,
    ValidationError,
    WorkspaceBusyError,
    WorkspaceReplacedError,
)
from .files._protected_files import ProtectedFilesWarning
from .files._run_files import OmittedFile, UnversionedFilesWarning
from .pauses._inbox import ApprovalInbox, InboxItem
from .recording._recorder import Recorder
from .recovery._suspended_runs import SuspendedRun

__all__ = (
    'AgentVersion',
    'ApprovalInbox',
    'ApprovalsPendingError',
    'ConversationNotFoundError',
    'FileDiff',
    'InboxItem',
    'InstructionsWarning',
    'Lineage',
    'MergeConflictError',
    'NoCommonVersionError',
    'NoFilesError',
    'NothingAnsweredError',
    'OmittedFile',
    'ProtectedFilesWarning',
    'Recorder',
    'Replay',
    'RequestDifference',
    'SubagentThread',
    'SuspendedRun',
    'ThreadEvent',
    'TurnStream',
    'UnversionedBackendError',
    'UnversionedChangesError',
    'UnversionedFilesWarning',
    'ValidationError',
    'VersionDiff',
    'VersionedAgent',
    'VersionedConversation',
    'WorkspaceBusyError',
    'WorkspaceReplacedError',
)
