"""Protocols by which one capability cooperates with another: previews, protection, inheritance, summaries, recovery.

Capabilities never import each other. A capability that can preview a call, protect a file or hand state to a summary
implements the protocol for it; a capability that needs such an answer calls `find_capabilities` and asks every
capability of the run that implements the protocol, built-in or third-party. No protocol has to be inherited from:
methods of the right names are enough.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.capabilities import AbstractCapability, WrapperCapability
from pydantic_ai.messages import ModelMessage, ModelRequestAttempt, ModelResponse, ToolCallPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.usage import RequestUsage, RunUsage
from typing_extensions import get_protocol_members, is_protocol

from ._messages.deferred_metadata import Preview
from ._messages.summary_metadata import CarriedOver

__all__ = (
    'CarriedOver',
    'Preview',
    'SupportsApprovalGate',
    'SupportsBilledAttempts',
    'SupportsCarryOver',
    'SupportsChangeTracking',
    'SupportsCompleteTracking',
    'SupportsConversationUsage',
    'SupportsDelegationUsage',
    'SupportsFileGuard',
    'SupportsGrants',
    'SupportsHiddenTools',
    'SupportsHistory',
    'SupportsInheritance',
    'SupportsNoticeReplay',
    'SupportsPreapproval',
    'SupportsPreview',
    'SupportsProtectedPaths',
    'SupportsReadPaths',
    'SupportsRecovery',
    'SupportsRequestBudget',
    'SupportsRequiredApproval',
    'SupportsSummaryRecording',
    'SupportsSummaryReplay',
    'SupportsWrittenFile',
    'find_capabilities',
)

T = TypeVar('T')


@runtime_checkable
class SupportsPreview(Protocol):
    """Previews the calls of its own tools for a reviewer."""

    async def preview(
        self, ctx: RunContext[object], *, call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, Any]
    ) -> Preview | None:
        """Return the effect that a call would have; `None` for a tool of another capability.

        A preview has no side effects and does not raise for arguments that the tool would refuse.

        Args:
            ctx: The run.
            call: The call, as the model wrote it.
            tool_def: The tool.
            args: The validated arguments.
        """
        ...


@runtime_checkable
class SupportsWrittenFile(Protocol):
    """Predicts the files that calls of its own tools write, so that a run that crashed can make the calls again."""

    async def written_file(
        self,
        ctx: RunContext[object],
        *,
        tool_def: ToolDefinition,
        args: Mapping[str, Any],
        read: Callable[[str], Awaitable[bytes | None]],
    ) -> tuple[str, bytes | None] | None:
        """Return the canonical path of the file that a call writes, and its contents afterwards; `None` if they are
        unknown.

        A call that fails leaves the contents as they were.

        Args:
            ctx: The run.
            tool_def: The tool, with the metadata `{'effect': 'write', 'writes': 'file'}`.
            args: The arguments, as the model wrote them.
            read: Returns the contents of a file before the call; `None` if it does not exist. Call it for the path.
        """
        ...


@runtime_checkable
class SupportsPreapproval(Protocol):
    """Knows calls that a person approved in advance."""

    def is_preapproved(self, *, call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, Any]) -> bool:
        """Return whether this call may run without asking a person.

        Args:
            call: The call, as the model wrote it.
            tool_def: The tool.
            args: The validated arguments.
        """
        ...


@runtime_checkable
class SupportsApprovalGate(Protocol):
    """Holds calls of some tools until a person approves them."""

    def may_require_approval(self, tool_name: str) -> bool:
        """Return whether a call of this tool may require approval."""
        ...


@runtime_checkable
class SupportsRequiredApproval(Protocol):
    """Requires approval for calls, even if rules or grants allow them."""

    async def approval_reason(
        self,
        ctx: RunContext[object],
        *,
        tool_def: ToolDefinition,
        args: Mapping[str, Any],
        files: Sequence[str] | None,
    ) -> str | None:
        """Return the reason why a person must decide on a call, which the preview shows; `None` for other calls.

        Args:
            ctx: The run.
            tool_def: The tool.
            args: The arguments of the call.
            files: The canonical paths that it touches; `None` if no capability knows them.
        """
        ...


@runtime_checkable
class SupportsReadPaths(Protocol):
    """Knows the files that calls of its own tools read."""

    async def working_dir(self, ctx: RunContext[object]) -> str:
        """Return the directory that relative paths start from."""
        ...

    async def read_paths(
        self, ctx: RunContext[object], *, tool_def: ToolDefinition, args: Mapping[str, Any]
    ) -> Sequence[str] | None:
        """Return the canonical paths of the files, and of the searched directories, whose contents may be in the result
        of a call; `None` for a tool of another capability.

        Args:
            ctx: The run.
            tool_def: The tool.
            args: The validated arguments.
        """
        ...


@runtime_checkable
class SupportsGrants(Protocol):
    """Requires approval for calls, unless a loaded skill was granted permission to make them."""

    def accepts_grants(self, ctx: RunContext[object], tool_name: str) -> bool:
        """Return whether a grant would let calls of this tool run that require approval without it."""
        ...


@runtime_checkable
class SupportsProtectedPaths(Protocol):
    """Has files that only a person may allow to be changed."""

    @property
    def protected_paths(self) -> Sequence[str]:
        """Canonical paths of files and directories of the backend."""
        ...


@runtime_checkable
class SupportsFileGuard(Protocol):
    """Protects files by their names, whether or not they exist yet."""

    async def changes_guarded_file(
        self, ctx: RunContext[object], *, tool_def: ToolDefinition, args: Mapping[str, Any], files: Sequence[str] | None
    ) -> bool:
        """Return whether a call would change a protected file.

        Args:
            ctx: The run.
            tool_def: The tool.
            args: The arguments of the call.
            files: The canonical paths that it touches; `None` if no capability knows them.
        """
        ...


@runtime_checkable
class SupportsChangeTracking(Protocol):
    """Tracks changes of protected files."""

    async def guarded_changes(self, ctx: RunContext[object]) -> Sequence[str]:
        """Return the protected files that this run, or its turn, has changed so far, each with the kind of change."""
        ...


@runtime_checkable
class SupportsCompleteTracking(Protocol):
    """Tracks protected files from the start of the run, so that no other capability needs to scan them as well."""

    def tracks_all_changes(self) -> bool:
        """Return whether its `guarded_changes` cover the whole run."""
        ...


@runtime_checkable
class SupportsInheritance(Protocol):
    """Is passed on to the runs of subagents."""

    def for_subagent(self) -> AbstractCapability[Any]:
        """Return the capability for the run of a subagent."""
        ...


@runtime_checkable
class SupportsHiddenTools(Protocol):
    """Knows tools that this run does not show: those of subagents, and those that are unavailable at the moment."""

    async def hidden_tool_names(self, ctx: RunContext[object]) -> frozenset[str]:
        """Return the names of the hidden tools."""
        ...


@runtime_checkable
class SupportsCarryOver(Protocol):
    """Has state that must survive when a summary replaces messages."""

    def carry_over(self, ctx: RunContext[object], replaced: Sequence[ModelMessage]) -> CarriedOver:
        """Return the text for the model, and the state that the capability reads back later.

        Args:
            ctx: The run.
            replaced: The messages that the summary replaces; no model sees them again.
        """
        ...


@runtime_checkable
class SupportsHistory(Protocol):
    """Stores all messages of a conversation, including those that summaries replace."""

    async def persist(self, ctx: RunContext[object], messages: Sequence[ModelMessage]) -> None:
        """Persist the history before a summary replaces part of it.

        Args:
            ctx: The run.
            messages: The history as it is now.
        """
        ...

    async def earlier_messages(self, ctx: RunContext[object]) -> Sequence[ModelMessage]:
        """Return the messages that summaries have replaced, oldest first."""
        ...


@runtime_checkable
class SupportsSummaryRecording(Protocol):
    """Records requests for summaries. Their responses are in no history."""

    async def record_summary(
        self, request: ModelRequestContext, response: ModelResponse, *, started_at: int, duration_us: int
    ) -> None:
        """Record a request for a summary, and its response.

        Args:
            request: The request.
            response: The response.
            started_at: When it was sent, in microseconds since 1970.
            duration_us: How long it took, in microseconds.
        """
        ...


@runtime_checkable
class SupportsSummaryReplay(Protocol):
    """Replays the summaries of a recorded run, instead of new ones."""

    def has_overflowed(self) -> bool:
        """Return whether the recorded run's next request exceeded the context window, which requires a summary."""
        ...

    def next_summary(self) -> ModelMessage | None:
        """Return the message with the summary that the recording has at this point; `None` if a new one is needed."""
        ...

    def may_request_summary(self) -> bool:
        """Return whether a new summary may be requested from a model, once the recording has none."""
        ...


@runtime_checkable
class SupportsRequestBudget(Protocol):
    """Limits requests, including those of other capabilities."""

    def admits_extra_request(self) -> bool:
        """Return whether the limits allow a request besides the next one of the run."""
        ...

    def count_extra_request(self) -> None:
        """Count such a request, which starts now."""
        ...


@runtime_checkable
class SupportsBilledAttempts(Protocol):
    """Accounts for failed attempts at requests that the provider has billed."""

    def record_billed_attempts(self, attempts: Sequence[ModelRequestAttempt]) -> None:
        """Record failed attempts at the last request that were billed and that no response mentions."""
        ...


@runtime_checkable
class SupportsNoticeReplay(Protocol):
    """Replays the notices of a recorded run, instead of new ones."""

    def recorded_notice(self, heading: str, known: str) -> str:
        """Return the text of the notice with this heading that the recorded run began with; `known` if it had none.

        Args:
            heading: The first line of the notice.
            known: The text of the last such notice in the history.
        """
        ...


@runtime_checkable
class SupportsDelegationUsage(Protocol):
    """Accounts for the run of a subagent separately from the runs that share its usage object."""

    @property
    def delegation_usage(self) -> RunUsage:
        """Usage of the delegation so far, including earlier runs and its own subagents.

        The object is updated in place.
        """
        ...

    def add_usage(self, used: RunUsage | RequestUsage) -> None:
        """Add usage that no request of its run accounts for, to this delegation and to those above it."""
        ...


@runtime_checkable
class SupportsConversationUsage(Protocol):
    """Accounts for the usage of a conversation."""

    def add_earlier_usage(self, used: RunUsage) -> None:
        """Add the usage of this run's subagents in earlier runs of the conversation."""
        ...


@runtime_checkable
class SupportsRecovery(Protocol):
    """Provides the state of a run from processes that crashed."""

    @property
    def earlier_usage(self) -> RunUsage:
        """Usage of crashed attempts at this run, except for the part that the recovery replays."""
        ...

    @property
    def lost_usage(self) -> RunUsage:
        """The part of `earlier_usage` that is in no response of the history."""
        ...

    def is_recovered_response(self) -> bool:
        """Return whether the last response came from a crashed process."""
        ...

    async def recovered_conversation_id(self) -> str | None:
        """Return the conversation that a crashed process started for the current call; `None` if there is none."""
        ...


def find_capabilities(ctx: RunContext[object], kind: type[T]) -> list[T]:
    """Return the capabilities of a run that implement a protocol, or are instances of a class, in their order.

    Wrapped capabilities are found too. The search takes time, so do it once per run and store the result.

    Args:
        ctx: The run.
        kind: A protocol of this module or of your own, or a class.
    """
    matches: list[T] = []
    for capability in ctx.capabilities.values():
        inner: object = capability
        while isinstance(inner, WrapperCapability) and not _is_of(inner, kind):
            inner = inner.wrapped
        if _is_of(inner, kind):
            matches.append(cast('T', inner))
    return matches


def _is_of(inner: object, kind: type[object]) -> bool:
    """Return the result of `isinstance`, which looks up the members of a protocol at every call."""
    members = _members_of(kind)
    if members is None:
        return isinstance(inner, kind)
    return all(getattr(inner, name, None) is not None for name in members)


@cache
def _members_of(kind: type[object]) -> frozenset[str] | None:
    """Return the members of a protocol; `None` for any other class."""
    return get_protocol_members(kind) if is_protocol(kind) else None
