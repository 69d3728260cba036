"""Which files the operations of a backend have touched, for whoever wants to know."""

from __future__ import annotations

import threading
from collections.abc import Iterable


class TouchedPaths:
    """Paths that were touched since they were last taken. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._paths: set[str] = set()
        self._is_all = False

    def add(self, paths: Iterable[str]) -> None:
        """Note files or directories."""
        with self._lock:
            self._paths.update(paths)

    def add_all(self) -> None:
        """Note that anything may have been touched."""
        with self._lock:
            self._is_all = True

    def take(self) -> set[str] | None:
        """Return what was touched since the last call, `None` if it may be anything."""
        with self._lock:
            paths, is_all = self._paths, self._is_all
            self._paths, self._is_all = set(), False
        return None if is_all else paths


class TouchLog:
    """The notes of all who want to know. What is told must have happened: a note that comes first may be taken too early."""

    def __init__(self) -> None:
        self._open: tuple[TouchedPaths, ...] = ()

    def begin(self) -> TouchedPaths:
        """Return new notes."""
        notes = TouchedPaths()
        self._open = (*self._open, notes)
        return notes

    def end(self, notes: TouchedPaths) -> None:
        """Tell these notes nothing any more."""
        self._open = tuple(other for other in self._open if other is not notes)

    def add(self, *paths: str) -> None:
        """Note files or directories."""
        for notes in self._open:
            notes.add(paths)

    def add_all(self) -> None:
        """Note that anything may have been touched."""
        for notes in self._open:
            notes.add_all()
