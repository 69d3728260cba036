"""The errors of the backends, one tree under `BackendError`.

```
BackendError
├── BackendUnavailableError   the directory or environment is gone
│   └── SandboxUnavailableError   commands cannot be isolated here
├── InvalidPathError          (ValueError) the path is malformed
├── OutsideRootError          (PermissionError) the path leaves the backend, by a link or as it is written
├── ReadOnlyError             (PermissionError) a change was refused
├── ScanLimitError            a directory has too much in it for one call
├── FileChangedError          the file is no longer what the writer had read
├── InvalidPatternError       (ValueError) a glob or a regular expression
├── MissingBlobError          (LookupError) a tree names contents that nobody has
├── InvalidOverlayError       (ValueError) what was to be loaded is not what an overlay holds
└── CommandTimeoutError       (TimeoutError) a command took too long
```
Failures of a path *are* the builtins: `FileNotFoundError`, `FileExistsError`, `IsADirectoryError`,
`NotADirectoryError`, `PermissionError`, `OSError`.
"""

from __future__ import annotations

from typing import Literal


class BackendError(Exception):
    """Something that a backend refused or could not do."""


class BackendUnavailableError(BackendError):
    """The directory or environment behind the backend is gone; trying again cannot help."""


class SandboxUnavailableError(BackendUnavailableError):
    """Commands cannot be isolated on this machine as promised, so none is run.

    Attributes:
        failed: The promises that were tried and not kept, sorted; empty if the sandbox did not start at all.
    """

    def __init__(self, message: str, *, failed: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.failed = failed


class InvalidPathError(BackendError, ValueError):
    """The path is not one that a backend accepts.

    Attributes:
        path: The path as it was given.
        reason: What is wrong with it, and what to do.
    """

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f'{path[:200]!r} is not a valid path: {reason}')


class OutsideRootError(BackendError, PermissionError):
    """The path leads out of the backend, through a symbolic link or because it is not below its root.

    Attributes:
        path: The path as it was given.
        root: Where the root appears, if the path is not below it; `None` for a link.
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
        path: The path that was to change.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f'{path!r} is read-only. Write to another path.')


class FileChangedError(BackendError):
    """The file is not what the writer expected: somebody else wrote it in between.

    Attributes:
        path: The file.
        expected: The digest that the writer had read; `None` for "no such file".
        actual: The digest found; `None` for "no such file".
    """

    def __init__(self, path: str, *, expected: str | None, actual: str | None) -> None:
        self.path = path
        self.expected = expected
        self.actual = actual
        super().__init__(f'{path!r} changed since it was read. Read it again, then write.')


class ScanLimitError(BackendError):
    """A call that goes through a whole directory met a limit. It returned nothing and changed no file.

    Attributes:
        limit: Which limit: of files and directories, of bytes in a path (how deep they lie), or of time.
        maximum: The number.
        path: The file or directory that lies too deep; `None` for the other limits.
        advice: What to do.
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
        pattern: The pattern as it was given.
    """

    def __init__(self, pattern: str, reason: str) -> None:
        self.pattern = pattern
        super().__init__(f'{pattern[:200]!r} is not a valid pattern: {reason}')


class MissingBlobError(BackendError, LookupError):
    """A tree names contents that neither the backend nor the given reader has.

    Attributes:
        paths: The files whose contents are missing, sorted.
    """

    def __init__(self, paths: tuple[str, ...]) -> None:
        self.paths = paths
        shown = ', '.join(repr(p) for p in paths[:5]) + (f' and {len(paths) - 5} more' if len(paths) > 5 else '')
        super().__init__(f'The contents of {shown} are not known. Pass `read_blob=` to fetch them by digest.')


class InvalidOverlayError(BackendError, ValueError):
    """What was to be loaded is not what `OverlayBackend.dump` writes; nothing was loaded."""


class CommandTimeoutError(BackendError, TimeoutError):
    """A command took longer than its `timeout`; what it had printed is kept.

    Attributes:
        stdout: Standard output up to the end.
        stderr: Standard error up to the end.
    """

    def __init__(self, message: str, *, stdout: str = '', stderr: str = '') -> None:
        super().__init__(message)
        self.stdout = stdout
        self.stderr = stderr
