"""A subagent that works on a copy-on-write view of its parent's files."""

from __future__ import annotations

from dataclasses import asdict

from pydantic import JsonValue
from pydantic_ai import UserError

from pydantic_deep.subagents._deps import HasSubagents
from pydantic_deep_backends.overlay import OverlayBackend, OverlayMerge, relocate


def check_forkable(name: str, deps: object) -> None:
    """Refuse a run whose files cannot be forked, before its first request."""
    if not isinstance(deps, HasSubagents) or deps.backend is None:
        raise UserError(
            f"The subagent {name!r} has `isolation='fork'`, and `deps` is {type(deps).__name__}, which has no backend "
            "and `clone_for_subagent`. Pass `DeepAgentDeps`, or use `isolation='shared'`."
        )


async def fork_files(deps: HasSubagents, dumped: JsonValue, working_dir: str | None) -> OverlayBackend:
    """Give the deps of a child a view of their backend, with what an earlier run of the child has changed.

    Args:
        deps: The deps.
        dumped: That; `None` if there was no earlier run.
        working_dir: The working directory that the backend had then.
    """
    base = deps.backend
    overlay = OverlayBackend(base)
    if dumped is not None:
        here = await base.working_dir()
        overlay = OverlayBackend.load(relocate(dumped, working_dir or here, here), base)
    deps.backend = overlay
    return overlay


def render_merge(merge: OverlayMerge) -> str | None:
    """Return what a model is told of a merge; `None` if all of it went well."""
    if not merge.conflicts:
        return None
    lines = [f'- {conflict.path}: {conflict.kind}' for conflict in merge.conflicts]
    return '\n'.join(['Not merged, because these files were changed meanwhile; they are as they were:', *lines])


def merge_as_json(merge: OverlayMerge) -> dict[str, JsonValue]:
    """Return a merge as data."""
    conflicts: list[JsonValue] = [asdict(conflict) for conflict in merge.conflicts]
    return {'changed': list(merge.changed), 'removed': list(merge.removed), 'conflicts': conflicts}
