"""Confined access to files below a directory: a walk by descriptors, component by component.

The operating system never receives a path with a slash, so nothing that is renamed or linked during an operation can
lead it elsewhere: each step opens one name in an open directory, without following a link. Links are read here, and
either followed inside the root or refused.

Not here: the operation at the end of a walk (`_operations`), virtual paths (`local`).
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
"""A path below the root, as names; `()` is the root."""

Follow: TypeAlias = Literal['all', 'parents', 'none']
"""The links that a walk follows: all, all except a link in the last name, or none."""

_MAX_LINKS = 40
"""Maximum number of links in one walk; the value of Linux (path_resolution(7))."""

_MAX_DOTDOTS = 400
"""Maximum number of `..` in one walk. Each costs a walk from the root, so links could otherwise cost minutes."""


class HardLinkError(PermissionError):
    """A file has another hard link outside of the root."""


@dataclass(frozen=True, kw_only=True)
class Location:
    """The end of a walk: a name in an open directory. The name may not exist."""

    directory: int
    """The descriptor of the directory, open until the visit ends. It is an open file description of its own."""
    name: str
    """A name in the directory; `.` if the walk ended at the directory itself, as for the root."""
    canonical: Components
    """The path of the name with all links in its parents resolved."""


@dataclass(frozen=True, kw_only=True)
class ConfinedRoot:
    """A directory that operations cannot leave."""

    path: str
    """The absolute path of the directory, without links."""
    aliases: tuple[str, ...] = ()
    """Other absolute paths of the directory; an absolute link to a path below them stays inside."""

    @contextmanager
    def open(self) -> Generator[OpenRoot]:
        """Open the directory for one operation.

        Raises:
            BackendUnavailableError: The directory does not exist, or was removed during the operation.
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
            # A removed directory can still be listed, and looks empty.
            self._check_not_removed(descriptor)
        finally:
            os.close(descriptor)

    def _check_not_removed(self, descriptor: int) -> None:
        if os.fstat(descriptor).st_nlink == 0:
            raise BackendUnavailableError(
                f'{self.path!r} was removed during the operation. Create it, then try again.'
            ) from None


class OpenRoot:
    """The root directory during one operation."""

    def __init__(self, descriptor: int, names: Sequence[str]) -> None:
        self.descriptor = descriptor
        """The descriptor of the root, which the caller closes."""
        self.check_links: Callable[[os.stat_result], None] = _check_nothing
        """Raises `PermissionError` if a file with this status must not be read because of its hard links."""
        self._prefixes = [name.rstrip('/') + '/' for name in names]

    def visit(
        self, path: Components, action: Callable[[Location], T], *, follow: Follow = 'all', make_dirs: bool = False
    ) -> T:
        """Walk to the parent directory of `path`, and call `action` there.

        Args:
            path: Parsed names: none is empty, `.` or `..`.
            action: The operation. It must not follow a link: at a link it raises `link_found()`, like `open` with
                `O_NOFOLLOW`, and is called again at the target.
            follow: The links to follow.
            make_dirs: Whether to create missing parent directories.

        Raises:
            OutsideRootError: A link leads out of the root.
            FileNotFoundError: A parent directory is missing.
            NotADirectoryError: A parent is not a directory.
            OSError: With `ELOOP`, too many links.
        """
        with closing(_Walk(self.descriptor, path, self._prefixes, make_dirs=make_dirs)) as walk:
            return walk.run(action, follow=follow)

    def resolve(self, path: Components) -> Components:
        """Return `path` with links resolved; components that do not exist are left unchanged.

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
    """Allow every file to be read."""


def open_directory(directory: int, name: str) -> int:
    """Open a subdirectory of an open directory.

    Raises:
        OSError: `ENOTDIR` or `ELOOP` if `name` is a link or not a directory.
    """
    return os.open(name, DIRECTORY, dir_fd=directory)


def make_directory(directory: int, name: str) -> None:
    """Create a directory that survives a crash; an existing entry of this name stays unchanged."""
    try:
        os.mkdir(name, dir_fd=directory)
    except FileExistsError:
        return
    os.fsync(directory)


def link_found() -> OSError:
    """Return the error that an action raises at a link."""
    return OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _canonical(place: Location) -> Components:
    try:
        os.readlink(place.name, dir_fd=place.directory)
    except OSError:  # not a link, or nothing: the walk ends here
        return place.canonical
    raise link_found()


class _Walk:
    """One walk: the current directory, its names, and the remaining names."""

    def __init__(self, root: int, path: Sequence[str], prefixes: Sequence[str], *, make_dirs: bool) -> None:
        self._root = root
        self._prefixes = prefixes
        self._make_dirs = make_dirs
        self._requested = '/' + '/'.join(path)
        self._directory = root
        self._names: list[str] = []
        self._ahead = list(reversed(path))
        """The remaining names, the next one last."""
        self._links_left = _MAX_LINKS
        self._dotdots_left = _MAX_DOTDOTS

    def run(self, action: Callable[[Location], T], *, follow: Follow) -> T:
        """Walk until at most one name remains, and act on it; continue while that name is a link."""
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
        """Close the current directory, unless it is the root, which belongs to the caller."""
        if self._directory != self._root:
            os.close(self._directory)

    def as_written(self) -> Components:
        """Return the current path plus the remaining names. Nothing exists there, so `..` is resolved by name."""
        names = list(self._names)
        for part in reversed(self._ahead):
            if part != '..':
                names.append(part)
            elif names:
                names.pop()
            else:
                raise OutsideRootError(self._requested)
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
        """Go up by walking again from the root, because `..` of an open directory may have changed."""
        if not self._names:
            raise OutsideRootError(self._requested)
        self._dotdots_left -= 1
        self._check_budget()
        self._ahead.pop()
        self._ahead += reversed(self._names[:-1])
        self._restart()

    def _follow(self, name: str) -> None:
        """Replace a name with the target of its link."""
        self._links_left -= 1
        self._check_budget()
        try:
            target = os.readlink(name, dir_fd=self._directory)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            # Not a link: a file on the path, or the last name, which was a link a moment ago and is tried again.
            if len(self._ahead) > 1:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
            return
        if target.startswith('/'):
            target = self._inside(target)
            self._restart()
        self._ahead.pop()
        self._ahead += [part for part in reversed(target.split('/')) if part not in ('', '.')]

    def _inside(self, target: str) -> str:
        """Return an absolute target relative to the root."""
        for prefix in self._prefixes:
            if f'{target}/'.startswith(prefix):
                return target[len(prefix) :]
        raise OutsideRootError(self._requested)

    def _check_budget(self) -> None:
        if self._links_left < 0 or self._dotdots_left < 0:
            raise link_found()
