"""`OverlayBackend.merge`: merged changes, conflicts, and that no change is lost."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydantic_deep_backends import (
    BackendProtocol,
    Conflict,
    FileChangedError,
    FileVersion,
    LocalBackend,
    OverlayBackend,
    OverlayMerge,
    StateBackend,
    SupportsCompareAndSwap,
    digest_of,
)

pytestmark = pytest.mark.anyio

TEXT = 'one\ntwo\nthree\nfour\nfive\n'


class Plain(StateBackend):
    """Supports neither compare-and-swap nor search."""

    compare_and_swap: Any = None
    glob: Any = None
    grep: Any = None


class Yielding(StateBackend):
    """Yields to other tasks before each operation, never within one."""

    async def read_bytes(self, path: str) -> bytes:
        await anyio.lowlevel.checkpoint()
        return await super().read_bytes(path)

    async def compare_and_swap(self, path: str, data: bytes, *, expected: str | None) -> None:
        await anyio.lowlevel.checkpoint()
        await super().compare_and_swap(path, data, expected=expected)


class Counting(StateBackend):
    """Records its reads and listings."""

    def __init__(self, files: dict[str, str]) -> None:
        super().__init__(files)
        self.asked: list[tuple[str, str]] = []

    async def read_bytes(self, path: str) -> bytes:
        self.asked.append(('read', path))
        return await super().read_bytes(path)

    async def list_dir(self, path: str) -> Any:
        self.asked.append(('list', path))
        return await super().list_dir(path)


def _clean(changed: tuple[str, ...] = (), removed: tuple[str, ...] = ()) -> OverlayMerge:
    return OverlayMerge(changed=changed, removed=removed, conflicts=())


def _kinds(merged: OverlayMerge) -> dict[str, str]:
    return {conflict.path: conflict.kind for conflict in merged.conflicts}


async def _files(backend: BackendProtocol, directory: str = '/') -> dict[str, str]:
    """Return all files. An empty directory is represented by its path with a slash."""
    found: dict[str, str] = {}
    entries = await backend.list_dir(directory)
    for entry in entries:
        if entry.is_dir:
            found |= await _files(backend, entry.path)
        else:
            found[entry.path] = (await backend.read_bytes(entry.path)).decode()
    return found if entries or directory == '/' else {f'{directory}/': ''}


@pytest.fixture(params=[StateBackend, Plain])
def base(request: pytest.FixtureRequest) -> StateBackend:
    return request.param({'/text': TEXT, '/d/a': 'a', '/d/e/b': 'b', '/x': 'x'})


async def test_merge_without_changes_does_nothing(base: StateBackend) -> None:
    overlay = OverlayBackend(base)
    assert await overlay.merge() == _clean()
    await overlay.write_bytes('/x', b'x')
    await overlay.write_bytes('/new', b'')
    await overlay.remove('/new')
    assert await overlay.merge() == _clean()
    assert await _files(base) == {'/text': TEXT, '/d/a': 'a', '/d/e/b': 'b', '/x': 'x'}


async def test_merge_applies_changes_and_empties_the_overlay(base: StateBackend) -> None:
    overlay = OverlayBackend(base)
    await overlay.write_bytes('/x', b'new')
    await overlay.write_bytes('/n/m/f', b'made')
    await overlay.make_dir('/empty/deep')
    await overlay.remove('/d/a')
    assert await overlay.merge() == _clean(('/n/m/f', '/x'), ('/d/a',))
    assert await _files(base) == {'/text': TEXT, '/d/e/b': 'b', '/x': 'new', '/n/m/f': 'made', '/empty/deep/': ''}
    assert overlay.changed_paths == ()
    assert await _files(overlay) == await _files(base)
    assert await overlay.merge() == _clean()


async def test_lines_of_both_sides_are_merged(base: StateBackend) -> None:
    overlay = OverlayBackend(base)
    await overlay.write_bytes('/text', TEXT.replace('one', 'ONE').encode())
    await base.write_bytes('/text', TEXT.replace('five', 'FIVE').encode())
    assert await overlay.merge() == _clean(('/text',))
    assert await base.read_bytes('/text') == b'ONE\ntwo\nthree\nfour\nFIVE\n'


async def test_merge_base_is_the_state_at_the_first_change(base: StateBackend) -> None:
    overlay = OverlayBackend(base)
    await base.write_bytes('/text', TEXT.replace('five', 'FIVE').encode())
    await overlay.write_bytes('/text', (await overlay.read_bytes('/text')).replace(b'one', b'ONE'))
    await base.write_bytes('/text', TEXT.replace('five', 'later').encode())
    await overlay.write_bytes('/text', (await overlay.read_bytes('/text')).replace(b'two', b'TWO'))
    assert await overlay.merge() == _clean(('/text',))
    assert await base.read_bytes('/text') == b'ONE\nTWO\nthree\nfour\nlater\n'


async def test_conflict_leaves_the_base_unchanged_and_the_change_in_the_overlay(base: StateBackend) -> None:
    overlay = OverlayBackend(base)
    await overlay.write_bytes('/x', b'mine')
    await overlay.write_bytes('/text', b'mine')
    await base.write_bytes('/x', b'theirs')
    merged = await overlay.merge()
    versions = [FileVersion(digest=digest_of(data), size=len(data)) for data in (b'x', b'theirs', b'mine')]
    conflict = Conflict(path='/x', kind='content', base=versions[0], ours=versions[1], theirs=versions[2])
    assert merged == OverlayMerge(changed=('/text',), removed=(), conflicts=(conflict,))
    assert await base.read_bytes('/x') == b'theirs'
    assert await overlay.read_bytes('/x') == b'mine'
    assert overlay.changed_paths == ('/x',)
    assert (await overlay.merge()).conflicts == (conflict,)
    await base.write_bytes('/x', b'mine')
    assert await overlay.merge() == _clean(('/x',))


async def test_identical_changes_do_not_conflict(base: StateBackend) -> None:
    overlay = OverlayBackend(base)
    for backend in (overlay, base):
        await backend.write_bytes('/x', b'same')
        await backend.write_bytes('/new', b'same')
        await backend.remove('/d')
    assert await overlay.merge() == _clean(('/new', '/x'))
    assert await _files(base) == {'/text': TEXT, '/x': 'same', '/new': 'same'}


async def test_different_additions_of_one_file_conflict(base: StateBackend) -> None:
    overlay = OverlayBackend(base)
    await overlay.write_bytes('/new', b'mine')
    await base.write_bytes('/new', b'theirs')
    assert _kinds(await overlay.merge()) == {'/new': 'add/add'}
    assert await base.read_bytes('/new') == b'theirs'


async def test_removal_and_modification_conflict(base: StateBackend) -> None:
    overlay = OverlayBackend(base)
    await overlay.remove('/x')
    await overlay.write_bytes('/d/a', b'mine')
    await base.write_bytes('/x', b'theirs')
    await base.remove('/d/a')
    assert _kinds(await overlay.merge()) == {'/x': 'modify/delete', '/d/a': 'delete/modify'}
    assert await _files(base) == {'/text': TEXT, '/x': 'theirs', '/d/e/b': 'b'}
    assert overlay.changed_paths == ('/d/a', '/x')


async def test_removed_and_recreated_file_is_merged_by_lines(base: StateBackend) -> None:
    overlay = OverlayBackend(base)
    await overlay.remove('/text')
    await overlay.write_bytes('/text', TEXT.replace('one', 'ONE').encode())
    await base.write_bytes('/text', TEXT.replace('five', 'FIVE').encode())
    assert await overlay.merge() == _clean(('/text',))
    assert await base.read_bytes('/text') == b'ONE\ntwo\nthree\nfour\nFIVE\n'


@pytest.mark.parametrize('changes_before', [False, True])
async def test_removed_directory_merges_while_the_base_has_its_contents(changes_before: bool) -> None:
    base = StateBackend({'/d/text': TEXT})
    overlay = OverlayBackend(base)
    await overlay.remove('/d')
    theirs = TEXT.replace('five', 'FIVE')
    if changes_before:
        await base.write_bytes('/d/text', theirs.encode())
    await overlay.write_bytes('/d/text', TEXT.replace('one', 'ONE').encode())
    await base.write_bytes('/d/text', theirs.encode())
    merged = await overlay.merge()
    assert _kinds(merged) == ({'/d/text': 'content'} if changes_before else {})
    expected = theirs if changes_before else theirs.replace('one', 'ONE')
    assert await _files(base) == {'/d/text': expected}


async def test_recreated_file_of_a_directory_removed_on_both_sides_conflicts() -> None:
    base = StateBackend({'/d/f': 'old'})
    overlay = OverlayBackend(base)
    await overlay.remove('/d')
    await base.remove('/d')
    await overlay.write_bytes('/d/f', b'new')
    assert _kinds(await overlay.merge()) == {'/d/f': 'delete/modify'}


# Directories


async def test_merge_removes_a_directory_with_all_its_files() -> None:
    files = {f'/d/{number % 10}/{number}': f'{number}' for number in range(500)}
    base = StateBackend({**files, '/keep': ''})
    await base.make_dir('/d/empty/deep')
    overlay = OverlayBackend(base)
    await overlay.remove('/d')
    merged = await overlay.merge()
    assert merged == _clean(removed=tuple(sorted(files)))
    assert await _files(base) == {'/keep': ''}


async def test_removed_directory_keeps_files_others_added_or_changed(base: StateBackend) -> None:
    overlay = OverlayBackend(base)
    await overlay.remove('/d')
    await base.write_bytes('/d/new', b'theirs')
    await base.write_bytes('/d/e/b', b'theirs')
    merged = await overlay.merge()
    assert (merged.removed, _kinds(merged)) == (('/d/a',), {'/d/e/b': 'modify/delete'})
    assert await _files(base, '/d') == {'/d/new': 'theirs', '/d/e/b': 'theirs'}
    assert await overlay.exists('/d/new')
    assert not await overlay.exists('/d/e/b')


async def test_directory_replaced_in_the_base_is_unchanged(base: StateBackend) -> None:
    overlay = OverlayBackend(base)
    await overlay.remove('/d')
    await base.remove('/d')
    await base.write_bytes('/d', b'a file')
    assert await overlay.merge() == _clean()
    assert await base.read_bytes('/d') == b'a file'


async def test_removed_directory_can_be_recreated(base: StateBackend) -> None:
    overlay = OverlayBackend(base)
    await overlay.remove('/d')
    await overlay.make_dir('/d')
    assert await overlay.merge() == _clean(removed=('/d/a', '/d/e/b'))
    assert await _files(base, '/d') == {'/d/': ''}


async def test_file_replaces_a_directory(base: StateBackend) -> None:
    overlay = OverlayBackend(base)
    await overlay.remove('/d')
    await overlay.write_bytes('/d', b'file')
    await base.remove('/d/a')
    assert await overlay.merge() == _clean(('/d',), ('/d/e/b',))
    assert await _files(base) == {'/text': TEXT, '/x': 'x', '/d': 'file'}


@pytest.mark.parametrize('path', ['/d/new', '/d/e/new', '/d/a', '/d/e/b'])
async def test_file_never_replaces_a_changed_directory(base: StateBackend, path: str) -> None:
    overlay = OverlayBackend(base)
    await overlay.remove('/d')
    await overlay.write_bytes('/d', b'file')
    await base.write_bytes(path, b'theirs')
    before = await _files(base)
    merged = await overlay.merge()
    assert (_kinds(merged), merged.removed) == ({'/d': 'file/directory'}, ())
    assert await _files(base) == before
    assert await overlay.read_bytes('/d') == b'file'


async def test_directory_replaces_a_file(base: StateBackend) -> None:
    overlay = OverlayBackend(base)
    await overlay.remove('/x')
    await overlay.write_bytes('/x/y', b'y')
    assert await overlay.merge() == _clean(('/x/y',), ('/x',))
    assert await _files(base, '/x') == {'/x/y': 'y'}


async def test_directory_never_replaces_a_changed_file(base: StateBackend) -> None:
    overlay = OverlayBackend(base)
    await overlay.remove('/x')
    await overlay.write_bytes('/x/y', b'y')
    await base.write_bytes('/x', b'theirs')
    assert _kinds(await overlay.merge()) == {'/x': 'file/directory'}
    assert await base.read_bytes('/x') == b'theirs'
    assert await overlay.read_bytes('/x/y') == b'y'


async def test_file_and_directory_at_one_path_conflict(base: StateBackend) -> None:
    overlay = OverlayBackend(base)
    await overlay.write_bytes('/one', b'file')
    await overlay.write_bytes('/two/far/f', b'below')
    await overlay.make_dir('/three')
    await base.write_bytes('/one/f', b'below')
    await base.write_bytes('/two', b'file')
    await base.write_bytes('/three', b'file')
    merged = await overlay.merge()
    assert _kinds(merged) == {'/one': 'file/directory', '/two': 'file/directory', '/three': 'file/directory'}
    ours = {conflict.path: conflict.ours for conflict in merged.conflicts}
    assert ours['/two'] == FileVersion(digest=digest_of(b'file'), size=4)
    assert await base.read_bytes('/two') == b'file'
    assert await overlay.read_bytes('/two/far/f') == b'below'


# Links


async def test_links_are_removed_and_replaced_only_if_unchanged(tmp_path: Path) -> None:
    for name in ('a', 'b'):
        (tmp_path / name).write_text(name)
    for name in ('gone', 'file', 'dir', 'moved', 'moved_file', 'lost'):
        (tmp_path / name).symlink_to('a')
    overlay = OverlayBackend(LocalBackend(tmp_path))
    for name in ('gone', 'file', 'dir', 'moved', 'moved_file', 'lost'):
        await overlay.remove(f'/{name}')
    await overlay.write_bytes('/file', b'file')
    await overlay.write_bytes('/moved_file', b'file')
    await overlay.write_bytes('/dir/f', b'f')
    for name in ('moved', 'moved_file', 'lost'):
        (tmp_path / name).unlink()
    for name in ('moved', 'moved_file'):
        (tmp_path / name).symlink_to('b')
    merged = await overlay.merge()
    assert _kinds(merged) == {'/moved': 'modify/delete', '/moved_file': 'add/add'}
    assert (merged.changed, merged.removed) == (('/dir/f', '/file'), ('/dir', '/gone'))
    assert sorted(path.name for path in tmp_path.iterdir()) == ['a', 'b', 'dir', 'file', 'moved', 'moved_file']
    assert [(tmp_path / name).read_text() for name in ('a', 'b', 'file')] == ['a', 'b', 'file']


async def test_write_through_a_link_is_merged_into_its_target(tmp_path: Path) -> None:
    (tmp_path / 'a').write_text('old')
    (tmp_path / 'l').symlink_to('a')
    overlay = OverlayBackend(LocalBackend(tmp_path))
    await overlay.write_bytes('/l', b'new')
    assert await overlay.merge() == _clean(('/a',))
    assert (tmp_path / 'l').is_symlink()
    assert (tmp_path / 'a').read_text() == 'new'


# Failures, concurrency, cost


async def test_failed_merge_can_be_repeated() -> None:
    class Failing(StateBackend):
        left = 3

        async def compare_and_swap(self, path: str, data: bytes, *, expected: str | None) -> None:
            self.left -= 1
            if self.left == 0:
                raise ConnectionError('gone')
            await super().compare_and_swap(path, data, expected=expected)

    base = Failing({'/gone': '1'})
    overlay = OverlayBackend(base)
    await overlay.remove('/gone')
    for name in 'abcde':
        await overlay.write_bytes(f'/{name}', b'new')
    with pytest.raises(ConnectionError):
        await overlay.merge()
    assert await _files(base) == {'/a': 'new', '/b': 'new'}
    assert await _files(overlay) == {f'/{name}': 'new' for name in 'abcde'}
    assert await overlay.merge() == _clean(tuple(f'/{name}' for name in 'abcde'), ('/gone',))
    assert await _files(base) == {f'/{name}': 'new' for name in 'abcde'}


async def test_repeating_a_merge_from_an_old_dump_changes_nothing(base: StateBackend) -> None:
    overlay = OverlayBackend(base)
    await overlay.write_bytes('/text', TEXT.replace('one', 'ONE').encode())
    await overlay.write_bytes('/new', b'new')
    await overlay.remove('/d')
    dumped = await overlay.dump()
    await base.write_bytes('/text', TEXT.replace('five', 'FIVE').encode())
    await overlay.merge()
    before = await _files(base)
    assert (await OverlayBackend.load(dumped, base).merge()).conflicts == ()
    assert await _files(base) == before


@pytest.mark.parametrize('kind', [StateBackend, Plain])
async def test_merge_is_retried_after_a_concurrent_write(kind: Callable[[dict[str, str]], StateBackend]) -> None:
    base = kind({'/text': TEXT})
    overlay = OverlayBackend(base)
    await overlay.write_bytes('/text', TEXT.replace('one', 'ONE').encode())
    reads: list[Callable[[], Awaitable[None]]] = [
        lambda: base.write_bytes('/text', TEXT.replace('five', 'FIVE').encode())
    ]
    read = base.read_bytes

    async def read_and_be_late(path: str) -> bytes:
        data = await read(path)
        if reads:
            await reads.pop()()
        return data

    base.read_bytes = read_and_be_late
    assert await overlay.merge() == _clean(('/text',))
    assert await read('/text') == b'ONE\ntwo\nthree\nfour\nFIVE\n'


async def test_constantly_changing_file_raises() -> None:
    class Busy(StateBackend):
        async def compare_and_swap(self, path: str, data: bytes, *, expected: str | None) -> None:
            raise FileChangedError(path, expected=expected, actual=None)

    overlay = OverlayBackend(Busy())
    await overlay.write_bytes('/f', b'1')
    with pytest.raises(FileChangedError):
        await overlay.merge()
    assert overlay.changed_paths == ('/f',)


async def test_file_removed_concurrently_counts_as_removed() -> None:
    class Gone(StateBackend):
        async def remove(self, path: str) -> None:
            await super().remove(path)
            raise FileNotFoundError(path)

    base = Gone({'/f': '1'})
    overlay = OverlayBackend(base)
    await overlay.remove('/f')
    assert await overlay.merge() == _clean(removed=('/f',))


async def test_changes_during_a_merge_remain_for_the_next_one() -> None:
    base = StateBackend({'/text': TEXT})
    overlay = OverlayBackend(base)
    swap = base.compare_and_swap

    async def write_first(path: str, data: bytes, *, expected: str | None) -> None:
        await overlay.write_bytes('/text', TEXT.replace('one', 'ONE').replace('two', 'TWO').encode())
        await base.write_bytes('/other', b'')
        await swap(path, data, expected=expected)

    await overlay.write_bytes('/text', TEXT.replace('one', 'ONE').encode())
    base.compare_and_swap = write_first
    assert await overlay.merge() == _clean(('/text',))
    assert await base.read_bytes('/text') == TEXT.replace('one', 'ONE').encode()
    base.compare_and_swap = swap
    assert await overlay.merge() == _clean(('/text',))
    assert await base.read_bytes('/text') == TEXT.replace('one', 'ONE').replace('two', 'TWO').encode()


async def test_merge_reads_only_touched_paths() -> None:
    base = Counting({f'/{number}/{name}': '1' for number in range(50) for name in 'ab'})
    overlay = OverlayBackend(base)
    await overlay.write_bytes('/3/a', b'2')
    await overlay.remove('/4/b')
    await overlay.read_bytes('/5/a')
    base.asked.clear()
    await overlay.merge()
    assert base.asked == [('read', '/4/b'), ('read', '/3/a')]


# Properties


async def _edit(backend: BackendProtocol, path: str, line: str, seed: int, may_vanish: set[str]) -> None:
    """Insert a line, replace a line by it, or remove the file. Record the lines that this took away."""
    chance = random.Random(seed)
    try:
        data = await backend.read_bytes(path)
    except FileNotFoundError:
        data = b''
    lines = data.decode().splitlines()
    action = chance.choice(['insert', 'insert', 'replace', 'replace', 'remove'])
    if action == 'remove' and data:
        may_vanish |= {*lines, line}
        await backend.remove(path)
        return
    at = chance.randrange(len(lines) + 1)
    taken = lines[at : at + 1] if action == 'replace' else []
    may_vanish |= set(taken)
    lines[at : at + len(taken)] = [line]
    await backend.write_bytes(path, ''.join(f'{text}\n' for text in lines).encode())


_PATHS = ('/a', '/d/b', '/new')
_EDITS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(_PATHS), st.integers(0, 1 << 30)), max_size=24)


@pytest.mark.slow
@settings(max_examples=300)
@given(edits=_EDITS, order=st.permutations([0, 1]))
def test_two_overlays_and_other_writers_lose_no_line(edits: list[tuple[int, str, int]], order: list[int]) -> None:
    async def run() -> None:
        base = StateBackend({path: ''.join(f'{path}{n}\n' for n in range(12)) for path in ('/a', '/d/b')})
        overlays = [OverlayBackend(base), OverlayBackend(base)]
        may_vanish: set[str] = set()
        wrote: list[dict[str, str]] = [{}, {}, {}]
        unresolved: list[set[str]] = [set(), set()]
        for number, (who, path, seed) in enumerate(edits):
            if who == 3:
                merged = await overlays[seed % 2].merge()
                unresolved[seed % 2] = {conflict.path for conflict in merged.conflicts}
            else:
                wrote[who][f'{who}.{number}'] = path
                await _edit((*overlays, base)[who], path, f'{who}.{number}', seed, may_vanish)
        for who in order:
            merged = await overlays[who].merge()
            unresolved[who] = {conflict.path for conflict in merged.conflicts}
            assert set(overlays[who].changed_paths) == unresolved[who]
        lines = {line for text in (await _files(base)).values() for line in text.splitlines()}
        originals = {f'{path}{n}' for path in ('/a', '/d/b') for n in range(12)}
        assert originals - may_vanish <= lines
        assert wrote[2].keys() - may_vanish <= lines
        for who in (0, 1):
            kept = {line for line, path in wrote[who].items() if path not in unresolved[who]}
            assert kept - may_vanish <= lines
            if not unresolved[who]:
                assert await _files(overlays[who]) == await _files(base)

    anyio.run(run)


@pytest.mark.slow
@settings(max_examples=100)
@given(places=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40)), max_size=12))
def test_concurrent_overlay_merges_lose_no_line(places: list[tuple[int, int]]) -> None:
    async def run() -> None:
        base = Yielding({'/f': ''.join(f'{n}\n' for n in range(40))})
        overlays = [OverlayBackend(base) for _ in range(3)]
        wrote: list[set[str]] = [set(), set(), set()]
        for number, (who, at) in enumerate(places):
            lines = (await overlays[who].read_bytes('/f')).decode().splitlines()
            lines.insert(at, f'{who}.{number}')
            wrote[who].add(f'{who}.{number}')
            await overlays[who].write_bytes('/f', ''.join(f'{line}\n' for line in lines).encode())
        merges: dict[int, OverlayMerge] = {}

        async def merge(who: int) -> None:
            merges[who] = await overlays[who].merge()

        async with anyio.create_task_group() as group:
            for who in range(3):
                group.start_soon(merge, who)
        lines = set((await base.read_bytes('/f')).decode().splitlines())
        assert {f'{n}' for n in range(40)} <= lines
        for who in range(3):
            assert wrote[who] <= lines or merges[who].conflicts
            assert not (wrote[who] & lines and merges[who].conflicts)

    anyio.run(run)


def test_plain_base_has_no_compare_and_swap() -> None:
    assert not isinstance(Plain(), SupportsCompareAndSwap)
