"""What happens to files that the model writes and edits."""

from __future__ import annotations

import codecs
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import anyio
import anyio.lowlevel
import pytest
from inline_snapshot import snapshot
from pydantic_ai import Agent
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.workspaces import LocalWorkspaceBackend

from pydantic_deep.filesystem import Filesystem
from pydantic_deep.filesystem._files import MAX_ATTEMPTS
from pydantic_deep.filesystem._toolset import MAX_RETRIES
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep_backends import FileChangedError, LocalBackend, ReadOnlyBackend, StateBackend, digest_of

pytestmark = pytest.mark.anyio

Play: TypeAlias = Callable[..., Awaitable[list[str]]]

SPELLINGS = [
    '/dir/f.txt',
    'dir/f.txt',
    './dir/f.txt',
    '/dir/./f.txt',
    '/dir//f.txt',
    'dir//f.txt',
    '/./dir/f.txt',
    'dir/./f.txt',
]


class Interleaved(StateBackend):
    """Lets every other task run between a read and the write that follows it."""

    def __init__(self, files: dict[str, bytes | str]) -> None:
        super().__init__(files)
        self.refused = 0

    async def read_bytes(self, path: str) -> bytes:
        data = await super().read_bytes(path)
        await anyio.lowlevel.checkpoint()
        return data

    async def compare_and_swap(self, path: str, data: bytes, *, expected: str | None) -> None:
        try:
            await super().compare_and_swap(path, data, expected=expected)
        except FileChangedError:
            self.refused += 1
            raise


def edit(path: str, old: str, new: str, **more: object) -> ToolCallPart:
    return call('edit_file', path=path, old_string=old, new_string=new, **more)


def write(path: str, content: str) -> ToolCallPart:
    return call('write_file', path=path, content=content)


# What is said


async def test_a_write_says_what_it_did(play: Play) -> None:
    backend = StateBackend({'/b.txt': 'old', '/c.txt': codecs.BOM_UTF8 + b'x\r\n'})
    said = await play(backend, write('new/a.txt', 'one\ntwo'), write('b.txt', ''), write('c.txt', 'é\n'))
    assert said == snapshot(
        [
            'Created /new/a.txt: 2 lines, 7 bytes.',
            'Replaced /b.txt: 0 lines, 0 bytes.',
            'Replaced /c.txt: 1 line, 7 bytes, utf-8-sig, CRLF line ends kept.',
        ]
    )
    assert await backend.read_bytes('/new/a.txt') == b'one\ntwo'
    assert await backend.read_bytes('/c.txt') == codecs.BOM_UTF8 + 'é\r\n'.encode()


async def test_an_edit_says_what_it_did(play: Play) -> None:
    backend = StateBackend({'/a.txt': 'x\n' * 12 + 'y\n'})
    said = await play(backend, edit('a.txt', 'y', 'z'), edit('a.txt', 'x', 'y', replace_all=True))
    assert said == snapshot(
        [
            'Replaced 1 match at line 13.',
            'Replaced 12 matches at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ….',
        ]
    )
    assert await backend.read_bytes('/a.txt') == b'y\n' * 12 + b'z\n'


async def test_an_edit_that_cannot_be_made_says_why_and_changes_nothing(play: Play) -> None:
    text = 'one = 1\ntwo = 2\none = 1\n'
    backend = StateBackend({'/a.py': text, '/b.bin': b'\0\1', '/c.zip': b'PK\x03\x04\0'})
    said = await play(
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
    assert said == snapshot(
        [
            'retried: old_string is not in /a.py. Nothing in the file is like it. Read the file and copy exactly.',
            'retried: old_string is in /a.py 2 times, at lines 1, 3. Add lines around it until it occurs once, or set replace_all.',
            'retried: old_string is empty. Copy the text to replace from the file, or use write_file.',
            'retried: old_string and new_string are the same, so nothing would change.',
            'failed: /b.bin is not text: binary data. Nothing was changed.',
            'failed: /c.zip is not text: application/zip. Nothing was changed.',
            'failed: /zebra does not exist. Use ls or glob to find it.',
            'retried: /d.py does not exist. Similar: /a.py',
            'retried: / is a directory. Use ls, or name a file.',
        ]
    )
    assert await backend.read_bytes('/a.py') == text.encode()
    assert await backend.read_bytes('/b.bin') == b'\0\1'


async def test_wrong_edits_without_end_do_not_end_the_run(play: Play) -> None:
    said = await play(StateBackend({'/a': 'x'}), *[edit('a', f'wrong {n}', 'y') for n in range(MAX_RETRIES + 2)])
    assert [text.partition(':')[0] for text in said] == ['retried'] * MAX_RETRIES + ['failed'] * 2


# Encodings and line ends


@pytest.mark.parametrize('codec', ['latin-1', 'utf-16-le', 'utf-16-be', 'utf-8'])
@pytest.mark.parametrize('end', ['\n', '\r\n'])
async def test_an_edit_keeps_encoding_mark_and_every_other_byte(play: Play, codec: str, end: str) -> None:
    mark = {'utf-16-le': codecs.BOM_UTF16_LE, 'utf-16-be': codecs.BOM_UTF16_BE, 'utf-8': codecs.BOM_UTF8}
    text = end.join(['Größe der Äpfel', 'zwei', 'Öl für die Mühle', 'schöne Grüße'])
    before = mark.get(codec, b'') + text.encode(codec)
    backend = StateBackend({'/a.txt': before})
    assert await play(backend, edit('a.txt', 'Äpfel\nzwei', 'Äpfel\nzwölf\ndrei')) == ['Replaced 1 match at line 1.']
    after = mark.get(codec, b'') + text.replace('zwei', f'zwölf{end}drei').encode(codec)
    assert await backend.read_bytes('/a.txt') == after


BROKEN = 'Größe, naïve café\none\n'.encode() + b'caf\xe9 two\n'


async def test_an_edit_keeps_broken_bytes(play: Play) -> None:
    backend = StateBackend({'/a.log': BROKEN, '/b.log': BROKEN})
    said = await play(
        backend,
        edit('a.log', 'one', 'éins'),
        edit('a.log', ' two', ' zwei'),
        edit('a.log', '\ncaf', ''),
        edit('b.log', 'Größe', 'Maß', replace_all=True),
    )
    assert [text.partition(':')[0] for text in said] == [f'Replaced 1 match at line {n}.' for n in (2, 3, 2, 1)]
    assert await backend.read_bytes('/a.log') == 'Größe, naïve café\néins'.encode() + b'\xe9 zwei\n'
    assert await backend.read_bytes('/b.log') == BROKEN.replace('Größe'.encode(), 'Maß'.encode())


async def test_a_replacement_character_neither_matches_nor_replaces_a_broken_byte(play: Play) -> None:
    backend = StateBackend({'/a.log': BROKEN})
    said = await play(
        backend,
        edit('a.log', 'caf\ufffd', 'café'),
        edit('a.log', 'cafè', 'café'),
        edit('a.log', 'one', 'caf\ufffd'),
        edit('a.log', 'one', 'caf\udce9'),
        call('read_file', path='a.log'),
        write('a.log', 'one\ncaf\ufffd two\n'),
    )
    assert said == snapshot(
        [
            'retried: old_string is not in /a.log. Each � is a broken byte, which cannot be matched. Edit the text around it.',
            'retried: old_string is not in /a.log. Nothing in the file is like it. Read the file and copy exactly.',
            'retried: new_string has �, which in /a.log stands for broken bytes. Nothing was changed. Edit the text around them with edit_file.',
            "retried: /a.log is utf-8, which has no '\\udce9'. Nothing was changed. Use other characters, or replace the whole file with write_file, which then makes it UTF-8.",
            """\
1	Größe, naïve café
2	one
3	caf� two
[encoding: utf-8, 1 broken byte shown as �]\
""",
            'retried: content has �, which in /a.log stands for broken bytes. Nothing was changed. Edit the text around them with edit_file.',
        ]
    )
    assert await backend.read_bytes('/a.log') == BROKEN


async def test_a_file_with_broken_bytes_can_be_replaced(play: Play) -> None:
    backend = StateBackend({'/a.log': BROKEN})
    assert await play(backend, write('a.log', 'né\n')) == ['Replaced /a.log: 1 line, 4 bytes.']
    assert await backend.read_bytes('/a.log') == 'né\n'.encode()


async def test_mixed_line_ends_stay_where_they_are(play: Play) -> None:
    backend = StateBackend({'/a.txt': b'a\r\nb\nc\rd\r\ne'})
    await play(backend, edit('a.txt', 'b', 'B'))
    assert await backend.read_bytes('/a.txt') == b'a\r\nB\nc\rd\r\ne'


async def test_a_character_that_the_encoding_lacks_changes_nothing(play: Play) -> None:
    before = 'Größe der Äpfel, Öl für die Mühle\n'.encode('latin-1')
    backend = StateBackend({'/a.txt': before})
    assert await play(backend, edit('a.txt', 'Mühle', '雪')) == snapshot(
        [
            "retried: /a.txt is cp1252, which has no '雪'. Nothing was changed. Use other characters, or replace the whole file with write_file, which then makes it UTF-8."
        ]
    )
    assert await backend.read_bytes('/a.txt') == before


async def test_the_file_mode_is_preserved(play: Play, tmp_path: Path) -> None:
    script = tmp_path / 'run.sh'
    script.write_text('echo one\n')
    script.chmod(0o755)
    await play(LocalBackend(tmp_path), edit('run.sh', 'one', 'two'))
    assert (script.read_text(), script.stat().st_mode & 0o777) == ('echo two\n', 0o755)


# Failures


async def test_a_failed_read_is_never_an_empty_file(play: Play) -> None:
    class Unreadable(StateBackend):
        async def read_bytes(self, path: str) -> bytes:
            raise PermissionError(13, 'Permission denied', '/home/someone/a')

    backend = Unreadable({'/a': 'precious'})
    assert await play(backend, edit('a', 'x', 'y'), write('a', 'z')) == [
        'failed: /a: permission denied.',
        'failed: /a: permission denied.',
    ]
    assert await StateBackend.read_bytes(backend, '/a') == b'precious'


async def test_a_failed_write_leaves_the_file_whole(play: Play) -> None:
    class Full(StateBackend):
        async def compare_and_swap(self, path: str, data: bytes, *, expected: str | None) -> None:
            raise OSError(28, 'No space left on device', '/home/someone/a')

    backend = Full({'/a': 'precious'})
    assert await play(backend, write('a', 'x'), edit('a', 'precious', 'x')) == [
        'failed: /a: No space left on device.',
        'failed: /a: No space left on device.',
    ]
    assert await backend.read_bytes('/a') == b'precious'


async def test_text_that_no_encoding_has_is_refused_before_anything_is_written(play: Play) -> None:
    backend = StateBackend({'/a': 'precious'})
    [said] = await play(backend, write('a', 'lone \ud800 surrogate'))
    assert said.startswith('retried: ')
    assert await backend.read_bytes('/a') == b'precious'


async def test_a_read_only_backend_says_so(play: Play) -> None:
    said = await play(ReadOnlyBackend(StateBackend({'/a': 'x'})), write('a', 'y'), edit('a', 'x', 'y'))
    assert said == snapshot(
        [
            "failed: '/a' is read-only. Write to another path.",
            "failed: '/a' is read-only. Write to another path.",
        ]
    )


async def test_what_is_no_file_is_not_written(play: Play) -> None:
    backend = StateBackend({'/dir/a': 'x'})
    assert await play(backend, write('dir', 'x'), write('dir/a/b', 'x')) == snapshot(
        [
            'retried: /dir is a directory. Use ls, or name a file.',
            'retried: /dir/a/b: it, or a parent of it, is a file and not a directory.',
        ]
    )


async def test_a_link_out_of_the_directory_is_not_followed(play: Play, tmp_path: Path) -> None:
    outside = tmp_path / 'secret'
    outside.write_text('secret')
    root = tmp_path / 'root'
    root.mkdir()
    (root / 'link').symlink_to(outside)
    said = await play(
        LocalBackend(root), call('read_file', path='link'), write('link', 'x'), edit('link', 'secret', 'x')
    )
    assert [text.partition(':')[0] for text in said] == ['failed'] * 3
    assert str(tmp_path) not in ''.join(said)
    assert outside.read_text() == 'secret'


# Others write too


async def test_a_file_that_changed_since_the_model_read_it_is_not_replaced(play: Play) -> None:
    backend = StateBackend({'/a': 'one'})

    async def change_it() -> str:
        await backend.write_bytes('/a', b'two')
        return 'changed'

    model = ScriptedModel(
        call('read_file', path='a'),
        call('change_it'),
        write('./a', 'three'),
        call('read_file', path='a'),
        write('a', 'three'),
        write('a', 'four'),
        'done',
    )
    await Agent(model, tools=[change_it], capabilities=[Filesystem(backend=backend)]).run('go')
    returns = model.requests[-1].tool_returns
    assert [(p.outcome, p.content) for p in returns[2:]] == snapshot(
        [
            ('retried', '/a changed since you read it. Read it again, then write.'),
            ('success', '1\ttwo'),
            ('success', 'Replaced /a: 1 line, 5 bytes.'),
            ('success', 'Replaced /a: 1 line, 4 bytes.'),
        ]
    )
    assert await backend.read_bytes('/a') == b'four'


async def test_a_write_that_meets_another_is_made_on_what_is_there_then(play: Play) -> None:
    class Contended(StateBackend):
        wrote = False

        async def compare_and_swap(self, path: str, data: bytes, *, expected: str | None) -> None:
            if not self.wrote:
                self.wrote = True
                await self.write_bytes(path, b'theirs one\r\ntwo\r\n')
            await super().compare_and_swap(path, data, expected=expected)

    backend = Contended({'/a': 'one\n'})
    assert await play(backend, edit('a', 'one', 'eins')) == ['Replaced 1 match at line 1.']
    assert await backend.read_bytes('/a') == b'theirs eins\r\ntwo\r\n'


async def test_a_file_that_others_change_all_the_time_is_given_up(play: Play) -> None:
    class Busy(StateBackend):
        attempts = 0

        async def compare_and_swap(self, path: str, data: bytes, *, expected: str | None) -> None:
            self.attempts += 1
            raise FileChangedError(path, expected=expected, actual=None)

    backend = Busy({'/a': 'one'})
    assert await play(backend, edit('a', 'one', 'two')) == snapshot(
        ['failed: /a was changed by others 50 times meanwhile. Try again later.']
    )
    assert backend.attempts == MAX_ATTEMPTS


async def test_eight_runs_edit_one_file_by_different_spellings_and_nothing_is_lost() -> None:
    backend = Interleaved({'/dir/f.txt': ''.join(f'slot {n}\n' for n in range(8))})
    room = Filesystem(backend=backend)

    async def run(number: int) -> None:
        model = ScriptedModel(edit(SPELLINGS[number], f'slot {number}', f'done {number}'), 'done')
        await Agent(model, capabilities=[room]).run('go')
        assert model.requests[-1].tool_returns[0].outcome == 'success'

    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(run, number)
    assert (await backend.read_bytes('/dir/f.txt')).decode() == ''.join(f'done {n}\n' for n in range(8))
    assert backend.refused > 0


async def test_eight_runs_edit_one_file_of_a_directory_through_a_link_too(tmp_path: Path) -> None:
    (tmp_path / 'dir').mkdir()
    (tmp_path / 'dir' / 'f.txt').write_text(''.join(f'slot {n}\n' for n in range(8)))
    (tmp_path / 'alias').symlink_to('dir')
    paths = [*SPELLINGS[:6], 'alias/f.txt', '/alias/f.txt']

    async def run(number: int) -> None:
        model = ScriptedModel(edit(paths[number], f'slot {number}', f'done {number}'), 'done')
        await Agent(model, capabilities=[Filesystem(backend=LocalBackend(tmp_path))]).run('go')

    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(run, number)
    assert (tmp_path / 'dir' / 'f.txt').read_text() == ''.join(f'done {n}\n' for n in range(8))


async def test_eight_edits_in_one_response_are_all_made(play: Play) -> None:
    backend = Interleaved({'/dir/f.txt': ''.join(f'slot {n}\n' for n in range(8))})
    said = await play(backend, [edit(SPELLINGS[n], f'slot {n}', f'done {n}') for n in range(8)])
    assert said == [f'Replaced 1 match at line {n + 1}.' for n in range(8)]
    assert (await backend.read_bytes('/dir/f.txt')).decode() == ''.join(f'done {n}\n' for n in range(8))
    assert backend.refused == 0  # within a run they wait for one another


@pytest.mark.parametrize('local', [False, True], ids=['state', 'local'])
async def test_the_calls_of_one_response_take_effect_from_first_to_last(
    play: Play, tmp_path: Path, local: bool
) -> None:
    class Slow(StateBackend):
        """Answers an earlier call later, so that calls made at once end in the reverse order."""

        waits = 20

        async def read_bytes(self, path: str) -> bytes:
            self.waits -= 5
            for _ in range(self.waits):
                await anyio.lowlevel.checkpoint()
            return await super().read_bytes(path)

    backend = LocalBackend(tmp_path) if local else Slow()
    said = await play(
        backend,
        [
            write('o.txt', 'first'),
            write('o.txt', 'second'),
            call('read_file', path='o.txt'),
            edit('o.txt', 'second', 'third'),
            call('read_file', path='o.txt'),
            call('grep', pattern='third'),
        ],
    )
    assert said == snapshot(
        [
            'Created /o.txt: 1 line, 5 bytes.',
            'Replaced /o.txt: 1 line, 6 bytes.',
            '1\tsecond',
            'Replaced 1 match at line 1.',
            '1\tthird',
            """\
/o.txt
1: third\
""",
        ]
    )
    assert await backend.read_bytes('/o.txt') == b'third'


async def test_a_command_runs_between_the_calls_around_it(tmp_path: Path) -> None:
    model = ScriptedModel(
        [write('a.txt', 'one'), call('execute', command='cp a.txt b.txt'), call('read_file', path='b.txt')], 'done'
    )
    await Agent(model, capabilities=[Filesystem()]).run('go', workspace=LocalWorkspaceBackend(tmp_path))
    assert model.requests[-1].tool_returns[2].content == '1\tone'


async def test_without_compare_and_swap_the_edits_of_one_run_are_all_made(tmp_path: Path) -> None:
    (tmp_path / 'f.txt').write_text(''.join(f'slot {n}\n' for n in range(8)))
    model = ScriptedModel([edit('f.txt', f'slot {n}', f'done {n}') for n in range(8)], 'done')
    agent = Agent(model, capabilities=[Filesystem()])
    await agent.run('go', workspace=LocalWorkspaceBackend(tmp_path))
    assert (tmp_path / 'f.txt').read_text() == ''.join(f'done {n}\n' for n in range(8))


async def test_without_compare_and_swap_a_change_between_read_and_write_is_seen(tmp_path: Path) -> None:
    class Contended(LocalWorkspaceBackend):
        reads = 0

        async def read_bytes(self, path: str) -> bytes:
            data = await super().read_bytes(path)
            self.reads += 1
            if self.reads == 1:
                (tmp_path / 'f.txt').write_text('theirs one')
            return data

    (tmp_path / 'f.txt').write_text('one')
    model = ScriptedModel(edit('f.txt', 'one', 'two'), write('g.txt', 'new'), 'done')
    await Agent(model, capabilities=[Filesystem()]).run('go', workspace=Contended(tmp_path))
    assert (tmp_path / 'f.txt').read_text() == 'theirs two'
    assert (tmp_path / 'g.txt').read_text() == 'new'


async def test_two_runs_on_one_agent_do_not_know_what_the_other_has_read() -> None:
    backend = StateBackend({'/a': 'one'})
    model = ScriptedModel(call('read_file', path='a'), 'read', write('a', 'two'), 'done', write('a', 'three'), 'done')
    agent = Agent(model, capabilities=[Filesystem(backend=backend)])
    await agent.run('read')
    await backend.write_bytes('/a', b'changed')
    await agent.run('write')
    assert model.requests[-1].tool_returns[0].outcome == 'success'
    await agent.run('write')
    assert digest_of(await backend.read_bytes('/a')) == digest_of(b'three')
