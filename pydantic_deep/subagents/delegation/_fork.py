"""Run a subagent on a copy-on-write view of its parent's files."""

from __future__ import annotations

from dataclasses import asdict

from pydantic import JsonValue
from pydantic_ai import UserError

from pydantic_deep.subagents._deps import HasSubagents
from pydantic_deep_backends.overlay import OverlayBackend, OverlayMerge, relocate


def check_forkable(name: str, deps: object) -> None:
    """Raise if the files of a run cannot be forked, before its first request."""
    if not isinstance(deps, HasSubagents) or deps.backend is None:
        raise UserError(
            f"The subagent {name!r} has `isolation='fork'`, but `deps` is {type(deps).__name__}, which has no backend "
            "or no `clone_for_subagent`. Pass `DeepAgentDeps`, or use `isolation='shared'`."
        )


async def fork_files(deps: HasSubagents, dumped: JsonValue, working_dir: str | None) -> OverlayBackend:
    """Replace the backend of a child's deps by a view, restoring the changes of an earlier run of the child.

    Args:
        deps: The deps of the child.
        dumped: The dumped changes; `None` if there was no earlier run.
        working_dir: The working directory of the backend at the time of the dump.
    """
    base = deps.backend
    overlay = OverlayBackend(base)
    if dumped is not None:
        current_dir = await base.working_dir()
        overlay = OverlayBackend.load(relocate(dumped, working_dir or current_dir, current_dir), base)
    deps.backend = overlay
    return overlay


def render_merge(merge: OverlayMerge) -> str | None:
    """Return the message to a model about merge conflicts; `None` if there were none."""
    if not merge.conflicts:
        return None
    lines = [f'- {conflict.path}: {conflict.kind}' for conflict in merge.conflicts]
    return '\n'.join(['Not merged, because these files were changed meanwhile; they are unchanged:', *lines])


def merge_as_json(merge: OverlayMerge) -> dict[str, JsonValue]:
    """Return a merge as JSON data."""
    conflicts: list[JsonValue] = [asdict(conflict) for conflict in merge.conflicts]
    return {'changed': list(merge.changed), 'removed': list(merge.removed), 'conflicts': conflicts}
