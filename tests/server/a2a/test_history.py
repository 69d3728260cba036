"""The history of a task: the prompt and the texts of the agent, as long as the client wants it."""

from __future__ import annotations

import pytest
from a2a.client import Client
from a2a.helpers import new_raw_part
from a2a.types import GetTaskRequest, ListTasksRequest, Role, Task
from a2a.utils.errors import InvalidParamsError

from pydantic_deep.server import ServerSettings
from pydantic_deep.server._turn_task import load_task
from pydantic_deep.server.a2a._history import load_history
from tests.server.a2a.conftest import Connect, connect_to, decision, message, pending_in, responses, send
from tests.server.conftest import Serve, Served

pytestmark = pytest.mark.anyio


def dialogue(task: Task) -> list[tuple[str, str]]:
    return [(Role.Name(each.role), each.parts[0].text) for each in task.history]


async def get(client: Client, id: str, history_length: int) -> Task:
    return await client.get_task(GetTaskRequest(id=id, history_length=history_length))


async def test_task_has_the_prompt_and_the_texts_of_its_turn(connect: Connect) -> None:
    """A decision continues the history, which has nothing of earlier turns."""
    async with connect('asker') as client:
        first = await send(client, '/a.txt=a')
        [shown] = pending_in(first)
        assert dialogue(first) == [('ROLE_USER', '/a.txt=a')]
        done = await send(client, decision(shown, 'approve'), task_id=first.id)
        later = await send(client, 'hello', new_raw_part(b'x', media_type='image/png'), context_id=first.context_id)
    [_, answer] = dialogue(done)
    assert answer[0] == 'ROLE_AGENT'
    assert answer[1] == done.artifacts[0].parts[0].text
    assert [each.message_id for each in done.history] == [f'{first.id}-0', f'{first.id}-1']
    assert {(each.task_id, each.context_id) for each in done.history} == {(first.id, first.context_id)}
    assert dialogue(later) == [('ROLE_USER', 'hello\n[media]'), ('ROLE_AGENT', 'hello BinaryContent')]


@pytest.mark.parametrize(('length', 'roles'), [(0, []), (1, ['ROLE_AGENT']), (5, ['ROLE_USER', 'ROLE_AGENT'])])
async def test_history_is_as_long_as_the_client_wants(connect: Connect, length: int, roles: list[str]) -> None:
    async with connect('writer') as client, connect('writer', streaming=True) as streaming:
        [sent] = await responses(client, message('Hi'), history_length=length)
        got = await get(client, sent.task.id, history_length=length)
        listed = await client.list_tasks(ListTasksRequest(history_length=length))
        [first, *_] = await responses(streaming, message('Hi'), history_length=length)
        assert [[role for role, _ in dialogue(task)] for task in (sent.task, got, listed.tasks[0])] == [roles] * 3
        assert dialogue(first.task) == ([('ROLE_USER', 'Hi')] if length else [])


async def test_lists_have_no_history_unless_it_is_wanted(connect: Connect) -> None:
    async with connect('writer') as client:
        await send(client, 'Hi')
        assert [dialogue(task) for task in (await client.list_tasks(ListTasksRequest())).tasks] == [[]]


async def test_queued_task_has_its_prompt(serve: Serve) -> None:
    async with serve(settings=ServerSettings(worker=False)) as served, connect_to(served)('writer') as client:
        assert dialogue(await send(client, 'Hi', now=True)) == [('ROLE_USER', 'Hi')]


async def test_history_of_a_deleted_version_is_empty(connect: Connect, served: Served) -> None:
    async with connect('writer') as client:
        done = await send(client, 'Hi')
    task = await load_task(await served.access(await served.key()), done.id)
    await served.store.delete(str(dict(done.metadata)['version']))
    assert await load_history(served.store, task) == []


@pytest.mark.parametrize('role', [Role.ROLE_AGENT, Role.ROLE_UNSPECIFIED])
async def test_message_of_another_role_is_refused(connect: Connect, role: Role) -> None:
    sent = message('Hi')
    sent.role = role
    async with connect('writer') as client:
        with pytest.raises(InvalidParamsError, match='The `role` of the message is not `ROLE_USER`'):
            await responses(client, sent)
        assert not (await client.list_tasks(ListTasksRequest())).tasks
