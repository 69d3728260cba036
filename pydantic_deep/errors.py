"""The errors of the framework, all derived from `DeepAgentError`.

```
DeepAgentError
├── ValidationError           (ValueError) an argument is invalid; `field` is its name
│   ├── InvalidUploadError        the name of an upload is not a path below `/uploads`
│   ├── TurnOptionError           an option of a turn does not fit its agent
│   ├── in `pydantic_deep.subagents`
│   │   └── InvalidSubagentError  the description of a subagent is invalid
│   ├── in `pydantic_deep.fluent`
│   │   └── EmptyMessageError     a message is empty
│   └── in `pydantic_deep.server`
│       ├── InvalidIdentityError  who sends a request, as `authenticate` returns it, is invalid
│       └── InvalidKeyError       the arguments for an API key are invalid
├── UploadNotFoundError       (LookupError) no upload has this name
├── UploadTooLargeError       (ValueError) an upload exceeds the maximum file size
├── in `pydantic_deep.skills`
│   └── SkillNotFoundError    (LookupError) no skill has this name
├── in `pydantic_deep.approvals`
│   └── ApprovalError         (ValueError) decisions do not match the pending calls
│       ├── NothingPendingError      no calls are pending
│       ├── UnknownApprovalError     no pending call has this id
│       ├── InvalidDecisionError     the call does not accept this decision
│       ├── ApprovalChangedError     the pending call is not the one that was shown
│       ├── UnansweredApprovalError  a call that cannot stay pending has no decision
│       └── MalformedApprovalError   the metadata of a pending call has an unknown format
├── in `pydantic_deep.budgets`
│   └── BudgetExceededError   (pydantic_ai.UsageLimitExceeded) a budget is exceeded
├── in `pydantic_deep.loops`
│   └── RepeatedCallsError    a call was repeated, and the model gave no last answer
├── in `pydantic_deep.retries`
│   └── CutAnswerError        (pydantic_ai.ModelConnectionError) a response is incomplete
├── in `pydantic_deep.mcp`
│   └── McpConfigError        (ValueError) the configuration of an MCP server is invalid
├── in `pydantic_deep.web`
│   └── DownloadError         (OSError) a file was not downloaded
├── in `pydantic_deep.memory`
│   ├── RevisionNotFoundError (LookupError) no revision has this number
│   └── UnknownMemoryError    (LookupError) the memory has no such file or revision
├── in `pydantic_deep.store`
│   └── StoreError            base class of store errors; acknowledged data is safe
│       ├── StoreUnavailableError   (OSError) the store cannot be opened, read or written
│       │   ├── UnknownCommitError      it is unknown whether a commit succeeded
│       │   └── StoreCorruptedError     stored data is damaged
│       │       └── MissingVersionError (VersionNotFoundError) a version with descendants is missing
│       ├── StoreFormatError        (ValueError) it is not a store, or has a newer format
│       ├── StoreClosedError        (RuntimeError) the store was closed
│       ├── StoreProcessError       (RuntimeError) the store belongs to another process or event loop
│       ├── StoreReadOnlyError      the store was opened with `read_only=True`
│       ├── BackupError             (ValueError) a backup cannot be restored
│       ├── VersionNotFoundError    (LookupError) no version has this id
│       ├── AssetNotFoundError      (LookupError) no asset has this digest
│       ├── ApprovalNotFoundError   (LookupError) no approval has this id
│       ├── ApprovalAnsweredError   the approval was already answered, or has expired
│       ├── VersionConflictError    the head was moved concurrently
│       ├── BranchExistsError       (ValueError) a branch with this name exists
│       ├── RunTakenOverError       another process has taken over the run
│       ├── QueueLimitError         too many runs of the queue have not ended
│       ├── VersionBusyError        another run of the queue has started from the version
│       ├── UnfinishedCheckoutError  a checkout into the directory was interrupted
│       └── QueryError              (ValueError) a query is not read-only, or fails
│           ├── QueryBusyError          too many queries ran for the whole waiting time
│           └── QueryTimeoutError       (TimeoutError) a query exceeded its timeout
├── in `pydantic_deep.dispatch`
│   ├── DispatcherUnavailableError  the engine of a dispatcher is down; runs stay queued
│   └── UnknownAgentError       (LookupError) a worker does not have the agent of a run
├── in `pydantic_deep.versions`
│   ├── ConversationNotFoundError (LookupError) no conversation has this id
│   ├── ApprovalsPendingError    (ValueError) the version has pending approvals
│   ├── NothingAnsweredError     (ValueError) no pending approval has an answer
│   ├── MergeConflictError       two versions have conflicting changes
│   ├── InvalidMergeChoiceError  (ValueError) a merge has a choice without a conflict or a side
│   ├── NoCommonVersionError     (ValueError) two versions have no common ancestor
│   ├── NoFilesError             (ValueError) the files of the version cannot be restored
│   ├── WorkspaceBusyError       the directory is in use by a run
│   ├── WorkspaceReplacedError   the directory was replaced by another one with files
│   ├── UnversionedBackendError  (ValueError) the files of the backend cannot be versioned
│   └── UnversionedChangesError  a checkout would lose unversioned changes
├── in `pydantic_deep.repository`
│   └── RepositoryError          base class of repository errors
│       ├── RowNotFoundError         (LookupError) no row has this key
│       ├── RowExistsError           (ValueError) a row with this key exists
│       ├── UnknownFieldError        (ValueError) a field cannot be used in a query
│       ├── InvalidQuestionError     (ValueError) a query is invalid
│       ├── InvalidCursorError       (ValueError) a cursor belongs to another query
│       ├── InvalidFieldError        (ValueError) a field cannot be a key or an index
│       ├── InvalidRowError          (ValueError) a row cannot be stored
│       ├── UnreadableRowError       (ValueError) a stored row does not match the model
│       ├── RepositoryFormatError    (ValueError) the storage has a different format
│       ├── RepositoryClosedError    (RuntimeError) the repository was closed
│       └── RepositoryUnavailableError  (OSError) it cannot be opened, read or written
├── in `pydantic_deep.evals`
│   └── CaseError                (ValueError) a version cannot become a case, or a case cannot run
│       ├── CaseFormatError          a folder is not a case
│       └── SecretsFoundError        a case would contain secrets
├── in `pydantic_deep.audit`
│   └── AuditError
│       ├── RunNotFoundError         (LookupError) the store has no such run
│       └── NoHistoryError           (ValueError) the history of a record is in a store
├── in `pydantic_deep.fluent`
│   ├── TranscriptError          (ValueError) a value is not a valid transcript
│   ├── ConversationBusyError    (RuntimeError) a turn is being awaited
│   ├── TurnStoppedError         (RuntimeError) the turn was stopped
│   └── NothingToAnswerError     (ValueError) there is no new user message
├── in `pydantic_deep.streaming`
│   └── FrameTooLargeError       (ValueError) a frame of a stream is too large
├── in `pydantic_deep.client`
│   └── ApiError                 a server refused a request or did not answer
├── in `pydantic_deep.server`
│   ├── InvalidAgentsError       (ValueError) the agents to serve are invalid
│   ├── InvalidSettingsError     (ValueError) a setting is unknown or invalid
│   ├── InvalidWebhookError      (ValueError) a webhook cannot be created
│   └── ServerStartError         the server failed to start
└── in `pydantic_deep.testing`
    ├── ScriptExhaustedError  (AssertionError) a scripted model has no more steps
    ├── RecordedRequestError  (AssertionError) a request differs from the recorded one
    └── RecordingFormatError  (ValueError) a file is not a recording
```
Backends raise the errors of `pydantic_deep_backends.errors`, and runs those of `pydantic_ai.exceptions`. A failing tool
produces a failed result for the model and raises none of these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from pydantic_deep_backends.errors import BackendError


class DeepAgentError(Exception):
    """Base class of all errors of the framework."""

    def __reduce__(self) -> tuple[Callable[..., BaseException], tuple[type[BaseException], tuple[object, ...]], object]:
        """Pickle the message and the attributes, as `BackendError` does."""
        return BackendError.__reduce__(cast('BackendError', self))


class UploadNotFoundError(DeepAgentError, LookupError):
    """No upload has the given name.

    Attributes:
        name: The name.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f'There is no upload {name[:200]!r}. See `uploads` for existing ones.')


class UploadTooLargeError(DeepAgentError, ValueError):
    """An upload exceeds the maximum size of a file in a version.

    Attributes:
        name: The name of the upload.
        size_bytes: Its size.
        max_bytes: The maximum size.
    """

    def __init__(self, name: str, size_bytes: int, max_bytes: int) -> None:
        self.name = name
        self.size_bytes = size_bytes
        self.max_bytes = max_bytes
        super().__init__(
            f'The upload {name[:200]!r} has {size_bytes:,} bytes; at most {max_bytes:,} can be stored. Split it.'
        )


class ValidationError(DeepAgentError, ValueError):
    """An argument is invalid: an empty prompt, a setting that is not a number, a negative limit.

    Attributes:
        field: The name of the argument or setting, such as `prompt`, `temperature`, `limit` or `metadata`.
    """

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        super().__init__(f'{field}: {message}')


class TurnOptionError(ValidationError):
    """An option of a turn does not fit its agent, such as an external tool with the name of one of the agent's tools."""


class InvalidUploadError(ValidationError):
    """The name of an upload is not a path below `/uploads`.

    Attributes:
        name: The invalid name.
    """

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        super().__init__('name', f'{name[:200]!r} cannot be the name of an upload: {reason}')
