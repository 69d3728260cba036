"""The tracker of files in memory: their tree is there already, and what is left out is taken from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence

import anyio

from ._contents import StoredVersion
from ._nodes import FileVersion
from ._shown import path_from
from ._tree import Tree
from .paths import path_parts
from .tracking import IGNORE_FILE, Captured, DirectoryRules, OmittedFile


class StateTracker:
    """`FileTracker` of files in memory.

    Args:
        files: Returns all files now.
        read: Returns the contents of one of them.
        rules: What the root leaves out.
        max_file_bytes: Larger files are left out.
    """

    def __init__(
        self,
        files: Callable[[], Tree],
        read: Callable[[str, FileVersion], Awaitable[bytes]],
        rules: DirectoryRules,
        *,
        max_file_bytes: int,
    ) -> None:
        self._files = files
        self._read = read
        self._max_file_bytes = max_file_bytes
        self._root_rules = rules
        self._rules: dict[tuple[str, ...], DirectoryRules] = {}
        self._all: Tree | None = None
        """The files at the last capture, with what is left out."""
        self._kept = Tree()
        """The files at the last capture."""
        self._omitted: dict[str, OmittedFile] = {}
        self._lock = anyio.Lock(fast_acquire=True)

    async def capture(self, before: Tree, *, is_full: bool = False, also: Collection[str] = ()) -> Captured:
        """Return the files now. Nothing is ever hidden from it, so `is_full` changes nothing."""
        async with self._lock:
            last, now = self._kept, self._files()
            written = await self._follow(now)
            tree = self._kept
            for path in also:
                version = now.get(path)
                if version is not None and self._fits(path, version):
                    tree = tree.set(path, version)
            if written is None or also or before != last:
                diff = before.diff(tree)
                written = (*diff.added, *diff.changed)
            blobs: dict[str, bytes] = {}
            for path in written:
                version = tree[path]
                if isinstance(version, StoredVersion):  # what is not in memory came from where the contents are
                    blobs[version.digest] = version.blob.data
            omitted = tuple(self._omitted[path] for path in sorted(self._omitted))
            return Captured(tree=tree, blobs=blobs, omitted=omitted)

    def close(self) -> None:
        """Do nothing: nothing was noted."""

    async def _follow(self, now: Tree) -> Sequence[str] | None:
        """Bring what is kept up to date; return what was written of it, `None` if everything was looked at."""
        diff = None if self._all is None else self._all.diff(now)
        self._all = None  # if this fails, the next capture begins anew
        paths = None if diff is None else (*diff.removed, *diff.added, *diff.changed)
        if diff is None or paths is None or any(path.endswith(f'/{IGNORE_FILE}') for path in paths):
            self._rules.clear()
            self._omitted.clear()
            self._kept = await self._without_left_out(now)
            written = None
        else:
            for path in paths:
                self._omitted.pop(path, None)
            written = [path for path in (*diff.added, *diff.changed) if await self._keeps(now, path)]
            for path in {*paths}.difference(written):
                if path in self._kept:
                    self._kept = self._kept.remove(path)
            for path in written:
                self._kept = self._kept.set(path, now[path])
        self._all = now
        return written

    async def _keeps(self, now: Tree, path: str) -> bool:
        """Return whether a file is not left out; note it if it is one that people should hear of."""
        rules = await self._rules_of(now, path_parts(path)[:-1])
        name = path.rpartition('/')[2]
        return rules is not None and not rules.leaves_out(name, is_dir=False) and self._fits(path, now[path])

    async def _without_left_out(self, now: Tree) -> Tree:
        kept = now
        waiting: list[tuple[str, ...]] = [()]
        while waiting:
            parts = waiting.pop()
            rules = await self._rules_of(now, parts)
            for name, child in now.entries(path_from(parts)).items():
                path = path_from((*parts, name))
                is_dir = isinstance(child, Tree)
                if rules is None or rules.leaves_out(name, is_dir=is_dir):
                    kept = kept.graft(path, Tree()) if is_dir else kept.remove(path)
                elif isinstance(child, Tree):
                    waiting.append((*parts, name))
                elif not self._fits(path, child):
                    kept = kept.remove(path)
        return kept

    def _fits(self, path: str, version: FileVersion) -> bool:
        if version.size <= self._max_file_bytes:
            return True
        self._omitted[path] = OmittedFile(path=path, reason='too large', size_bytes=version.size)
        return False

    async def _rules_of(self, now: Tree, parts: tuple[str, ...]) -> DirectoryRules | None:
        """Return the rules of a directory; `None` if it is left out itself."""
        rules = self._root_rules
        for length in range(len(parts) + 1):
            at = parts[:length]
            known = self._rules.get(at)
            if known is None:
                if at:
                    if rules.leaves_out(at[-1], is_dir=True):
                        return None
                    rules = rules.below(at[-1])
                known = self._rules[at] = await self._with_ignore_file(rules, now, path_from((*at, IGNORE_FILE)))
            rules = known
        return rules

    async def _with_ignore_file(self, rules: DirectoryRules, now: Tree, path: str) -> DirectoryRules:
        version = now.get(path)
        if version is None or version.size > self._max_file_bytes:
            return rules
        return rules.with_ignore_file(await self._read(path, version))
