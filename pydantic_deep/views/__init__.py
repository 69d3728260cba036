"""Stored objects in their JSON form, and the code that loads them from a store.

The HTTP API, the `--json` output of the command line, and the web page share one model per object: versions and their
differences, files, uploads, approvals, conversations, memory, runs, requests, subagents, usage. Field names are in snake case,
timestamps in ISO 8601 UTC, and unknown values are null.

Defined elsewhere: events of live runs (`streaming`), request bodies and ownership (`server`), terminal output (`cli`).
"""

from ._approvals import AnsweredApproval, StoredApproval
from ._conversations import ContextSize, ConversationDetails, ConversationSummary
from ._files import NewUpload, UploadedFile, VersionFile
from ._memory import MemoryFileRevision
from ._reader import StoreReader, stored_output_text
from ._repeats import Repeat, repeat_of
from ._runs import Run, RunState
from ._turn_lineages import TurnLineage, TurnLineages, is_pending, prompt_text
from ._usage import Usage
from ._versions import Difference, StoredRequest, SubagentTree, ToolCall, Version, VersionDetails

__all__ = (
    'AnsweredApproval',
    'ContextSize',
    'ConversationDetails',
    'ConversationSummary',
    'Difference',
    'MemoryFileRevision',
    'NewUpload',
    'Repeat',
    'Run',
    'RunState',
    'StoreReader',
    'StoredApproval',
    'StoredRequest',
    'SubagentTree',
    'ToolCall',
    'TurnLineage',
    'TurnLineages',
    'UploadedFile',
    'Usage',
    'Version',
    'VersionDetails',
    'VersionFile',
    'is_pending',
    'prompt_text',
    'repeat_of',
    'stored_output_text',
)
