"""Groups of processes that the kernel counts: how many there are, and how much memory they take together.

`RLIMIT_NPROC` does not bind root, and no limit of a process bounds what several take together. A control group does
both, where this process may make one: as root on most machines, and hardly ever else. Versions 1 and 2 are known
(`Documentation/admin-guide/cgroup-v1`, `cgroup-v2.rst`).
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
"""What groups are called, should they be left behind."""

_numbers = itertools.count()
"""Makes names of groups unique in this process; `next` of it is atomic."""

_REMOVE_ATTEMPTS = 200
_REMOVE_PAUSE_SECONDS = 0.005
"""How long to try to remove a group: the kernel lets go of the dead a moment after they are buried."""


@dataclass(frozen=True, kw_only=True)
class Controllers:
    """Where groups can be made; a controller that cannot be used has no directory."""

    processes: Path | None
    memory: Path | None


@dataclass(frozen=True, kw_only=True)
class Group:
    """Processes that are counted together, in one directory for each hierarchy."""

    directories: tuple[Path, ...]

    def add(self, pid: int) -> None:
        """Put a process into the group; what it starts from now on is in it too."""
        for directory in self.directories:
            (directory / 'cgroup.procs').write_text(str(pid))

    def remove(self) -> None:
        """Remove the group, whose processes are gone."""
        for directory in self.directories:
            _remove(directory)


def find_controllers(mounts: Path = Path('/proc/self/mounts'), own: Path = Path('/proc/self/cgroup')) -> Controllers:
    """Return where groups can be made, by making one and removing it again.

    Args:
        mounts: The file systems that are mounted, as the kernel lists them.
        own: The groups that this process is in, as the kernel lists them.
    """
    hierarchies = _hierarchies(mounts.read_text())
    places = dict(_own_places(own.read_text()))
    return Controllers(
        processes=_find(hierarchies, places, 'pids', ('pids.max',)),
        memory=_find(hierarchies, places, 'memory', ('memory.max', 'memory.limit_in_bytes')),
    )


def make_group(controllers: Controllers, *, processes: int, memory_bytes: int) -> Group:
    """Make a group with limits; swap is not used where that can be said.

    Raises:
        OSError: It cannot be made any more.
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
    """Remove groups of processes that were killed before they could."""
    for parent in {controllers.processes, controllers.memory} - {None}:
        assert parent is not None  # noqa: S101 - subtracted above
        for directory in stale_directories(parent, _KIND):
            with suppress(OSError):
                directory.rmdir()


def _hierarchies(mounts: str) -> list[tuple[Path, frozenset[str]]]:
    """Return the directory of each hierarchy and its controllers; those of version 2 have none listed."""
    found: list[tuple[Path, frozenset[str]]] = []
    for line in mounts.splitlines():
        _, directory, kind, options, *_ = line.split(' ')
        if kind in ('cgroup', 'cgroup2'):
            found.append((Path(directory), frozenset(options.split(',') if kind == 'cgroup' else ())))
    return found


def _own_places(own: str) -> Iterator[tuple[str, str]]:
    """Yield where this process is, for each controller; version 2 is the controller `''`."""
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
    """Return whether a group made here has one of the files."""
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
