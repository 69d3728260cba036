"""Reading files and listing directories."""

from __future__ import annotations

import codecs
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest
from inline_snapshot import snapshot
from pydantic_ai import Agent, BinaryContent

from pydantic_deep._messages.media import MAX_MEDIA_BYTES
from pydantic_deep.filesystem import Filesystem
from pydantic_deep.filesystem._files import MAX_READ_BYTES
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep_backends import FileEntry, LocalBackend, StateBackend

pytestmark = pytest.mark.anyio

Play: TypeAlias = Callable[..., Awaitable[list[str]]]

GERMAN = 'Größe und Menge der Äpfel\nÖl für die Mühle über den Flüssen\n'

PNG = b'\x89PNG\r\n\x1a\n\0\0\0\rIHDR'


async def test_lines_are_numbered_like_in_grep(play: Play) -> None:
    backend = StateBackend({'/a.txt': 'one\ftwo\u2028three\x85four\rfive\r\nneedle\n'})
    read, found = await play(backend, call('read_file', path='a.txt'), call('grep', pattern='needle'))
    assert read == '1→one\ftwo\u2028three\x85four\rfive\n2→needle'
    assert found == '/a.txt\n2: needle'


async def test_long_file_is_read_in_windows(play: Play) -> None:
    backend = StateBackend({'/a.txt': 'a\n' * 2500})
    first, second = await play(backend, call('read_file', path='/a.txt'), call('read_file', path='/a.txt', offset=2001))
    assert first.split('\n')[-2:] == snapshot(['2000→a', '[lines 1 to 2,000 of 2,500; go on with offset 2001]'])
    assert second.split('\n')[0] == '2001→a'
    assert second.split('\n')[-1] == '2500→a'


async def test_line_of_fifty_megabytes_is_truncated_and_can_be_paged(play: Play) -> None:
    backend = StateBackend({'/big.json': b'x' * 52_428_800})
    first, second = await play(
        backend, call('read_file', path='big.json'), call('read_file', path='big.json', offset='1:2001')
    )
    assert first.replace('x' * 2000, '<2000 x>') == snapshot(
        '1→<2000 x>… [line of 52,428,800 characters; go on with offset "1:2001"]'
    )
    assert second.replace('x' * 20_000, '<20000 x>') == snapshot(
        '1→<20000 x>… [line of 52,428,800 characters; go on with offset "1:22001"]'
    )


async def test_offset_past_the_end_or_malformed_is_retried(play: Play) -> None:
    assert await play(StateBackend({'/a': 'x\n'}), call('read_file', path='a', offset=9)) == snapshot(
        ['retried: /a: It ends at line 1; offset 9 is past that.']
    )
    assert await play(StateBackend({'/a': 'x\n'}), call('read_file', path='a', offset='end')) == snapshot(
        ['retried: /a: The offset \'end\' is not a line number from 1, or "line:character".']
    )


@pytest.mark.parametrize(
    ('data', 'encoding'),
    [
        (GERMAN.encode('latin-1'), 'cp1252'),
        (codecs.BOM_UTF16_LE + GERMAN.encode('utf-16-le'), 'utf-16'),
        (codecs.BOM_UTF16_BE + GERMAN.encode('utf-16-be'), 'utf-16'),
        (codecs.BOM_UTF8 + GERMAN.encode(), 'utf-8-sig'),
    ],
    ids=['latin-1', 'utf-16-le', 'utf-16-be', 'utf-8 with a mark'],
)
async def test_other_encodings_are_decoded_and_named(play: Play, data: bytes, encoding: str) -> None:
    [shown] = await play(StateBackend({'/a.txt': data}), call('read_file', path='a.txt'))
    lines = GERMAN.split('\n')
    assert shown == f'1→{lines[0]}\n2→{lines[1]}\n[encoding: {encoding}]'


async def test_undecodable_bytes_are_shown_and_counted(play: Play) -> None:
    backend = StateBackend({'/a.log': 'Größe, né\n'.encode() + b'caf\xe9 \xff\n', '/b.log': b'\xef\xbb\xbfcaf\xe9\n'})
    said = await play(backend, call('read_file', path='a.log'), call('read_file', path='b.log'))
    assert said == snapshot(
        [
            """\
1→Größe, né
2→caf� �
[encoding: utf-8, 2 broken bytes shown as �]\
""",
            """\
1→caf�
[encoding: utf-8-sig, 1 broken byte shown as �]\
""",
        ]
    )


async def test_read_file_and_grep_show_the_same_lines(play: Play) -> None:
    backend = StateBackend({'/a.log': 'Größe, né\n'.encode() + b'caf\xe9 two\n'})
    [read, found] = await play(backend, call('read_file', path='a.log', offset=2), call('grep', pattern='two|Gr..e'))
    assert read.startswith('2→caf\ufffd two\n')
    assert found == '/a.log\n1: Größe, né\n2: caf\ufffd two'


async def test_empty_file_is_reported(play: Play) -> None:
    backend = StateBackend({'/a': b'', '/b': codecs.BOM_UTF8})
    assert await play(backend, call('read_file', path='a'), call('read_file', path='b')) == snapshot(
        ['/a is empty.', '/b is empty but for a byte order mark.']
    )


async def test_binary_data_is_refused_with_its_type(play: Play) -> None:
    backend = StateBackend({'/a.zip': b'PK\x03\x04\0\0', '/b': b'\x7fELF\0\0', '/c.txt': b'\0\1'})
    assert await play(backend, *[call('read_file', path=path) for path in ('a.zip', 'b', 'c.txt')]) == snapshot(
        [
            'failed: /a.zip is not text: application/zip, 6 bytes.',
            'failed: /b is not text: binary data, 6 bytes.',
            'failed: /c.txt is not text: binary data, 2 bytes.',
        ]
    )


async def test_random_bytes_are_neither_read_nor_edited_as_text(play: Play) -> None:
    """Bytes that decode only by chance in a legacy encoding are binary for `read_file` and `edit_file`, and remain
    unchanged."""
    backend = StateBackend({'/b.dat': bytes([0x80, 0x81, 0x82, 0xFF])})
    assert await play(
        backend,
        call('read_file', path='b.dat'),
        call('edit_file', path='b.dat', old_string='\x80', new_string='x'),
    ) == snapshot(
        [
            'failed: /b.dat is not text: binary data, 4 bytes.',
            'failed: /b.dat is not text: binary data. Nothing was changed.',
        ]
    )
    assert await backend.read_bytes('/b.dat') == bytes([0x80, 0x81, 0x82, 0xFF])


@pytest.mark.parametrize(
    ('name', 'data', 'media_type'),
    [('a.png', PNG, 'image/png'), ('a.txt', PNG, 'image/png'), ('a.pdf', b'%PDF-1.7\n%%EOF\n', 'application/pdf')],
)
async def test_image_or_pdf_is_returned_as_binary_content(name: str, data: bytes, media_type: str) -> None:
    model = ScriptedModel(call('read_file', path=name), 'done')
    await Agent(model, capabilities=[Filesystem(backend=StateBackend({f'/{name}': data}))]).run('look')
    content = model.requests[-1].tool_returns[0].content
    assert isinstance(content, list)
    assert content == [f'/{name}: {media_type}, {len(data)} bytes', BinaryContent(data, media_type=media_type)]


async def test_invalid_image_is_refused(play: Play) -> None:
    assert await play(StateBackend({'/a.png': b'\0\1'}), call('read_file', path='a.png')) == snapshot(
        ['failed: /a.png is not text: image/png, 2 bytes.']
    )


async def test_oversized_image_is_refused(play: Play) -> None:
    backend = StateBackend({'/a.png': PNG + b'\0' * MAX_MEDIA_BYTES})
    assert await play(backend, call('read_file', path='a.png')) == snapshot(
        ['failed: /a.png is image/png of 5.0 MB; at most 5.0 MB can be shown.']
    )


async def test_missing_file_error_lists_similar_names(play: Play) -> None:
    backend = StateBackend({'/src/main.py': '', '/src/Makefile': '', '/src/other.txt': ''})
    assert await play(
        backend,
        call('read_file', path='src/mian.py'),
        call('read_file', path='/src/makefile'),
        call('read_file', path='/src/zebra'),
        call('read_file', path='/lib/main.py'),
    ) == snapshot(
        [
            'retried: /src/mian.py does not exist. Similar: /src/main.py',
            'retried: /src/makefile does not exist. Similar: /src/Makefile',
            'failed: /src/zebra does not exist. /src has Makefile, main.py, other.txt.',
            'failed: /lib/main.py does not exist. Use ls or glob to find it.',
        ]
    )


async def test_dangling_link_is_not_similar_to_itself(play: Play, tmp_path: Path) -> None:
    (tmp_path / 'dang').symlink_to('nothing')
    said = await play(LocalBackend(tmp_path), call('read_file', path='dang'))
    assert said == ['failed: /dang does not exist. Use ls or glob to find it.']


async def test_missing_file_in_an_unlistable_directory_is_missing(play: Play) -> None:
    class Unlisted(StateBackend):
        async def list_dir(self, path: str) -> Sequence[FileEntry]:
            raise PermissionError(13, 'Permission denied', '/home/someone/secret')

    assert await play(Unlisted(), call('read_file', path='a')) == snapshot(
        ['failed: /a does not exist. Use ls or glob to find it.']
    )
    assert await play(Unlisted(), call('ls')) == snapshot(['failed: /: permission denied.'])


async def test_oversized_file_is_not_read(play: Play) -> None:
    class Huge(StateBackend):
        async def stat(self, path: str) -> FileEntry:
            return FileEntry(name='a', path=path, is_dir=False, size=MAX_READ_BYTES + 1)

        async def read_bytes(self, path: str) -> bytes:
            raise AssertionError('it was read')

    assert await play(Huge({'/a': ''}), call('read_file', path='a')) == snapshot(
        ['failed: /a has 67.1 MB; at most 67.1 MB can be read.']
    )


async def test_directory_is_listed_with_sizes(play: Play, tmp_path: Path) -> None:
    (tmp_path / 'src').mkdir()
    (tmp_path / 'empty').mkdir()
    (tmp_path / 'a.txt').write_text('hello')
    (tmp_path / 'new\nline').write_text('x')
    assert await play(
        LocalBackend(tmp_path), call('ls'), call('ls', path='empty'), call('ls', path='nowhere')
    ) == snapshot(
        [
            """\
a.txt (5 bytes)
empty/
new\\nline (1 byte)
src/\
""",
            '/empty is empty.',
            'failed: /nowhere does not exist. / has a.txt, empty/, "new\\\\nline", src/.',
        ]
    )


async def test_unusual_valid_names_work(play: Play) -> None:
    name = 'foo..bar ’雪.txt'
    backend = StateBackend()
    wrote, read = await play(
        backend, call('write_file', path=f'/{name}', content='x'), call('read_file', path=f'./{name}')
    )
    assert (wrote, read) == (f'Created /{name}: 1 line, 1 byte.', '1→x')
