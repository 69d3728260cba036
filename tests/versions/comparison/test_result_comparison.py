"""Replays in which tools run: their results are compared with the recorded ones, and subagents are replayed too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot
from pydantic_ai import Agent, ApprovalRequired, ModelRetry, ToolReturn
from pydantic_ai.messages import BinaryContent
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import Tool

from pydantic_deep import Approve, LocalBackend, Subagent
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.versions import RequestDifference, ResultDifference
from tests.versions.conftest import MakeAgent, SpyStore

pytestmark = pytest.mark.anyio

READ = {'effect': 'read'}


def reading(function: Any) -> Tool[Any]:
    return Tool(function, metadata=READ, name='look')


async def test_tools_on_files_and_todos_run_on_a_copy(make: MakeAgent, store: SpyStore, tmp_path: Path):
    (tmp_path / 'a.txt').write_text('rose\n')
    steps = (
        call('read_file', path='/a.txt'), call('edit_file', path='/a.txt', old_string='rose', new_string='lily'),
        call('write_todos', todos=[{'content': 'Edit', 'status': 'completed'}]), call('read_file', path='/a.txt'), 'done',
    )  # fmt: skip
    turn = await (await make(*steps).create(backend=LocalBackend(tmp_path))).advance('go')
    (tmp_path / 'a.txt').write_text('other\n')
    store.commits.clear()

    replay = await turn.replay(run_tools=True)

    assert (bool(replay), replay.requests, replay.results) == (True, 5, [])
    assert ((tmp_path / 'a.txt').read_text(), store.commits) == ('other\n', [])


async def test_changed_result_is_named_and_the_model_receives_the_recorded_one(make: MakeAgent):
    steps = (call('look'), call('ls'), 'done')
    turn = await (await make(*steps, tools=[reading(lambda: 'one\ntwo')]).create()).advance('go')
    other = await make(tools=[reading(lambda: 'one\nthree')]).load(turn.id)

    replay = await other.replay(run_tools=True)

    assert (bool(replay), replay.requests, replay.difference) == (False, 3, None)
    [result] = replay.results
    assert isinstance(result, ResultDifference)
    assert (result.tool_name, result.number, result.tool_call_id) == ('look', 1, 'call-1')
    assert str(result) == snapshot("""\
response 1, tool look returned: --- recorded
+++ replayed
@@ -1,2 +1,2 @@
 one
-two
+three\
""")
    assert bool(await other.replay())


def _fail() -> str:
    raise ValueError('no such thing')


def _retry() -> str:
    raise ModelRetry('again')


@pytest.mark.parametrize('fails', [_fail, _retry])
async def test_failure_is_a_result(make: MakeAgent, fails: Any):
    turn = await (await make(call('look'), 'done', tools=[reading(lambda: 'fine')]).create()).advance('go')
    [result] = (await (await make(tools=[reading(fails)]).load(turn.id)).replay(run_tools=True)).results
    assert '"outcome": "' in result.detail
    assert ('no such thing' in result.detail) is (fails is _fail)


def _defer() -> str:
    raise ApprovalRequired


async def test_call_that_now_asks_for_approval_is_a_difference(make: MakeAgent):
    turn = await (await make(call('look'), 'done', tools=[reading(lambda: 'fine')]).create()).advance('go')
    [result] = (await (await make(tools=[reading(_defer)]).load(turn.id)).replay(run_tools=True)).results
    assert 'ApprovalRequired' in result.detail


async def test_same_failure_is_no_difference(make: MakeAgent):
    turn = await (await make(call('read_file', path='/none'), 'done').create()).advance('go')
    assert bool(await turn.replay(run_tools=True))


async def test_media_are_compared_by_content(make: MakeAgent):
    def image(data: bytes) -> Any:
        return reading(
            lambda: ToolReturn(return_value='seen', content=[BinaryContent(data=data, media_type='image/png')])
        )

    turn = await (await make(call('look'), 'done', tools=[image(b'a')]).create()).advance('go')
    same = await (await make(tools=[image(b'a')]).load(turn.id)).replay(run_tools=True)
    other = await (await make(tools=[image(b'b')]).load(turn.id)).replay(run_tools=True)
    assert (bool(same), len(other.results)) == (True, 1)


async def test_tools_without_a_declared_effect_do_not_run(make: MakeAgent):
    calls: list[str] = []

    def send() -> str:
        calls.append('send')
        return 'sent'

    turn = await (await make(call('send'), 'done', tools=[send]).create()).advance('go')
    calls.clear()
    assert bool(await turn.replay(run_tools=True))
    assert calls == []


TASK = call('task', subagent='helper', description='Look')


def helper(*steps: Any, tools: Any = (), instructions: str = 'Help.') -> Subagent:
    return Subagent(
        name='helper', description='Helps.', instructions=instructions, model=ScriptedModel(*steps), tools=list(tools)
    )


async def test_subagents_are_replayed(make: MakeAgent):
    steps = (call('look'), 'looked')
    subagents = [helper(*steps, tools=[reading(lambda: 'one')])]
    turn = await (await make(TASK, 'done', subagents=subagents).create()).advance('go')

    same = [helper(tools=[reading(lambda: 'one')])]
    assert bool(await (await make(subagents=same).load(turn.id)).replay(run_tools=True))

    other = [helper(tools=[reading(lambda: 'two')])]
    [result] = (await (await make(subagents=other).load(turn.id)).replay(run_tools=True)).results
    assert str(result).startswith('subagent helper, response 1, tool look returned: ')


async def test_first_difference_of_a_subagent_is_named(make: MakeAgent):
    subagents = [helper(call('look'), call('look'), 'looked', tools=[reading(lambda: 'one')])]
    turn = await (await make(TASK, 'done', subagents=subagents).create()).advance('go')
    other = [helper(tools=[reading(lambda: 'one')], instructions='Help in verse.')]

    replay = await (await make(subagents=other).load(turn.id)).replay(run_tools=True)

    assert isinstance(replay.difference, RequestDifference)
    assert (replay.difference.subagents, replay.difference.number) == (('helper',), 1)
    assert replay.difference.part == 'instructions'
    assert '+Help in verse.' in str(replay.difference).splitlines()
    assert str(replay.difference).startswith('subagent helper, request 1, instructions: ')
    assert replay.requests == 2


async def test_number_of_requests_of_a_subagent_is_compared(make: MakeAgent):
    turn = await (await make(TASK, 'done', subagents=[helper('looked')]).create()).advance('go')
    agent = Agent(TestModel(), name='helper', output_type=int)
    other = Subagent(name='helper', description='Helps.', agent=agent)
    difference = (await (await make(subagents=[other]).load(turn.id)).replay(run_tools=True)).difference
    assert difference is not None
    assert difference.subagents == ('helper',)


async def test_call_that_started_no_subagent_is_not_replayed(make: MakeAgent):
    unknown = call('task', subagent='nobody', description='Look')
    turn = await (await make(unknown, 'done', subagents=[helper()]).create()).advance('go')
    assert bool(await turn.replay(run_tools=True))


async def test_replay_for_another_model_calls_it_not(make: MakeAgent):
    turn = await (await make('done').create()).advance('go')
    model = ScriptedModel('never')
    assert bool(await turn.replay(model=model))
    assert model.requests == []


async def test_prompt_of_a_turn(make: MakeAgent):
    root = await make(call('write_file', path='/a', content='1'), 'done', interrupt_on={'write_file': True}).create()
    paused = await root.advance(['Write', 'it'])
    done = await paused.resume({paused.pending[0].id: Approve()})
    assert [await version.prompt() for version in (root, paused, done)] == [None, ['Write', 'it'], None]
