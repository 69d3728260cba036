"""The check that a directory is small enough for versions of its files, which read all that `.gitignore` does not exclude."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import anyio.to_thread

from pydantic_deep.versions.files._gitignore import GitRules
from pydantic_deep_backends import LocalBackend
from pydantic_deep_backends.tracking import IGNORE_FILE, DirectoryRules

MAX_FILES = 50_000
"""How many files a directory may have: some seconds at the beginning of a conversation."""

MAX_BYTES = 500_000_000
"""How much may be in them: the first version has them all in memory at once."""


async def fits_in_versions(backend: LocalBackend, *, max_files: int = MAX_FILES, max_bytes: int = MAX_BYTES) -> bool:
    """Return whether the files of a directory that no `.gitignore` names are within both bounds; nothing is read."""
    root = Path(backend.ref.id)
    return await anyio.to_thread.run_sync(_is_within_limits, root, max_files, max_bytes)


def _is_within_limits(root: Path, max_files: int, max_bytes: int) -> bool:
    size_bytes = 0
    for count, size in enumerate(_sizes(root, GitRules()), start=1):
        size_bytes += size
        if count > max_files or size_bytes > max_bytes:
            return False
    return True


def _sizes(directory: Path, rules: DirectoryRules) -> Iterator[int]:
    """Yield the sizes of the regular files below a directory; what cannot be read is in no version either."""
    try:
        with os.scandir(directory) as found:
            entries = list(found)
        if any(entry.name == IGNORE_FILE and entry.is_file(follow_symlinks=False) for entry in entries):
            rules = rules.with_ignore_file((directory / IGNORE_FILE).read_bytes())
    except OSError:
        return
    for entry in entries:
        is_dir = entry.is_dir(follow_symlinks=False)
        if rules.leaves_out(entry.name, is_dir=is_dir):
            continue
        if is_dir:
            yield from _sizes(directory / entry.name, rules.below(entry.name))
        elif entry.is_file(follow_symlinks=False):
            with suppress(OSError):  # it went away meanwhile
                yield entry.stat(follow_symlinks=False).st_size
