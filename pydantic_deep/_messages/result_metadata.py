"""Metadata of the results of file tools and commands, for programs: the resolved path, the change, the exit code."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from pydantic_ai import ToolReturn
from pydantic_ai.messages import BaseToolReturnPart

PATH_KEY: Final = 'path'
"""Key of the resolved path in the result of a call with `..` in its arguments: links may change afterwards."""

EXIT_CODE_KEY: Final = 'exit_code'
"""The key of the exit code, in the result of a command."""

MAX_COUNTED_BYTES: Final = 1_000_000
"""Maximum size of a file for counting changed lines, which takes about 50 ms."""

ResultT = TypeVar('ResultT')


@dataclass(frozen=True, kw_only=True)
class FileChange:
    """The change of a file by a call."""

    is_new: bool
    """Whether there was no file before."""
    added_lines: int | None
    """The number of new lines; `None` for a file that is too large to be counted."""
    removed_lines: int | None
    """The number of removed lines; `None` for a file that is too large to be counted."""


def with_resolved_path(result: ResultT, typed: str, path: str) -> ResultT | ToolReturn[ResultT]:
    """Return the result of a tool, with the resolved path if the one in its arguments has `..`."""
    return ToolReturn(result, metadata={PATH_KEY: path}) if '..' in typed.split('/') else result


def with_file_change(result: ResultT, typed: str, path: str, before: bytes | None, after: bytes) -> ToolReturn[ResultT]:
    """Return the result of a tool that wrote a file, with the change and the resolved path as above."""
    added, removed = count_changed_lines(before, after)
    resolved = {PATH_KEY: path} if '..' in typed.split('/') else {}
    change = {'is_new': before is None, 'added_lines': added, 'removed_lines': removed}
    return ToolReturn(result, metadata={**resolved, **change})


def count_changed_lines(before: bytes | None, after: bytes | None) -> tuple[int | None, int | None]:
    """Return the numbers of added and removed lines; `None` for both if a file is too large.

    Lines are counted as a multiset, in linear time: a moved line counts as neither.

    Args:
        before: The old content; `None` for no file.
        after: The new content.
    """
    old, new = before or b'', after or b''
    if max(len(old), len(new)) > MAX_COUNTED_BYTES:
        return None, None
    old_lines, new_lines = Counter(old.splitlines()), Counter(new.splitlines())
    return (new_lines - old_lines).total(), (old_lines - new_lines).total()


def resolved_path(part: BaseToolReturnPart) -> str | None:
    """Return the resolved path of the call with this result; `None` if it equals the one in the arguments."""
    path = _metadata(part).get(PATH_KEY)
    return path if isinstance(path, str) else None


def file_change_of(part: BaseToolReturnPart) -> FileChange | None:
    """Return the file change in a result; `None` if there is none."""
    metadata = _metadata(part)
    is_new, added, removed = (metadata.get(name) for name in ('is_new', 'added_lines', 'removed_lines'))
    if not isinstance(is_new, bool):
        return None
    return FileChange(
        is_new=is_new,
        added_lines=added if isinstance(added, int) else None,
        removed_lines=removed if isinstance(removed, int) else None,
    )


def exit_code_of(part: BaseToolReturnPart) -> int | None:
    """Return the exit code in the result of a command; `None` if there is none."""
    code = _metadata(part).get(EXIT_CODE_KEY)
    return code if isinstance(code, int) else None


def _metadata(part: BaseToolReturnPart) -> dict[str, object]:
    """Return the metadata of a result; empty if the tool stored another type of value."""
    metadata: object = part.metadata
    return cast('dict[str, Any]', metadata) if isinstance(metadata, dict) else {}
