"""The tracker of files in memory. Their tree exists already; ignored and omitted files are removed from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence

import anyio

from pydantic_deep_backends._scan_budget import CAPTURE_ADVICE, ScanBudget, scan_budget
from pydantic_deep_backends.files._mount_point import path_from
from pydantic_deep_backends.paths import path_parts
from pydantic_deep_backends.tracking import IGNORE_FILE, Captured, DirectoryRules, OmittedFile
from pydantic_deep_backends.trees._blobs import StoredVersion
from pydantic_deep_backends.trees._nodes import FileVersion
from pydantic_deep_backends.trees._tree import Tree


class StateTracker:
    """`FileTracker` of files in memory.

    Args:
        files: Returns all current files.
        read: Returns the contents of a file.
        rules: The ignore rules of the root.
        max_file_bytes: Larger files are omitted.
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
        """All files at the last capture, including omitted ones."""
        self._captured = Tree()
        """The captured files of the last capture."""
        self._omitted: dict[str, OmittedFile] = {}
        self._lock = anyio.Lock(fast_acquire=True)

    async def capture(self, before: Tree, *, is_full: bool = False, also: Collection[str] = ()) -> Captured:
        """Return the current files. `is_full` has no effect, as no change can go unnoticed."""
        async with self._lock:
            last, now = self._captured, self._files()
            written = await self._follow(now)
            tree = self._captured
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
                if isinstance(version, StoredVersion):  # the caller has all others, as it provided them
                    blobs[version.digest] = version.blob.data
            omitted = tuple(self._omitted[path] for path in sorted(self._omitted))
            return Captured(tree=tree, blobs=blobs, omitted=omitted)

    def close(self) -> None:
        """Do nothing: this tracker records nothing."""

    async def _follow(self, now: Tree) -> Sequence[str] | None:
        """Update the captured files; return the written paths, or `None` after a full scan."""
        diff = None if self._all is None else self._all.diff(now)
        self._all = None  # if this fails, the next capture is a full scan
        paths = None if diff is None else (*diff.removed, *diff.added, *diff.changed)
        if diff is None or paths is None or any(path.endswith(f'/{IGNORE_FILE}') for path in paths):
            self._rules.clear()
            self._omitted.clear()
            self._captured = await self._without_omitted(now)
            written = None
        else:
            for path in paths:
                self._omitted.pop(path, None)
            written = [path for path in (*diff.added, *diff.changed) if await self._is_captured(now, path)]
            for path in {*paths}.difference(written):
                if path in self._captured:
                    self._captured = self._captured.remove(path)
            for path in written:
                self._captured = self._captured.set(path, now[path])
        self._all = now
        return written

    async def _is_captured(self, now: Tree, path: str) -> bool:
        """Return whether a file is captured; record it as omitted if it is too large."""
        rules = await self._rules_of(now, path_parts(path)[:-1])
        name = path.rpartition('/')[2]
        return rules is not None and not rules.leaves_out(name, is_dir=False) and self._fits(path, now[path])

    async def _without_omitted(self, now: Tree) -> Tree:
        with scan_budget(CAPTURE_ADVICE) as budget:
            return await self._without_omitted_within(budget, now)

    async def _without_omitted_within(self, budget: ScanBudget, now: Tree) -> Tree:
        captured = now
        omitted: dict[str, None] = {}
        waiting: list[tuple[tuple[str, ...], Tree, DirectoryRules]] = [((), now, self._root_rules)]
        while waiting:
            parts, tree, rules = waiting.pop()
            rules = self._rules[parts] = await self._with_ignore_file(rules, tree, path_from(parts))
            for name, child in tree.entries().items():
                path = path_from((*parts, name))
                if rules.leaves_out(name, is_dir=isinstance(child, Tree)):
                    if isinstance(child, Tree):
                        captured = captured.graft(path, Tree())
                    else:
                        omitted[path] = None
                    continue
                budget.take((name,))
                if isinstance(child, Tree):
                    waiting.append(((*parts, name), child, rules.below(name)))
                elif not self._fits(path, child):
                    omitted[path] = None
        return captured.with_changes(omitted)

    def _fits(self, path: str, version: FileVersion) -> bool:
        if version.size <= self._max_file_bytes:
            return True
        self._omitted[path] = OmittedFile(path=path, reason='too large', size_bytes=version.size)
        return False

    async def _rules_of(self, now: Tree, parts: tuple[str, ...]) -> DirectoryRules | None:
        """Return the rules of a directory; `None` if it is ignored itself."""
        length = len(parts)
        while length and parts[:length] not in self._rules:
            length -= 1
        rules = self._rules[parts[:length]]
        for end in range(length, len(parts)):
            if rules.leaves_out(parts[end], is_dir=True):
                return None
            path = path_from(parts[: end + 1])
            rules = await self._with_ignore_file(rules.below(parts[end]), now.subtree(path), path)
            self._rules[parts[: end + 1]] = rules
        return rules

    async def _with_ignore_file(self, rules: DirectoryRules, directory: Tree, path: str) -> DirectoryRules:
        version = directory.get(f'/{IGNORE_FILE}')
        if version is None or version.size > self._max_file_bytes:
            return rules
        return rules.with_ignore_file(await self._read(f'{path.rstrip("/")}/{IGNORE_FILE}', version))
