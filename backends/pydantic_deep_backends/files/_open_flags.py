"""Flags of `os.open` for walks that cannot leave a directory.

A flag that the system lacks, as Windows lacks most of them, is 0 here, so that this package can be imported on every
system. `check_platform` refuses such a system.
"""

from __future__ import annotations

import os
import sys

from pydantic_deep_backends.errors import BackendUnavailableError


def _flags(*names: str) -> int:
    return sum(getattr(os, name, 0) for name in names)


DIRECTORY = _flags('O_RDONLY', 'O_DIRECTORY', 'O_NOFOLLOW')
"""Opens a directory without following a link."""

READ = _flags('O_RDONLY', 'O_NONBLOCK', 'O_NOCTTY', 'O_NOFOLLOW')
"""Opens a file for reading, without ever blocking."""

CREATE = _flags('O_WRONLY', 'O_CREAT', 'O_EXCL', 'O_NOFOLLOW')
"""Creates a file that must not exist."""


def check_platform() -> None:
    """Raise `BackendUnavailableError` if directories cannot be opened without following links, as on Windows."""
    if not (hasattr(os, 'O_DIRECTORY') and hasattr(os, 'O_NOFOLLOW')):
        raise BackendUnavailableError(
            f'`LocalBackend` and `SandboxBackend` need Linux or macOS, and this is {sys.platform!r}. Use '
            '`StateBackend`, which holds files in memory, or run the program under WSL or in a container.'
        )
