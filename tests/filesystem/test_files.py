"""The files of a run: changes without lost updates, and files that cannot be read."""

from __future__ import annotations

from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from inline_snapshot import snapshot
from pydantic_ai import Agent
from pydantic_ai.workspaces import LocalWorkspaceBackend

from pydantic_deep.filesystem import Filesystem
from pydantic_deep.filesystem._files import MAX_ATTEMPTS
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep_backends import FileChangedError, LocalBackend, StateBackend, digest_of

from .conftest import Play, edit, write

pytestmark = pytest.mark.anyio


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
    """Lets every other task run between a read and the following write."""

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


async def test_file_changed_since_it_was_read_is_not_replaced(play: Play) -> None:
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
            ('success', '1→two'),
            ('success', 'Replaced /a: 1 line, 5 bytes.'),
            ('success', 'Replaced /a: 1 line, 4 bytes.'),
        ]
    )
    assert await backend.read_bytes('/a') == b'four'


async def test_edit_is_applied_to_concurrently_changed_contents(play: Play) -> None:
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


async def test_edit_of_a_constantly_changing_file_fails(play: Play) -> None:
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


async def test_eight_runs_edit_one_file_by_different_spellings() -> None:
    backend = Interleaved({'/dir/f.txt': ''.join(f'slot {n}\n' for n in range(8))})
    capability = Filesystem(backend=backend)

    async def run(number: int) -> None:
        model = ScriptedModel(edit(SPELLINGS[number], f'slot {number}', f'done {number}'), 'done')
        await Agent(model, capabilities=[capability]).run('go')
        assert model.requests[-1].tool_returns[0].outcome == 'success'

    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(run, number)
    assert (await backend.read_bytes('/dir/f.txt')).decode() == ''.join(f'done {n}\n' for n in range(8))
    assert backend.refused > 0


async def test_eight_runs_edit_one_local_file_through_links(tmp_path: Path) -> None:
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


async def test_eight_edits_in_one_response_are_all_applied(play: Play) -> None:
    backend = Interleaved({'/dir/f.txt': ''.join(f'slot {n}\n' for n in range(8))})
    said = await play(backend, [edit(SPELLINGS[n], f'slot {n}', f'done {n}') for n in range(8)])
    assert said == [f'Replaced 1 match at line {n + 1}.' for n in range(8)]
    assert (await backend.read_bytes('/dir/f.txt')).decode() == ''.join(f'done {n}\n' for n in range(8))
    assert backend.refused == 0  # calls within a run are sequential


@pytest.mark.parametrize('local', [False, True], ids=['state', 'local'])
async def test_calls_of_one_response_take_effect_in_order(play: Play, tmp_path: Path, local: bool) -> None:
    class Slow(StateBackend):
        """Answers earlier calls later, so that concurrent calls end in reverse order."""

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
            '1→second',
            'Replaced 1 match at line 1.',
            '1→third',
            """\
/o.txt
1: third\
""",
        ]
    )
    assert await backend.read_bytes('/o.txt') == b'third'


async def test_edits_without_compare_and_swap_are_all_applied(tmp_path: Path) -> None:
    (tmp_path / 'f.txt').write_text(''.join(f'slot {n}\n' for n in range(8)))
    model = ScriptedModel([edit('f.txt', f'slot {n}', f'done {n}') for n in range(8)], 'done')
    agent = Agent(model, capabilities=[Filesystem()])
    await agent.run('go', workspace=LocalWorkspaceBackend(tmp_path))
    assert (tmp_path / 'f.txt').read_text() == ''.join(f'done {n}\n' for n in range(8))


async def test_change_between_read_and_write_is_detected_without_compare_and_swap(tmp_path: Path) -> None:
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


async def test_runs_of_one_agent_do_not_share_read_files() -> None:
    backend = StateBackend({'/a': 'one'})
    model = ScriptedModel(call('read_file', path='a'), 'read', write('a', 'two'), 'done', write('a', 'three'), 'done')
    agent = Agent(model, capabilities=[Filesystem(backend=backend)])
    await agent.run('read')
    await backend.write_bytes('/a', b'changed')
    await agent.run('write')
    assert model.requests[-1].tool_returns[0].outcome == 'success'
    await agent.run('write')
    assert digest_of(await backend.read_bytes('/a')) == digest_of(b'three')
