"""What can be wrong with an answer, or with what waits for one."""

from __future__ import annotations

from pydantic_deep.errors import DeepAgentError


class ApprovalError(DeepAgentError, ValueError):
    """Answers do not fit what is pending. Nothing has run."""


class NothingPendingError(ApprovalError):
    """Answers were given for an output that waits for nothing."""


class UnknownApprovalError(ApprovalError):
    """An answer names a call that does not wait.

    Attributes:
        id: The name as it was given.
    """

    def __init__(self, id: str, message: str) -> None:
        self.id = id
        super().__init__(message)


class InvalidDecisionError(ApprovalError):
    """A decision is of a kind that this call does not take, or carries what cannot be sent.

    Attributes:
        id: Which call was answered so.
    """

    def __init__(self, id: str, message: str) -> None:
        self.id = id
        super().__init__(message)


class ApprovalChangedError(ApprovalError):
    """An answer is for a call as it was shown, and the call with that id is another one, or would do something else.

    Attributes:
        id: Which call was answered.
        shown: The digest that came with the answer.
        digest: The digest of the call as it is now.
    """

    def __init__(self, id: str, *, shown: str, digest: str) -> None:
        self.id = id
        self.shown = shown
        self.digest = digest
        super().__init__(
            f'The pending call {id!r} is another one than the answer is for: its digest is {digest}. '
            'Look at it again, and answer what it is.'
        )


class UnansweredApprovalError(ApprovalError):
    """A call was left unanswered that cannot be held.

    Attributes:
        ids: Which calls.
    """

    def __init__(self, ids: tuple[str, ...], message: str) -> None:
        self.ids = ids
        super().__init__(message)


class MalformedApprovalError(ApprovalError):
    """What waits is not what this release writes: another release wrote it, or somebody forged it."""
