"""The one way to a file below a directory that cannot be left: a walk by descriptors, component by component.

No path with a slash is ever given to the operating system, so nothing that is renamed or linked while an
operation runs can lead it elsewhere: each step opens one name in a directory that is already open, without
following a link. Links are read and followed here, inside the root, or refused.

Not here: what is done at the end of a walk (`_operations`), virtual paths (`local`).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

from pydantic_deep_backends.errors import BackendUnavailableError, OutsideRootError

from ._open_flags import DIRECTORY

T = TypeVar('T')

Components: TypeAlias = tuple[str, ...]
"""A path below the root, one name each; `()` is the root."""

Follow: TypeAlias = Literal['all', 'parents', 'none']
"""Which links a walk follows: all; those before the last name, which is then acted on as a link; none."""

_MAX_LINKS = 40
"""Links followed in one walk; the figure of Linux (path_resolution(7))."""

_MAX_DOTDOTS = 400
"""`..` followed in one walk. Each costs a walk from the root, so that links cannot be made to cost minutes."""


class HardLinkError(PermissionError):
    """A file has another name outside of the root."""


@dataclass(frozen=True, kw_only=True)
class Location:
    """The end of a walk: a name in an open directory, which need not exist."""

    directory: int
    """The descriptor of the directory, open until the visit ends, and an open file description of its own."""
    name: str
    """A name in the directory; `.` if the walk ended at the directory itself, as it does at the root."""
    canonical: Components
    """The path of the name with every link on the way resolved."""


@dataclass(frozen=True, kw_only=True)
class ConfinedRoot:
    """A directory that cannot be left."""

    path: str
    """The directory: absolute, without links."""
    aliases: tuple[str, ...] = ()
    """Other absolute names of the directory; a link to what is below one of them stays inside."""

    @contextmanager
    def open(self) -> Generator[OpenRoot]:
        """Open the directory for one operation.

        Raises:
            BackendUnavailableError: It does not exist, or is removed during the operation.
        """
        try:
            descriptor = os.open(self.path, DIRECTORY)
        except (FileNotFoundError, NotADirectoryError):
            raise BackendUnavailableError(
                f'{self.path!r} is not a directory. Create it, then try again; it is never created silently.'
            ) from None
        try:
            yield OpenRoot(descriptor, (self.path, *self.aliases))
        except FileNotFoundError:
            self._check_not_removed(descriptor)
            raise
        else:
            # A removed directory can be listed, and looks empty.
            self._check_not_removed(descriptor)
        finally:
            os.close(descriptor)

    def _check_not_removed(self, descriptor: int) -> None:
        if os.fstat(descriptor).st_nlink == 0:
            raise BackendUnavailableError(
                f'{self.path!r} was removed during the operation. Create it, then try again.'
            ) from None


class OpenRoot:
    """The root during one operation."""

    def __init__(self, descriptor: int, names: Sequence[str]) -> None:
        self.descriptor = descriptor
        """The root; closed by who opened it."""
        self.check_links: Callable[[os.stat_result], None] = _check_nothing
        """Raises `PermissionError` for the status of a file that must not be read because of its hard links."""
        self._prefixes = [name.rstrip('/') + '/' for name in names]

    def visit(
        self, path: Components, action: Callable[[Location], T], *, follow: Follow = 'all', make_dirs: bool = False
    ) -> T:
        """Walk to the directory that holds `path`, and act there.

        Args:
            path: Names as parsed: none is empty, `.` or `..`.
            action: What to do. It must not follow a link: where it meets one it raises `link_found()`, as
                `open` with `O_NOFOLLOW` does, and is called again where the link leads.
            follow: Which links are followed.
            make_dirs: Whether to make the directories on the way that are missing.

        Raises:
            OutsideRootError: A link leads out of the root.
            FileNotFoundError: A directory on the way is missing.
            NotADirectoryError: Something on the way is not a directory.
            OSError: With `ELOOP`, too many links.
        """
        with closing(_Walk(self.descriptor, path, self._prefixes, make_dirs=make_dirs)) as walk:
            return walk.run(action, follow=follow)

    def resolve(self, path: Components) -> Components:
        """Return `path` with links resolved; components that do not exist are kept as written.

        Raises:
            OutsideRootError: A link leads out of the root.
            OSError: With `ELOOP`, too many links.
        """
        with closing(_Walk(self.descriptor, path, self._prefixes, make_dirs=False)) as walk:
            try:
                return walk.run(_canonical, follow='all')
            except (FileNotFoundError, NotADirectoryError):
                return walk.as_written()


def _check_nothing(status: os.stat_result) -> None:
    """Let every file be read."""


def open_directory(directory: int, name: str) -> int:
    """Open a directory in a directory.

    Raises:
        OSError: `ENOTDIR` or `ELOOP` if `name` is a link or not a directory.
    """
    return os.open(name, DIRECTORY, dir_fd=directory)


def make_directory(directory: int, name: str) -> None:
    """Make a directory that outlives a crash; whatever is there already is left alone."""
    try:
        os.mkdir(name, dir_fd=directory)
    except FileExistsError:
        return
    os.fsync(directory)


def link_found() -> OSError:
    """Return what an action raises where it meets a link."""
    return OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _canonical(place: Location) -> Components:
    try:
        os.readlink(place.name, dir_fd=place.directory)
    except OSError:  # not a link, or nothing at all: this is the end
        return place.canonical
    raise link_found()


class _Walk:
    """One walk: the directory reached, its names, and what is still ahead."""

    def __init__(self, root: int, path: Sequence[str], prefixes: Sequence[str], *, make_dirs: bool) -> None:
        self._root = root
        self._prefixes = prefixes
        self._make_dirs = make_dirs
        self._asked = '/' + '/'.join(path)
        self._directory = root
        self._names: list[str] = []
        self._ahead = list(reversed(path))
        """What is still to be walked, the next name last."""
        self._links_left = _MAX_LINKS
        self._dotdots_left = _MAX_DOTDOTS

    def run(self, action: Callable[[Location], T], *, follow: Follow) -> T:
        """Walk until one name is left, or none, and act; go on while that name is a link."""
        while True:
            while len(self._ahead) > 1 or self._ahead == ['..']:
                self._step(follow=follow != 'none')
            name = self._ahead[0] if self._ahead else '.'
            place = Location(directory=self._directory, name=name, canonical=(*self._names, *self._ahead))
            try:
                return action(place)
            except OSError as error:
                if error.errno != errno.ELOOP or follow != 'all':
                    raise
            self._follow(name)

    def close(self) -> None:
        """Close the directory reached, unless it is the root, which belongs to the caller."""
        if self._directory != self._root:
            os.close(self._directory)

    def as_written(self) -> Components:
        """Return where the walk is and what was ahead when it ended; nothing there exists, so `..` is only text."""
        names = list(self._names)
        for part in reversed(self._ahead):
            if part != '..':
                names.append(part)
            elif names:
                names.pop()
            else:
                raise OutsideRootError(self._asked)
        return tuple(names)

    def _step(self, *, follow: bool) -> None:
        name = self._ahead[-1]
        if name == '..':
            self._resolve_dotdot()
            return
        try:
            directory = open_directory(self._directory, name)
        except FileNotFoundError:
            if not self._make_dirs:
                raise
            make_directory(self._directory, name)
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP) or not follow:
                raise
            self._follow(name)
        else:
            self._arrive(directory)
            self._names.append(self._ahead.pop())

    def _arrive(self, directory: int) -> None:
        self.close()
        self._directory = directory

    def _restart(self) -> None:
        self._arrive(self._root)
        self._names = []

    def _resolve_dotdot(self) -> None:
        """Go up by walking again from the root: what `..` of an open directory is may have changed by now."""
        if not self._names:
            raise OutsideRootError(self._asked)
        self._dotdots_left -= 1
        self._check_budget()
        self._ahead.pop()
        self._ahead += reversed(self._names[:-1])
        self._restart()

    def _follow(self, name: str) -> None:
        """Put the target of a link in place of its name."""
        self._links_left -= 1
        self._check_budget()
        try:
            target = os.readlink(name, dir_fd=self._directory)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            # Not a link. A file on the way; or the last name, which was a link until a moment ago: try it again.
            if len(self._ahead) > 1:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
            return
        if target.startswith('/'):
            target = self._inside(target)
            self._restart()
        self._ahead.pop()
        self._ahead += [part for part in reversed(target.split('/')) if part not in ('', '.')]

    def _inside(self, target: str) -> str:
        """Return what is below the root of an absolute target, relative to it."""
        for prefix in self._prefixes:
            if f'{target}/'.startswith(prefix):
                return target[len(prefix) :]
        raise OutsideRootError(self._asked)

    def _check_budget(self) -> None:
        if self._links_left < 0 or self._dotdots_left < 0:
            raise link_found()
