"""Directories that killed processes left behind, and their removal.

Nothing of a command outlives the process that runs it: bubblewrap and all in the sandbox are ended by the kernel then.
What stays is empty directories of control groups, and a few temporary ones. Each name says who made it, so that
whoever starts next removes what nobody can need any more.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

_NAME: Final = 'pydantic-deep'

_STALE_SECONDS: Final = 3600.0
"""When something is left over for certain, whoever made it: all of it is needed while a sandbox starts, or is probed."""


def prefix_of(kind: str) -> str:
    """Return how names of this process begin: with the namespace of its id, because ids mean nothing elsewhere."""
    return f'{_NAME}-{kind}-{_namespace()}-{os.getpid()}-'


def stale_directories(parent: Path, kind: str) -> list[Path]:
    """Return the directories of a kind whose owner has ended."""
    return [path for path in parent.glob(f'{_NAME}-{kind}-*-*-*') if _is_stale(path)]


def remove_stale_directories(*kinds: str) -> None:
    """Remove the temporary directories that killed processes of this user left behind."""
    for kind in kinds:
        for directory in stale_directories(Path(tempfile.gettempdir()), kind):
            with suppress(OSError):
                if directory.lstat().st_uid == os.geteuid():
                    shutil.rmtree(directory)


def _is_stale(path: Path) -> bool:
    namespace, owner = path.name.split('-')[-3:-1]
    if namespace == _namespace():
        return not Path('/proc', owner).exists()
    try:
        return time.time() - path.lstat().st_mtime > _STALE_SECONDS
    except FileNotFoundError:
        return False


def _namespace() -> str:
    return str(Path('/proc/self/ns/pid').stat().st_ino)
