"""Confined, atomic, searchable files for agents, in memory, in a directory, or mounted together; and a sandbox.

Backends hold files under virtual, absolute, POSIX paths; `BackendProtocol` says what each can do, and the
`Supports…` protocols what some can. `Tree` is what their files were at one moment.

Not here: `pydantic_deep_backends.conformance`, which needs pytest, is imported by name; so are `paths` and the
engine of `search`.
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
"""Where the names are that not every program uses. They are imported when they are first asked for."""

__all__ = [
    'PROTECTED_FILES',
    'BackendError',
    'BackendProtocol',
    'BackendRef',
    'BackendUnavailableError',
    'Command',
    'CommandResult',
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

if not TYPE_CHECKING:  # a checker that saw it would take any name for one of ours

    def __getattr__(name: str) -> object:
        """Import a name that is asked for."""
        if name not in _MODULE_BY_NAME:
            raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
        globals()[name] = value = getattr(import_module(_MODULE_BY_NAME[name]), name)
        return value


def __dir__() -> list[str]:
    """Return the names of the module, asked for or not."""
    return sorted({*globals(), *__all__})
