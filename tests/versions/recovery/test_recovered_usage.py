"""The usage of a turn is the same in every account, wherever and however often its process crashed.

A process crashes at each of its commits in turn, another recovers it, and then the version, the table of requests, the
runs, the budgets, the audit and the answers that the model gave must agree. `test_kill` does it with real kills.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import SkipModelRequest
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.usage import RequestUsage, RunUsage

from pydantic_deep import Approve, Budget, Budgets, LocalBackend
from pydantic_deep.audit import audit_of_run
from pydantic_deep.budgets._stamp import read_before
from pydantic_deep.store import ApprovalAnsweredError, Commit, SqlStore, Store, open_engine
from pydantic_deep.testing import Answer, ScriptedModel
from pydantic_deep.versions import AgentVersion, SubagentThread, VersionedAgent
from tests.versions.recovery.crashes import MortalStore, World, nth, plan, tool_call

pytestmark = pytest.mark.anyio


@dataclass
class Ledger(World):
    """A world whose model numbers its responses and reports 100 input tokens for each.

    All of its processes share an agent, which holds no state: building one takes longer than a turn. `test_recover` and
    `test_kill` build one in each process.
    """

    given: list[str] = field(default_factory=list[str])
    built: Agent[Any, Any] | None = None

    def build(self) -> Agent[Any, Any]:
        self.built = self.built or super().build()
        return self.built

    def begin_anew(self, url: str) -> None:
        """Reset the world for another store."""
        self.url = url
        for happened in (self.ran, self.asked, self.given):
            happened.clear()

    def model(self) -> ScriptedModel:
        def then(messages: list[ModelMessage], info: AgentInfo) -> Answer:
            said, count = '', 0
            for message in messages:
                if isinstance(message, ModelRequest):
                    prompts = [part for part in message.parts if isinstance(part, UserPromptPart)]
                    prompts = [each for each in prompts if 'retry_feedback' not in each.content]
                    said, count = (str(prompts[-1].content), 0) if prompts else (said, count)
                else:
                    count += 1
            self.given.append(f'{said} {count} #{len(self.given)}')
            answer = self.script(said, count)
            parts = [answer] if isinstance(answer, str | ToolCallPart) else cast('Sequence[ToolCallPart]', answer)
            return ModelResponse(
                [TextPart(part) if isinstance(part, str) else part for part in parts],
                usage=RequestUsage(input_tokens=100, output_tokens=10),
                provider_response_id=self.given[-1],
                provider_name='scripted',
                model_name='scripted',
            )

        return ScriptedModel(then=then)


SKIPPED = 'skipped'


class Refuses(AbstractCapability[Any]):
    """Sends back each `no`, and answers itself after results of `send` and `task`."""

    def for_subagent(self) -> Refuses:
        return self

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        last = request_context.messages[-1]
        if any(isinstance(part, ToolReturnPart) and part.tool_name in ('send', 'task') for part in last.parts):
            raise SkipModelRequest(ModelResponse([tool_call('look', key='skipped')]))
        return request_context

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        if response.text == 'no':
            raise ModelRetry('Say more.')
        return response


SCENARIOS: dict[str, dict[str, list[Answer]]] = {
    'one': {
        'go': [tool_call('look', key='0'), tool_call('task', subagent='child', description='do'), 'end'],
        'do': [tool_call('send', key='a'), [tool_call('look', key='1'), tool_call('send', key='b')], 'did'],
    },
    'nested': {
        'go': [tool_call('task', subagent='above', description='do'), tool_call('send', key='z'), 'end'],
        'do': [
            tool_call('task', subagent='child', description='below'),
            [tool_call('send', key='a'), tool_call('task', subagent='fork', description='apart')],
            'did',
        ],
        'below': [tool_call('send', key='b'), 'did'],
        'apart': [tool_call('write_file', path='/x.txt', content='x'), tool_call('send', key='c'), 'did'],
    },
    'parallel': {
        'go': [
            [
                tool_call('task', subagent='child', description='do'),
                tool_call('task', subagent='fork', description='other'),
            ],
            'end',
        ],
        'do': [tool_call('send', key='a'), tool_call('send', key='b'), 'did'],
        'other': [tool_call('make', key='c'), tool_call('send', key='d'), 'did'],
    },
    'paused': {
        'go': [tool_call('task', subagent='child', description='do'), 'end'],
        'do': [tool_call('send', key='a'), tool_call('pay', key='b'), tool_call('send', key='c'), 'did'],
    },
    'paused below': {
        'go': [tool_call('task', subagent='above', description='do'), 'end'],
        'do': [tool_call('send', key='a'), tool_call('task', subagent='child', description='below'), 'did'],
        'below': [tool_call('pay', key='b'), tool_call('send', key='c'), 'did'],
    },
    'sent back': {
        'go': [tool_call('look', key='0'), 'no', tool_call('task', subagent='child', description='do'), SKIPPED, 'end'],
        'do': ['no', tool_call('send', key='a'), SKIPPED, 'did'],
    },
}

SHORT: dict[str, list[Answer]] = {
    'go': [tool_call('task', subagent='child', description='do'), 'end'],
    'do': [tool_call('send', key='a'), 'did'],
}


async def to_the_end(agent: VersionedAgent[Any, Any], version: AgentVersion[Any, Any]) -> AgentVersion[Any, Any]:
    """Approve all pending calls."""
    while version.state == 'awaiting_approval':
        with suppress(ApprovalAnsweredError):  # the process crashed between the answer and the run that uses it
            version = await version.resume({pending.id: Approve() for pending in version.pending})
            continue
        version = await version.resume()
    return version


async def run_and_crash(world: World, tmp_path: Path, dies: dict[str, Callable[[Commit], bool]]) -> bool:
    """Run a turn in a process that crashes, and return whether it did."""
    async with MortalStore(await open_engine(world.url)) as store:
        for name, when in dies.items():
            setattr(store, name, when)
        agent = world.agent(store)
        try:
            found = await agent.list(limit=1)
            if not found:
                (tmp_path / 'files').mkdir()
                root = await agent.create(backend=LocalBackend(tmp_path / 'files'), conversation_id='c')
                await to_the_end(agent, await root.advance('go'))
            else:
                await agent.recover()
                await to_the_end(agent, (await agent.list(limit=1, conversation_id='c'))[0])
        except Exception:
            assert store.is_dead
        return store.is_dead


async def finish(world: World) -> AgentVersion[Any, Any]:
    """Recover in a process that survives, approve all pending calls, check all accounts, and return the last version."""
    async with world.process() as agent:
        await agent.recover()
        (newest, *_) = await agent.list(limit=1, conversation_id='c')
        if newest.kind == 'root':  # the process crashed before the prompt was stored
            newest = await newest.advance('go')
        version = await to_the_end(agent, newest)
        assert (version.output, version.state) == ('end', 'complete')
        await check_accounts(agent, version, world)
        return version
    raise AssertionError


async def answers_of(store: Store) -> dict[str, str]:
    """Return the number of each stored response, by the id of its message."""
    found: dict[str, str] = {}
    for conversation_id in {run.conversation_id for run in await store.runs(limit=10_000)}:
        for branch in await store.branches(conversation_id):
            for record in await store.messages(branch.id, branch.tip_seq):
                number = json.loads(record.body).get('provider_response_id')
                if number is not None:
                    found[record.id] = number
    return found


async def check_accounts(agent: VersionedAgent[Any, Any], version: AgentVersion[Any, Any], world: World) -> None:
    store = agent.store
    runs = await store.runs(limit=10_000)
    assert {run.state for run in runs} <= {'complete', 'interrupted', 'awaiting_approval'}
    rows = [row for run in runs for row in await store.requests(run.id)]

    # Each stored response is one row; only a response lost in a crash has no message.
    numbers = await answers_of(store)
    asked = [row for row in rows if row.kind != 'skipped']
    assert Counter(numbers.values()) == Counter(numbers[row.response_id] for row in asked if row.kind != 'superseded')
    assert not {row.response_id for row in rows if row.kind == 'superseded'} & set(numbers)
    given = getattr(world, 'given', [])
    assert set(numbers.values()) <= set(given)
    assert len(asked) <= len(given)

    # The version, the runs, the audit and the budgets count these rows, each once.
    tokens = sum(row.input_tokens for row in rows), sum(row.output_tokens for row in rows)
    assert (version.usage.requests, version.usage.input_tokens, version.usage.output_tokens) == (len(rows), *tokens)
    used = RunUsage()
    for run in runs:
        counted = json.loads(run.usage)
        assert counted.get('requests', 0) == len(await store.requests(run.id)), run
        used.requests += counted.get('requests', 0)
        used.input_tokens += counted.get('input_tokens', 0)
        used.tool_calls += counted.get('tool_calls', 0)
    assert (used.requests, used.input_tokens) == (len(rows), tokens[0])
    audited = [await audit_of_run(store, run.id) for run in runs]
    assert sum(record.usage.requests for record in audited) == len(rows)
    stamped = read_before(await version.messages()).used
    assert (stamped['requests'], stamped['tokens']) == (len(rows), Decimal(sum(tokens)))

    # A call has one entry in each run of a turn that made it, and one thread.
    calls = [each for run in runs for each in await store.calls([run.id])]
    done = Counter(
        (each.response_id, each.tool_call_id) for each in calls if each.status not in ('deferred', 'superseded')
    )
    assert set(done.values()) <= {1}
    threads: dict[tuple[str, str], set[str]] = {}
    for link in [link for run in runs for link in await store.delegations(parent_run_id=run.id)]:
        threads.setdefault((link.response_id, link.tool_call_id), set()).add(link.child_conversation_id)
    assert [len(each) for each in threads.values()] == [1] * len(threads)
    lives = {each for ids in threads.values() for each in ids}
    assert {run.conversation_id for run in runs} == {version.conversation_id, *lives}
    for conversation_id in {version.conversation_id, *lives}:
        for event in await agent.events(conversation_id):
            assert cast('Mapping[str, object]', event.data)['sub_agent_thread_id'] in lives
    for each in await all_threads(agent, version):
        assert each.state == 'complete'
        await check_thread(agent, each)

    # Each turn replays from its first attempt.
    replay = await version.replay()
    assert replay.difference is None
    assert replay.output == 'end'


async def all_threads(agent: VersionedAgent[Any, Any], version: AgentVersion[Any, Any]) -> list[SubagentThread]:
    waiting = list(await version.subagents())
    found: list[SubagentThread] = []
    while waiting:
        found.append(waiting.pop())
        waiting += found[-1].subagents
    assert len({each.conversation_id for each in found}) == len(found)
    return found


async def check_thread(agent: VersionedAgent[Any, Any], thread: SubagentThread) -> None:
    """Expect one line of versions with one end, whose usage includes all threads below."""
    store = agent.store
    assert [branch.name for branch in await store.branches(thread.conversation_id)] == ['main']
    version = await agent.load(thread.version_id or '')
    assert [each.kind for each in await version.lineage() if each.kind != 'pause'] == ['root', 'turn']
    below = [thread]
    while more := [each for up in below for each in up.subagents if each not in below]:
        below += more
    ids = {each.conversation_id for each in below}
    runs = [run for run in await store.runs(limit=10_000) if run.conversation_id in ids]
    assert version.usage.requests == sum([len(await store.requests(run.id)) for run in runs])


def options_of(name: str) -> dict[str, Any]:
    gates = {'interrupt_on': {'pay': True}} if name.startswith('paused') else {}
    hooks = [Refuses()] if name == 'sent back' else []
    return {'capabilities': [Budgets(conversation=Budget(requests=1_000)), *hooks], **gates}


async def check_analytics(store: SqlStore, used: RunUsage) -> None:
    """Expect that SQL agrees with the usage of the version."""
    by_request = await store.sql('SELECT count(*), sum(input_tokens) FROM requests')
    by_run = await store.sql('SELECT sum(requests), sum(input_tokens) FROM runs')
    by_day = await store.sql('SELECT sum(input_tokens) FROM cost_per_agent_and_day()')
    assert [*by_request.rows, *by_run.rows] == [(used.requests, used.input_tokens)] * 2
    assert [*by_day.rows] == [(used.input_tokens,)]


_SLOW = [
    pytest.param(name, when, again, marks=pytest.mark.slow)
    for name in SCENARIOS
    for when, again in (('dies_after', 0), ('dies_before', 0), ('dies_after', 3))
]


@pytest.mark.slow
@pytest.mark.parametrize(('name', 'when', 'again'), [('short', 'dies_after', 0), *_SLOW])
async def test_all_accounts_agree_after_a_crash_at_any_commit(name: str, when: str, again: int, tmp_path: Path) -> None:
    """At every commit at which a turn with subagents can crash, once or again while it is recovered, `version.usage`,
    the table of requests, the runs, the budgets, the audit and SQL count each answer of the model once; a call has one
    thread, which the events name; and the turn replays from its first attempt.
    """
    count, dead = 0, True
    world = Ledger('', plan({'short': SHORT, **SCENARIOS}[name]), options=options_of(name))
    while dead:
        count += 1
        path = tmp_path / str(count)
        path.mkdir()
        url = f'memory:{name.replace(" ", "-")}-{when}-{again}-{count}'
        async with SqlStore(await open_engine(url)) as store:
            world.begin_anew(url)
            dead = await run_and_crash(world, path, {when: nth(lambda commit: True, count + 1)})
            if dead and name == 'sent back' and when == 'dies_after':  # no response is pending where it could be lost
                rows = [row for run in await store.runs() for row in await store.requests(run.id)]
                assert len(world.given) == sum(row.kind != 'skipped' for row in rows)
            if again and dead:
                await run_and_crash(world, path, {when: nth(lambda commit: True, again)})
            try:
                version = await finish(world)
                if count == 6:
                    await check_analytics(store, version.usage)
            except BaseException as error:
                error.add_note(f'The process dies at commit {count}.')
                raise
    assert count > 6
