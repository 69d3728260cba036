"""The memory of served agents: one for each owner and agent, with revisions and undo."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo

pytest.importorskip('pydantic_ai_harness', reason='the harness pins pydantic-ai to an older release than this one')

from pydantic_ai_harness.memory import MemoryConflictError

from pydantic_deep import create_deep_agent
from pydantic_deep.dispatch import submit
from pydantic_deep.memory import VersionedMemory
from pydantic_deep.server import AnyAgent, ServerSettings
from pydantic_deep.server._state import OWNER
from pydantic_deep.store import SqlStore
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.versions import TurnOptions, VersionedAgent
from tests.server.conftest import Client, Serve, Served
from tests.server.runs.test_worker import working

pytestmark = pytest.mark.anyio

MEMORY = '/api/agents/analyst/memory'
SETTINGS = ServerSettings(requests_per_second=1000, request_burst=100_000, memory=True)


def learn(messages: list[ModelMessage], info: AgentInfo) -> Any:
    """Remember what follows `Learn`; answer anything else with all that is known."""
    parts = [part for message in messages for part in message.parts]
    if any(isinstance(part, ToolReturnPart) for part in parts):
        return 'Learned.'
    said = [str(part.content) for part in parts if isinstance(part, UserPromptPart)]
    if said[0].startswith('Learn '):
        return [call('write_memory', content=said[0].removeprefix('Learn '))]
    return ' '.join(re.findall(r'Secret of \w+', str(said))) or 'Nothing.'


@pytest.fixture
def agents() -> Mapping[str, AnyAgent]:
    return {name: create_deep_agent(ScriptedModel(then=learn)) for name in ('analyst', 'writer')}


async def client_of(served: Served, owner: str, **options: Any) -> Client:
    return served.client(await served.key('run', owner=owner, **options))


async def ask(client: Client, prompt: str, agent: str = 'analyst') -> dict[str, Any]:
    """Run a turn in a new conversation, and return the run with its conversation."""
    made = (await client.post('/api/conversations', json={'agent': agent})).json()
    run = await client.post(f'/api/conversations/{made["id"]}/turns', json={'prompt': prompt})
    assert run.is_success, run.text
    return {**run.json(), 'conversation': made['id']}


async def test_owners_with_long_names_have_memories_of_their_own(serve: Serve) -> None:
    """A name of any length and script works, such as that of a login: its runs do not fail, and no other owner's memory has
    the same paths."""
    owners = ['x' * 300, 'x' * 299 + 'y', 'Александра Константиновна Преображенская, Санкт-Петербург']
    async with serve(settings=SETTINGS) as served:
        clients = [await client_of(served, owner) for owner in owners]
        for number, client in enumerate(clients):
            assert (await ask(client, f'Learn Secret of {number}'))['state'] == 'complete'
        for number, client in enumerate(clients):
            assert (await ask(client, 'What?'))['output'] == f'Secret of {number}'


async def test_each_owner_has_a_memory_of_its_own_for_each_agent(serve: Serve) -> None:
    """What an agent remembers is in later conversations of the same owner, and never in those of another owner or agent."""
    async with serve(settings=SETTINGS) as served:
        ada, bob, ada_s = [await client_of(served, owner) for owner in ('ada', 'bob', 'ada/s')]
        learned = await ask(ada, 'Learn Secret of ada')
        await ask(bob, 'Learn Secret of bob')

        assert (await ask(ada, 'What?'))['output'] == 'Secret of ada'
        assert (await ask(bob, 'What?'))['output'] == 'Secret of bob'
        assert (await ask(ada_s, 'What?'))['output'] == 'Nothing.'
        assert (await ask(ada, 'What?', 'writer'))['output'] == 'Nothing.'
        for client, expected in ((ada, ['Secret of ada']), (bob, ['Secret of bob']), (ada_s, [])):
            files = (await client.get(MEMORY)).json()
            assert files['has_memory']
            assert [item['content'].strip() for item in files['items']] == expected
        [revision] = (await ada.get(f'{MEMORY}/MEMORY.md')).json()['items']
        written_by = {'conversation_id': learned['conversation'], 'run_id': learned['id'], 'by': None}
        assert written_by.items() <= revision.items()
        assert (await ada_s.get(f'{MEMORY}/MEMORY.md')).status_code == 404
        for name in ('../../bob/analyst/MEMORY.md', 'MEMORY.md%00', '%ED%B2%80'):
            assert (await ada.get(f'{MEMORY}/{name}')).status_code == 404
            assert (await ada.post(f'{MEMORY}/{name}', json={})).status_code == 404


async def test_worker_gives_runs_the_memory_of_their_owner(store: SqlStore, agents: Mapping[str, AnyAgent]) -> None:
    """A worker knows the owner of a queued run from the conversation, and shares no memory between owners either."""
    said: list[str] = []
    for owner, prompt in (('ada', 'Learn Secret of ada'), ('ada', 'What?'), ('bob', 'What?')):
        versioned = VersionedAgent(create_deep_agent(name='analyst'), store)
        root = await versioned.create(metadata={OWNER: owner})
        async with working(store, agents['analyst'], memory=True) as running:
            await submit(root, TurnOptions(prompt=prompt, moves_head=True), store)
            await running.wait_for('ended')
        said.append(str((await versioned.conversation(root.conversation_id).head()).output))
    assert said == ['Learned.', 'Secret of ada', 'Nothing.']


async def test_earlier_revision_is_restored(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo restores the revision before the latest one, or any other; it is a revision with the name of its author."""
    async with serve(settings=SETTINGS) as served:
        ada = await client_of(served, 'ada')
        await ask(ada, 'Learn Secret of ada')
        await ask(ada, 'Learn Secret of others')
        undone = (await ada.post(f'{MEMORY}/MEMORY.md', json={})).json()
        assert (undone['number'], undone['content'].strip(), undone['by']) == (3, 'Secret of ada', 'ada')
        gone = (await ada.post(f'{MEMORY}/MEMORY.md', json={'number': 0})).json()
        assert gone['is_deleted']
        assert (await ada.get(MEMORY)).json()['items'] == []
        numbers = [item['number'] for item in (await ada.get(f'{MEMORY}/MEMORY.md')).json()['items']]
        assert numbers == [4, 3, 2, 1]
        assert (await ada.post(f'{MEMORY}/MEMORY.md', json={'number': 9})).status_code == 404
        assert (await ada.post(f'{MEMORY}/other.md', json={})).status_code == 404

        async def conflict(*args: object, **options: object) -> None:
            raise MemoryConflictError('written in the meantime')

        monkeypatch.setattr(VersionedMemory, 'restore', conflict)  # two writes at the same moment
        assert (await ada.post(f'{MEMORY}/MEMORY.md', json={'number': 1})).status_code == 409


async def test_key_of_another_agent_reads_no_memory(serve: Serve) -> None:
    """A key that may use one agent reads and changes only what this agent remembers."""
    async with serve(settings=SETTINGS) as served:
        await ask(await client_of(served, 'ada'), 'Learn Secret of ada')
        limited = await client_of(served, 'ada', agents=['writer'])
        answers = [await limited.get(MEMORY), await limited.get(f'{MEMORY}/MEMORY.md')]
        answers.append(await limited.post(f'{MEMORY}/MEMORY.md', json={'number': 0}))
        assert [answer.status_code for answer in answers] == [404, 404, 404]


async def test_agents_without_the_setting_remember_nothing(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `memory`, agents have no tools for it, and the routes say so, also without pydantic-ai-harness."""
    monkeypatch.setitem(sys.modules, 'pydantic_ai_harness.memory', None)  # as if it were not installed
    async with serve() as served:
        ada = await client_of(served, 'ada')
        assert (await ada.get(MEMORY)).json() == {'has_memory': False, 'items': []}
        assert (await ada.get(f'{MEMORY}/MEMORY.md')).status_code == 404
        assert (await ada.post(f'{MEMORY}/MEMORY.md', json={})).status_code == 404
