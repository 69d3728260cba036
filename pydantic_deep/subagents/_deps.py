"""What deps say of subagents, whatever deps they are: asked by the names of their attributes, because the room works
on any agent.
"""

from __future__ import annotations

from typing import Any, Protocol, cast, get_type_hints, runtime_checkable

from pydantic import JsonValue, TypeAdapter

from ._tree_position import TreePosition


@runtime_checkable
class HasSubagents(Protocol):
    """Deps that know of subagents, as `DeepAgentDeps` do."""

    backend: Any
    """Where the files are."""
    todos: list[Any]
    """The plan."""
    subagents: dict[str, object]
    """Agents by name: what was built, and what the user supplies."""
    max_depth: int | None
    """How many levels may be below the run; `None` for as many as are declared."""

    def clone_for_subagent(self, max_depth: int | None = 0) -> Any:
        """Return deps for a subagent."""
        ...


def depth_of(deps: object, place: TreePosition) -> int | None:
    """Return how many levels may be below a run; `None` for as many as are declared.

    Asked at each step, so it does without `isinstance` of a protocol.
    """
    max_depth = getattr(deps, 'max_depth', None)
    return max_depth if isinstance(max_depth, int) and hasattr(deps, 'clone_for_subagent') else place.max_depth


def clone_deps(deps: object, max_depth: int | None) -> object:
    """Return deps for a child: a clone where they know how, else the same object."""
    return deps.clone_for_subagent(max_depth=max_depth) if isinstance(deps, HasSubagents) else deps


def dump_todos(deps: object) -> JsonValue:
    """Return the todos of a child as JSON; `None` if deps have none."""
    return _todos_adapter(deps).dump_python(deps.todos, mode='json') if isinstance(deps, HasSubagents) else None


def load_todos(deps: object, value: JsonValue) -> None:
    """Put todos that were dumped into fresh deps."""
    if value is not None and isinstance(deps, HasSubagents):
        deps.todos[:] = _todos_adapter(deps).validate_python(value)


def _todos_adapter(deps: HasSubagents) -> TypeAdapter[list[Any]]:
    return TypeAdapter(cast('type[list[Any]]', get_type_hints(type(deps))['todos']))
