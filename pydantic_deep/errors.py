"""The errors of the framework, one tree under `DeepAgentError`.

```
DeepAgentError
├── InvalidUploadError        (ValueError) the name of an upload leaves `/uploads`
├── in `pydantic_deep.subagents`
│   └── InvalidSubagentError  (ValueError) a subagent is described in a way that cannot work
├── in `pydantic_deep.skills`
│   └── SkillNotFoundError    (LookupError) there is no skill of that name
├── in `pydantic_deep.approvals`
│   └── ApprovalError         (ValueError) answers do not fit what is pending; nothing has run
│       ├── NothingPendingError      nothing waits
│       ├── UnknownApprovalError     no pending call has that id
│       ├── InvalidDecisionError     the call does not take this answer
│       ├── UnansweredApprovalError  a call that cannot wait on was left out
│       └── MalformedApprovalError   what waits is not what this release writes
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


class InvalidUploadError(DeepAgentError, ValueError):
    """The name of an upload is no path below `/uploads`.

    Attributes:
        name: The name as it was given.
    """

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        super().__init__(f'{name[:200]!r} cannot be the name of an upload: {reason}')
