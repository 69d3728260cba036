"""What one room may ask of another without knowing it: protocols, looked up among the capabilities of a run.

The rooms are strangers. A room that can say something about a call, or has something for subagents, has one of these
methods; whoever wants to know asks the capabilities that the run has, ours and others' alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.capabilities import AbstractCapability, WrapperCapability
from pydantic_ai.messages import ModelMessage, ModelRequestAttempt, ModelResponse, ToolCallPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.usage import RequestUsage, RunUsage
from typing_extensions import get_protocol_members, is_protocol

from ._pending import Preview
from ._replaced import CarriedOver

T = TypeVar('T')


@runtime_checkable
class Previews(Protocol):
    """Knows what its own tools would do."""

    async def preview(
        self, ctx: RunContext[object], *, call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, Any]
    ) -> Preview | None:
        """Return what a call would do; `None` for a tool that is not its own. Changes nothing, and never raises for
        arguments that the tool would refuse.
        """
        ...


@runtime_checkable
class Preapproves(Protocol):
    """Knows calls that a person has allowed beforehand."""

    def is_preapproved(self, *, call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, Any]) -> bool:
        """Return whether this call needs no asking."""
        ...


@runtime_checkable
class Gates(Protocol):
    """Makes calls wait for a person."""

    def gates(self, tool_name: str) -> bool:
        """Return whether a call of this tool may have to wait."""
        ...


@runtime_checkable
class TakesGrants(Protocol):
    """Makes calls wait for a person, unless a loaded skill was granted to let them run."""

    def takes_grants(self, ctx: RunContext[object], tool_name: str) -> bool:
        """Return whether a grant would let calls of this tool run that wait without it."""
        ...


@runtime_checkable
class Protects(Protocol):
    """Has files that only a person may let be changed."""

    @property
    def protected_paths(self) -> Sequence[str]:
        """Canonical paths of files and directories of the backend."""
        ...


@runtime_checkable
class Guards(Protocol):
    """Knows by their names which files only a person may let be changed, whether or not there are such."""

    async def guards(
        self, ctx: RunContext[object], *, tool_def: ToolDefinition, args: Mapping[str, Any], files: Sequence[str] | None
    ) -> bool:
        """Return whether a call would change such a file.

        Args:
            ctx: The run.
            tool_def: The tool.
            args: The arguments of the call.
            files: The canonical paths that it touches; `None` if no capability knows them.
        """
        ...


@runtime_checkable
class NotesChanges(Protocol):
    """Knows what has changed of the files that only a person may let be changed."""

    async def guarded_changes(self, ctx: RunContext[object]) -> Sequence[str]:
        """Return the files that have changed in this run, or its turn, so far, each with what became of it."""
        ...


@runtime_checkable
class NotesAllChanges(Protocol):
    """Looked at these files when the run began, so that no other capability needs to look at them too."""

    def notes_all_changes(self) -> bool:
        """Return whether its `guarded_changes` are all that there are in this run."""
        ...


@runtime_checkable
class Inherits(Protocol):
    """Is carried on into subagents."""

    def for_subagent(self) -> AbstractCapability[Any]:
        """Return the capability for the run of a subagent."""
        ...


@runtime_checkable
class NamesTools(Protocol):
    """Knows tools that the run itself does not show: those of subagents, and those that are not there today."""

    async def hidden_tool_names(self, ctx: RunContext[object]) -> frozenset[str]:
        """Return their names."""
        ...


@runtime_checkable
class CarriesOver(Protocol):
    """Knows what the model must still be told when messages are replaced by a summary."""

    def carry_over(self, ctx: RunContext[object], replaced: Sequence[ModelMessage]) -> CarriedOver:
        """Return it, and what the room wants to read back itself.

        Args:
            ctx: The run.
            replaced: What no model will see again.
        """
        ...


@runtime_checkable
class KeepsHistory(Protocol):
    """Keeps all messages of a conversation, also those that are in its history no more."""

    async def earlier_messages(self, ctx: RunContext[object]) -> Sequence[ModelMessage]:
        """Return those that summaries have replaced, oldest first."""
        ...

    def overflows(self) -> bool:
        """Return whether this run was recorded, and the request that comes now was refused as too long then."""
        ...

    def next_summary(self) -> ModelMessage | None:
        """Return the message with the summary that was made here when this run was recorded; `None` if one is to be made."""
        ...

    async def keep(self, ctx: RunContext[object], messages: Sequence[ModelMessage]) -> None:
        """Keep the history as it is before some of it is replaced, if not all of it is kept yet."""
        ...

    async def note_summary(
        self, request: ModelRequestContext, response: ModelResponse, *, started_at: int, duration_us: int
    ) -> None:
        """Note a request whose response is in no history: that for a summary.

        Args:
            request: The request.
            response: The response.
            started_at: When it was sent, in microseconds since 1970.
            duration_us: How long it took, in microseconds.
        """
        ...

    def note_billed(self, attempts: Sequence[ModelRequestAttempt]) -> None:
        """Note attempts at the last request that were billed, and of which no response tells."""
        ...


@runtime_checkable
class Retells(Protocol):
    """Repeats a run that was recorded, in which the model is told what it was told then."""

    def retold_notice(self, heading: str, known: str) -> str:
        """Return the text of a notice with which the run began; `known` if it had none."""
        ...


@runtime_checkable
class Delegated(Protocol):
    """Rides along in the run of a subagent, whose use it counts apart from those that share the usage object."""

    @property
    def delegation_usage(self) -> RunUsage:
        """What the delegation has used so far, in earlier runs too, with all that is below it; it goes on counting."""
        ...

    def count(self, used: RunUsage | RequestUsage) -> None:
        """Count in it, and in those above it, what no request of its run has used."""
        ...


@runtime_checkable
class CountsConversation(Protocol):
    """Counts what a conversation uses."""

    def count_earlier(self, used: RunUsage) -> None:
        """Count what subagents that this run calls have used in earlier runs of the conversation."""
        ...


@runtime_checkable
class Recovers(Protocol):
    """Knows what of a run happened before: in processes that crashed."""

    @property
    def used_earlier(self) -> RunUsage:
        """What crashed attempts at this run have used before it began, as far as it is not told again."""
        ...

    @property
    def lost_usage(self) -> RunUsage:
        """The part of that which is in no response of the history."""
        ...

    def is_told_again(self) -> bool:
        """Return whether the last response was that of a crashed process."""
        ...

    async def thread_of_call(self) -> str | None:
        """Return the conversation in which a crashed process has begun the call that runs now; `None` if it has not."""
        ...


def neighbours(ctx: RunContext[object], kind: type[T]) -> list[T]:
    """Return the capabilities of the run that are of a kind, in their order. Ask once a run: it costs."""
    found: list[T] = []
    for capability in ctx.capabilities.values():
        inner: object = capability
        while isinstance(inner, WrapperCapability) and not _is_of(inner, kind):
            inner = inner.wrapped
        if _is_of(inner, kind):
            found.append(cast('T', inner))
    return found


def _is_of(inner: object, kind: type[object]) -> bool:
    """Return what `isinstance` does, which looks up the members of a protocol again at each call."""
    members = _members_of(kind)
    if members is None:
        return isinstance(inner, kind)
    return all(getattr(inner, name, None) is not None for name in members)


@cache
def _members_of(kind: type[object]) -> frozenset[str] | None:
    """Return the members of a protocol; `None` for any other class."""
    return get_protocol_members(kind) if is_protocol(kind) else None
