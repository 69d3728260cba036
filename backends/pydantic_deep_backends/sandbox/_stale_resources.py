"""Removal of directories that killed processes left behind.

No process of a command outlives the process that runs it: the kernel then kills bubblewrap and everything in the
sandbox. Only empty control group directories and a few temporary directories remain. Each name contains its owner, so
that the next start can remove the directories that nobody needs.
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
"""Age at which a directory is stale regardless of its owner: it is needed only during a start or a probe."""


def prefix_of(kind: str) -> str:
    """Return the name prefix of this process, including its PID namespace, as a PID has no meaning in another one."""
    return f'{_NAME}-{kind}-{_namespace()}-{os.getpid()}-'


def stale_directories(parent: Path, kind: str) -> list[Path]:
    """Return the directories of a kind with an owner that has exited."""
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
