"""Confined, atomic, searchable files for agents, in memory, in a directory, or mounted together; and a sandbox.

Backends hold files under virtual, absolute, POSIX paths; `BackendProtocol` says what each can do, and the
`Supports…` protocols what some can. `Tree` is what their files were at one moment.

Not here: `pydantic_deep_backends.conformance`, which needs pytest, is imported by name; so are `paths` and the
engine of `search`.
"""

from __future__ import annotations

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
)
from .local import LocalBackend
from .overlay import OverlayBackend, OverlayMerge
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
    SupportsSearch,
    SupportsSnapshots,
)
from .readonly import ReadOnlyBackend
from .sandbox import SandboxBackend, SandboxLimits
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

__all__ = [
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
    'ReadBlob',
    'ReadOnlyBackend',
    'ReadOnlyError',
    'SandboxBackend',
    'SandboxLimits',
    'SandboxProtocol',
    'SandboxUnavailableError',
    'SearchProblem',
    'StateBackend',
    'SupportsCommands',
    'SupportsCompareAndSwap',
    'SupportsSearch',
    'SupportsSnapshots',
    'Tree',
    'TreeDiff',
    'digest_of',
    'merge_trees',
    'needed_for_merge',
]
