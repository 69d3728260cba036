"""The errors of the backends. All inherit from `BackendError`.

```
BackendError
├── BackendUnavailableError   the directory or environment is gone
│   └── SandboxUnavailableError   commands cannot be isolated here
├── InvalidPathError          (ValueError) the path is malformed
├── OutsideRootError          (PermissionError) the path leaves the backend, by a link or as it is written
├── ReadOnlyError             (PermissionError) a change was refused
├── ScanLimitError            a directory is too large for one call
├── FileChangedError          the file changed since the writer read it
├── InvalidPatternError       (ValueError) a glob or a regular expression
├── MissingBlobError          (LookupError) a tree refers to contents that are unavailable
├── InvalidOverlayError       (ValueError) the data to load is not a dump of an overlay
└── CommandTimeoutError       (TimeoutError) a command exceeded its timeout
```
Other failures of a path are builtin errors: `FileNotFoundError`, `FileExistsError`, `IsADirectoryError`,
`NotADirectoryError`, `PermissionError`, `OSError`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal


class BackendError(Exception):
    """A backend refused an operation or could not perform it."""

    def __reduce__(self) -> tuple[Callable[..., BaseException], tuple[type[BaseException], tuple[object, ...]], object]:
        """Pickle the message and the attributes, as other processes need both. `Exception` would repeat `__init__`."""
        return _restored, (type(self), self.args), vars(self)


def _restored(kind: type[BaseException], args: tuple[object, ...]) -> BaseException:
    """Return a pickled error without calling its `__init__`, whose arguments are not those of the error."""
    base = OSError if issubclass(kind, OSError) else Exception  # `kind.__new__` may be that of another base class
    error: BaseException = base.__new__(kind)
    error.args = args
    return error


class BackendUnavailableError(BackendError):
    """The directory or environment behind the backend is gone; retrying cannot help."""


class SandboxUnavailableError(BackendUnavailableError):
    """Commands cannot be isolated on this machine as promised, so none is run.

    Attributes:
        failed: The guarantees that were verified and did not hold, sorted; empty if the sandbox did not start at all.
    """

    def __init__(self, message: str, *, failed: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.failed = failed


class InvalidPathError(BackendError, ValueError):
    """The path is not acceptable to any backend.

    Attributes:
        path: The path as the caller passed it.
        reason: The problem and its remedy.
    """

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f'{path[:200]!r} is not a valid path: {reason}')


class OutsideRootError(BackendError, PermissionError):
    """The path leads out of the backend, through a symbolic link or because it is not below the root.

    Attributes:
        path: The path as the caller passed it.
        root: Where the root is mounted, if the path is not below it; `None` for a symbolic link.
    """

    def __init__(self, path: str, *, root: str | None = None) -> None:
        self.path = path
        self.root = root
        if root is None:
            super().__init__(f'{path!r} leads outside of the root through a symbolic link. Use a path inside it.')
        else:
            super().__init__(f'{path!r} is outside of {root!r}, where nothing can be written. Use a path below it.')


class ReadOnlyError(BackendError, PermissionError):
    """A change was refused because the backend is read-only.

    Attributes:
        path: The path of the refused change.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f'{path!r} is read-only. Write to another path.')


class FileChangedError(BackendError):
    """The file is not in the state that the writer expected: another writer changed it.

    Attributes:
        path: The file.
        expected: The digest that the writer had read; `None` for no file.
        actual: The current digest; `None` for no file.
    """

    def __init__(self, path: str, *, expected: str | None, actual: str | None) -> None:
        self.path = path
        self.expected = expected
        self.actual = actual
        super().__init__(f'{path!r} changed since it was read. Read it again, then write.')


class ScanLimitError(BackendError):
    """A call that scans a whole directory reached a limit. It returned nothing and changed no file.

    Attributes:
        limit: The limit that was reached: number of files and directories, bytes in a path (depth), or time.
        maximum: The value of the limit.
        path: The file or directory that is nested too deeply; `None` for the other limits.
        advice: How to avoid the limit.
    """

    def __init__(
        self, limit: Literal['entries', 'depth', 'seconds'], maximum: int, advice: str, *, path: str | None = None
    ) -> None:
        self.limit: Literal['entries', 'depth', 'seconds'] = limit
        self.maximum = maximum
        self.path = path
        self.advice = advice
        happened = {
            'entries': f'The directory has more than {maximum:,} files and directories, the most for one call.',
            'depth': f'The path {(path or "")[:80]!r}… is longer than {maximum:,} bytes, the most for a path.',
            'seconds': f'Going through the directory took more than {maximum:,} seconds, the most for one call.',
        }
        super().__init__(f'{happened[limit]} {advice}')


class InvalidPatternError(BackendError, ValueError):
    """The glob or regular expression cannot be used.

    Attributes:
        pattern: The pattern as the caller passed it.
    """

    def __init__(self, pattern: str, reason: str) -> None:
        self.pattern = pattern
        super().__init__(f'{pattern[:200]!r} is not a valid pattern: {reason}')


class MissingBlobError(BackendError, LookupError):
    """A tree refers to contents that neither the backend nor the given reader has.

    Attributes:
        paths: The files with missing contents, sorted.
    """

    def __init__(self, paths: tuple[str, ...]) -> None:
        self.paths = paths
        shown = ', '.join(repr(p) for p in paths[:5]) + (f' and {len(paths) - 5} more' if len(paths) > 5 else '')
        super().__init__(f'The contents of {shown} are not known. Pass `read_blob=` to fetch them by digest.')


class InvalidOverlayError(BackendError, ValueError):
    """The data to load is not a dump of `OverlayBackend.dump`; nothing was loaded."""


class CommandTimeoutError(BackendError, TimeoutError):
    """A command exceeded its `timeout`. The error carries its output.

    Attributes:
        stdout: Standard output until the command was killed.
        stderr: Standard error until the command was killed.
    """

    def __init__(self, message: str, *, stdout: str = '', stderr: str = '') -> None:
        super().__init__(message)
        self.stdout = stdout
        self.stderr = stderr
