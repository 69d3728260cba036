"""Paths that the operations of a backend have touched, for its trackers."""

from __future__ import annotations

import threading
from collections.abc import Iterable


class TouchedPaths:
    """Paths that were touched since the last `take`. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._paths: set[str] = set()
        self._is_all = False

    def add(self, paths: Iterable[str]) -> None:
        """Record files or directories."""
        with self._lock:
            self._paths.update(paths)

    def add_all(self) -> None:
        """Record that any path may have been touched."""
        with self._lock:
            self._is_all = True

    def take(self) -> set[str] | None:
        """Return the paths touched since the last call; `None` if any path may have been touched."""
        with self._lock:
            paths, is_all = self._paths, self._is_all
            self._paths, self._is_all = set(), False
        return None if is_all else paths


class TouchLog:
    """Forwards touched paths to every tracker.

    Add a path after the change: a path that is added before may be taken too early.
    """

    def __init__(self) -> None:
        self._open: tuple[TouchedPaths, ...] = ()

    def begin(self) -> TouchedPaths:
        """Return a new set of paths that is filled until `end`."""
        touched = TouchedPaths()
        self._open = (*self._open, touched)
        return touched

    def end(self, touched: TouchedPaths) -> None:
        """Stop filling a set of paths."""
        self._open = tuple(other for other in self._open if other is not touched)

    def add(self, *paths: str) -> None:
        """Record files or directories."""
        for touched in self._open:
            touched.add(paths)

    def add_all(self) -> None:
        """Record that any path may have been touched."""
        for touched in self._open:
            touched.add_all()
