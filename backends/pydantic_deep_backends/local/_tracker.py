"""The tracker of a directory: it selects the scan that a capture needs (`_capture`)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial

import anyio

from pydantic_deep_backends._scan_budget import CAPTURE_ADVICE, ScanBudget, scan_budget
from pydantic_deep_backends._threads import check_cancelled
from pydantic_deep_backends.files._confined_root import OpenRoot
from pydantic_deep_backends.tracking import Captured, DirectoryRules, OmittedFile
from pydantic_deep_backends.trees._tree import Tree

from ._capture import CaptureCache, DirectoryCapture
from ._file_streams import RunAtRoot, read_stream
from ._touched_paths import TouchLog


class LocalTracker:
    """`FileTracker` of a directory.

    Args:
        run_at_root: Runs an operation on the directory.
        touch_log: Receives the paths that operations touch.
        memory: The cache of file readings; the readings may be shared with other trackers.
        rules: The ignore rules of the root.
        max_file_bytes: Larger files are omitted.
        tree: The current files, if known.
    """

    def __init__(
        self,
        run_at_root: RunAtRoot,
        touch_log: TouchLog,
        memory: CaptureCache,
        rules: DirectoryRules,
        *,
        max_file_bytes: int,
        tree: Tree | None,
    ) -> None:
        self._run_at_root = run_at_root
        self._touch_log = touch_log
        self._memory = memory
        self._rules = rules
        self._max_file_bytes = max_file_bytes
        self._last = tree
        self._lock = anyio.Lock()
        self._touched = touch_log.begin()

    async def capture(self, before: Tree, *, is_full: bool = False, also: Collection[str] = ()) -> Captured:
        """Return the current files, from a scan of the touched paths or of everything."""
        async with self._lock:
            touched = self._touched.take()
            is_known = not is_full and self._last is not None and before == self._last
            self._last = None  # if this fails, the touched paths are no longer known
            if not is_known or touched is None:
                captured = await self._capture(before, DirectoryCapture.capture_all)
            elif touched:
                captured = await self._capture(before, lambda look: look.capture_paths(touched))
            else:
                captured = Captured(tree=before, omitted=self._omitted())
            if also:
                return await self._add(captured, also)
            self._last = captured.tree
            return captured

    def close(self) -> None:
        """Stop recording."""
        self._touch_log.end(self._touched)

    async def _add(self, captured: Captured, also: Collection[str]) -> Captured:
        """Return the capture with additional files. The next capture is a full scan, which sees their later changes."""
        more = await self._capture(captured.tree, lambda look: look.capture_files(also))
        return replace(
            more,
            blobs={**captured.blobs, **more.blobs},
            streams={**captured.streams, **more.streams},
            in_use=captured.in_use,
        )

    async def _capture(self, before: Tree, find: Callable[[DirectoryCapture], Tree]) -> Captured:
        with scan_budget(CAPTURE_ADVICE) as budget:
            return await self._capture_within(budget, before, find)

    async def _capture_within(
        self, budget: ScanBudget, before: Tree, find: Callable[[DirectoryCapture], Tree]
    ) -> Captured:
        def stat_entry(root: OpenRoot) -> Captured:
            look = DirectoryCapture(
                root,
                before,
                self._rules,
                max_file_bytes=self._max_file_bytes,
                memory=self._memory,
                checkpoint=check_cancelled,
                budget=budget,
            )
            tree = find(look)
            streams = {
                digest: partial(read_stream, self._run_at_root, path, self._max_file_bytes)
                for digest, path in look.streamed.items()
            }
            return Captured(tree=tree, blobs=look.blobs, streams=streams, omitted=self._omitted(), in_use=look.in_use)

        return await self._run_at_root(stat_entry)

    def _omitted(self) -> tuple[OmittedFile, ...]:
        return tuple(sorted(self._memory.omitted.values(), key=lambda file: file.path))
