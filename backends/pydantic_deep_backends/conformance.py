"""The rules of `protocol` as tests, for everyone who writes a backend. Needs pytest and the pytest plugin of anyio.

Subclass `BackendSuite` in a test module and provide a fixture `backend` that returns a fresh, empty backend:

```text
class TestMyBackend(BackendSuite):
    @pytest.fixture
    def backend(self) -> MyBackend:
        return MyBackend()
```
A rule about a capability that the backend does not have is skipped, and the reason names the protocol. A read-only
backend overrides `seed` and `is_read_only`. The rules of commands are for a backend that runs a POSIX shell.

One class and one long file on purpose: a subclass overrides a rule by its name, and a reader finds all rules here.
"""

# ruff: noqa: D102, S604 - the name of a rule is the sentence that a docstring would say again; commands are the matter

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Final, TypeAlias, cast

import anyio
import anyio.lowlevel
import pytest

from .errors import (
    CommandTimeoutError,
    FileChangedError,
    InvalidPathError,
    InvalidPatternError,
    MissingBlobError,
    ReadOnlyError,
)
from .protocol import (
    BackendProtocol,
    Command,
    CommandResult,
    FileEntryLike,
    SupportsCommands,
    SupportsCompareAndSwap,
    SupportsIdentity,
    SupportsSearch,
    SupportsSnapshots,
)
from .search import GlobResult, GrepResult, glob_backend, grep_backend
from .search._cases import GLOB_CASES, GLOB_FILES, GREP_CASES, GREP_FILES, INVALID_GLOBS, INVALID_REGEXES
from .snapshots import FileVersion, Tree, TreeDiff, digest_of

__all__ = ('GOOD_NAMES', 'HOSTILE_PATHS', 'BackendSuite', 'Seed')

Seed: TypeAlias = Callable[[str, bytes], Awaitable[None]]
"""Puts a file into a backend by whatever door is open, parents included."""

HOSTILE_PATHS: Final = (
    '', '.', '..', 'a', 'a/b', './a', '../a', '/..', '/../etc/passwd', '/a/../../b',
    '~', '~/a', '~root', '/~', '/~root/a', 'C:', 'C:/a', 'c:\\a', '/C:/a', '/a\\b', '/..\\a', '\\\\server\\share',
    '//', '//server/share', '/a\0b', '/a\0', '/a\nb', '/a\rb', '/a\x1bb', '/a\x7f', '/a\x85', '/a/' + 'b' * 256,
    '/' + 'é' * 128, '/a' * 2049, '/\ud800', '/a\udcffb',
)  # fmt: skip
"""Paths that every operation refuses with `InvalidPathError`. A backend may refuse every `..`: agents resolve it before."""

GOOD_NAMES: Final = (
    'a', '...', '..a', 'a..', 'foo..bar', '.hidden', ' ', ' a ', 'a.', '-rf', "it's", '"', '`id`', '$(id)', '%2e%2e',
    '*', '?', '[a]', '{a,b}', '#', '&', '|', ';', 'ab:c', 'naïve', '日本語', '．．', '\u202egnp.exe', 'a' * 255, 'é' * 127,
    'CON', 'a~',
)  # fmt: skip
"""Names that look dangerous and mean nothing but themselves."""

_WRITERS: Final = 8
"""Writers at once in the rules about lost updates."""


_BEATS: Final = """
beat() { while :; do echo beat >> "$BEATS/$1"; sleep 0.02; done; }
beat child & (beat orphan & ) & export BEATS
setsid sh -c 'while :; do echo beat >> "$BEATS/session"; sleep 0.02; done' >/dev/null 2>&1 </dev/null &
until [ -s "$BEATS/child" ] && [ -s "$BEATS/orphan" ] && [ -s "$BEATS/session" ]; do sleep 0.01; done
"""
"""Starts processes that write without end: a child, an orphan, and one in a session of its own without our pipes."""

_BEATING: Final = 3
"""How many they are."""


class BackendSuite:
    """Each test is one rule of the backend protocols; see the docstring of the module for how to use it."""

    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def seed(self, backend: BackendProtocol) -> Seed:
        """Puts files into `backend`. Override it where the backend itself does not write."""
        return backend.write_bytes

    @pytest.fixture
    def is_read_only(self) -> bool:
        """Whether the backend refuses every change."""
        return False

    @pytest.fixture
    async def root(self, backend: BackendProtocol) -> str:
        """The directory for the files of a test: a new one in the working directory."""
        return posixpath.join(await backend.working_dir(), 'conformance')

    @pytest.fixture
    def make_unreadable(self) -> Callable[[str], Awaitable[None]] | None:
        """Makes a file unreadable to the backend; enables the rules about what cannot be read."""
        return None

    @pytest.fixture
    def writable(self, backend: BackendProtocol, is_read_only: bool) -> BackendProtocol:
        """The backend, for rules that write."""
        if is_read_only:
            pytest.skip('the backend is read-only')
        return backend

    @pytest.fixture
    def swapping(self, backend: BackendProtocol) -> SupportsCompareAndSwap:
        """The backend, for rules of compare-and-swap."""
        if not isinstance(backend, SupportsCompareAndSwap):
            pytest.skip('the backend is not a SupportsCompareAndSwap')
        return backend

    @pytest.fixture
    def identified(self, backend: BackendProtocol) -> SupportsIdentity:
        """The backend, for rules of identities."""
        if not isinstance(backend, SupportsIdentity):
            pytest.skip('the backend is not a SupportsIdentity')
        return backend

    @pytest.fixture
    def commands(self, backend: BackendProtocol) -> SupportsCommands:
        """The backend, for rules of commands."""
        if not isinstance(backend, SupportsCommands):
            pytest.skip('the backend is not a SupportsCommands')
        return backend

    @pytest.fixture
    def tree_root(self, root: str) -> str:
        """Where trees have the directory `root`. Override it where the paths of trees begin elsewhere."""
        return root

    @pytest.fixture
    def capturing(self, backend: BackendProtocol) -> SupportsSnapshots:
        """The backend, for rules of snapshots."""
        if not isinstance(backend, SupportsSnapshots):
            pytest.skip('the backend is not a SupportsSnapshots')
        return backend

    # Identity

    async def test_it_has_the_members_of_a_backend(self, backend: BackendProtocol) -> None:
        assert isinstance(backend, BackendProtocol)

    async def test_the_ref_does_not_change(self, backend: BackendProtocol) -> None:
        await backend.working_dir()
        assert backend.ref is not None
        assert backend.ref == backend.ref

    async def test_the_working_directory_is_absolute_canonical_and_there(self, backend: BackendProtocol) -> None:
        path = await backend.working_dir()
        assert path.startswith('/')
        assert posixpath.normpath(path) == path
        assert await backend.realpath(path) == path
        assert (await backend.stat(path)).is_dir

    # Paths

    @pytest.mark.parametrize('path', HOSTILE_PATHS, ids=ascii)
    async def test_a_malformed_path_is_refused_by_every_operation(self, backend: BackendProtocol, path: str) -> None:
        operations: list[Callable[[], Awaitable[object]]] = [
            lambda: backend.read_bytes(path),
            lambda: backend.write_bytes(path, b''),
            lambda: backend.stat(path),
            lambda: backend.list_dir(path),
            lambda: backend.make_dir(path),
            lambda: backend.remove(path),
            lambda: backend.exists(path),
            lambda: backend.realpath(path),
            lambda: _glob(backend, '**', path),
            lambda: _grep(backend, 'a', path),
        ]
        if isinstance(backend, SupportsCompareAndSwap):
            swapping = backend
            operations.append(lambda: swapping.compare_and_swap(path, b'', expected=None))
        for operation in operations:
            with pytest.raises(InvalidPathError):
                await operation()

    @pytest.mark.parametrize('name', GOOD_NAMES, ids=ascii)
    async def test_a_strange_name_is_a_name(self, backend: BackendProtocol, seed: Seed, root: str, name: str) -> None:
        path = f'{root}/{name}'
        await seed(path, name.encode())
        assert await backend.read_bytes(path) == name.encode()
        assert [(entry.name, entry.path) for entry in await backend.list_dir(root)] == [(name, path)]

    async def test_spellings_of_one_path_are_one_file(self, backend: BackendProtocol, seed: Seed, root: str) -> None:
        await seed(f'{root}/a/b', b'x')
        for spelling in (f'{root}//a/b', f'{root}/./a/./b', f'{root}/a/b/', f'{root}/a//b/.'):
            assert await backend.read_bytes(spelling) == b'x'
            assert (await backend.stat(spelling)).path == f'{root}/a/b'
            assert await backend.realpath(spelling) == f'{root}/a/b'

    async def test_what_does_not_exist_has_a_real_path(self, backend: BackendProtocol, seed: Seed, root: str) -> None:
        await seed(f'{root}/a', b'')
        assert await backend.realpath(f'{root}/none/at/all') == f'{root}/none/at/all'
        assert await backend.realpath('/') == '/'

    # Reading

    @pytest.mark.parametrize(
        'data',
        [b'', bytes(range(256)), b'a\r\nb\rc\n', b'\xef\xbb\xbfa', b'\xff\xfea\0', 'é'.encode('latin-1')],
        ids=ascii,
    )
    async def test_bytes_come_back_as_they_are(
        self, backend: BackendProtocol, seed: Seed, root: str, data: bytes
    ) -> None:
        await seed(f'{root}/file', data)
        assert await backend.read_bytes(f'{root}/file') == data
        assert (await backend.stat(f'{root}/file')).size == len(data)

    async def test_eight_megabytes_come_back_as_they_are(self, backend: BackendProtocol, seed: Seed, root: str) -> None:
        data = bytes(range(256)) * (8 * 4096)
        await seed(f'{root}/file', data)
        assert digest_of(await backend.read_bytes(f'{root}/file')) == digest_of(data)

    async def test_what_is_missing_is_not_found(self, backend: BackendProtocol, seed: Seed, root: str) -> None:
        await seed(f'{root}/there', b'')
        for operation in (backend.read_bytes, backend.stat, backend.list_dir):
            for path in (f'{root}/none', f'{root}/none/below'):
                with pytest.raises(FileNotFoundError):
                    await operation(path)

    async def test_nothing_is_below_a_file(self, backend: BackendProtocol, seed: Seed, root: str) -> None:
        await seed(f'{root}/file', b'')
        assert not await backend.exists(f'{root}/file/below')
        for operation in (backend.read_bytes, backend.stat, backend.list_dir):
            with pytest.raises((FileNotFoundError, NotADirectoryError)):
                await operation(f'{root}/file/below')

    async def test_a_directory_cannot_be_read(self, backend: BackendProtocol, seed: Seed, root: str) -> None:
        await seed(f'{root}/d/file', b'')
        with pytest.raises(IsADirectoryError):
            await backend.read_bytes(f'{root}/d')

    async def test_a_file_cannot_be_listed(self, backend: BackendProtocol, seed: Seed, root: str) -> None:
        await seed(f'{root}/file', b'')
        with pytest.raises(NotADirectoryError):
            await backend.list_dir(f'{root}/file')

    async def test_files_and_directories_exist(self, backend: BackendProtocol, seed: Seed, root: str) -> None:
        await seed(f'{root}/d/file', b'')
        found = [await backend.exists(f'{root}/{path}') for path in ('d', 'd/file', 'none', 'd/none', 'fil')]
        assert found == [True, True, False, False, False]
        assert await backend.exists('/')

    async def test_metadata_of_files_and_directories(self, backend: BackendProtocol, seed: Seed, root: str) -> None:
        await seed(f'{root}/d/file', b'12345')
        assert _as_tuple(await backend.stat(f'{root}/d/file')) == ('file', f'{root}/d/file', False, 5)
        assert _as_tuple(await backend.stat(f'{root}/d')) == ('d', f'{root}/d', True, None)
        top = await backend.stat('/')
        assert (top.path, top.is_dir, top.size) == ('/', True, None)

    async def test_a_listing_is_sorted_by_name_and_one_level_deep(
        self, backend: BackendProtocol, seed: Seed, root: str
    ) -> None:
        for name in ('b', 'a-b', 'a/x/y', 'a.b', 'Z', 'é', '10', '9', '.h'):
            await seed(f'{root}/{name}', b'1')
        names = sorted(['b', 'a-b', 'a', 'a.b', 'Z', 'é', '10', '9', '.h'])
        expected = [(name, f'{root}/{name}', name == 'a', None if name == 'a' else 1) for name in names]
        assert [_as_tuple(entry) for entry in await backend.list_dir(root)] == expected

    async def test_a_root_is_listed_with_its_paths(self, backend: BackendProtocol, seed: Seed, root: str) -> None:
        await seed(f'{root}/file', b'')
        for entry in await backend.list_dir('/'):
            assert entry.path == f'/{entry.name}'

    async def test_what_cannot_be_read_is_an_error_and_hides_nothing(
        self,
        backend: BackendProtocol,
        seed: Seed,
        root: str,
        make_unreadable: Callable[[str], Awaitable[None]] | None,
    ) -> None:
        if make_unreadable is None:
            pytest.skip('nothing is unreadable here, or `make_unreadable` is to be provided')
        for name in ('a', 'b', 'c'):
            await seed(f'{root}/{name}', b'found\n')
        await make_unreadable(f'{root}/b')
        with pytest.raises(OSError):  # noqa: PT011 - which one is up to the backend; an empty result is not
            await backend.read_bytes(f'{root}/b')
        result = await _grep(backend, 'found', root)
        assert result.counts == {f'{root}/a': 1, f'{root}/c': 1}
        assert [problem.path for problem in result.problems] == [f'{root}/b']

    # Writing

    async def test_a_read_only_backend_refuses_every_change(
        self, backend: BackendProtocol, seed: Seed, root: str, is_read_only: bool
    ) -> None:
        if not is_read_only:
            pytest.skip('the backend is not read-only')
        await seed(f'{root}/file', b'old')
        changes: list[Callable[[], Awaitable[None]]] = [
            lambda: backend.write_bytes(f'{root}/file', b'new'),
            lambda: backend.write_bytes(f'{root}/new', b'new'),
            lambda: backend.make_dir(f'{root}/new'),
            lambda: backend.make_dir(root),
            lambda: backend.remove(f'{root}/file'),
            lambda: backend.remove('/'),
        ]
        for change in changes:
            with pytest.raises(ReadOnlyError):
                await change()
        assert await backend.read_bytes(f'{root}/file') == b'old'
        assert [entry.name for entry in await backend.list_dir(root)] == ['file']
        assert not isinstance(backend, SupportsCompareAndSwap | SupportsSnapshots)

    async def test_a_write_makes_parents_and_replaces(self, writable: BackendProtocol, root: str) -> None:
        path = f'{root}/a/b/file'
        await writable.write_bytes(path, b'a longer text')
        await writable.write_bytes(path, b'short')
        assert await writable.read_bytes(path) == b'short'
        assert [entry.name for entry in await writable.list_dir(f'{root}/a/b')] == ['file']

    async def test_a_directory_cannot_be_written(self, writable: BackendProtocol, root: str) -> None:
        await writable.write_bytes(f'{root}/d/file', b'old')
        for path in (f'{root}/d', '/'):
            with pytest.raises(IsADirectoryError):
                await writable.write_bytes(path, b'new')
        assert await writable.read_bytes(f'{root}/d/file') == b'old'

    async def test_nothing_can_be_made_below_a_file(self, writable: BackendProtocol, root: str) -> None:
        await writable.write_bytes(f'{root}/file', b'old')
        for path in (f'{root}/file/below', f'{root}/file/far/below'):
            with pytest.raises(NotADirectoryError):
                await writable.write_bytes(path, b'new')
            with pytest.raises(NotADirectoryError):
                await writable.make_dir(path)
        assert await writable.read_bytes(f'{root}/file') == b'old'

    async def test_readers_see_the_old_contents_or_the_new(self, writable: BackendProtocol, root: str) -> None:
        path = f'{root}/file'
        versions = [bytes([number]) * 200_000 for number in range(_WRITERS)]
        await writable.write_bytes(path, versions[0])
        seen: set[str] = set()

        async def read(pause: int) -> None:
            for _ in range(20):
                for _ in range(pause):  # readers out of step, so that some look between any two steps of a writer
                    await anyio.lowlevel.checkpoint()
                seen.add(digest_of(await writable.read_bytes(path)))

        async with anyio.create_task_group() as group:
            for pause, version in enumerate(versions):
                group.start_soon(read, pause)
                group.start_soon(writable.write_bytes, path, version)
        assert seen <= {digest_of(version) for version in versions}
        assert await writable.read_bytes(path) in versions
        assert [entry.name for entry in await writable.list_dir(root)] == ['file']

    async def test_a_write_that_is_cancelled_is_done_or_not(self, writable: BackendProtocol, root: str) -> None:
        path = f'{root}/file'
        await writable.write_bytes(path, b'old' * 1000)
        async with anyio.create_task_group() as group:
            group.start_soon(writable.write_bytes, path, b'new' * 1_000_000)
            await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        assert await writable.read_bytes(path) in (b'old' * 1000, b'new' * 1_000_000)
        assert [entry.name for entry in await writable.list_dir(root)] == ['file']

    async def test_files_written_at_once_are_all_there(self, writable: BackendProtocol, root: str) -> None:
        async with anyio.create_task_group() as group:
            for number in range(30):
                group.start_soon(writable.write_bytes, f'{root}/d{number % 3}/{number}', b'%d' % number)
        for number in range(30):
            assert await writable.read_bytes(f'{root}/d{number % 3}/{number}') == b'%d' % number

    # Directories

    async def test_a_directory_is_made_with_its_parents(self, writable: BackendProtocol, root: str) -> None:
        await writable.make_dir(f'{root}/a/b')
        assert (await writable.stat(f'{root}/a/b')).is_dir
        assert await writable.list_dir(f'{root}/a/b') == []
        assert [_as_tuple(entry) for entry in await writable.list_dir(f'{root}/a')] == [
            ('b', f'{root}/a/b', True, None)
        ]

    async def test_making_a_directory_again_changes_nothing(self, writable: BackendProtocol, root: str) -> None:
        await writable.write_bytes(f'{root}/a/file', b'x')
        for path in (f'{root}/a', root, '/'):
            await writable.make_dir(path)
        assert await writable.read_bytes(f'{root}/a/file') == b'x'

    async def test_a_directory_is_not_made_over_a_file(self, writable: BackendProtocol, root: str) -> None:
        await writable.write_bytes(f'{root}/file', b'x')
        with pytest.raises(FileExistsError):
            await writable.make_dir(f'{root}/file')
        assert await writable.read_bytes(f'{root}/file') == b'x'

    # Removing

    async def test_a_removed_file_is_gone_and_its_directory_stays(self, writable: BackendProtocol, root: str) -> None:
        await writable.write_bytes(f'{root}/d/file', b'x')
        await writable.remove(f'{root}/d/file')
        assert not await writable.exists(f'{root}/d/file')
        assert await writable.list_dir(f'{root}/d') == []

    async def test_a_directory_is_removed_with_all_in_it_and_no_neighbour(
        self, writable: BackendProtocol, root: str
    ) -> None:
        for path in ('d/a/b', 'd/c', 'dd', 'd-e/f'):
            await writable.write_bytes(f'{root}/{path}', b'x')
        await writable.make_dir(f'{root}/d/empty/more')
        await writable.remove(f'{root}/d')
        assert not await writable.exists(f'{root}/d')
        assert [entry.name for entry in await writable.list_dir(root)] == ['d-e', 'dd']
        assert await writable.read_bytes(f'{root}/d-e/f') == b'x'

    async def test_what_is_missing_cannot_be_removed(self, writable: BackendProtocol, root: str) -> None:
        await writable.write_bytes(f'{root}/file', b'x')
        with pytest.raises(FileNotFoundError):
            await writable.remove(f'{root}/none')
        with pytest.raises((FileNotFoundError, NotADirectoryError)):
            await writable.remove(f'{root}/file/below')
        assert await writable.exists(f'{root}/file')

    async def test_the_working_directory_and_those_above_stay(self, writable: BackendProtocol, root: str) -> None:
        await writable.write_bytes(f'{root}/file', b'x')
        path = await writable.working_dir()
        for ancestor in {path, posixpath.dirname(path), '/'}:
            with pytest.raises(ValueError, match=r'(?i)remove'):
                await writable.remove(ancestor)
        assert await writable.read_bytes(f'{root}/file') == b'x'

    # Compare and swap

    async def test_a_file_is_created_only_if_there_is_none(
        self, backend: BackendProtocol, swapping: SupportsCompareAndSwap, root: str
    ) -> None:
        path = f'{root}/a/file'
        await swapping.compare_and_swap(path, b'one', expected=None)
        with pytest.raises(FileChangedError) as caught:
            await swapping.compare_and_swap(path, b'two', expected=None)
        assert (caught.value.path, caught.value.expected, caught.value.actual) == (path, None, digest_of(b'one'))
        assert await backend.read_bytes(path) == b'one'

    async def test_a_file_is_replaced_only_if_it_is_what_was_read(
        self, backend: BackendProtocol, swapping: SupportsCompareAndSwap, root: str
    ) -> None:
        path = f'{root}/file'
        await backend.write_bytes(path, b'one')
        await swapping.compare_and_swap(path, b'two', expected=digest_of(b'one'))
        with pytest.raises(FileChangedError) as caught:
            await swapping.compare_and_swap(path, b'three', expected=digest_of(b'one'))
        assert (caught.value.expected, caught.value.actual) == (digest_of(b'one'), digest_of(b'two'))
        assert await backend.read_bytes(path) == b'two'

    async def test_a_file_that_is_gone_is_not_replaced(
        self, backend: BackendProtocol, swapping: SupportsCompareAndSwap, root: str
    ) -> None:
        await backend.write_bytes(f'{root}/other', b'')
        for path in (f'{root}/file', f'{root}/d/file'):
            with pytest.raises(FileChangedError) as caught:
                await swapping.compare_and_swap(path, b'two', expected=digest_of(b'one'))
            assert (caught.value.path, caught.value.actual) == (path, None)
        assert [entry.name for entry in await backend.list_dir(root)] == ['other']

    async def test_a_directory_is_not_replaced(
        self, backend: BackendProtocol, swapping: SupportsCompareAndSwap, root: str
    ) -> None:
        await backend.write_bytes(f'{root}/d/file', b'x')
        for expected in (None, digest_of(b'x')):
            with pytest.raises(IsADirectoryError):
                await swapping.compare_and_swap(f'{root}/d', b'new', expected=expected)
            with pytest.raises(NotADirectoryError):
                await swapping.compare_and_swap(f'{root}/d/file/below', b'new', expected=expected)

    async def test_writers_of_one_file_lose_no_update(
        self, backend: BackendProtocol, swapping: SupportsCompareAndSwap, root: str
    ) -> None:
        """Each adds its lines through a spelling of its own, and tries again where another was faster."""
        rounds = 5
        await backend.write_bytes(f'{root}/file', b'')
        spellings = (f'{root}/file', f'{root}//file', f'{root}/./file', f'{root}/file/')

        async def add_lines(writer: int) -> None:
            path = spellings[writer % len(spellings)]
            done = 0
            while done < rounds:
                data = await backend.read_bytes(path)
                await anyio.lowlevel.checkpoint()
                try:
                    line = f'{writer}.{done}\n'.encode()
                    await swapping.compare_and_swap(path, data + line, expected=digest_of(data))
                except FileChangedError:
                    continue
                done += 1

        async with anyio.create_task_group() as group:
            for writer in range(_WRITERS):
                group.start_soon(add_lines, writer)
        lines = (await backend.read_bytes(f'{root}/file')).decode().split()
        assert sorted(lines) == sorted(f'{writer}.{done}' for writer in range(_WRITERS) for done in range(rounds))

    async def test_one_of_many_creators_wins(
        self, backend: BackendProtocol, swapping: SupportsCompareAndSwap, root: str
    ) -> None:
        won: list[bytes] = []

        async def create(writer: int) -> None:
            data = b'%d' % writer
            try:
                await swapping.compare_and_swap(f'{root}/file', data, expected=None)
            except FileChangedError:
                return
            won.append(data)

        async with anyio.create_task_group() as group:
            for writer in range(_WRITERS):
                group.start_soon(create, writer)
        assert won == [await backend.read_bytes(f'{root}/file')]

    # Search

    async def test_globs_find_what_the_table_says(self, backend: BackendProtocol, seed: Seed, root: str) -> None:
        for path in GLOB_FILES:
            await seed(f'{root}/{path}', b'')
        found = {case: await _glob(backend, case.pattern, _below(root, case.path)) for case in GLOB_CASES}
        assert found == {
            case: GlobResult(paths=tuple(sorted(_below(root, path) for path in case.expected))) for case in GLOB_CASES
        }

    async def test_regular_expressions_find_what_the_table_says(
        self, backend: BackendProtocol, seed: Seed, root: str
    ) -> None:
        for path, data in GREP_FILES.items():
            await seed(f'{root}/{path}', data)
        found = {
            case: _as_lines(await _grep(backend, case.pattern, _below(root, case.path), glob=case.glob))
            for case in GREP_CASES
        }
        assert found == {
            case: sorted((_below(root, path), number, line) for path, number, line in case.expected)
            for case in GREP_CASES
        }

    @pytest.mark.parametrize('pattern', INVALID_GLOBS, ids=lambda pattern: ascii(pattern)[:30])
    async def test_a_malformed_glob_is_refused(
        self, backend: BackendProtocol, seed: Seed, root: str, pattern: str
    ) -> None:
        await seed(f'{root}/file', b'')
        with pytest.raises(InvalidPatternError):
            await _glob(backend, pattern, root)
        with pytest.raises(InvalidPatternError):
            await _grep(backend, 'a', root, glob=pattern)

    @pytest.mark.parametrize('pattern', INVALID_REGEXES, ids=lambda pattern: ascii(pattern)[:30])
    async def test_a_malformed_regular_expression_is_refused(
        self, backend: BackendProtocol, seed: Seed, root: str, pattern: str
    ) -> None:
        await seed(f'{root}/file', b'')
        with pytest.raises(InvalidPatternError):
            await _grep(backend, pattern, root)

    async def test_a_search_needs_a_place_that_exists(self, backend: BackendProtocol, seed: Seed, root: str) -> None:
        await seed(f'{root}/file', b'')
        with pytest.raises(FileNotFoundError):
            await _glob(backend, '**', f'{root}/none')
        with pytest.raises(FileNotFoundError):
            await _grep(backend, 'a', f'{root}/none')
        with pytest.raises(NotADirectoryError):
            await _glob(backend, '**', f'{root}/file')

    async def test_counts_stay_complete_when_lines_are_left_out(
        self, backend: BackendProtocol, seed: Seed, root: str
    ) -> None:
        for name in ('b', 'a', 'c'):
            await seed(f'{root}/{name}', b'x\n' * 4)
        result = await _grep(backend, 'x', root, limit=6)
        lines = [(match.path, match.line_number) for match in result.matches]
        assert lines == [(f'{root}/a', number) for number in (1, 2, 3, 4)] + [(f'{root}/b', 1), (f'{root}/b', 2)]
        assert result.counts == {f'{root}/{name}': 4 for name in ('a', 'b', 'c')}
        assert result.truncated
        assert result.files_searched == 3

    # Snapshots

    async def test_equal_files_make_the_same_tree_on_every_backend(
        self, backend: BackendProtocol, capturing: SupportsSnapshots, root: str, tree_root: str
    ) -> None:
        files = {'/a': b'1', '/d/b': b'', '/d/e/c': bytes(range(256)), '/.hidden': b'x', '/naïve': b'\r\n'}
        for path, data in files.items():
            await backend.write_bytes(f'{root}{path}', data)
        await backend.make_dir(f'{root}/empty')
        tree = (await capturing.snapshot()).subtree(tree_root)
        assert dict(tree.items()) == {path: _version(data) for path, data in files.items()}
        assert tree.digest == _tree(files).digest

    async def test_a_snapshot_stays_what_it_was(
        self, backend: BackendProtocol, capturing: SupportsSnapshots, root: str, tree_root: str
    ) -> None:
        await backend.write_bytes(f'{root}/a', b'1')
        before = await capturing.snapshot()
        await backend.write_bytes(f'{root}/a', b'2')
        after = await capturing.snapshot()
        assert before.get(f'{tree_root}/a') == _version(b'1')
        assert after.get(f'{tree_root}/a') == _version(b'2')

    async def test_changes_are_what_was_added_removed_and_changed(
        self, backend: BackendProtocol, capturing: SupportsSnapshots, root: str, tree_root: str
    ) -> None:
        for path in ('same', 'gone', 'd/other', 'touched'):
            await backend.write_bytes(f'{root}/{path}', path.encode())
        before = await capturing.snapshot()
        assert await capturing.changes(before) == TreeDiff()
        await backend.write_bytes(f'{root}/d/other', b'new')
        await backend.write_bytes(f'{root}/d/added', b'')
        await backend.write_bytes(f'{root}/touched', b'touched')
        await backend.remove(f'{root}/gone')
        await backend.make_dir(f'{root}/empty')
        assert await capturing.changes(before) == TreeDiff(
            added=(f'{tree_root}/d/added',), removed=(f'{tree_root}/gone',), changed=(f'{tree_root}/d/other',)
        )

    async def test_a_restore_brings_every_file_back(
        self, backend: BackendProtocol, capturing: SupportsSnapshots, root: str
    ) -> None:
        files = {f'{root}/a': b'1', f'{root}/d/b': b'2', f'{root}/d/c': b'2', f'{root}/e/f/g': b'3', f'{root}/h': b'4'}
        for path, data in files.items():
            await backend.write_bytes(path, data)
        before = await capturing.snapshot()
        await backend.write_bytes(f'{root}/a', b'changed')
        await backend.remove(f'{root}/d')
        await backend.write_bytes(f'{root}/d', b'a file now')
        await backend.remove(f'{root}/h')
        await backend.write_bytes(f'{root}/h/i/j', b'a directory now')
        await backend.write_bytes(f'{root}/new/file', b'')
        await capturing.restore(before, _reader(files.values()))
        assert await capturing.snapshot() == before
        assert await capturing.changes(before) == TreeDiff()
        for path, data in files.items():
            assert await backend.read_bytes(path) == data
        assert [entry.name for entry in await backend.list_dir(root)] == ['a', 'd', 'e', 'h']

    async def test_a_restored_file_may_take_the_place_of_an_empty_directory(
        self, backend: BackendProtocol, capturing: SupportsSnapshots, root: str, tree_root: str
    ) -> None:
        await backend.make_dir(f'{root}/a/b')
        wanted = Tree.of({f'{tree_root}/a': _version(b'x')})
        await capturing.restore(wanted, _reader([b'x']))
        assert await capturing.snapshot() == wanted

    async def test_a_restore_keeps_who_may_execute(self, capturing: SupportsSnapshots, tree_root: str) -> None:
        wanted = Tree.of({f'{tree_root}/run': _version(b'#!', 0o755), f'{tree_root}/read': _version(b'#!')})
        await capturing.restore(wanted, _reader([b'#!']))
        assert await capturing.snapshot() == wanted
        swapped = Tree.of({f'{tree_root}/run': _version(b'#!'), f'{tree_root}/read': _version(b'#!', 0o755)})
        await capturing.restore(swapped, _reader([b'#!']))
        assert await capturing.snapshot() == swapped

    async def test_an_empty_tree_removes_every_file(
        self, backend: BackendProtocol, capturing: SupportsSnapshots, root: str
    ) -> None:
        await backend.write_bytes(f'{root}/a/b', b'x')
        await capturing.restore(Tree())
        assert await capturing.snapshot() == Tree()
        assert not await backend.exists(f'{root}/a')

    async def test_nothing_changes_where_contents_are_missing(
        self, backend: BackendProtocol, capturing: SupportsSnapshots, root: str, tree_root: str
    ) -> None:
        await backend.write_bytes(f'{root}/keep', b'1')
        before = await capturing.snapshot()
        wanted = Tree.of({f'{tree_root}/{name}': _version(name.encode()) for name in ('b', 'a', 'c')})
        for read_blob in (None, _reader([b'b']), _wrong_contents):
            with pytest.raises(MissingBlobError) as caught:
                await capturing.restore(wanted, read_blob)
            assert f'{tree_root}/a' in caught.value.paths
            assert list(caught.value.paths) == sorted(caught.value.paths)
            assert await capturing.snapshot() == before

    async def test_a_tree_with_a_path_that_is_refused_is_not_restored(
        self, capturing: SupportsSnapshots, tree_root: str
    ) -> None:
        wanted = Tree.of({f'{tree_root}/a\nb': _version(b'x')})
        with pytest.raises(InvalidPathError):
            await capturing.restore(wanted, _reader([b'x']))
        assert await capturing.snapshot() == Tree()

    # Commands

    async def test_a_place_is_recognized_whatever_changes_in_it(
        self, identified: SupportsIdentity, backend: BackendProtocol, seed: Seed, root: str
    ) -> None:
        await seed(posixpath.join(root, 'a.txt'), b'one')
        identity = await identified.identity()
        assert identity is not None
        for name, data in (('a.txt', b'two'), ('deep/er/b.txt', b'b')):
            await seed(posixpath.join(root, name), data)
        assert await identified.has_identity(identity) is not False
        assert await identified.has_identity(await identified.identity() or '') is not False

    @pytest.mark.parametrize('foreign', ['', 'null', '[]', '{}', '7', 'of another backend'])
    async def test_the_identity_of_something_else_is_not_recognized(
        self, identified: SupportsIdentity, foreign: str
    ) -> None:
        assert await identified.has_identity(foreign) is not True

    async def test_a_place_that_is_there_stays_what_it_is(
        self, identified: SupportsIdentity, writable: BackendProtocol, root: str
    ) -> None:
        await writable.write_bytes(posixpath.join(root, 'a.txt'), b'one')
        identity = await identified.identity()
        await identified.make_root()
        assert await identified.has_identity(identity or '') is not False
        assert await writable.read_bytes(posixpath.join(root, 'a.txt')) == b'one'

    async def test_a_command_has_the_form_that_it_is_said_to_have(self, commands: SupportsCommands) -> None:
        for command, shell in (('true', False), (['true'], True), ([b'true'], False), ([1], False)):
            with pytest.raises(TypeError):
                await commands.run(cast('Command', command), shell=shell)

    @pytest.mark.parametrize('command', [[], [''], ['echo', 'a\0b']], ids=ascii)
    async def test_what_is_no_command_is_refused(self, commands: SupportsCommands, command: list[str]) -> None:
        with pytest.raises(ValueError, match=r'command has no program|has a NUL'):
            await commands.run(command)

    @pytest.mark.parametrize('timeout', [0, -1, math.inf, math.nan])
    async def test_a_timeout_is_positive_and_finite(self, commands: SupportsCommands, timeout: float) -> None:
        with pytest.raises(ValueError, match='positive, finite'):
            await commands.run(['true'], timeout=timeout)

    @pytest.mark.parametrize('env', [{'': 'a'}, {'A=B': 'a'}, {'A\0': 'a'}, {'A': 'a\0'}], ids=ascii)
    async def test_what_is_no_variable_is_refused(self, commands: SupportsCommands, env: dict[str, str]) -> None:
        with pytest.raises(ValueError, match='cannot be set'):
            await commands.run(['true'], env=env)

    async def test_commands_start_in_the_working_directory(
        self, backend: BackendProtocol, commands: SupportsCommands
    ) -> None:
        assert (await commands.run(['pwd', '-P'])).stdout == f'{await backend.working_dir()}\n'

    async def test_standard_input_is_at_its_end(self, commands: SupportsCommands) -> None:
        assert await commands.run(['cat'], timeout=60) == CommandResult(exit_code=0, stdout='', stderr='')

    @pytest.mark.parametrize(
        ('command', 'exit_code'),
        [
            (['true'], 0),
            (['sh', '-c', 'exit 7'], 7),
            (['sh', '-c', 'exit 137'], 137),
            (['sh', '-c', 'exit 255'], 255),
            (['sh', '-c', 'kill -KILL $$'], -9),
            (['sh', '-c', 'kill -TERM $$'], -15),
            (['sh', '-c', 'kill -PIPE $$'], -13),
            (['pydantic-deep-no-such-program'], 127),
            (['/pydantic-deep/no-such-program'], 127),
            (['/usr'], 126),
        ],
        ids=ascii,
    )
    async def test_the_exit_code_is_what_the_process_gave(
        self, commands: SupportsCommands, command: list[str], exit_code: int
    ) -> None:
        result = await commands.run(command)
        assert (result.exit_code, result.stdout) == (exit_code, '')
        assert (result.stderr != '') == (exit_code in (126, 127))

    async def test_arguments_are_literal(self, commands: SupportsCommands) -> None:
        arguments = [' a  b ', '', '$(id) `id`; && ${PATH}', '*', '-n', '--', 'naïve\n日本語']
        result = await commands.run(['sh', '-c', 'for a; do printf "<%s>" "$a"; done', 'sh', *arguments])
        assert result.stdout == ''.join(f'<{argument}>' for argument in arguments)

    async def test_a_shell_string_is_for_the_shell(self, commands: SupportsCommands) -> None:
        result = await commands.run('printf out; printf err >&2; false || exit 3', shell=True)
        assert result == CommandResult(exit_code=3, stdout='out', stderr='err')

    async def test_undecodable_output_is_replaced(self, commands: SupportsCommands) -> None:
        result = await commands.run("printf 'a\\377b'; printf '\\303' >&2", shell=True)
        assert (result.stdout, result.stderr) == ('a\ufffdb', '\ufffd')

    async def test_output_is_whole(self, commands: SupportsCommands) -> None:
        script = 'i=0; while [ $i -lt 2000 ]; do echo "out $i"; echo "err $i" >&2; i=$((i+1)); done'
        result = await commands.run(script, shell=True)
        assert result.stdout.splitlines() == [f'out {number}' for number in range(2000)]
        assert result.stderr.splitlines() == [f'err {number}' for number in range(2000)]

    async def test_a_flood_is_cut_in_the_middle_and_its_command_ends_well(self, commands: SupportsCommands) -> None:
        script = 'echo begin; head -c 50000000 /dev/zero | tr "\\0" a; echo; echo end; exit 5'
        result = await commands.run(script, shell=True)
        assert result.exit_code == 5
        assert result.stdout.startswith('begin\naaaa')
        assert result.stdout.endswith('aaaa\nend\n')
        notice = re.search(r'\n\[… ([0-9,]+) bytes left out …]\n', result.stdout)
        assert notice is not None
        kept = len(result.stdout) - len(notice[0])
        assert kept + int(notice[1].replace(',', '')) == len('begin\n\nend\n') + 50_000_000
        assert kept < 5_000_000

    async def test_variables_are_added_and_none_is_inherited_by_chance(
        self, commands: SupportsCommands, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv('PYDANTIC_DEEP_SECRET', 'canary')
        result = await commands.run(['env'], env={'ADDED': 'a=b c', 'PATH': '/usr/bin:/bin'})
        lines = result.stdout.splitlines()
        assert 'ADDED=a=b c' in lines
        assert 'PATH=/usr/bin:/bin' in lines
        assert 'canary' not in result.stdout

    async def test_commands_and_file_operations_share_files(
        self, backend: BackendProtocol, commands: SupportsCommands, root: str
    ) -> None:
        path = f'{root}/d/file'
        await backend.write_bytes(path, b'from a file operation\n')
        script = 'cat "$1"; echo from a command > "$1"; echo new > "$1.new"; mkdir "$1.d"; : > "$1.d/x"'
        result = await commands.run(['sh', '-c', script, 'sh', path])
        assert result == CommandResult(exit_code=0, stdout='from a file operation\n', stderr='')
        assert await backend.read_bytes(path) == b'from a command\n'
        await backend.write_bytes(f'{path}.new', b'and back')
        assert (await commands.run(['cat', f'{path}.new'])).stdout == 'and back'
        await backend.remove(f'{path}.d')
        assert [entry.name for entry in await backend.list_dir(f'{root}/d')] == ['file', 'file.new']
        assert (await commands.run(['rm', '-r', root])).exit_code == 0
        assert not await backend.exists(root)

    async def test_a_link_of_a_command_leads_file_operations_nowhere(
        self, backend: BackendProtocol, commands: SupportsCommands, root: str
    ) -> None:
        await backend.make_dir(root)
        script = 'cd "$1"; ln -s /etc/passwd file; ln -s / top; ln -s "$1" self; echo x > inside; ln -s inside near'
        assert (await commands.run(['sh', '-c', script, 'sh', root])).exit_code == 0
        for path in ('file', 'top/etc/passwd'):
            with pytest.raises((PermissionError, FileNotFoundError)):
                await backend.read_bytes(f'{root}/{path}')
            with pytest.raises((PermissionError, FileNotFoundError)):
                await backend.write_bytes(f'{root}/{path}', b'')
        assert await backend.read_bytes(f'{root}/self/near') == b'x\n'
        await backend.remove(f'{root}/top')
        assert await backend.exists('/')

    async def test_commands_run_side_by_side(self, commands: SupportsCommands) -> None:
        results: dict[int, CommandResult] = {}

        async def run(number: int) -> None:
            results[number] = await commands.run(f'echo {number}; exit {number}', shell=True)

        async with anyio.create_task_group() as group:
            for number in range(_WRITERS):
                group.start_soon(run, number)
        assert results == {
            number: CommandResult(exit_code=number, stdout=f'{number}\n', stderr='') for number in range(_WRITERS)
        }

    async def test_what_a_command_started_ends_with_it(
        self, backend: BackendProtocol, commands: SupportsCommands, root: str
    ) -> None:
        await backend.make_dir(root)
        result = await commands.run(_BEATS + 'echo done', shell=True, env={'BEATS': root})
        assert (result.exit_code, result.stdout) == (0, 'done\n')
        await _assert_beats_stopped(backend, commands, root)

    async def test_what_takes_too_long_is_ended_whole(
        self, backend: BackendProtocol, commands: SupportsCommands, root: str
    ) -> None:
        await backend.make_dir(root)
        script = f'echo out; echo err >&2; {_BEATS} sleep 600'
        seconds, printed = 0.25, ('', '')
        # How far it gets in half a second is a matter of the machine: a busy one is given as long as it needs.
        while len(await _found_beats(backend, root)) < _BEATING and seconds < 60:
            seconds *= 2
            with pytest.raises(CommandTimeoutError, match=f'took longer than {seconds:g} seconds') as caught:
                await commands.run(script, shell=True, env={'BEATS': root}, timeout=seconds)
            printed = (caught.value.stdout, caught.value.stderr)
        assert printed == ('out\n', 'err\n')
        await _assert_beats_stopped(backend, commands, root)

    async def test_what_is_cancelled_is_ended_whole(
        self, backend: BackendProtocol, commands: SupportsCommands, root: str
    ) -> None:
        await backend.make_dir(root)
        async with anyio.create_task_group() as group:
            group.start_soon(partial(commands.run, _BEATS + 'sleep 600', shell=True, env={'BEATS': root}))
            await _beats_of(backend, root)
            group.cancel_scope.cancel()
        await _assert_beats_stopped(backend, commands, root)


async def _glob(backend: BackendProtocol, pattern: str, path: str) -> GlobResult:
    if isinstance(backend, SupportsSearch):
        return await backend.glob(pattern, path)
    return await glob_backend(backend, pattern, path)


async def _grep(
    backend: BackendProtocol, pattern: str, path: str, *, glob: str | None = None, limit: int = 1000
) -> GrepResult:
    if isinstance(backend, SupportsSearch):
        return await backend.grep(pattern, path, glob=glob, limit=limit)
    return await grep_backend(backend, pattern, path, glob=glob, limit=limit)


async def _beats_of(backend: BackendProtocol, root: str) -> dict[str, bytes]:
    """Return what the processes of `_BEATS` have written, once each of them has written something."""
    with anyio.fail_after(60):
        while len(beats := await _found_beats(backend, root)) < _BEATING:  # noqa: ASYNC110 - a command writes them
            await anyio.sleep(0.01)
    return beats


async def _found_beats(backend: BackendProtocol, root: str) -> dict[str, bytes]:
    """Return what those processes of `_BEATS` have written that have written something."""
    beats = {entry.name: await backend.read_bytes(entry.path) for entry in await backend.list_dir(root)}
    return {name: beat for name, beat in beats.items() if beat}


async def _assert_beats_stopped(backend: BackendProtocol, commands: SupportsCommands, root: str) -> None:
    """Check that no process of `_BEATS` writes any more, though it would have time for several lines."""
    before = await _beats_of(backend, root)
    await commands.run(['sleep', '0.2'])
    assert await _beats_of(backend, root) == before


def _below(root: str, path: str) -> str:
    return root if path == '.' else f'{root}/{path}'


def _as_tuple(entry: FileEntryLike) -> tuple[str, str, bool, int | None]:
    return entry.name, entry.path, entry.is_dir, entry.size


def _as_lines(result: GrepResult) -> list[tuple[str, int, str]]:
    """Return the lines of a result that is complete and in which the counts agree with the lines."""
    assert (result.problems, result.truncated) == ((), False)
    assert sum(result.counts.values()) == len(result.matches)
    return [(match.path, match.line_number, match.line) for match in result.matches]


def _version(data: bytes, mode: int = 0o644) -> FileVersion:
    return FileVersion(digest=digest_of(data), size=len(data), mode=mode)


def _tree(files: Mapping[str, bytes]) -> Tree:
    return Tree.of({path: _version(data) for path, data in files.items()})


def _reader(contents: Iterable[bytes]) -> Callable[[str], Awaitable[bytes]]:
    by_digest = {digest_of(data): data for data in contents}

    async def read_blob(digest: str) -> bytes:
        return by_digest[digest]

    return read_blob


async def _wrong_contents(digest: str) -> bytes:
    return b'not what has the digest ' + digest.encode()
