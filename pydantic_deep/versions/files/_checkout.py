"""Replaces the files of a backend with those of a version, without losing files that no version has.

The order is: inspect all files; refuse, or store as a version, files that no version has; fetch all contents; remove
files that the target does not have; write those that differ, each atomically, `.gitignore` files last. A crash between
any two steps leaves each path in its old or its new state, so repeating the checkout completes it. The `.gitignore`
files come last because they determine which files are versioned: while the old ones are in place, the files that they
ignore are not mistaken for unversioned work.

Ignored files stay unchanged, by the old and the new rules. An ignored file in the place of a target file counts as a
change like any other. Databases that programs have open are never replaced, even if the target has a file in their place.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

from pydantic_deep.deps import MAX_FILE_BYTES
from pydantic_deep.versions.errors import UnversionedBackendError, UnversionedChangesError
from pydantic_deep_backends import BackendProtocol, CompositeBackend, FileVersion, ReadBlob, ReadOnlyError, Tree
from pydantic_deep_backends.tracking import IGNORE_FILE, Captured, FileTracker, SupportsPatch, SupportsTracking

from ._asset_streams import AssetStreams, large_files
from ._gitignore import GitignoreRules, left_out_by
from ._run_files import why_unversioned
from ._tree_views import fetch


@dataclass(frozen=True, kw_only=True)
class CheckedOut:
    """The result of a checkout."""

    written: tuple[str, ...]
    """The files that were written, sorted."""
    removed: tuple[str, ...]
    """The files that were removed, sorted."""
    stored: Tree | None
    """The previous files, if no version had them and `keep` was called."""


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
    streams: AssetStreams | None = None,
    is_dry_run: bool = False,
) -> CheckedOut:
    """Replace the files of a backend with `target`.

    A file is known if `current`, `target` or one of `known` has the same contents at its path. Therefore the files of a
    directory after an interrupted checkout are known; if that checkout had another target, pass it in `known`.

    Args:
        backend: The backend to change.
        current: The files that the backend should have according to the store; `None` if there is no record.
        target: The files to check out.
        read_blob: Fetches contents of `target`, and of the `.gitignore` files of `current`.
        known: Other trees of versions.
        is_known: Returns whether a version has exactly this tree. Called only if the trees do not suffice.
        keep: Stores files that no version has as a version before the first change, as a checkout with `force` does. It
            receives the contents that differ from `current`, or from `target` without `current`. Without `keep`, such
            files raise.
        max_file_bytes: The largest file that versions contain.
        streams: The streams of the store, which allow larger files. Large files are written first, one by one. They are
            not fetched before: if the contents of one are missing, those before it have been written.
        is_dry_run: Whether to raise like a checkout, but change nothing.

    Raises:
        UnversionedChangesError: Files would be lost; nothing was changed.
        UnversionedBackendError: The files of this backend cannot be versioned.
        MissingBlobError: Contents are not available; nothing was changed.
        ReadOnlyError: The backend does not allow changes; nothing was changed.
        OSError: A change failed. Repeat the checkout when the cause is resolved.
    """
    if not isinstance(backend, SupportsTracking):
        raise UnversionedBackendError(why_unversioned(backend))
    limit = max_file_bytes if streams is None else streams.max_file_bytes
    tracker = backend.track(GitignoreRules(), max_file_bytes=limit)
    try:
        before = current or target
        here = await tracker.capture(before, is_full=True)
        target = _without(target, here.in_use)
        current = None if current is None else _without(current, here.in_use)
        if here.tree == target:
            return CheckedOut(written=(), removed=(), stored=None)
        if not isinstance(backend, SupportsPatch):
            raise ReadOnlyError('/')
        trees = (current or Tree(), target, *known)
        untouched = await _untouched(backend, here.tree, trees, read_blob)
        lost = [path for path in _unknown(here.tree, trees) if path not in untouched]
        if all(path in untouched for path in here.tree):  # missing files cannot be lost
            lost = []
        if lost and is_known is not None and await is_known(here.tree):
            lost = []
        hidden = await _hidden(backend, tracker, before, here, trees)
    finally:
        tracker.close()
    lost = sorted({*lost, *hidden.paths})
    if lost and (keep is None or hidden.has_other):
        raise UnversionedChangesError(lost, can_be_stored=not hidden.has_other)
    if is_dry_run:
        return CheckedOut(written=(), removed=(), stored=None)
    diff = here.tree.diff(target)
    removed = tuple(path for path in diff.removed if path not in untouched)
    written = tuple(sorted((*diff.added, *diff.changed)))
    large = large_files(streams, backend, target, written)
    contents = await _fetch_all(target, [path for path in written if path not in large], read_blob)
    stored = None
    if lost and keep is not None:
        stored = hidden.captured or here
        await keep(stored)
    if streams is not None:
        await streams.restore(backend, target, large)
    rules = [path for path in (*removed, *written) if path.endswith(f'/{IGNORE_FILE}')]
    await backend.patch(target, sorted({*removed, *written}.difference(rules, large)), contents)
    await backend.patch(target, rules, contents)
    return CheckedOut(written=written, removed=removed, stored=stored and stored.tree)


async def is_vacant(backend: BackendProtocol, here: Tree, target: Tree, read_blob: ReadBlob) -> bool:
    """Return whether a backend has no files except those that the ignore rules of `target` match.

    Args:
        backend: The backend to inspect.
        here: The current files of the backend.
        target: The tree with the ignore rules.
        read_blob: Fetches the `.gitignore` files of `target`.
    """
    if any(path in here for path in target):
        return False
    return len(await left_out_in(backend, target, read_blob, [*here])) == len(here)


@dataclass(frozen=True, kw_only=True)
class _Hidden:
    """Files that captures omit and that a checkout would replace."""

    paths: Sequence[str] = ()
    """The paths of files that no known tree has."""
    has_other: bool = False
    """Whether some of them cannot be captured."""
    captured: Captured | None = None
    """The files of the backend, including the hidden ones that can be captured; `None` if nothing is hidden."""


async def _hidden(
    backend: SupportsPatch, tracker: FileTracker, before: Tree, here: Captured, trees: Sequence[Tree]
) -> _Hidden:
    """Find omitted files in the places of target files: ignored, too large, a link, in use, …"""
    occupants = await backend.occupants(here.tree.diff(trees[1]).added)
    strangers = [occupant for occupant in occupants if occupant.path not in here.tree]
    if not strangers:
        return _Hidden()
    files = [each.path for each in strangers if each.is_file and each.path not in here.in_use]
    captured = await tracker.capture(before, is_full=True, also=files)
    versions = {occupant.path: captured.tree.get(occupant.path) for occupant in strangers}
    return _Hidden(
        paths=[path for path, version in versions.items() if version is None or not _is_in(trees, path, version)],
        has_other=None in versions.values(),
        captured=captured,
    )


def _without(tree: Tree, paths: Collection[str]) -> Tree:
    for path in paths:
        if path in tree:
            tree = tree.remove(path)
        elif tree.is_dir(path):
            tree = tree.graft(path, Tree())
    return tree


def _unknown(here: Tree, trees: Sequence[Tree]) -> list[str]:
    """Return the paths whose current state no known tree has, including missing files."""
    diff = trees[0].diff(here)
    return [path for path in (*diff.added, *diff.removed, *diff.changed) if not _is_in(trees, path, here.get(path))]


def _is_in(trees: Sequence[Tree], path: str, version: FileVersion | None) -> bool:
    return any(tree.get(path) == version for tree in trees)


async def _untouched(backend: BackendProtocol, here: Tree, trees: Sequence[Tree], read_blob: ReadBlob) -> set[str]:
    """Return the files that stay although the target does not have them, because ignore rules match them.

    The rules of the target apply, and for files that were never versioned also those of the current tree: such a file
    is visible after an interrupted checkout has changed a `.gitignore`. Files in the places of target files are not
    exempt: they are known, or will be stored.
    """
    current, target, *_ = trees
    free = [path for path in here.diff(target).removed if not _is_in_way(target, path)]
    by_target = await left_out_in(backend, target, read_blob, free)
    return by_target | await left_out_in(backend, current, read_blob, [path for path in free if path not in current])


def _is_in_way(target: Tree, path: str) -> bool:
    """Return whether a target file is an ancestor or a descendant of a path."""
    return target.is_dir(path) or target.file_above(path) is not None


async def left_out_in(backend: BackendProtocol, tree: Tree, read_blob: ReadBlob, paths: Sequence[str]) -> set[str]:
    """Return the files that the ignore rules of a tree match, by the rules of each part of a composite backend."""
    if not paths:
        return set()
    shares = [('', tree)]
    if isinstance(backend, CompositeBackend):
        shares = [(share.root, share.tree) for share in backend.split(tree)]
    ignored: set[str] = set()
    assigned: set[str] = set()
    for root, share in sorted(shares, key=lambda item: len(item[0]), reverse=True):
        own = [path for path in paths if path.startswith(f'{root}/') and path not in assigned]
        assigned.update(own)
        read = partial(_read_file, share, read_blob)
        ignored |= {f'{root}{path}' for path in await left_out_by(share, read, [path[len(root) :] for path in own])}
    return ignored


async def _read_file(tree: Tree, read_blob: ReadBlob, path: str) -> bytes:
    return await fetch(read_blob, path, tree[path].digest)


async def _fetch_all(target: Tree, paths: Sequence[str], read_blob: ReadBlob) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    for path in paths:
        digest = target[path].digest
        if digest not in contents:
            contents[digest] = await fetch(read_blob, path, digest)
    return contents
