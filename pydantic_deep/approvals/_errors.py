"""Errors about decisions and pending approvals."""

from __future__ import annotations

from pydantic_deep.errors import DeepAgentError


class ApprovalError(DeepAgentError, ValueError):
    """The decisions do not match the pending calls. No tool has run."""


class NothingPendingError(ApprovalError):
    """Decisions were given for an output without pending calls."""


class UnknownApprovalError(ApprovalError):
    """A decision names a call that is not pending.

    Attributes:
        id: The unknown id.
    """

    def __init__(self, id: str, message: str) -> None:
        self.id = id
        super().__init__(message)


class InvalidDecisionError(ApprovalError):
    """The call does not accept this kind of decision, or the content of the decision is invalid.

    Attributes:
        id: The id of the call.
    """

    def __init__(self, id: str, message: str) -> None:
        self.id = id
        super().__init__(message)


class ApprovalChangedError(ApprovalError):
    """The pending call or its effect differs from the one that the decision was made on.

    Attributes:
        id: The id of the call.
        shown: The digest in the decision.
        digest: The digest of the pending call.
    """

    def __init__(self, id: str, *, shown: str, digest: str) -> None:
        self.id = id
        self.shown = shown
        self.digest = digest
        super().__init__(
            f'The pending call {id!r} has changed since it was shown: its digest is now {digest}. '
            'Review it again, then answer.'
        )


class UnansweredApprovalError(ApprovalError):
    """A call without a decision cannot stay pending.

    Attributes:
        ids: The ids of these calls.
    """

    def __init__(self, ids: tuple[str, ...], message: str) -> None:
        self.ids = ids
        super().__init__(message)


class MalformedApprovalError(ApprovalError):
    """The metadata of a pending call or its answer is in an unknown format: another release wrote it, or it was forged."""
