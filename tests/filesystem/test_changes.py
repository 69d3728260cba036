"""Files written and edited by the model."""

from __future__ import annotations

import codecs
from pathlib import Path

import pytest
from inline_snapshot import snapshot
from pydantic_ai import Agent
from pydantic_ai.workspaces import LocalWorkspaceBackend

from pydantic_deep.filesystem import Filesystem
from pydantic_deep.filesystem._toolset import MAX_RETRIES
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep_backends import LocalBackend, ReadOnlyBackend, StateBackend

from .conftest import Play, edit, write

pytestmark = pytest.mark.anyio


# Results


async def test_write_reports_its_result(play: Play) -> None:
    backend = StateBackend({'/b.txt': 'old', '/c.txt': codecs.BOM_UTF8 + b'x\r\n'})
    results = await play(backend, write('new/a.txt', 'one\ntwo'), write('b.txt', ''), write('c.txt', 'é\n'))
    assert results == snapshot(
        [
            'Created /new/a.txt: 2 lines, 7 bytes.',
            'Replaced /b.txt: 0 lines, 0 bytes.',
            'Replaced /c.txt: 1 line, 7 bytes, utf-8-sig, CRLF line ends kept.',
        ]
    )
    assert await backend.read_bytes('/new/a.txt') == b'one\ntwo'
    assert await backend.read_bytes('/c.txt') == codecs.BOM_UTF8 + 'é\r\n'.encode()


async def test_edit_reports_its_result(play: Play) -> None:
    backend = StateBackend({'/a.txt': 'x\n' * 12 + 'y\n'})
    results = await play(backend, edit('a.txt', 'y', 'z'), edit('a.txt', 'x', 'y', replace_all=True))
    assert results == snapshot(
        [
            'Replaced 1 match at line 13.',
            'Replaced 12 matches at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ….',
        ]
    )
    assert await backend.read_bytes('/a.txt') == b'y\n' * 12 + b'z\n'


async def test_failed_edit_reports_the_reason_and_changes_nothing(play: Play) -> None:
    text = 'one = 1\ntwo = 2\none = 1\n'
    backend = StateBackend({'/a.py': text, '/b.bin': b'\0\1', '/c.zip': b'PK\x03\x04\0'})
    results = await play(
        backend,
        edit('a.py', 'three', 'four'),
        edit('a.py', 'one = 1', 'one = 3'),
        edit('a.py', '', 'x'),
        edit('a.py', 'two\r\n', 'two\n'),
        edit('b.bin', '\1', '\2'),
        edit('c.zip', 'PK', 'KP'),
        edit('zebra', 'x', 'y'),
        edit('d.py', 'x', 'y'),
        edit('/', 'x', 'y'),
    )
    assert results == snapshot(
        [
            'retried: old_string is not in /a.py. Nothing in the file is like it. Read the file and copy exactly.',
            'retried: old_string is in /a.py 2 times, at lines 1, 3. Add lines around it until it occurs once, or set replace_all.',
            'retried: old_string is empty. Copy text from the file, and repeat it in new_string to add to it. For an empty file, use write_file.',
            'retried: old_string and new_string are the same, so nothing would change.',
            'failed: /b.bin is not text: binary data. Nothing was changed.',
            'failed: /c.zip is not text: application/zip. Nothing was changed.',
            'failed: /zebra does not exist. / has a.py, b.bin, c.zip. Create it with write_file, or name another.',
            'retried: /d.py does not exist. Similar: /a.py',
            'retried: / is a directory. Use ls, or name a file.',
        ]
    )
    assert await backend.read_bytes('/a.py') == text.encode()
    assert await backend.read_bytes('/b.bin') == b'\0\1'


async def test_endless_wrong_edits_do_not_end_the_run(play: Play) -> None:
    results = await play(StateBackend({'/a': 'x'}), *[edit('a', f'wrong {n}', 'y') for n in range(MAX_RETRIES + 2)])
    assert [text.partition(':')[0] for text in results] == ['retried'] * MAX_RETRIES + ['failed'] * 2


# Encodings and line ends


@pytest.mark.parametrize('codec', ['latin-1', 'utf-16-le', 'utf-16-be', 'utf-8'])
@pytest.mark.parametrize('end', ['\n', '\r\n'])
async def test_edit_preserves_encoding_and_byte_order_mark(play: Play, codec: str, end: str) -> None:
    mark = {'utf-16-le': codecs.BOM_UTF16_LE, 'utf-16-be': codecs.BOM_UTF16_BE, 'utf-8': codecs.BOM_UTF8}
    text = end.join(['Größe der Äpfel', 'zwei', 'Öl für die Mühle', 'schöne Grüße'])
    before = mark.get(codec, b'') + text.encode(codec)
    backend = StateBackend({'/a.txt': before})
    assert await play(backend, edit('a.txt', 'Äpfel\nzwei', 'Äpfel\nzwölf\ndrei')) == ['Replaced 1 match at line 1.']
    after = mark.get(codec, b'') + text.replace('zwei', f'zwölf{end}drei').encode(codec)
    assert await backend.read_bytes('/a.txt') == after


BROKEN = 'Größe, naïve café\none\n'.encode() + b'caf\xe9 two\n'


async def test_edit_preserves_undecodable_bytes(play: Play) -> None:
    backend = StateBackend({'/a.log': BROKEN, '/b.log': BROKEN})
    results = await play(
        backend,
        edit('a.log', 'one', 'éins'),
        edit('a.log', ' two', ' zwei'),
        edit('a.log', '\ncaf', ''),
        edit('b.log', 'Größe', 'Maß', replace_all=True),
    )
    assert [text.partition(':')[0] for text in results] == [f'Replaced 1 match at line {n}.' for n in (2, 3, 2, 1)]
    assert await backend.read_bytes('/a.log') == 'Größe, naïve café\néins'.encode() + b'\xe9 zwei\n'
    assert await backend.read_bytes('/b.log') == BROKEN.replace('Größe'.encode(), 'Maß'.encode())


async def test_replacement_character_neither_matches_nor_replaces_an_undecodable_byte(play: Play) -> None:
    backend = StateBackend({'/a.log': BROKEN})
    results = await play(
        backend,
        edit('a.log', 'caf\ufffd', 'café'),
        edit('a.log', 'cafè', 'café'),
        edit('a.log', 'one', 'caf\ufffd'),
        edit('a.log', 'one', 'caf\udce9'),
        call('read_file', path='a.log'),
        write('a.log', 'one\ncaf\ufffd two\n'),
    )
    assert results == snapshot(
        [
            'retried: old_string is not in /a.log. Each � is a broken byte, which cannot be matched. Edit the text around it.',
            "retried: old_string is not in /a.log. new_string already is, in line 1: 'Größe, naïve café'. If it is missing elsewhere, read the file and copy exactly.",
            'retried: new_string has �, which in /a.log stands for broken bytes. Nothing was changed. Edit the text around them with edit_file.',
            "retried: /a.log is utf-8, which has no '\\udce9'. Nothing was changed. Use other characters, or replace the whole file with write_file, which then makes it UTF-8.",
            """\
1→Größe, naïve café
2→one
3→caf� two
[encoding: utf-8, 1 broken byte shown as �]\
""",
            'retried: content has �, which in /a.log stands for broken bytes. Nothing was changed. Edit the text around them with edit_file.',
        ]
    )
    assert await backend.read_bytes('/a.log') == BROKEN


async def test_file_with_undecodable_bytes_can_be_replaced(play: Play) -> None:
    backend = StateBackend({'/a.log': BROKEN})
    assert await play(backend, write('a.log', 'né\n')) == ['Replaced /a.log: 1 line, 4 bytes.']
    assert await backend.read_bytes('/a.log') == 'né\n'.encode()


async def test_mixed_line_ends_are_preserved(play: Play) -> None:
    backend = StateBackend({'/a.txt': b'a\r\nb\nc\rd\r\ne'})
    await play(backend, edit('a.txt', 'b', 'B'))
    assert await backend.read_bytes('/a.txt') == b'a\r\nB\nc\rd\r\ne'


async def test_unencodable_character_changes_nothing(play: Play) -> None:
    before = 'Größe der Äpfel, Öl für die Mühle\n'.encode('latin-1')
    backend = StateBackend({'/a.txt': before})
    assert await play(backend, edit('a.txt', 'Mühle', '雪')) == snapshot(
        [
            "retried: /a.txt is cp1252, which has no '雪'. Nothing was changed. Use other characters, or replace the whole file with write_file, which then makes it UTF-8."
        ]
    )
    assert await backend.read_bytes('/a.txt') == before


async def test_file_mode_is_preserved(play: Play, tmp_path: Path) -> None:
    script = tmp_path / 'run.sh'
    script.write_text('echo one\n')
    script.chmod(0o755)
    await play(LocalBackend(tmp_path), edit('run.sh', 'one', 'two'))
    assert (script.read_text(), script.stat().st_mode & 0o777) == ('echo two\n', 0o755)


# Failures


async def test_failed_read_is_never_an_empty_file(play: Play) -> None:
    class Unreadable(StateBackend):
        async def read_bytes(self, path: str) -> bytes:
            raise PermissionError(13, 'Permission denied', '/home/someone/a')

    backend = Unreadable({'/a': 'precious'})
    assert await play(backend, edit('a', 'x', 'y'), write('a', 'z')) == [
        'failed: /a: permission denied.',
        'failed: /a: permission denied.',
    ]
    assert await StateBackend.read_bytes(backend, '/a') == b'precious'


async def test_failed_write_preserves_the_file(play: Play) -> None:
    class Full(StateBackend):
        async def compare_and_swap(self, path: str, data: bytes, *, expected: str | None) -> None:
            raise OSError(28, 'No space left on device', '/home/someone/a')

    backend = Full({'/a': 'precious'})
    assert await play(backend, write('a', 'x'), edit('a', 'precious', 'x')) == [
        'failed: /a: No space left on device.',
        'failed: /a: No space left on device.',
    ]
    assert await backend.read_bytes('/a') == b'precious'


async def test_lone_surrogate_is_refused_before_writing(play: Play) -> None:
    backend = StateBackend({'/a': 'precious'})
    [results] = await play(backend, write('a', 'lone \ud800 surrogate'))
    assert results.startswith('retried: ')
    assert await backend.read_bytes('/a') == b'precious'


async def test_write_to_a_read_only_backend_fails(play: Play) -> None:
    results = await play(ReadOnlyBackend(StateBackend({'/a': 'x'})), write('a', 'y'), edit('a', 'x', 'y'))
    assert results == snapshot(
        [
            "failed: '/a' is read-only. Write to another path.",
            "failed: '/a' is read-only. Write to another path.",
        ]
    )


async def test_write_to_a_directory_is_refused(play: Play) -> None:
    backend = StateBackend({'/dir/a': 'x'})
    assert await play(backend, write('dir', 'x'), write('dir/a/b', 'x')) == snapshot(
        [
            'retried: /dir is a directory. Use ls, or name a file.',
            'retried: /dir/a/b: it, or a parent of it, is a file and not a directory.',
        ]
    )


async def test_link_out_of_the_directory_is_not_followed(play: Play, tmp_path: Path) -> None:
    outside = tmp_path / 'secret'
    outside.write_text('secret')
    root = tmp_path / 'root'
    root.mkdir()
    (root / 'link').symlink_to(outside)
    results = await play(
        LocalBackend(root), call('read_file', path='link'), write('link', 'x'), edit('link', 'secret', 'x')
    )
    assert [text.partition(':')[0] for text in results] == ['failed'] * 3
    assert str(tmp_path) not in ''.join(results)
    assert outside.read_text() == 'secret'


# Concurrent changes


async def test_command_runs_between_the_calls_around_it(tmp_path: Path) -> None:
    model = ScriptedModel(
        [write('a.txt', 'one'), call('execute', command='cp a.txt b.txt'), call('read_file', path='b.txt')], 'done'
    )
    await Agent(model, capabilities=[Filesystem()]).run('go', workspace=LocalWorkspaceBackend(tmp_path))
    assert model.requests[-1].tool_returns[2].content == '1→one'
