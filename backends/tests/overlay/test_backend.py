"""`OverlayBackend`: the rules of all backends, what is seen, and what goes to another process.

The merge is in `test_merge`.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest

import pydantic_deep_backends.overlay._dump as overlay_dump
from pydantic_deep_backends import (
    CompositeBackend,
    FileChangedError,
    GrepResult,
    InvalidOverlayError,
    LocalBackend,
    OverlayBackend,
    ReadOnlyBackend,
    StateBackend,
    SupportsCommands,
    SupportsCompareAndSwap,
    SupportsSearch,
    SupportsSnapshots,
    digest_of,
)
from pydantic_deep_backends.conformance import BackendSuite
from pydantic_deep_backends.overlay import relocate
from pydantic_deep_backends.search import MAX_FILE_BYTES, glob_backend, grep_backend

pytestmark = pytest.mark.anyio


class TestOverlayOfState(BackendSuite):
    @pytest.fixture
    def backend(self) -> OverlayBackend:
        return OverlayBackend(StateBackend())


class TestOverlayOfLocal(BackendSuite):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> OverlayBackend:
        return OverlayBackend(LocalBackend(tmp_path))


class TestOverlayOfFilesInTheBase(BackendSuite):
    """The files that the rules begin with are in the base; what they change is not."""

    @pytest.fixture
    def base(self, tmp_path: Path) -> LocalBackend:
        return LocalBackend(tmp_path)

    @pytest.fixture
    def backend(self, base: LocalBackend) -> OverlayBackend:
        return OverlayBackend(base)

    @pytest.fixture
    def seed(self, base: LocalBackend) -> Callable[[str, bytes], Awaitable[None]]:
        return base.write_bytes


class TestOverlayOfReadOnlyWithoutSearch(BackendSuite):
    """Over a base that can neither search nor write."""

    @pytest.fixture
    def base(self) -> StateBackend:
        return StateBackend()

    @pytest.fixture
    def backend(self, base: StateBackend) -> OverlayBackend:
        plain = ReadOnlyBackend(base)
        del vars(plain)['glob'], vars(plain)['grep']
        assert not isinstance(plain, SupportsSearch)
        return OverlayBackend(plain)

    @pytest.fixture
    def seed(self, base: StateBackend) -> Callable[[str, bytes], Awaitable[None]]:
        return base.write_bytes


class TestOverlayOfOverlay(BackendSuite):
    @pytest.fixture
    def backend(self) -> OverlayBackend:
        return OverlayBackend(OverlayBackend(StateBackend()))


class TestMountedOverlay(BackendSuite):
    @pytest.fixture
    def backend(self) -> CompositeBackend:
        return CompositeBackend(OverlayBackend(StateBackend()), {'/mounted': OverlayBackend(StateBackend())})


class Slow(StateBackend):
    """Lets others run before it answers."""

    async def read_bytes(self, path: str) -> bytes:
        await anyio.lowlevel.checkpoint()
        return await super().read_bytes(path)

    async def stat(self, path: str) -> Any:
        await anyio.lowlevel.checkpoint()
        return await super().stat(path)

    async def list_dir(self, path: str) -> Any:
        await anyio.lowlevel.checkpoint()
        return await super().list_dir(path)


def test_it_has_the_capabilities_that_it_says() -> None:
    overlay = OverlayBackend(StateBackend())
    assert isinstance(overlay, SupportsSearch)
    assert isinstance(overlay, SupportsCompareAndSwap)
    assert not isinstance(overlay, SupportsCommands)
    assert not isinstance(overlay, SupportsSnapshots)


async def test_the_base_sees_nothing_before_the_merge() -> None:
    base = StateBackend({'/a': '1', '/d/b': '2'})
    before = await base.snapshot()
    overlay = OverlayBackend(base)
    await overlay.write_bytes('/a', b'new')
    await overlay.write_bytes('/n/m', b'new')
    await overlay.make_dir('/empty')
    await overlay.remove('/d')
    assert await base.snapshot() == before
    assert overlay.changed_paths == ('/a', '/d/b', '/n/m')
    assert repr(overlay) == '<OverlayBackend of 3 changed files over <StateBackend of 2 files, 2 bytes>>'


async def test_what_others_change_is_seen_where_nothing_was_touched() -> None:
    base = StateBackend({'/mine': '1', '/theirs': '1'})
    overlay = OverlayBackend(base)
    await overlay.write_bytes('/mine', b'2')
    await base.write_bytes('/mine', b'other')
    await base.write_bytes('/theirs', b'other')
    await base.write_bytes('/new', b'other')
    assert [await overlay.read_bytes(path) for path in ('/mine', '/theirs', '/new')] == [b'2', b'other', b'other']
    assert [(entry.name, entry.size) for entry in await overlay.list_dir('/')] == [
        ('mine', 1),
        ('new', 5),
        ('theirs', 5),
    ]


async def test_what_is_written_back_as_it_was_is_no_change() -> None:
    overlay = OverlayBackend(StateBackend({'/a': '1'}))
    await overlay.write_bytes('/a', b'2')
    await overlay.write_bytes('/a', b'1')
    assert overlay.changed_paths == ()


async def test_a_directory_in_the_place_of_a_removed_one_shows_nothing_of_it() -> None:
    base = StateBackend({'/d/old/x': '1', '/f': 'file'})
    overlay = OverlayBackend(base)
    await overlay.remove('/d')
    await overlay.write_bytes('/d/new', b'2')
    await base.write_bytes('/d/late', b'3')
    assert [entry.name for entry in await overlay.list_dir('/d')] == ['new']
    assert not await overlay.exists('/d/late')
    with pytest.raises(FileNotFoundError):
        await overlay.list_dir('/d/old')
    await overlay.remove('/f')
    await overlay.make_dir('/f/g')
    assert [entry.path for entry in await overlay.list_dir('/f')] == ['/f/g']
    await overlay.remove('/f')
    assert not await overlay.exists('/f/g')


async def test_a_directory_with_changes_stays_seen_when_the_base_loses_it() -> None:
    base = StateBackend({'/d/a': '1', '/d/b': '2'})
    overlay = OverlayBackend(base)
    await overlay.write_bytes('/d/a', b'new')
    await base.remove('/d')
    assert await overlay.exists('/d')
    assert (await overlay.stat('/d')).is_dir
    assert [entry.name for entry in await overlay.list_dir('/d')] == ['a']
    assert (await overlay.glob('**')).paths == ('/d/a',)
    assert (await overlay.glob('**', '/d')).paths == ('/d/a',)
    with pytest.raises(IsADirectoryError):
        await overlay.read_bytes('/d')
    with pytest.raises(IsADirectoryError):
        await overlay.write_bytes('/d', b'')
    await overlay.make_dir('/d')
    await overlay.write_bytes('/d/c', b'c')
    await overlay.remove('/d')
    assert not await overlay.exists('/d')


async def test_a_made_directory_shows_what_others_put_there() -> None:
    base = StateBackend()
    overlay = OverlayBackend(base)
    await overlay.make_dir('/d')
    assert await overlay.list_dir('/d') == []
    await base.write_bytes('/d/theirs', b'1')
    assert [entry.name for entry in await overlay.list_dir('/d')] == ['theirs']
    await overlay.remove('/d')
    assert not await overlay.exists('/d/theirs')


async def test_nothing_is_below_a_file_of_the_overlay() -> None:
    overlay = OverlayBackend(StateBackend())
    await overlay.write_bytes('/f', b'1')
    for operation in (overlay.read_bytes, overlay.list_dir, overlay.stat, overlay.remove, overlay.make_dir):
        with pytest.raises(NotADirectoryError):
            await operation('/f/x')
    with pytest.raises(NotADirectoryError):
        await overlay.write_bytes('/f/x', b'')
    with pytest.raises(NotADirectoryError):
        await overlay.list_dir('/f')
    assert not await overlay.exists('/f/x')


async def test_a_directory_is_seen_without_what_was_removed_far_below() -> None:
    overlay = OverlayBackend(StateBackend({'/d/e/f': '1'}))
    await overlay.remove('/d/e/f')
    assert [entry.path for entry in await overlay.list_dir('/')] == ['/d']
    assert (await overlay.glob('**')).paths == ()


async def test_an_empty_directory_is_searched_and_removed_with_what_the_base_has_there() -> None:
    base = StateBackend()
    overlay = OverlayBackend(base)
    await overlay.make_dir('/d/e')
    assert (await overlay.glob('**', '/d')).paths == ()
    await base.write_bytes('/d/e/f', b'x')
    assert (await overlay.glob('**', '/d')).paths == ('/d/e/f',)
    await overlay.remove('/d')
    assert not await overlay.exists('/d/e/f')


async def test_nothing_is_made_below_a_file_of_a_base_that_finds_nothing_there() -> None:
    class Vague(StateBackend):
        async def read_bytes(self, path: str) -> bytes:
            if path.startswith('/f/'):
                raise FileNotFoundError(path)
            return await super().read_bytes(path)

        async def stat(self, path: str) -> Any:
            if path.startswith('/f/'):
                raise FileNotFoundError(path)
            return await super().stat(path)

    overlay = OverlayBackend(Vague({'/f': '1'}))
    with pytest.raises(NotADirectoryError):
        await overlay.write_bytes('/f/x', b'')
    with pytest.raises(NotADirectoryError):
        await overlay.make_dir('/f/x/y')


async def test_links_of_the_base_lead_where_they_lead(tmp_path: Path) -> None:
    (tmp_path / 'd').mkdir()
    (tmp_path / 'd/f').write_text('old')
    (tmp_path / 'l').symlink_to('d')
    (tmp_path / 'm').symlink_to('l/f')
    overlay = OverlayBackend(LocalBackend(tmp_path))
    assert await overlay.realpath('/l/f') == '/d/f'
    await overlay.write_bytes('/l/f', b'new!')
    assert overlay.changed_paths == ('/d/f',)
    assert await overlay.read_bytes('/m') == b'new!'
    assert (await overlay.stat('/l/f')).path == '/l/f'
    assert (await overlay.stat('/l/f')).size == 4
    assert [(e.path, e.size) for e in await overlay.list_dir('/l')] == [('/l/f', 4)]
    assert (await overlay.glob('*', '/l')).paths == ('/l/f',)
    assert (await overlay.grep('new', '/l')).counts == {'/l/f': 1}
    assert await overlay.realpath('/m') == '/d/f'
    await overlay.remove('/l')
    assert not await overlay.exists('/l/f')
    assert await overlay.read_bytes('/d/f') == b'new!'
    await overlay.write_bytes('/l', b'a file now')
    assert await overlay.realpath('/l') == '/l'
    assert overlay.changed_paths == ('/d/f', '/l')


async def test_a_link_through_what_was_replaced_is_not_followed_there(tmp_path: Path) -> None:
    (tmp_path / 'd/e').mkdir(parents=True)
    (tmp_path / 'd/in').symlink_to('e')
    (tmp_path / 'l').symlink_to('d')
    (tmp_path / 'root').symlink_to('.')
    overlay = OverlayBackend(LocalBackend(tmp_path))
    await overlay.remove('/d/in')
    assert await overlay.realpath('/l/in/x') == '/d/in/x'
    assert await overlay.realpath('/root') == '/'


async def test_a_directory_is_removed_with_its_links_and_not_what_they_lead_to(tmp_path: Path) -> None:
    (tmp_path / 'keep').mkdir()
    (tmp_path / 'keep/f').write_text('1')
    (tmp_path / 'd').mkdir()
    (tmp_path / 'd/dir').symlink_to('../keep')
    (tmp_path / 'd/loop').symlink_to('loop')
    (tmp_path / 'd/out').symlink_to('/etc')
    (tmp_path / 'd/a\nb').write_text('no path')
    overlay = OverlayBackend(LocalBackend(tmp_path))
    await overlay.remove('/d')
    assert overlay.changed_paths == ('/d/dir', '/d/loop', '/d/out')
    assert await overlay.read_bytes('/keep/f') == b'1'


async def test_what_cannot_be_read_is_not_removed(tmp_path: Path) -> None:
    class Failing(LocalBackend):
        async def read_bytes(self, path: str) -> bytes:
            raise PermissionError(13, 'Permission denied', path)

        async def realpath(self, path: str) -> str:
            if path == '/d/g':
                raise PermissionError(13, 'Permission denied', path)
            return await super().realpath(path)

    (tmp_path / 'd').mkdir()
    for name in ('f', 'g'):
        (tmp_path / 'd' / name).write_text('1')
        overlay = OverlayBackend(Failing(tmp_path))
        with pytest.raises(PermissionError):
            await overlay.remove('/d')
        assert await overlay.exists('/d')
        assert overlay.changed_paths == ()
        (tmp_path / 'd' / name).unlink()


async def test_many_writers_through_one_overlay_lose_nothing() -> None:
    overlay = OverlayBackend(Slow({'/f': ''}))

    async def add(line: bytes) -> None:
        while True:
            data = await overlay.read_bytes('/f')
            try:
                return await overlay.compare_and_swap('/f', data + line, expected=digest_of(data))
            except FileChangedError:
                continue

    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(add, b'%d\n' % number)
            group.start_soon(overlay.make_dir, f'/made/{number}')
            group.start_soon(overlay.write_bytes, f'/w/{number}', b'')
    assert sorted((await overlay.read_bytes('/f')).split()) == [b'%d' % number for number in range(8)]
    assert [e.name for e in await overlay.list_dir('/made')] == [str(number) for number in range(8)]


async def test_a_directory_is_removed_with_what_is_written_there_meanwhile() -> None:
    overlay = OverlayBackend(Slow({'/d/a': '1', '/d/b': '2'}))
    async with anyio.create_task_group() as group:
        group.start_soon(overlay.remove, '/d')
        group.start_soon(overlay.write_bytes, '/d/c', b'3')
    assert [await overlay.exists(path) for path in ('/d/a', '/d/b')] == [False, False]


# Search


async def _searched(overlay: OverlayBackend, path: str = '/', limit: int = 1000) -> tuple[GrepResult, GrepResult]:
    """Return what the overlay finds, and what a walk over all that is seen finds."""
    return (
        await overlay.grep('x', path, limit=limit),
        await grep_backend(overlay, 'x', path, limit=limit),
    )


@pytest.mark.parametrize('limit', [0, 1, 3, 5, 100])
async def test_a_search_finds_what_a_walk_over_the_same_files_finds(limit: int) -> None:
    files = {f'/d/{number}': 'x\n' * 3 for number in range(6)}
    base = StateBackend({**files, '/binary': 'x\0', '/e/1': 'x', '/e/.hidden': 'x', '/f': 'x'})
    overlay = OverlayBackend(base)
    await overlay.write_bytes('/d/0', b'none')
    await overlay.write_bytes('/d/2', b'x\nx\n')
    await overlay.write_bytes('/d/3', b'binary\0x')
    await overlay.write_bytes('/binary', b'x now text')
    await overlay.write_bytes('/new/a', b'x')
    await overlay.remove('/e')
    await overlay.remove('/f')
    await overlay.write_bytes('/f/g', b'x')
    for path in ('/', '/d', '/new', '/f', '/d/2', '/d/4'):
        found, expected = await _searched(overlay, path, limit)
        assert found == expected
    for pattern in ('**', '**/*', 'd/*', '*', '**/.*'):
        assert await overlay.glob(pattern) == await glob_backend(overlay, pattern)
    for path in ('/e', '/e/1', '/none'):
        with pytest.raises(FileNotFoundError):
            await overlay.grep('x', path)
        with pytest.raises(FileNotFoundError):
            await overlay.glob('x', path)


async def test_problems_of_what_is_not_seen_are_not_reported(tmp_path: Path) -> None:
    for name in ('a', 'b'):
        (tmp_path / name).write_bytes(b'')
        os.truncate(tmp_path / name, MAX_FILE_BYTES + 1)
    overlay = OverlayBackend(LocalBackend(tmp_path))
    await overlay.write_bytes('/a', b'x')
    found = await overlay.grep('x')
    assert (found.counts, [problem.path for problem in found.problems]) == ({'/a': 1}, ['/b'])


# To another process


async def test_another_process_goes_on_where_this_one_was(tmp_path: Path) -> None:
    (tmp_path / 'd').mkdir()
    (tmp_path / 'd/a').write_text('1')
    (tmp_path / 'd/b').write_text('2')
    (tmp_path / 'link').symlink_to('d')
    (tmp_path / 'f').write_text('one\ntwo\nthree\n')
    overlay = OverlayBackend(LocalBackend(tmp_path))
    await overlay.write_bytes('/f', b'ONE\ntwo\nthree\n')
    await overlay.remove('/d')
    await overlay.remove('/link')
    await overlay.write_bytes('/d/c', b'\xff\0')
    await overlay.make_dir('/empty')
    value = json.loads(json.dumps(await overlay.dump()))
    (tmp_path / 'f').write_text('one\ntwo\nTHREE\n')
    loaded = OverlayBackend.load(value, LocalBackend(tmp_path))
    assert loaded.changed_paths == overlay.changed_paths == ('/d/a', '/d/b', '/d/c', '/f', '/link')
    assert await loaded.dump() == value
    assert loaded.ref != overlay.ref
    merged = await loaded.merge()
    assert (merged.changed, merged.removed, merged.conflicts) == (('/d/c', '/f'), ('/d/a', '/d/b', '/link'), ())
    assert (tmp_path / 'f').read_text() == 'ONE\ntwo\nTHREE\n'
    assert sorted(path.name for path in tmp_path.iterdir()) == ['d', 'empty', 'f']
    assert [path.name for path in (tmp_path / 'd').iterdir()] == ['c']


async def test_changes_can_be_kept_with_contents_apart_and_put_back() -> None:
    base = StateBackend({'/f': 'one\ntwo\nthree\n', '/g': 'g'})
    overlay = OverlayBackend(base)
    await overlay.write_bytes('/f', b'ONE\ntwo\nthree\n')
    await overlay.remove('/g')
    changes, contents = overlay.dump_apart()
    assert sorted(contents.values()) == [b'ONE\ntwo\nthree\n', b'g', b'one\ntwo\nthree\n']
    assert all(digest_of(data) == digest for digest, data in contents.items())
    again = OverlayBackend(base)
    await again.write_bytes('/h', b'forgotten')
    again.restore(json.loads(json.dumps(changes)), contents)
    assert again.dump_apart() == overlay.dump_apart()
    await base.write_bytes('/f', b'one\ntwo\nTHREE\n')
    merged = await again.merge()
    assert (merged.changed, merged.removed, merged.conflicts) == (('/f',), ('/g',), ())
    assert await base.read_bytes('/f') == b'ONE\ntwo\nTHREE\n'
    await overlay.write_bytes('/h', b'stays')
    with pytest.raises(InvalidOverlayError, match='has no contents for'):
        overlay.restore(changes, {})
    with pytest.raises(InvalidOverlayError, match='have another digest'):
        overlay.restore(changes, dict.fromkeys(contents, b'other'))
    with pytest.raises(InvalidOverlayError, match='The format'):
        overlay.restore({'format': 2}, contents)
    assert await overlay.read_bytes('/h') == b'stays'


async def test_a_dump_can_be_loaded_over_the_same_files_in_another_directory(tmp_path: Path) -> None:
    (tmp_path / 'old').mkdir()
    (tmp_path / 'new').mkdir()
    for place in ('old', 'new'):
        (tmp_path / place / 'f').write_text('one\n')
    old = LocalBackend(tmp_path / 'old', allow_commands=True)
    mounted = OverlayBackend(CompositeBackend(old, {'/m': StateBackend()}))
    await mounted.write_bytes(f'{tmp_path}/old/f', b'two\n')
    await mounted.write_bytes('/m/g', b'g')
    value, (was, now) = await mounted.dump(), (str(tmp_path / 'old'), str(tmp_path / 'new'))
    base = CompositeBackend(LocalBackend(tmp_path / 'new', allow_commands=True), {'/m': StateBackend()})
    moved = OverlayBackend.load(relocate(value, was, now), base)
    assert moved.changed_paths == ('/m/g', f'{now}/f')
    assert (await moved.merge()).conflicts == ()
    assert (tmp_path / 'new' / 'f').read_text() == 'two\n'
    assert relocate(value, was, was) is value
    for broken in cast('list[object]', [{'entries': [1, {'path': 2}]}, {'entries': 1}, [], None]):
        assert relocate(broken, was, now) == broken


def _entry(**changed: object) -> dict[str, object]:
    return {'path': '/a', 'now': None, 'was': None, 'is_opaque': False, **changed}


_FILE = {'kind': 'file', 'digest': digest_of(b'x'), 'size': 1, 'is_searched': True}
_X = base64.b64encode(b'x').decode()

BROKEN: dict[str, object] = {
    'no object': [],
    'format': {'format': 2},
    'no contents': {'format': 1, 'entries': []},
    'no entries': {'format': 1, 'contents': {}},
    'entry': {'format': 1, 'contents': {}, 'entries': [1]},
    'no base64': {'format': 1, 'contents': {digest_of(b'x'): 'eA'}, 'entries': []},
    'not strict': {'format': 1, 'contents': {digest_of(b'x'): 'e A=='}, 'entries': []},
    'not ascii': {'format': 1, 'contents': {digest_of(b'x'): 'é==='}, 'entries': []},
    'no text': {'format': 1, 'contents': {digest_of(b'x'): 1}, 'entries': []},
    'digest': {'format': 1, 'contents': {digest_of(b'y'): _X}, 'entries': []},
}
BROKEN_ENTRIES: dict[str, list[dict[str, object]]] = {
    'no path': [_entry(path=None)],
    'climbs': [_entry(path='/../a')],
    'not canonical': [_entry(path='/a//b')],
    'root': [_entry(path='/')],
    'twice': [_entry(), _entry()],
    'opaque': [_entry(is_opaque=1)],
    'kind': [_entry(now={'kind': 'pipe'})],
    'state': [_entry(was='file')],
    'other now': [_entry(now={'kind': 'other', 'mark': ''})],
    'lacking': [_entry(now={**_FILE, 'digest': digest_of(b'y')})],
    'bad digest': [_entry(was={**_FILE, 'digest': 'md5:1'})],
    'size': [_entry(was={**_FILE, 'digest': digest_of(b'y'), 'size': -1})],
    'below a file': [_entry(now=_FILE), _entry(path='/a/b', now=_FILE)],
    'far below a file': [_entry(now=_FILE), _entry(path='/a/b/c', now=_FILE)],
    'below nothing': [_entry(), _entry(path='/a/b', now={'kind': 'directory'})],
}


@pytest.mark.parametrize('value', BROKEN.values(), ids=BROKEN)
def test_what_no_overlay_wrote_is_refused(value: object) -> None:
    with pytest.raises(InvalidOverlayError):
        OverlayBackend.load(value, StateBackend())


@pytest.mark.parametrize('entries', BROKEN_ENTRIES.values(), ids=BROKEN_ENTRIES)
def test_an_entry_that_no_overlay_wrote_is_refused(entries: list[object]) -> None:
    value = {'format': 1, 'contents': {digest_of(b'x'): _X}, 'entries': entries}
    with pytest.raises(InvalidOverlayError):
        OverlayBackend.load(value, StateBackend())


def test_an_overlay_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    contents = {digest_of(b'x'): _X}
    monkeypatch.setattr(overlay_dump, 'MAX_LOAD_BYTES', 2)
    with pytest.raises(InvalidOverlayError, match=r'3 bytes of contents\. At most 2 are loaded'):
        OverlayBackend.load({'format': 1, 'contents': contents, 'entries': []}, StateBackend())
    monkeypatch.setattr(overlay_dump, 'MAX_LOAD_ENTRIES', 0)
    value = cast('object', {'format': 1, 'contents': {}, 'entries': [_entry()]})
    with pytest.raises(InvalidOverlayError, match=r'has 1 entries\. At most 0'):
        OverlayBackend.load(value, StateBackend())
