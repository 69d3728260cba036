"""Makes the files of a backend equal to a version, and loses nothing that no version has.

What happens, in this order: look at everything; refuse, or have it kept, if something there is in no version; fetch all
contents; remove what the version does not have; write what differs, each file atomically, the `.gitignore` files last.
A crash between any two of these leaves each path as it was or as it will be, so that the same checkout, repeated, takes
it for what it is and ends where it should. The `.gitignore` files come last because they say which files count: as long
as the old ones are there, what they leave out is not taken for somebody's work.

What `.gitignore` names is left alone, by the rules that were there and by those that come. Where it stands in the way
of a file it counts as a change like any other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from pydantic_deep.versions.errors import UnversionedBackendError, UnversionedChangesError
from pydantic_deep_backends import BackendProtocol, CompositeBackend, FileVersion, ReadBlob, ReadOnlyError, Tree
from pydantic_deep_backends.tracking import (
    IGNORE_FILE,
    Captured,
    FileTracker,
    SupportsPatch,
    SupportsTracking,
)

from ._gitignore import GitRules, left_out_by
from ._run_files import MAX_FILE_BYTES, why_unversioned
from ._tree_views import fetch


@dataclass(frozen=True, kw_only=True)
class CheckedOut:
    """What a checkout did."""

    written: tuple[str, ...]
    """The files that were written, sorted."""
    removed: tuple[str, ...]
    """The files that were removed, sorted."""
    kept: Tree | None
    """The files as they were, if they were in no version and `keep` was called."""


async def checkout(
    backend: BackendProtocol,
    *,
    current: Tree | None,
    target: Tree,
    read_blob: ReadBlob,
    known: Sequence[Tree] = (),
    is_known: Callable[[Tree], Awaitable[bool]] | None = None,
    keep: Callable[[Captured], Awaitable[object]] | None = None,
    max_file_bytes: int = MAX_FILE_BYTES,
    only_looks: bool = False,
) -> CheckedOut:
    """Make the files of a backend equal to `target`.

    A file counts as known where `current`, `target` or one of `known` has the same at its path. So a directory that a
    crash left in the middle of a checkout is known file by file; if the target of that one was another, pass it in
    `known`.

    Args:
        backend: Whose files are changed.
        current: The files that the backend should have by what was recorded; `None` if nothing was.
        target: The files wanted.
        read_blob: Fetches contents of `target`, and those of the `.gitignore` files of `current`.
        known: Other trees that some version has.
        is_known: Returns whether some version has exactly this tree; asked only if the above do not suffice.
        keep: Makes a version of files that no version has, before the first change: what a checkout with `force` does.
            The contents that it gets are those which neither `current` nor, without it, `target` has there. Without
            `keep` such files are refused.
        max_file_bytes: The largest file that versions have.
        only_looks: Refuses what a checkout would refuse, and changes nothing.

    Raises:
        UnversionedChangesError: Something would be lost; nothing was changed.
        UnversionedBackendError: The files of this backend cannot be versioned.
        MissingBlobError: Contents are not to be had; nothing was changed.
        ReadOnlyError: The backend does not allow changes; nothing was changed.
        OSError: A change failed. Repeat the checkout when the cause is gone.
    """
    if not isinstance(backend, SupportsTracking):
        raise UnversionedBackendError(why_unversioned(backend))
    tracker = backend.track(GitRules(), max_file_bytes=max_file_bytes)
    try:
        before = current or target
        here = await tracker.capture(before, is_full=True)
        if here.tree == target:
            return CheckedOut(written=(), removed=(), kept=None)
        if not isinstance(backend, SupportsPatch):
            raise ReadOnlyError('/')
        trees = (current or Tree(), target, *known)
        untouched = await _untouched(backend, here.tree, trees, read_blob)
        lost = [path for path in _unknown(here.tree, trees) if path not in untouched]
        if all(path in untouched for path in here.tree):  # what is not there cannot be lost
            lost = []
        if lost and is_known is not None and await is_known(here.tree):
            lost = []
        hidden = await _hidden(backend, tracker, before, here.tree, trees)
    finally:
        tracker.close()
    lost = sorted({*lost, *hidden.paths})
    if lost and (keep is None or hidden.has_other):
        raise UnversionedChangesError(lost, can_be_kept=not hidden.has_other)
    if only_looks:
        return CheckedOut(written=(), removed=(), kept=None)
    diff = here.tree.diff(target)
    removed = tuple(path for path in diff.removed if path not in untouched)
    written = tuple(sorted((*diff.added, *diff.changed)))
    contents = await _fetch_all(target, written, read_blob)
    kept = None
    if lost and keep is not None:
        kept = hidden.captured or here
        await keep(kept)
    rules = [path for path in (*removed, *written) if path.endswith(f'/{IGNORE_FILE}')]
    await backend.patch(target, sorted({*removed, *written}.difference(rules)), contents)
    await backend.patch(target, rules, contents)
    return CheckedOut(written=written, removed=removed, kept=kept and kept.tree)


async def is_vacant(backend: BackendProtocol, here: Tree, target: Tree, read_blob: ReadBlob) -> bool:
    """Return whether the files of a backend are none but those that the rules of `target` leave out.

    Args:
        backend: Whose files these are.
        here: The files as they are.
        target: The files wanted.
        read_blob: Fetches the `.gitignore` files of `target`.
    """
    if any(path in here for path in target):
        return False
    return len(await _left_out_in(backend, target, read_blob, [*here])) == len(here)


@dataclass(frozen=True, kw_only=True)
class _Hidden:
    """What no tree of the files shows and a checkout would replace."""

    paths: Sequence[str] = ()
    """Its paths, but for what is known."""
    has_other: bool = False
    """Whether some of it cannot be captured."""
    captured: Captured | None = None
    """The files with those of it that can be captured; `None` if there are none."""


async def _hidden(
    backend: SupportsPatch, tracker: FileTracker, before: Tree, here: Tree, trees: Sequence[Tree]
) -> _Hidden:
    """Find what stands where a file of the target is to go, and was left out: ignored, too large, a link, …"""
    occupants = await backend.occupants(here.diff(trees[1]).added)
    strangers = [occupant for occupant in occupants if occupant.path not in here]
    if not strangers:
        return _Hidden()
    captured = await tracker.capture(
        before, is_full=True, also=[occupant.path for occupant in strangers if occupant.is_file]
    )
    versions = {occupant.path: captured.tree.get(occupant.path) for occupant in strangers}
    return _Hidden(
        paths=[path for path, version in versions.items() if version is None or not _is_in(trees, path, version)],
        has_other=None in versions.values(),
        captured=captured,
    )


def _unknown(here: Tree, trees: Sequence[Tree]) -> list[str]:
    """Return the files that no known tree has, or lacks, as they are now."""
    diff = trees[0].diff(here)
    return [path for path in (*diff.added, *diff.removed, *diff.changed) if not _is_in(trees, path, here.get(path))]


def _is_in(trees: Sequence[Tree], path: str, version: FileVersion | None) -> bool:
    return any(tree.get(path) == version for tree in trees)


async def _untouched(backend: BackendProtocol, here: Tree, trees: Sequence[Tree], read_blob: ReadBlob) -> set[str]:
    """Return the files that stay though the target does not have them, because rules leave them out.

    Those are the rules of the target, and for files that were never in a version those of the current tree: such a file
    shows up when a checkout that a crash interrupted has already changed a `.gitignore`. What stands where a file of
    the target goes is no exception: it was known, or will be kept.
    """
    current, target, *_ = trees
    free = [path for path in here.diff(target).removed if not _is_in_way(target, path)]
    by_target = await _left_out_in(backend, target, read_blob, free)
    return by_target | await _left_out_in(backend, current, read_blob, [path for path in free if path not in current])


def _is_in_way(target: Tree, path: str) -> bool:
    """Return whether a file of the target goes above or below a path."""
    return target.is_dir(path) or target.file_above(path) is not None


async def _left_out_in(backend: BackendProtocol, tree: Tree, read_blob: ReadBlob, paths: Sequence[str]) -> set[str]:
    """Return which files the rules of a tree leave out, by the rules of each part of a composite."""
    if not paths:
        return set()
    shares = [('', tree)]
    if isinstance(backend, CompositeBackend):
        shares = [(share.root, share.tree) for share in backend.split(tree)]
    found: set[str] = set()
    taken: set[str] = set()
    for root, share in sorted(shares, key=lambda item: len(item[0]), reverse=True):
        own = [path for path in paths if path.startswith(f'{root}/') and path not in taken]
        taken.update(own)
        read = partial(_read_file, share, read_blob)
        found |= {f'{root}{path}' for path in await left_out_by(share, read, [path[len(root) :] for path in own])}
    return found


async def _read_file(tree: Tree, read_blob: ReadBlob, path: str) -> bytes:
    return await fetch(read_blob, path, tree[path].digest)


async def _fetch_all(target: Tree, paths: Sequence[str], read_blob: ReadBlob) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    for path in paths:
        digest = target[path].digest
        if digest not in contents:
            contents[digest] = await fetch(read_blob, path, digest)
    return contents
