"""What one room may ask of another without knowing it: protocols, looked up among the capabilities of a run.

The rooms are strangers. A room that can say something about a call, or has something for subagents, has one of these
methods; whoever wants to know asks the capabilities that the run has, ours and others' alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.capabilities import AbstractCapability, WrapperCapability
from pydantic_ai.messages import ToolCallPart

from ._pending import Preview

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
class Protects(Protocol):
    """Has files that only a person may let be changed."""

    @property
    def protected_paths(self) -> Sequence[str]:
        """Canonical paths of files and directories of the backend."""
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


def neighbours(ctx: RunContext[object], kind: type[T]) -> list[T]:
    """Return the capabilities of the run that are of a kind, in their order. Ask once a run: it costs."""
    found: list[T] = []
    for capability in ctx.capabilities.values():
        inner: object = capability
        while isinstance(inner, WrapperCapability) and not isinstance(inner, kind):
            inner = inner.wrapped
        if isinstance(inner, kind):
            found.append(inner)
    return found
