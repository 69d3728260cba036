"""Access the subagent state of deps by attribute names, as subagents work with deps of any type."""

from __future__ import annotations

from typing import Any, Protocol, cast, get_type_hints, runtime_checkable

from pydantic import JsonValue, TypeAdapter

from ._tree_position import TreePosition


@runtime_checkable
class HasSubagents(Protocol):
    """Deps with support for subagents, such as `DeepAgentDeps`."""

    backend: Any
    """The backend with the files."""
    todos: list[Any]
    """The todo list of the run."""
    subagents: dict[str, object]
    """Agents by name: those that were built, and those that the user supplies."""
    max_depth: int | None
    """Maximum number of levels below the run; `None` allows all declared ones."""

    def clone_for_subagent(self, max_depth: int | None = 0) -> Any:
        """Return deps for a subagent."""
        ...


def depth_of(deps: object, place: TreePosition) -> int | None:
    """Return the maximum number of levels below a run; `None` allows all declared ones.

    This is called in each step, so it avoids `isinstance` with a protocol, which is slow.
    """
    max_depth = getattr(deps, 'max_depth', None)
    return max_depth if isinstance(max_depth, int) and hasattr(deps, 'clone_for_subagent') else place.max_depth


def clone_deps(deps: object, max_depth: int | None) -> object:
    """Return deps for a child: a clone if they support it, otherwise the same object."""
    return deps.clone_for_subagent(max_depth=max_depth) if isinstance(deps, HasSubagents) else deps


def dump_todos(deps: object) -> JsonValue:
    """Return the todos of a child as JSON; `None` if deps have none."""
    return _todos_adapter(deps).dump_python(deps.todos, mode='json') if isinstance(deps, HasSubagents) else None


def load_todos(deps: object, value: JsonValue) -> None:
    """Restore dumped todos into new deps."""
    if value is not None and isinstance(deps, HasSubagents):
        deps.todos[:] = _todos_adapter(deps).validate_python(value)


def _todos_adapter(deps: HasSubagents) -> TypeAdapter[list[Any]]:
    return TypeAdapter(cast('type[list[Any]]', get_type_hints(type(deps))['todos']))
