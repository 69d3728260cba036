"""Requests that a client repeats at another server of the same store join the run of the first one."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from pydantic_ai.messages import ModelMessage, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import create_deep_agent
from pydantic_deep.repository import Page, SqlRepository
from pydantic_deep.server import AnyAgent, ServerSettings
from pydantic_deep.server.http._errors import ServerError
from pydantic_deep.server.runs import _repetitions
from pydantic_deep.server.runs._repetitions import CLAIM_FIELDS, Repetitions, RequestClaim, RequestIdentity
from pydantic_deep.server.runs._server_run import ServerRun
from pydantic_deep.store import SqlStore, new_id, open_store
from pydantic_deep.testing import Answer, ScriptedModel, call
from pydantic_deep.versions import TurnOptions, VersionedAgent
from tests.dispatch.conftest import until
from tests.server.conftest import Client, Gate, Serve, Served

pytestmark = pytest.mark.anyio

ChangeClaim = Callable[[RequestClaim | None], RequestClaim | None]

DOOR = ServerSettings(requests_per_second=1000, request_burst=100_000, worker=False)
WORKER = ServerSettings(requests_per_second=1000, request_burst=100_000)


@dataclass(frozen=True, kw_only=True)
class Doors:
    """Two servers without workers on one database."""

    served: list[Served]
    first: Client
    second: Client
    worker: Callable[[], AbstractAsyncContextManager[Served]]
    claims: SqlRepository[RequestClaim]
    """The requests that the servers have received."""

    def repetitions(self, door: int) -> Repetitions:
        """Return the repetitions of a server that has just started."""
        return Repetitions(self.served[door].state.runs, self.served[door].store, self.claims)

    async def begin(self, door: int, run_id: str | None) -> ServerRun:
        """Queue a run at a server."""
        state = self.served[door].state
        version = await VersionedAgent(create_deep_agent(ScriptedModel(), name='analyst'), state.store).create()
        return await state.runs.submit(version, TurnOptions(prompt='Hi', run_id=run_id), state.store, owner='ada')

    async def has_claim(self) -> bool:
        """Return whether a server has received a request."""
        return await self.claims.count() > 0

    async def queued(self) -> int:
        """Return the number of runs of the store, ended or not."""
        return len(await self.served[0].store.queue.list(ended=True))


def _answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
    """Wait in a tool at the prompt `wait`."""
    last = messages[-1].parts[-1]
    if isinstance(last, UserPromptPart):
        return call('hold') if last.content == 'wait' else f'You said: {last.content}'
    return 'Done.'


@pytest.fixture
def agents(gate: Gate) -> Mapping[str, AnyAgent]:
    """An agent whose tool `hold` waits for the gate."""
    return {'analyst': create_deep_agent(ScriptedModel(then=_answer), tools=[gate.hold])}


@pytest.fixture
async def doors(serve: Serve) -> AsyncGenerator[Doors]:
    name = new_id()
    async with AsyncExitStack() as stack:
        stores: list[SqlStore] = [await stack.enter_async_context(open_store(f'memory:{name}')) for _ in range(3)]
        served = [await stack.enter_async_context(serve(settings=DOOR, store=store)) for store in stores[:2]]
        key = await served[0].key('run')
        first, second = [await stack.enter_async_context(door.client(key)) for door in served]
        claims = await SqlRepository[RequestClaim].open(
            stores[0], RequestClaim, fields=CLAIM_FIELDS, name='server_request_claim'
        )
        worker = partial(serve, settings=WORKER, store=stores[2])
        yield Doors(served=served, first=first, second=second, worker=worker, claims=claims)


async def say(client: Client, text: str, *, key: str | None = None) -> str:
    """Return the answer to a prompt, or the message of the error."""
    body = {'model': 'analyst', 'messages': [{'role': 'user', 'content': text}]}
    headers = {} if key is None else {'idempotency-key': key}
    answer = (await client.post('/v1/chat/completions', json=body, headers=headers)).json()
    return answer['choices'][0]['message']['content'] if 'choices' in answer else answer['error']['message']


async def test_request_repeated_at_another_server_during_its_run_joins_it(doors: Doors, gate: Gate) -> None:
    """The first server has received the request, and the client repeats it at another one before its run has ended."""
    answers: list[str] = []

    async def ask(client: Client) -> None:
        answers.append(await say(client, 'wait'))

    async with doors.worker() as worker, anyio.create_task_group() as group:
        group.start_soon(ask, doors.first)
        await gate.reached.wait()
        [run] = await worker.store.queue.list()
        group.start_soon(ask, doors.second)
        await until(lambda: doors.served[1].state.runs.get(run.run_id) is not None)
        gate.opened.set()

    assert answers == ['Done.', 'Done.']
    assert await doors.queued() == 1


async def test_request_that_a_person_sends_again_after_its_run_is_a_new_one(doors: Doors) -> None:
    async with doors.worker():
        assert await say(doors.first, 'Hi') == 'You said: Hi'
        assert await say(doors.second, 'Hi') == 'You said: Hi'

    assert await doors.queued() == 2


async def test_response_repeated_at_another_server_has_the_same_id(doors: Doors) -> None:
    body = {'model': 'analyst', 'input': 'Hi', 'background': True}
    first = await doors.first.post('/v1/responses', json=body)
    second = await doors.second.post('/v1/responses', json=body)

    assert first.status_code == second.status_code == 200
    assert first.json()['id'] == second.json()['id']
    assert len(await doors.served[0].store.conversations()) == 1


async def test_key_joins_an_ended_run_at_another_server(doors: Doors) -> None:
    """With another body, the key is refused there, too."""
    async with doors.worker():
        assert await say(doors.first, 'One', key='a') == 'You said: One'
        assert await say(doors.second, 'One', key='a') == 'You said: One'
        assert await say(doors.second, 'Two', key='a') == (
            'The `Idempotency-Key` belongs to an earlier request with another body. Choose a new key.'
        )
        assert await doors.queued() == 1


IDENTITY = RequestIdentity(digest='digest', content='content')


async def test_refused_request_can_be_repeated_at_another_server(doors: Doors) -> None:
    """The other server waits until the first one has refused it, and then starts a run itself."""
    waits = anyio.Event()

    async def refuse(run_id: str | None) -> ServerRun:
        await waits.wait()
        raise ServerError('rate_limited', 'Too many runs.')

    async def first() -> None:
        with pytest.raises(ServerError, match='Too many runs'):
            await doors.repetitions(0).start('ada', 'analyst', IDENTITY, refuse)

    async def second() -> None:
        await doors.repetitions(1).start('ada', 'analyst', IDENTITY, partial(doors.begin, 1))

    async with anyio.create_task_group() as group:
        group.start_soon(first)
        await anyio.wait_all_tasks_blocked()
        group.start_soon(second)
        await anyio.wait_all_tasks_blocked()
        assert await doors.queued() == 0
        waits.set()

    assert await doors.queued() == 1


async def _claim(doors: Doors, *, age_seconds: float) -> RequestClaim:
    """Add the claim of a server that has not started the run."""
    id, claimed_at = _repetitions.claim_id('ada', 'analyst', IDENTITY), time.time() - age_seconds
    claim = RequestClaim(id=id, content='content', run_id=new_id(), claimed_at=claimed_at, expires_at=claimed_at + 90)
    await doors.claims.create(claim)
    return claim


async def test_request_of_a_crashed_server_is_started_once(doors: Doors) -> None:
    """The server crashed before it started the run. Of two servers that receive the request again, one starts it."""
    claim = await _claim(doors, age_seconds=_repetitions.START_SECONDS + 1)
    runs: list[str] = []

    async def start(door: int) -> None:
        run = await doors.repetitions(door).start('ada', 'analyst', IDENTITY, partial(doors.begin, door))
        runs.append(run.id)

    async with anyio.create_task_group() as group:
        group.start_soon(start, 0)
        group.start_soon(start, 1)

    assert runs == [claim.run_id] * 2
    assert await doors.queued() == 1


async def test_request_that_waits_for_a_crashed_server_looks_less_and_less_often(
    doors: Doors, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 7:
            monkeypatch.setattr(_repetitions, 'START_SECONDS', -1)

    await _claim(doors, age_seconds=0)
    monkeypatch.setattr(_repetitions, 'anyio', SimpleNamespace(**{**vars(anyio), 'sleep': sleep}))
    await doors.repetitions(0).start('ada', 'analyst', IDENTITY, partial(doors.begin, 0))

    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1, 1]


async def test_run_of_a_server_that_was_slow_is_started_once(doors: Doors, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a server hangs, another one starts the run in its place. When the first one goes on, it joins that run."""
    hangs = anyio.Event()
    monkeypatch.setattr(_repetitions, 'START_SECONDS', 0)
    runs: list[str] = []

    async def slow(run_id: str | None) -> ServerRun:
        await hangs.wait()
        return await doors.begin(0, run_id)

    async def start(door: int, start_run: _repetitions.StartRun) -> None:
        run = await doors.repetitions(door).start('ada', 'analyst', IDENTITY, start_run)
        runs.append(run.id)

    async with anyio.create_task_group() as group:
        group.start_soon(start, 0, slow)
        await until(doors.has_claim)
        await start(1, partial(doors.begin, 1))
        hangs.set()

    assert len(set(runs)) == 1
    assert await doors.queued() == 1
    assert await doors.claims.count() == 1


async def test_failure_of_a_slow_server_does_not_start_the_run_again(
    doors: Doors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails after another one has started the run in its place, which later requests still join."""
    hangs = anyio.Event()
    monkeypatch.setattr(_repetitions, 'START_SECONDS', 0)

    async def slow(run_id: str | None) -> ServerRun:
        await hangs.wait()
        raise ServerError('unavailable', 'The store does not answer.')

    async def first() -> None:
        with pytest.raises(ServerError, match='does not answer'):
            await doors.repetitions(0).start('ada', 'analyst', IDENTITY, slow)

    async with anyio.create_task_group() as group:
        group.start_soon(first)
        await until(doors.has_claim)
        await doors.repetitions(1).start('ada', 'analyst', IDENTITY, partial(doors.begin, 1))
        hangs.set()
    await doors.repetitions(0).start('ada', 'analyst', IDENTITY, partial(doors.begin, 0))

    assert await doors.queued() == 1


async def test_key_with_another_body_is_refused_while_the_first_request_starts(doors: Doors) -> None:
    await _claim(doors, age_seconds=0)
    other = RequestIdentity(digest='digest', content='other', has_key=True)

    with pytest.raises(ServerError, match='with another body'):
        await doors.repetitions(1).start('ada', 'analyst', other, partial(doors.begin, 1))


async def test_request_after_the_end_of_its_run_is_replaced_once(doors: Doors, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two servers that receive it at the same time, one starts a run, and the other joins it."""
    async with doors.worker() as worker:
        run = await doors.repetitions(0).start('ada', 'analyst', IDENTITY, partial(doors.begin, 0))
        await until(lambda: run.outcome is not None)
        assert await worker.store.queue.prune(0) == 1
    for door in doors.served:
        door.state.runs.clear_logs()
    runs: list[str] = []
    update = doors.claims.update

    async def start(door: int) -> None:
        joined = await doors.repetitions(door).start('ada', 'analyst', IDENTITY, partial(doors.begin, door))
        runs.append(joined.id)

    async def update_later(key: str, change: ChangeClaim) -> RequestClaim | None:
        """Replace the claim after the other server has replaced it."""
        monkeypatch.setattr(doors.claims, 'update', update)
        await start(1)
        return await update(key, change)

    monkeypatch.setattr(doors.claims, 'update', update_later)
    await start(0)

    assert runs[0] == runs[1] != run.id
    assert await doors.queued() == 1
    assert await doors.claims.count() == 1


async def test_refused_request_leaves_the_claim_of_another_server(
    doors: Doors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that was too slow was replaced by another one, whose run others join although the slow one fails."""
    joined: list[ServerRun] = []

    async def is_replaced(run_id: str | None) -> ServerRun:
        claim = (await doors.claims.list()).items[0]
        run = await doors.begin(1, None)
        await doors.claims.upsert(claim.model_copy(update={'run_id': run.id}))
        joined.append(run)
        raise ServerError('invalid', 'No.')

    with pytest.raises(ServerError, match='No'):
        await doors.repetitions(0).start('ada', 'analyst', IDENTITY, is_replaced)
    again = await doors.repetitions(0).start('ada', 'analyst', IDENTITY, partial(doors.begin, 0))

    assert again.id == joined[0].id
    assert await doors.queued() == 1


async def test_request_with_answers_that_were_given_joins_their_run_at_another_server(doors: Doors) -> None:
    """The answers started a run before, so the request has not started the run of its claim."""
    answered = await doors.begin(0, None)

    async def start(run_id: str | None) -> ServerRun:
        return answered

    await doors.repetitions(0).start('ada', 'analyst', IDENTITY, start)
    joined = await doors.repetitions(1).start('ada', 'analyst', IDENTITY, partial(doors.begin, 1))

    assert joined.id == answered.id
    assert await doors.queued() == 1


async def test_request_joins_its_run_for_a_minute(doors: Doors, monkeypatch: pytest.MonkeyPatch) -> None:
    """After that, a person may ask the same again, even if the first run is still queued."""
    first = await doors.repetitions(0).start('ada', 'analyst', IDENTITY, partial(doors.begin, 0))
    joined = await doors.repetitions(1).start('ada', 'analyst', IDENTITY, partial(doors.begin, 1))
    monkeypatch.setattr(_repetitions, 'SAME_BYTES_SECONDS', 0)
    again = await doors.repetitions(1).start('ada', 'analyst', IDENTITY, partial(doors.begin, 1))

    assert joined.id == first.id != again.id


async def test_server_with_another_clock_joins_the_run(doors: Doors, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await doors.repetitions(0).start('ada', 'analyst', IDENTITY, partial(doors.begin, 0))
    monkeypatch.setattr(time, 'time', lambda: first.started_at.timestamp() + 600)
    joined = await doors.repetitions(1).start('ada', 'analyst', IDENTITY, partial(doors.begin, 1))

    assert joined.id == first.id
    assert await doors.claims.count() == 1


async def test_claim_that_is_replaced_while_expired_ones_are_removed_stays(
    doors: Doors, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    expired = RequestClaim(id='old', content='content', run_id=new_id(), claimed_at=now, expires_at=now - 1)
    replaced = expired.model_copy(update={'run_id': new_id(), 'expires_at': now + 60})
    await doors.claims.create(expired)
    find = doors.claims.list

    async def find_before_replacement(*arguments: Any, **options: Any) -> Page[RequestClaim]:
        page = await find(*arguments, **options)
        await doors.claims.upsert(replaced)
        return page

    monkeypatch.setattr(doors.claims, 'list', find_before_replacement)
    await doors.repetitions(0).start('ada', 'analyst', IDENTITY, partial(doors.begin, 0))
    assert await doors.claims.get('old') == replaced


async def test_requests_that_cannot_be_joined_any_more_are_removed(doors: Doors) -> None:
    now = time.time()
    for id, expires_at in [('old', now - 1), ('new', now + 60)]:
        await doors.claims.create(
            RequestClaim(id=id, content='content', run_id=new_id(), claimed_at=now, expires_at=expires_at)
        )
    repetitions = doors.repetitions(0)
    await repetitions.start('ada', 'analyst', IDENTITY, partial(doors.begin, 0))
    await doors.claims.upsert(
        RequestClaim(id='later', content='content', run_id=new_id(), claimed_at=now, expires_at=now - 1)
    )
    await repetitions.start('bob', 'analyst', IDENTITY, partial(doors.begin, 0))

    ids = {claim.id for claim in (await doors.claims.list()).items}
    assert {'new', 'later'} < ids
    assert 'old' not in ids
