"""The file writes of a crashed run whose ends are not stored: verified by comparing the directory with the stored tree.

A call writes a file atomically, and its new contents follow from its arguments and the old contents. If the file has
the old contents or those that the calls would write, nobody else has changed it: the old ones are restored, and the
calls run again. Otherwise a person decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.messages import ToolCallPart

from pydantic_deep.extensions import SupportsWrittenFile, find_capabilities
from pydantic_deep_backends import ReadBlob, Tree, digest_of
from pydantic_deep_backends.errors import BackendError
from pydantic_deep_backends.tracking import SupportsPatch

from ._checkout import left_out_in
from ._tree_views import fetch
from ._turn_files import TurnFiles


async def undo_writes(
    ctx: RunContext[object], files: TurnFiles, calls: Sequence[tuple[ToolCallPart, ToolDefinition]], read_blob: ReadBlob
) -> frozenset[str]:
    """Undo the writes of calls that are verified, and return the ids of the other calls.

    Args:
        ctx: The run that resumes the crashed one.
        files: The files of the turn.
        calls: The calls of the last response that write a file and have no ledger entry, in order, with their tools.
        read_blob: Fetches contents of `files.crashed`.
    """
    tree = cast('Tree', files.crashed)
    writers = find_capabilities(ctx, SupportsWrittenFile)
    states: dict[str, list[bytes | None]] = {}
    ids_by_path: dict[str, list[str]] = {}
    unverified: set[str] = set()

    async def read(path: str) -> bytes | None:
        if path not in states:
            version = tree.get(path)
            states[path] = [None if version is None else await fetch(read_blob, path, version.digest)]
        return states[path][-1]

    for call, tool_def in calls:
        written = None
        for writer in writers:
            written = written or await writer.written_file(ctx, tool_def=tool_def, args=call.args_as_dict(), read=read)
        if written is None:
            unverified.add(call.tool_call_id)
        else:
            path, contents = written
            states[path].append(contents)
            ids_by_path.setdefault(path, []).append(call.tool_call_id)
    ignored = await left_out_in(
        files.files.backend, tree, read_blob, [path for path in ids_by_path if path not in tree]
    )
    for path, ids in ids_by_path.items():
        if not await _restore(files, tree, path, states[path], is_ignored=path in ignored):
            unverified.update(ids)
    return frozenset(unverified)


async def _restore(
    files: TurnFiles, tree: Tree, path: str, states: Sequence[bytes | None], *, is_ignored: bool
) -> bool:
    """Restore the first of the states that a file may have; return `False` if it has another one.

    A file that versions ignore is not removed: it may have existed before, and the calls write it again anyway.
    """
    backend, before = files.files.backend, states[0]
    try:
        present = await backend.read_bytes(path)
    except FileNotFoundError:
        present = None
    except (OSError, BackendError):
        return False
    if present == before or (is_ignored and present in states):
        return True
    if present not in states or not isinstance(backend, SupportsPatch):
        return False
    await backend.patch(tree, [path], {} if before is None else {digest_of(before): before})
    return True
