"""Finds and renders the instruction files of a project: in a backend, and above its directory on this machine."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from pydantic_ai.workspaces import WorkspaceError

from pydantic_deep_backends import BackendProtocol
from pydantic_deep_backends.errors import BackendError
from pydantic_deep_backends.paths import display_path

MAX_BYTES: Final = 2**20
"""Maximum size of a file in bytes. Of a larger one, only the size is shown."""


@dataclass(frozen=True, kw_only=True)
class ContextFile:
    """An instruction file."""

    path: str
    """Its path, relative to the working directory."""
    text: str
    """Its contents."""


async def find_in_backend(backend: BackendProtocol, filenames: Sequence[str]) -> list[ContextFile]:
    """Return the files of the working directory and of the directories above it, outermost first.

    A directory that the backend refuses or cannot read has none.
    """
    working_dir = await backend.working_dir()
    files: list[ContextFile] = []
    for directory in (*reversed(PurePosixPath(working_dir).parents), PurePosixPath(working_dir)):
        for name in filenames:
            path = str(directory / name)
            try:
                entry = await backend.stat(path)
                if entry.is_dir:
                    continue
                is_large = (entry.size or 0) > MAX_BYTES
                data = b'' if is_large else await backend.read_bytes(path)
            except (OSError, ValueError, BackendError, WorkspaceError):
                continue
            shown = posixpath.relpath(path, working_dir)
            files.append(_context_file(shown, data, (entry.size or 0) if is_large else len(data)))
            break
    return files


def find_above(directory: Path, filenames: Sequence[str]) -> list[ContextFile]:
    """Return the files above a directory on this machine, up to the root of its git repository, outermost first.

    Without a repository there are none: anybody may write into directories above, such as `/tmp`. A symbolic link that
    leaves the repository is ignored.
    """
    directory = directory.resolve()
    root = next((each for each in (directory, *directory.parents) if _is_repository(each)), directory)
    files: list[ContextFile] = []
    for parent in reversed([each for each in directory.parents if each.is_relative_to(root)]):
        for name in filenames:
            path = parent / name
            try:
                if not path.is_file() or not path.resolve().is_relative_to(root):
                    continue
                size = path.stat().st_size
                data = b'' if size > MAX_BYTES else path.read_bytes()
            except OSError:
                continue
            shown = '/'.join(['..'] * (len(directory.parts) - len(parent.parts)) + [name])
            files.append(_context_file(shown, data, size))
            break
    return files


def _is_repository(directory: Path) -> bool:
    try:
        return (directory / '.git').exists()
    except OSError:  # it may not be searched
        return False


def render(files: Iterable[ContextFile], max_chars: int) -> str:
    """Return the files under their paths. The innermost ones have precedence; what exceeds `max_chars` is left out."""
    sections: list[str] = []
    for file in reversed([file for file in files if file.text]):
        kept, max_chars = _shortened(file.text, max_chars), max(0, max_chars - len(file.text))
        sections.append(f'{display_path(file.path)}:\n{kept}')
    return '\n\n'.join(reversed(sections))


def _shortened(text: str, max_chars: int) -> str:
    """Return the first lines of a text, or the beginning of a longer line, with the number of omitted characters."""
    if len(text) <= max_chars:
        return text
    kept = text[: text.rfind('\n', 0, max_chars) + 1 or max_chars]
    return f'{kept}… {len(text) - len(kept):,} more characters'


def _context_file(path: str, data: bytes, size: int) -> ContextFile:
    text = data.decode(errors='replace').strip() if data else ''
    return ContextFile(path=path, text=text or (f'… {size:,} bytes' if size > MAX_BYTES else ''))
