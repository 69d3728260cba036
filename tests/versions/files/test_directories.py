"""Directories and versions: edits between turns, parallel branches, uploads and todos, forks of subagents."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.workspaces import LocalWorkspaceBackend

from pydantic_deep import Approve, DeepAgentDeps, DeepAgentError, LocalBackend, StateBackend, Subagent, Todo
from pydantic_deep.store import StoreError, StoreUnavailableError
from pydantic_deep.testing import Answer, ScriptedModel, call
from pydantic_deep.versions import AgentVersion, UnversionedFilesWarning, VersionedAgent
from tests.versions.conftest import MakeAgent, SpyStore

pytestmark = pytest.mark.anyio


def put(path: str, content: str) -> Answer:
    return call('write_file', path=path, content=content)


async def read(version: AgentVersion[DeepAgentDeps, str], path: str) -> str:
    return (await (await version.files()).read_bytes(path)).decode()


async def test_edits_between_turns_are_a_separate_version(make: MakeAgent, tmp_path: Path):
    agent = make(put('/a.txt', 'one'), 'done', 'two')
    first = await (await agent.create(backend=LocalBackend(tmp_path))).advance('go')
    (tmp_path / 'mine.txt').write_text('by hand')

    second = await first.advance('more')

    lineage = await second.lineage()
    assert [version.kind for version in lineage] == ['root', 'turn', 'edit', 'turn']
    edit = lineage[2]
    assert (edit.parent_id, edit.message_count) == (first.id, first.message_count)
    assert await read(edit, '/mine.txt') == 'by hand'
    assert '/mine.txt' not in await first.file_tree()
    assert (await first.diff(edit)).messages_added == []
    assert [file.path for file in (await first.diff(edit)).files] == ['/mine.txt']


async def test_branches_of_one_directory_see_their_own_files(make: MakeAgent, tmp_path: Path):
    def script(messages: list[ModelMessage], info: object) -> Answer:
        last = messages[-1]
        assert isinstance(last, ModelRequest)
        if any(isinstance(part, ToolReturnPart) for part in last.parts):
            return str(next(part.content for part in last.parts if isinstance(part, ToolReturnPart)))
        said = str(last.parts[-1].content)  # type: ignore[union-attr] - a prompt
        return call('ls') if said == 'look' else put(f'/{said}.txt', said)

    agent = make(then=script)
    root = await agent.create(backend=LocalBackend(tmp_path))
    first = await root.advance('chart')
    second = await root.advance('table')

    assert sorted(path.name for path in tmp_path.iterdir()) == ['chart.txt']
    assert '/table.txt' in await second.file_tree()
    assert '/chart.txt' not in await second.file_tree()
    assert 'table.txt' in str((await second.advance('look')).output)
    assert 'chart.txt' in str((await first.advance('look')).output)
    assert sorted(path.name for path in tmp_path.iterdir()) == ['chart.txt']


async def test_uploads_and_todos_are_part_of_versions(make: MakeAgent, store: SpyStore):
    deps = DeepAgentDeps(backend=StateBackend())
    await deps.upload('sales.csv', b'a,b\n1,2\n')
    agent = make(call('write_todos', todos=[{'content': 'chart', 'status': 'pending'}]), 'done', 'again')
    root = await agent.create(deps=deps)

    turn = await root.advance('go')
    later = make('later')
    again = await (await later.load(turn.id)).advance('what now?')

    assert root.todos == []
    assert [todo.content for todo in turn.todos] == ['chart']
    assert [todo.content for todo in again.todos] == ['chart']
    model: Any = later.agent.model
    assert 'sales.csv' in str(model.requests[0].messages)
    assert await read(again, '/uploads/sales.csv') == 'a,b\n1,2\n'
    difference = await root.diff(turn)
    assert ([t.content for t in difference.todos_before], [t.content for t in difference.todos_after]) == ([], ['chart'])  # fmt: skip
    assert bool(difference)
    assert 'todos changed' in str(difference)


async def test_failed_fork_does_not_change_the_files_of_its_parent(make: MakeAgent):
    agent = make(
        call('task', subagent='writer', description='write'), put('/mine.txt', 'x'), 'written', 'done',
        subagents=[Subagent('writer', 'Writes.', isolation='fork')],
    )  # fmt: skip
    turn = await (await agent.create(backend=StateBackend({'/a.txt': 'a'}))).advance('go')

    assert await read(turn, '/mine.txt') == 'x'
    assert await read(turn, '/a.txt') == 'a'
    failing = make(
        call('task', subagent='writer', description='write'), put('/lost.txt', 'x'), RuntimeError('no'), 'done',
        subagents=[Subagent('writer', 'Writes.', isolation='fork')],
    )  # fmt: skip
    other = await (await failing.load(turn.id)).advance('once more')
    assert '/lost.txt' not in await other.file_tree()


async def test_unversioned_files_emit_a_warning(make: MakeAgent, tmp_path: Path):
    with pytest.warns(UnversionedFilesWarning):
        root = await make('one').create(backend=LocalWorkspaceBackend(tmp_path))

    assert root.tree is None


async def test_edit_that_cannot_be_stored_releases_the_directory(make: MakeAgent, store: SpyStore, tmp_path: Path):
    agent = make(put('/a.txt', 'a'), 'done')
    root = await agent.create(backend=LocalBackend(tmp_path))
    (tmp_path / 'mine.txt').write_text('by hand')
    store.refuse = lambda commit: StoreUnavailableError('The disk is full.') if commit.versions else None

    with pytest.raises(StoreUnavailableError):
        await root.advance('go')

    store.refuse = lambda commit: None
    turn = await root.advance('go')
    assert sorted(path.name for path in tmp_path.iterdir()) == ['a.txt', 'mine.txt']
    assert [version.kind for version in await turn.lineage()] == ['root', 'edit', 'turn']


async def test_unversioned_backend_is_refused_for_versioned_files(make: MakeAgent, tmp_path: Path):
    agent = make('one')
    root = await agent.create(backend=StateBackend({'/a.txt': 'a'}))

    with pytest.raises(DeepAgentError):
        await (await agent.load(root.id, backend=LocalWorkspaceBackend(tmp_path))).advance('go')

    assert await agent.store.runs() == []


async def test_offloaded_results_are_part_of_versions(make: MakeAgent):
    def talk() -> str:
        return 'word ' * 40_000

    turn = await (await make(call('talk'), 'done', tools=[talk]).create()).advance('go')
    path = '/offload/call-1'
    agent = make(call('read_file', path=path), 'seen', tools=[talk])

    later = await (await agent.load(turn.id)).advance('what was it?')

    returned = [part for m in await later.messages() for part in m.parts if isinstance(part, ToolReturnPart)]
    assert returned[-1].tool_name == 'read_file'
    assert returned[-1].outcome == 'success'
    assert 'word word' in returned[-1].model_response_str()
    assert (await later.replay()).difference is None


async def test_foreign_deps_do_not_replace_the_deps_of_the_version(store: SpyStore):
    agent = VersionedAgent(Agent[Any, str](ScriptedModel('one')), store)
    deps = DeepAgentDeps(todos=[Todo(content='a', status='pending')])
    root = await agent.create(deps=deps)

    turn = await root.advance('go', deps=7)

    assert [todo.content for todo in turn.todos] == ['a']


async def test_deleted_version_cannot_be_advanced(make: MakeAgent, store: SpyStore):
    agent = make(put('/a.txt', 'a'), 'done')
    turn = await (await agent.create(backend=StateBackend())).advance('go')
    handle = await make('never').load(turn.id)
    await agent.delete_line(turn)
    await agent.gc(0)

    with pytest.raises(StoreError):
        await handle.advance('on')

    assert await store.runs(states=['running']) == []


async def test_view_with_commands_has_the_same_path_in_every_turn(make: MakeAgent, tmp_path: Path):
    agent = make(
        *(put('/tmp/x', 'x'), 'in place'),
        *(call('execute', command='pwd > where'), 'a branch', call('execute', command='pwd > again'), 'gone on'),
        call('execute', command='pwd > there'),
        'in place again',
    )
    root = await agent.create(backend=LocalBackend(tmp_path, allow_commands=True))
    main = await root.advance('in place')
    branch = await root.advance('a branch')
    where = (await read(branch, '/where')).strip()
    assert where != str(tmp_path)
    assert not Path(where).exists()

    again = await branch.advance('gone on')

    assert (await read(again, '/again')).strip() == where
    await again.checkout(force=True)
    assert (await read(await again.advance('in place again'), '/there')).strip() == str(tmp_path)
    assert main.id in {version.id for version in await root.children()}


@pytest.mark.parametrize('isolation', ['shared', 'fork'])
async def test_pending_call_in_a_view_with_commands_is_asked_again_once(
    make: MakeAgent, tmp_path: Path, isolation: Literal['shared', 'fork']
):
    def script(messages: list[ModelMessage], info: object) -> Answer:
        last = messages[-1]
        assert isinstance(last, ModelRequest)
        if any(isinstance(part, ToolReturnPart) for part in last.parts):
            return 'done'
        is_worker = any('write it' in str(part.content) for part in last.parts if isinstance(part, UserPromptPart))
        return put('b.txt', 'b') if is_worker else call('task', subagent='worker', description='write it')

    worker = Subagent('worker', 'Writes.', isolation=isolation, interrupt_on={'write_file': True})
    agent = make(then=script, subagents=[worker], interrupt_on={})
    paused = await (await agent.create(backend=LocalBackend(tmp_path, allow_commands=True))).advance('go')
    clone = await paused.clone()
    await paused.resume({waiting.id: Approve() for waiting in paused.pending})

    done = clone
    for _ in range(2):  # asked once more in the view, because its paths differ, and not again
        assert done.state == 'awaiting_approval'
        done = await done.resume({waiting.id: Approve() for waiting in done.pending})

    assert (done.state, await read(done, '/b.txt')) == ('complete', 'b')
