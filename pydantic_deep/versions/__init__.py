"""Version control for agents: every step of every run is a version, which you can restore, branch from, compare and
resume.

A turn (`AgentVersion.advance`) proceeds in this order:

1. It asks the store which version the directory has. If that is the base of the turn and no run works there, the turn
   works in the directory, and edits since then are stored as a version of kind `edit` first. Otherwise it works on a
   view of the files of the base.
2. It loads the history with one query, restores the deps, and commits the run with its prompt. From here on, a crash
   leaves a run that `recover` finds.
3. The agent runs with a `Recorder` as the outermost capability, which sees requests, calls and results as all other
   capabilities have changed them.
4. Before the first call of a response runs, one commit stores the new messages, the request with its effective
   settings, the deps, the changed files, a version of kind `step`, and the start of the call and of parallel ones. If
   all calls of the response are pending, the commit of the pause stores this, and there is no `step`.
5. The start of a call with side effects is recorded before it runs. One commit after it stores its result, the tree of
   files, and the deps if they changed. Four kinds of calls need no commit of their own, and their results are part of
   the next one: calls that only read, that change files which a crash would lose, that change only the deps
   (`'writes': 'deps'` in the metadata of the tool), and that write one file of a directory (`'writes': 'file'`). After a
   crash they run again from the last stored state. The last kind is verified first: `SupportsWrittenFile` predicts the
   contents of the file from those in the last stored tree. If the file has the stored or the predicted contents, the
   stored ones are restored and the call runs again; otherwise a person decides. So a turn with two steps of such calls
   has four commits. Each other call adds one at its end, and one at its start unless it starts with the first calls of
   its response.
6. For a call of `task`, one commit stores the empty conversation, the link and the run of the child before its first
   request. The child has a recorder of its own.
7. Before a summary replaces messages, those not stored yet are stored. The new history is a branch that refers to the
   branch and the number of messages that it rewrites. `search_history` reads the old one, and a replay reuses recorded
   summaries.
8. At the end, one commit stores the version of the turn, which is a child of its base, with the end of the run, the
   pending approvals, and the version that the directory has.

Each commit names its run as a fence: if another process has claimed the run, the commit fails and the run stops. A
cancellation is acknowledged when it is stored. A run that may resume is suspended, never failed; if its conversation
has moved on, it resumes only when a person names it.
"""

from pydantic_deep_backends.tracking import OmittedFile

from ._conversation import VersionedConversation
from ._instructions_check import InstructionsWarning
from ._run_options import external_tools_of
from ._subagent_threads import SubagentThread, ThreadEvent, attempt_ids
from ._turn_options import TurnOptions
from ._version import AgentVersion, Lineage, TurnStream
from ._versioned_agent import VISIBLE_KINDS, VersionedAgent
from .comparison._ancestors import ancestors
from .comparison._merge import MergeSide
from .comparison._version_diff import FileDiff, Replay, RequestDifference, ResultDifference, VersionDiff
from .errors import (
    ApprovalsPendingError,
    ConversationNotFoundError,
    InvalidMergeChoiceError,
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
from .files._backend_descriptions import runs_commands, workspace_key
from .files._conversation_directories import ConversationDirectories, SupportsFilling
from .files._gitignore import GitignoreRules
from .files._protected_files import ProtectedFilesWarning
from .files._run_files import UnversionedFilesWarning
from .pauses._inbox import ApprovalInbox, InboxItem
from .recording._presummary_history import replaced_messages
from .recording._recorder import Recorder
from .recovery._suspended_runs import SuspendedRun, has_moved_on, suspended_runs

__all__ = (
    'VISIBLE_KINDS',
    'AgentVersion',
    'ApprovalInbox',
    'ApprovalsPendingError',
    'ConversationDirectories',
    'ConversationNotFoundError',
    'FileDiff',
    'GitignoreRules',
    'InboxItem',
    'InstructionsWarning',
    'InvalidMergeChoiceError',
    'Lineage',
    'MergeConflictError',
    'MergeSide',
    'NoCommonVersionError',
    'NoFilesError',
    'NothingAnsweredError',
    'OmittedFile',
    'ProtectedFilesWarning',
    'Recorder',
    'Replay',
    'RequestDifference',
    'ResultDifference',
    'SubagentThread',
    'SupportsFilling',
    'SuspendedRun',
    'ThreadEvent',
    'TurnOptions',
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
    'ancestors',
    'attempt_ids',
    'external_tools_of',
    'has_moved_on',
    'replaced_messages',
    'runs_commands',
    'suspended_runs',
    'workspace_key',
)
