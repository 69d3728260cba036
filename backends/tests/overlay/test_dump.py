"""Overlays serialized as JSON, and dumps that are refused."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import cast

import pytest

import pydantic_deep_backends.overlay._dump as overlay_dump
from pydantic_deep_backends import (
    CompositeBackend,
    InvalidOverlayError,
    LocalBackend,
    OverlayBackend,
    StateBackend,
    digest_of,
)
from pydantic_deep_backends.overlay import relocate

pytestmark = pytest.mark.anyio


async def test_dumped_overlay_resumes_in_another_process(tmp_path: Path) -> None:
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


async def test_changes_can_be_dumped_apart_from_contents_and_restored() -> None:
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


async def test_dump_can_be_relocated_to_another_directory(tmp_path: Path) -> None:
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
def test_malformed_dump_is_refused(value: object) -> None:
    with pytest.raises(InvalidOverlayError):
        OverlayBackend.load(value, StateBackend())


@pytest.mark.parametrize('entries', BROKEN_ENTRIES.values(), ids=BROKEN_ENTRIES)
def test_malformed_dump_entry_is_refused(entries: list[object]) -> None:
    value = {'format': 1, 'contents': {digest_of(b'x'): _X}, 'entries': entries}
    with pytest.raises(InvalidOverlayError):
        OverlayBackend.load(value, StateBackend())


def test_oversized_dump_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    contents = {digest_of(b'x'): _X}
    monkeypatch.setattr(overlay_dump, 'MAX_LOAD_BYTES', 2)
    with pytest.raises(InvalidOverlayError, match=r'3 bytes of contents\. At most 2 are loaded'):
        OverlayBackend.load({'format': 1, 'contents': contents, 'entries': []}, StateBackend())
    monkeypatch.setattr(overlay_dump, 'MAX_LOAD_ENTRIES', 0)
    value = cast('object', {'format': 1, 'contents': {}, 'entries': [_entry()]})
    with pytest.raises(InvalidOverlayError, match=r'has 1 entries\. At most 0'):
        OverlayBackend.load(value, StateBackend())
