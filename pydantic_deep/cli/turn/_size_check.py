"""The check that a directory is small enough for versions.

They read all files except open databases and those that `.gitignore` excludes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import anyio.to_thread

from pydantic_deep.versions import GitignoreRules
from pydantic_deep_backends import LocalBackend
from pydantic_deep_backends.tracking import IGNORE_FILE, DirectoryRules, names_in_use

MAX_FILES = 50_000
"""Maximum number of files. Reading as many takes some seconds at the start of a conversation."""

MAX_BYTES = 500_000_000
"""Maximum total size. The first version holds all contents in memory at once."""


async def fits_in_versions(backend: LocalBackend, *, max_files: int = MAX_FILES, max_bytes: int = MAX_BYTES) -> bool:
    """Return whether the files that `.gitignore` does not exclude are within both limits. No contents are read."""
    root = Path(backend.ref.id)
    return await anyio.to_thread.run_sync(_is_within_limits, root, max_files, max_bytes)


def _is_within_limits(root: Path, max_files: int, max_bytes: int) -> bool:
    size_bytes = 0
    for count, size in enumerate(_sizes(root, GitignoreRules()), start=1):
        size_bytes += size
        if count > max_files or size_bytes > max_bytes:
            return False
    return True


def _sizes(directory: Path, rules: DirectoryRules) -> Iterator[int]:
    """Yield the sizes of the regular files below a directory. Unreadable directories are skipped, as in versions."""
    try:
        with os.scandir(directory) as scan:
            entries = list(scan)
        if any(entry.name == IGNORE_FILE and entry.is_file(follow_symlinks=False) for entry in entries):
            rules = rules.with_ignore_file((directory / IGNORE_FILE).read_bytes())
    except OSError:
        return
    in_use = names_in_use(entries)
    for entry in entries:
        is_dir = entry.is_dir(follow_symlinks=False)
        if entry.name in in_use or rules.leaves_out(entry.name, is_dir=is_dir):
            continue
        if is_dir:
            yield from _sizes(directory / entry.name, rules.below(entry.name))
        elif entry.is_file(follow_symlinks=False):
            with suppress(OSError):  # the file has been removed
                yield entry.stat(follow_symlinks=False).st_size
