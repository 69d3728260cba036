"""The errors of the framework, one tree under `DeepAgentError`.

```
DeepAgentError
├── ValidationError           (ValueError) an argument cannot be used or kept; it names the `field`
│   ├── InvalidUploadError        the name of an upload leaves `/uploads`
│   ├── in `pydantic_deep.subagents`
│   │   └── InvalidSubagentError  a subagent is described in a way that cannot work
│   └── in `pydantic_deep.server`
│       └── InvalidKeyError       a key cannot be made like that
├── UploadNotFoundError       (LookupError) there is no upload of that name
├── UploadTooLargeError       (ValueError) an upload is larger than a file of a version can be
├── in `pydantic_deep.skills`
│   └── SkillNotFoundError    (LookupError) there is no skill of that name
├── in `pydantic_deep.approvals`
│   └── ApprovalError         (ValueError) answers do not fit what is pending; nothing has run
│       ├── NothingPendingError      nothing waits
│       ├── UnknownApprovalError     no pending call has that id
│       ├── InvalidDecisionError     the call does not take this answer
│       ├── UnansweredApprovalError  a call that cannot wait on was left out
│       └── MalformedApprovalError   what waits is not what this release writes
├── in `pydantic_deep.budgets`
│   └── BudgetExceededError   (pydantic_ai.UsageLimitExceeded) a budget is used up
├── in `pydantic_deep.retries`
│   └── CutAnswerError        (pydantic_ai.ModelConnectionError) an answer was cut, each time
├── in `pydantic_deep.store`
│   └── StoreError            a store refused something; what was acknowledged before is safe
│       ├── StoreUnavailableError   (OSError) it cannot be opened, read or written now
│       │   └── UnknownCommitError  whether a commit became true is not known
│       ├── StoreFormatError        (ValueError) it is no store, or of a newer release
│       ├── StoreClosedError        (RuntimeError) it was closed
│       ├── VersionNotFoundError    (LookupError) there is no version of that id
│       ├── AssetNotFoundError      (LookupError) there are no contents of that digest
│       ├── ApprovalNotFoundError   (LookupError) there is no approval of that id
│       ├── ApprovalAnsweredError   somebody was faster, or it expired
│       ├── VersionConflictError    somebody else moved the head first
│       ├── BranchExistsError       (ValueError) the name of the branch is taken
│       ├── RunTakenOverError       another process goes on with the run
│       ├── UnfinishedCheckoutError  a checkout into the directory was cut off
│       └── QueryError              (ValueError) a query does more than read, or fails
├── in `pydantic_deep.versions`
│   ├── ApprovalsPendingError    (ValueError) the version waits for a person
│   ├── NothingAnsweredError     (ValueError) nothing that it waits for has an answer
│   ├── MergeConflictError       two versions changed the same
│   ├── NoCommonVersionError     (ValueError) two versions come from nothing common
│   ├── NoFilesError             (ValueError) its files cannot be put anywhere
│   ├── WorkspaceBusyError       a run works in the directory
│   ├── WorkspaceReplacedError   the directory is another one now, with files of its own
│   ├── UnversionedBackendError  (ValueError) the files of the backend cannot be versioned
│   └── UnversionedChangesError  a checkout would lose what no version has
├── in `pydantic_deep.repository`
│   └── RepositoryError          a repository refused something
│       ├── RowNotFoundError         (LookupError) there is no row with that key
│       ├── RowExistsError           (ValueError) there is one already
│       ├── UnknownFieldError        (ValueError) a field cannot be asked by
│       ├── InvalidQuestionError     (ValueError) a question cannot be answered
│       ├── InvalidCursorError       (ValueError) a cursor is of another question
│       ├── InvalidFieldError        (ValueError) a field cannot be key or be asked by
│       ├── InvalidRowError          (ValueError) a row cannot be kept
│       ├── UnreadableRowError       (ValueError) a row is none of the model any more
│       ├── RepositoryFormatError    (ValueError) what is there is something else
│       ├── RepositoryClosedError    (RuntimeError) it was closed
│       └── RepositoryUnavailableError  (OSError) it cannot be opened, read or written now
├── in `pydantic_deep.audit`
│   └── AuditError
│       ├── RunNotFoundError         (LookupError) the store has no such run
│       └── NoHistoryError           (ValueError) a record has no conversation to make again
├── in `pydantic_deep.fluent`
│   ├── TranscriptError          (ValueError) something is no transcript
│   ├── EmptyMessageError        (ValueError) a message was to say nothing
│   ├── ConversationBusyError    (RuntimeError) a turn is being waited for
│   ├── TurnStoppedError         (RuntimeError) the turn was stopped
│   └── NothingToAnswerError     (ValueError) the user has said nothing new
├── in `pydantic_deep.streaming`
│   └── FrameTooLargeError       (ValueError) a frame of a stream is too large
├── in `pydantic_deep.server`
│   ├── InvalidAgentsError       (ValueError) agents cannot be served like that
│   └── InvalidSettingsError     (ValueError) a setting is unknown or cannot be
└── in `pydantic_deep.testing`
    ├── ScriptExhaustedError  (AssertionError) a scripted model was asked once more than it answers
    ├── RecordedRequestError  (AssertionError) a request differs from the recorded one
    └── RecordingFormatError  (ValueError) a file is no recording
```
Files have the errors of `pydantic_deep_backends.errors`, runs have those of `pydantic_ai.exceptions`.
A tool that fails is a result that the model sees, never one of these.
"""

from __future__ import annotations


class DeepAgentError(Exception):
    """Something that the framework refused or could not do."""


class UploadNotFoundError(DeepAgentError, LookupError):
    """There is no upload of that name.

    Attributes:
        name: The name.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f'There is no upload {name[:200]!r}. See `uploads` for those that there are.')


class UploadTooLargeError(DeepAgentError, ValueError):
    """An upload is larger than a file of a version can be.

    Attributes:
        name: The name that it was given.
        size_bytes: How large it is.
        max_bytes: How large it may be.
    """

    def __init__(self, name: str, size_bytes: int, max_bytes: int) -> None:
        self.name = name
        self.size_bytes = size_bytes
        self.max_bytes = max_bytes
        super().__init__(
            f'The upload {name[:200]!r} has {size_bytes:,} bytes; at most {max_bytes:,} can be kept. Split it.'
        )


class ValidationError(DeepAgentError, ValueError):
    """An argument is not one that can be used or kept: an empty prompt, a setting that is no number, a negative limit.

    Attributes:
        field: Which: the name of the argument or of the setting, such as `prompt`, `temperature`, `limit` or `metadata`.
    """

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        super().__init__(f'{field}: {message}')


class InvalidUploadError(ValidationError):
    """The name of an upload is no path below `/uploads`.

    Attributes:
        name: The name as it was given.
    """

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        super().__init__('name', f'{name[:200]!r} cannot be the name of an upload: {reason}')
