"""Threads of subagents are found from their parent, at any depth."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, TextPart, ToolReturnPart, UserPromptPart

from pydantic_deep import DeepAgentDeps, Subagent
from pydantic_deep.testing import Answer, call
from pydantic_deep.versions import SubagentThread, ThreadEvent
from pydantic_deep.versions._frozen_json import thaw
from pydantic_deep.versions._subagent_threads import parse_arguments
from tests.versions.conftest import MakeAgent, SpyStore

pytestmark = pytest.mark.anyio


def returned(messages: Sequence[ModelMessage]) -> list[ToolReturnPart]:
    requests = [message for message in messages if isinstance(message, ModelRequest)]
    return [part for request in requests for part in request.parts if isinstance(part, ToolReturnPart)]


def texts(messages: Sequence[ModelMessage]) -> list[str]:
    """Return the prompts and answers of a thread."""
    said = [part for message in messages for part in message.parts if isinstance(part, UserPromptPart | TextPart)]
    return [str(part.content) for part in said]


def data_of(event: ThreadEvent) -> dict[str, Any]:
    return cast('dict[str, Any]', thaw(event.data))


def researcher(**options: Any) -> Subagent:
    return Subagent('researcher', 'Looks things up.', **options)


async def test_link_is_data_of_the_tool_call_event(make: MakeAgent):
    """002-08, 002-09, 002-19, 002-23, C15: The link is on the event, with intent, arguments and thread id."""
    agent = make(call('task', subagent='researcher', description='look up'), 'found it', 'done', subagents=[researcher()])  # fmt: skip
    turn = await (await agent.create()).advance('go')

    called, responded = await agent.events(turn.conversation_id)

    assert (called.kind, called.tool_name) == ('tool_call', 'task')
    data = data_of(called)
    assert set(data) == {'intent', 'arguments', 'sub_agent_thread_id'}
    assert data['intent'] == 'look up'
    assert data['arguments'] == {'subagent': 'researcher', 'description': 'look up'}
    assert (responded.kind, responded.tool_call_id) == ('tool_response', called.tool_call_id)
    assert data_of(responded) == {'sub_agent_thread_id': data['sub_agent_thread_id'], 'status': 'done'}
    assert called.at <= responded.at
    [part] = returned(await turn.messages())
    assert part.metadata is not None
    assert data['sub_agent_thread_id'] in json.dumps(part.metadata)
    assert not turn.metadata  # 002-09: not in the metadata of the thread


async def test_both_conversations_are_fetched_by_id(make: MakeAgent):
    """002-01, 002-05, 002-23, 002-24: Both conversations are found from the main one, in one store."""
    agent = make(call('task', subagent='researcher', description='look up'), call('ls'), 'found it', 'done', subagents=[researcher()])  # fmt: skip
    turn = await (await agent.create()).advance('go')

    event = (await agent.events(turn.conversation_id))[0]
    child = await agent.thread(data_of(event)['sub_agent_thread_id'])
    main = await agent.thread(turn.conversation_id)

    assert texts(main) == ['go', 'done']
    assert texts(child) == ['look up', 'found it']
    assert [part.tool_name for part in returned(child)] == ['ls']
    with pytest.raises(LookupError, match="'nobody'"):
        await agent.thread('nobody')


async def test_threads_of_a_turn_are_listed(make: MakeAgent, store: SpyStore):
    """002-01, 002-03: The threads of several subagents are listed by one call."""
    agent = make(
        call('task', subagent='researcher', description='a'), 'A', call('task', subagent='writer', description='b'),
        'B', 'done', 'nothing', subagents=[researcher(), Subagent('writer', 'Writes.')],
    )  # fmt: skip
    turn = await (await agent.create()).advance('go')
    after = await turn.advance('and now')

    threads = await turn.subagents()

    assert [(t.subagent, t.intent, t.state, t.run_id) for t in threads] == [
        ('researcher', 'a', 'complete', turn.run_id),
        ('writer', 'b', 'complete', turn.run_id),
    ]
    assert [texts(await agent.thread(t.conversation_id)) for t in threads] == [['a', 'A'], ['b', 'B']]
    assert len({t.conversation_id for t in threads}) == 2
    assert [(await store.version(t.version_id or '')).kind for t in threads] == ['turn', 'turn']
    assert await after.subagents() == []
    assert await after.subagents(whole_conversation=True) == threads
    assert await turn.subagents(whole_conversation=True) == threads


async def test_parallel_delegations_have_separate_threads(make: MakeAgent, store: SpyStore):
    """002-03, 002-09: Each of several delegations is uniquely traceable."""

    def script(messages: list[ModelMessage], info: object) -> Answer:
        asked = texts(messages)[0]
        if asked != 'go':
            return f'did {asked}'
        if len(messages) > 1:
            return 'done'
        return [call('task', subagent='researcher', description=f'part {index}') for index in range(5)]

    agent = make(then=script, subagents=[researcher()])
    turn = await (await agent.create()).advance('go')

    threads = await turn.subagents()
    assert sorted(t.intent for t in threads) == [f'part {index}' for index in range(5)]
    for thread in threads:
        assert texts(await agent.thread(thread.conversation_id)) == [thread.intent, f'did {thread.intent}']
    by_call = {part.tool_call_id: part.content for part in returned(await turn.messages())}
    assert {t.tool_call_id: f'did {t.intent}' for t in threads} == by_call
    events = await agent.events(turn.conversation_id)
    assert [event.kind for event in events].count('tool_call') == 5
    assert [event.kind for event in events].count('tool_response') == 5
    assert bool(await turn.replay())


def nested(depth: int) -> Subagent:
    below = [nested(depth - 1)] if depth > 1 else []
    return Subagent(f'level{depth}', 'Delegates.', subagents=below)


async def test_delegations_nest_up_to_the_allowed_depth(make: MakeAgent):
    """002-04, C1: The whole tree of delegations is readable from the root."""
    agent = make(
        call('task', subagent='level3', description='to 3'),
        call('task', subagent='level2', description='to 2'),
        call('task', subagent='level1', description='to 1'),
        'one',
        'two',
        'three',
        'done',
        subagents=[nested(3)],
        make_deps=lambda: DeepAgentDeps(max_depth=3),
    )
    turn = await (await agent.create()).advance('go')

    def chain(threads: Sequence[SubagentThread]) -> list[tuple[str, str]]:
        return [each for t in threads for each in ((t.subagent, t.intent), *chain(t.subagents))]

    threads = await turn.subagents()
    assert chain(threads) == [('level3', 'to 3'), ('level2', 'to 2'), ('level1', 'to 1')]
    deepest = threads[0].subagents[0].subagents[0]
    assert texts(await agent.thread(deepest.conversation_id)) == ['to 1', 'one']
    [link, _] = await agent.events(threads[0].subagents[0].conversation_id)
    assert data_of(link)['sub_agent_thread_id'] == deepest.conversation_id
    assert bool(await turn.replay())


async def test_threads_are_not_in_the_list_of_the_parent(make: MakeAgent):
    agent = make(call('task', subagent='researcher', description='look up'), 'found it', 'done', subagents=[researcher()])  # fmt: skip
    turn = await (await agent.create()).advance('go')

    assert [version.kind for version in await agent.list()] == ['turn', 'root']
    assert await turn.children() == []


def test_invalid_json_arguments_are_returned_as_text():
    assert parse_arguments('{"a": ') == '{"a": '
    assert parse_arguments('{"a": 1}') == {'a': 1}
