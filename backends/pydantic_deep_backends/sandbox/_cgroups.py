"""Control groups: limits on the number of processes and on their total memory.

`RLIMIT_NPROC` does not apply to root, and no per-process limit bounds the total of several processes. A control group
does both, if this process may create one: as root on most machines, and rarely otherwise. Versions 1 and 2 are
supported (`Documentation/admin-guide/cgroup-v1`, `cgroup-v2.rst`).
"""

from __future__ import annotations

import errno
import itertools
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ._stale_resources import prefix_of, stale_directories

_KIND = 'group'
"""The kind in the names of groups, for the removal of stale ones."""

_numbers = itertools.count()
"""Makes group names unique within this process; `next` on it is atomic."""

_REMOVE_ATTEMPTS = 200
_REMOVE_PAUSE_SECONDS = 0.005
"""Retries of removing a group: the kernel releases killed processes a moment after they were reaped."""


@dataclass(frozen=True, kw_only=True)
class Controllers:
    """Directories in which groups can be created; `None` for a controller that is not usable."""

    processes: Path | None
    memory: Path | None


@dataclass(frozen=True, kw_only=True)
class Group:
    """Processes with common limits, as one directory per hierarchy."""

    directories: tuple[Path, ...]

    def add(self, pid: int) -> None:
        """Add a process to the group. Processes that it starts from then on belong to the group too."""
        for directory in self.directories:
            (directory / 'cgroup.procs').write_text(str(pid))

    def remove(self) -> None:
        """Remove the group after its processes have ended."""
        for directory in self.directories:
            _remove(directory)


def find_controllers(mounts: Path = Path('/proc/self/mounts'), own: Path = Path('/proc/self/cgroup')) -> Controllers:
    """Return the directories in which groups can be created, after a trial.

    Args:
        mounts: The mounted file systems, as listed by the kernel.
        own: The groups of this process, as listed by the kernel.
    """
    hierarchies = _hierarchies(mounts.read_text())
    places = dict(_own_places(own.read_text()))
    return Controllers(
        processes=_find(hierarchies, places, 'pids', ('pids.max',)),
        memory=_find(hierarchies, places, 'memory', ('memory.max', 'memory.limit_in_bytes')),
    )


def make_group(controllers: Controllers, *, processes: int, memory_bytes: int) -> Group:
    """Create a group with limits, and without swap where the kernel supports that.

    Raises:
        OSError: The group can no longer be created.
    """
    name = f'{prefix_of(_KIND)}{next(_numbers)}'
    limits = {'pids.max': processes, 'memory.max': memory_bytes, 'memory.limit_in_bytes': memory_bytes}
    extras = {'memory.swap.max': 0, 'memory.oom.group': 1, 'memory.memsw.limit_in_bytes': memory_bytes}
    made: list[Path] = []
    try:
        for parent in dict.fromkeys((controllers.processes, controllers.memory)):
            if parent is not None:
                directory = parent / name
                directory.mkdir()
                made.append(directory)
                _set(directory, limits)
                with suppress(OSError):
                    _set(directory, extras)
    except OSError:
        Group(directories=tuple(made)).remove()
        raise
    return Group(directories=tuple(made))


def remove_stale_groups(controllers: Controllers) -> None:
    """Remove the groups of processes that were killed before they could remove them."""
    for parent in {controllers.processes, controllers.memory} - {None}:
        assert parent is not None  # noqa: S101 - subtracted above
        for directory in stale_directories(parent, _KIND):
            with suppress(OSError):
                directory.rmdir()


def _hierarchies(mounts: str) -> list[tuple[Path, frozenset[str]]]:
    """Return the directory of each hierarchy and its controllers; version 2 lists none."""
    hierarchies: list[tuple[Path, frozenset[str]]] = []
    for line in mounts.splitlines():
        _, directory, kind, options, *_ = line.split(' ')
        if kind in ('cgroup', 'cgroup2'):
            hierarchies.append((Path(directory), frozenset(options.split(',') if kind == 'cgroup' else ())))
    return hierarchies


def _own_places(own: str) -> Iterator[tuple[str, str]]:
    """Yield the group of this process for each controller; version 2 is the controller `''`."""
    for line in own.splitlines():
        _, controllers, place = line.split(':', 2)
        for controller in controllers.split(','):
            yield controller, place


def _find(
    hierarchies: list[tuple[Path, frozenset[str]]], places: Mapping[str, str], controller: str, files: tuple[str, ...]
) -> Path | None:
    for top, controllers in hierarchies:
        if controllers and controller not in controllers:
            continue
        own = top / places.get(controller if controllers else '', '/').lstrip('/')
        for parent in (own, *own.parents):
            if parent.is_relative_to(top) and _is_usable(parent, files):
                return parent
    return None


def _is_usable(parent: Path, files: tuple[str, ...]) -> bool:
    """Return whether a group that is created here has one of the files."""
    directory = parent / f'{prefix_of(_KIND)}{next(_numbers)}'
    try:
        directory.mkdir()
    except OSError:
        return False
    try:
        return any((directory / file).exists() for file in files)
    finally:
        _remove(directory)


def _set(directory: Path, values: Mapping[str, int]) -> None:
    for file, value in values.items():
        if (directory / file).exists():
            (directory / file).write_text(str(value))


def _remove(directory: Path) -> None:
    for _ in range(_REMOVE_ATTEMPTS):
        try:
            directory.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY:
                return
            time.sleep(_REMOVE_PAUSE_SECONDS)
        else:
            return
