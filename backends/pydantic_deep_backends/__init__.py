"""Confined, atomic, searchable files for agents: in memory, in a directory, or mounted together; and a sandbox.

Backends store files under virtual, absolute POSIX paths. `BackendProtocol` defines the operations of all backends, the
`Supports…` protocols define optional ones, and a `Tree` captures their files at one point in time.

Import by module name: `pydantic_deep_backends.conformance`, which needs pytest, `paths`, and the engine of `search`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from .composite import CompositeBackend
from .errors import (
    BackendError,
    BackendUnavailableError,
    CommandTimeoutError,
    FileChangedError,
    InvalidOverlayError,
    InvalidPathError,
    InvalidPatternError,
    MissingBlobError,
    OutsideRootError,
    ReadOnlyError,
    SandboxUnavailableError,
    ScanLimitError,
)
from .local import LocalBackend
from .protection import PROTECTED_FILES, ProtectedChange, SupportsProtection
from .protocol import (
    BackendProtocol,
    BackendRef,
    Command,
    CommandResult,
    CommandRunner,
    FileEntry,
    FileEntryLike,
    ReadBlob,
    SandboxProtocol,
    SupportsCommands,
    SupportsCompareAndSwap,
    SupportsIdentity,
    SupportsSearch,
    SupportsSnapshots,
)
from .readonly import ReadOnlyBackend
from .search import GlobResult, GrepMatch, GrepResult, SearchProblem
from .snapshots import (
    Conflict,
    ConflictKind,
    FileVersion,
    MergeResult,
    Tree,
    TreeDiff,
    digest_of,
    merge_trees,
    needed_for_merge,
)
from .state import StateBackend
from .wrapper import WrapperBackend

if TYPE_CHECKING:
    from .overlay import OverlayBackend, OverlayMerge
    from .sandbox import SandboxBackend, SandboxLimits

_MODULE_BY_NAME = {
    'OverlayBackend': 'pydantic_deep_backends.overlay',
    'OverlayMerge': 'pydantic_deep_backends.overlay',
    'SandboxBackend': 'pydantic_deep_backends.sandbox',
    'SandboxLimits': 'pydantic_deep_backends.sandbox',
}
"""Modules of names that many programs do not use. They are imported on first access."""

__all__ = [
    'PROTECTED_FILES',
    'BackendError',
    'BackendProtocol',
    'BackendRef',
    'BackendUnavailableError',
    'Command',
    'CommandResult',
    'CommandRunner',
    'CommandTimeoutError',
    'CompositeBackend',
    'Conflict',
    'ConflictKind',
    'FileChangedError',
    'FileEntry',
    'FileEntryLike',
    'FileVersion',
    'GlobResult',
    'GrepMatch',
    'GrepResult',
    'InvalidOverlayError',
    'InvalidPathError',
    'InvalidPatternError',
    'LocalBackend',
    'MergeResult',
    'MissingBlobError',
    'OutsideRootError',
    'OverlayBackend',
    'OverlayMerge',
    'ProtectedChange',
    'ReadBlob',
    'ReadOnlyBackend',
    'ReadOnlyError',
    'SandboxBackend',
    'SandboxLimits',
    'SandboxProtocol',
    'SandboxUnavailableError',
    'ScanLimitError',
    'SearchProblem',
    'StateBackend',
    'SupportsCommands',
    'SupportsCompareAndSwap',
    'SupportsIdentity',
    'SupportsProtection',
    'SupportsSearch',
    'SupportsSnapshots',
    'Tree',
    'TreeDiff',
    'WrapperBackend',
    'digest_of',
    'merge_trees',
    'needed_for_merge',
]

if not TYPE_CHECKING:  # with `__getattr__`, a type checker would accept any name

    def __getattr__(name: str) -> object:
        """Import a lazy name on first access."""
        if name not in _MODULE_BY_NAME:
            raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
        globals()[name] = value = getattr(import_module(_MODULE_BY_NAME[name]), name)
        return value


def __dir__() -> list[str]:
    """Return all names of the module, including those not imported yet."""
    return sorted({*globals(), *__all__})
