"""External tools of a turn: their calls pause it, and their results resume it."""

from __future__ import annotations

from typing import Any, cast

import pytest
from pydantic_ai import Agent, DeferredToolRequests, ToolDefinition
from pydantic_ai.messages import ModelRequest, ToolReturnPart

from pydantic_deep import ApprovalInbox
from pydantic_deep.approvals import Deny, Respond, UnansweredApprovalError
from pydantic_deep.errors import TurnOptionError, ValidationError
from pydantic_deep.store import Commit, StoreUnavailableError, new_id
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.versions import TurnOptions
from tests.versions.conftest import MakeAgent, SpyStore

pytestmark = pytest.mark.anyio

WEATHER = ToolDefinition(
    name='weather',
    description='The weather of a city.',
    parameters_json_schema={'type': 'object', 'properties': {'city': {'type': 'string'}}},
)


def results(messages: list[object]) -> dict[str, object]:
    requests = [message for message in messages if isinstance(message, ModelRequest)]
    parts = [part for message in requests for part in message.parts if isinstance(part, ToolReturnPart)]
    return {part.tool_name: part.content for part in parts}


async def test_call_of_an_external_tool_pauses_the_turn_and_its_result_resumes_it(make: MakeAgent):
    """The tools of the agent that are called beside it run at once."""
    agent = make([call('weather', city='Rome'), call('ls')], 'It is hot.')
    paused = await (await agent.create()).run(TurnOptions(prompt='Weather?', external_tools=[WEATHER]))
    (pending,) = paused.pending

    assert (paused.state, pending.tool, pending.decisions) == ('awaiting_approval', 'weather', ('deny', 'respond'))
    after = await paused.run(TurnOptions(answers={pending.id: Respond('40 °C')}))

    assert after.output == 'It is hot.'
    assert results([*await after.messages()]) == {'ls': '/ is empty.', 'weather': '40 °C'}


async def test_turn_that_resumes_has_the_tools_of_the_one_that_paused(make: MakeAgent):
    agent = make(call('weather', city='Rome'), call('weather', city='Oslo'), 'Fine.')
    first = await (await agent.create()).run(TurnOptions(prompt='Weather?', external_tools=[WEATHER]))
    second = await first.run(TurnOptions(answers={first.pending[0].id: Respond('hot')}))
    after = await second.run(TurnOptions(answers={second.pending[0].id: Deny('no station')}))

    assert second.pending[0].arguments == {'city': 'Oslo'}
    assert (after.state, after.output) == ('complete', 'Fine.')


async def test_results_of_several_external_calls_are_stored_one_by_one(make: MakeAgent, store: SpyStore):
    """People and programs give one result each, in any order, beside decisions on other calls. The turn resumes when no
    external call is without a result; an attempt before that stores and claims nothing."""
    calls = [call('weather', city='Rome'), call('weather', city='Oslo'), call('write_file', path='/a', content='a')]
    agent = make(calls, 'Fine.', interrupt_on={'write_file': True})
    paused = await (await agent.create()).run(TurnOptions(prompt='Weather?', external_tools=[WEATHER]))
    rome, oslo, written = sorted(await store.approvals(version_id=paused.id), key=lambda each: each.pending_id)
    inbox = ApprovalInbox(store)

    await inbox.answer(oslo.id, Respond('cold'))
    with pytest.raises(UnansweredApprovalError):
        await paused.resume()
    with pytest.raises(UnansweredApprovalError):
        await paused.resume({written.pending_id: Deny()})
    assert {each.id for each in await inbox.list()} == {rome.id, written.id}
    await paused.answer({rome.pending_id: Respond('hot')})
    after = await paused.resume({written.pending_id: Deny()})

    assert after.output == 'Fine.'
    parts = [part for message in await after.messages() for part in message.parts if isinstance(part, ToolReturnPart)]
    assert [part.content for part in parts if part.tool_name == 'weather'] == ['hot', 'cold']


@pytest.mark.parametrize(
    ('name', 'schema'), [('ls', None), ('final_result', {'type': 'object'})], ids=['function', 'output']
)
async def test_external_tool_with_the_name_of_an_own_tool_is_refused(make: MakeAgent, name: str, schema: Any):
    """The tool by which the model writes an output is one of the agent, too."""
    root = await make('Never.').create()

    with pytest.raises(TurnOptionError, match=f'the agent itself has tools with these names: {name}. Rename yours'):
        await root.run(TurnOptions(prompt='a', external_tools=[ToolDefinition(name=name)], output_schema=schema))


@pytest.mark.parametrize(
    ('options', 'match'),
    [
        (TurnOptions(prompt='a', external_tools=[WEATHER, WEATHER]), 'two tools have the same name: weather'),
        (TurnOptions(prompt='a', external_tools=[WEATHER], tool_choice=['rain']), 'not declared: rain'),
        (
            TurnOptions(prompt='a', external_tools=[ToolDefinition(name='a', metadata={'a': object()})]),
            'JSON cannot hold a definition',
        ),
    ],
)
async def test_invalid_external_tools_are_refused(make: MakeAgent, options: TurnOptions, match: str):
    root = await make().create()

    with pytest.raises(ValidationError, match=match):
        root.stream(options)


async def test_agent_with_output_validators_pauses_for_external_tools_by_its_own_output_type(make_plain: MakeAgent):
    """pydantic-ai rejects another output type for such an agent, so a turn does not replace one that allows a pause."""
    agent = make_plain(call('weather', city='Rome'), 'Hot.', output_type=[str, DeferredToolRequests])
    cast('Agent[Any, Any]', agent.agent).output_validator(str.upper)
    paused = await (await agent.create()).run(TurnOptions(prompt='Weather?', external_tools=[WEATHER]))

    assert (await paused.run(TurnOptions(answers={paused.pending[0].id: Respond('40 °C')}))).output == 'HOT.'


async def test_agent_with_output_validators_that_cannot_pause_has_no_external_tools(make_plain: MakeAgent):
    agent = make_plain('Never.')
    cast('Agent[Any, Any]', agent.agent).output_validator(str.upper)
    root = await agent.create()

    with pytest.raises(TurnOptionError, match='external_tools: the agent has output validators'):
        await root.run(TurnOptions(prompt='a', external_tools=[WEATHER]))
    assert await agent.recover() == []


async def test_forced_choice_is_sent_with_each_request(make: MakeAgent):
    model = ScriptedModel(call('weather', city='Rome'))
    options = TurnOptions(prompt='a', external_tools=[WEATHER], tool_choice=['weather'])
    await (await make(model=model).create()).run(options)

    (request,) = model.requests
    assert request.settings == {'tool_choice': ['weather']}


async def test_options_survive_the_queue():
    options = TurnOptions(
        prompt='a', external_tools=[WEATHER], tool_choice=['weather'], output_schema={'type': 'object'}
    )
    loaded = TurnOptions.load(*options.dump(), run_id=new_id(), moves_head=False)

    assert loaded.external_tools == [WEATHER]
    assert (loaded.tool_choice, loaded.output_schema) == (['weather'], {'type': 'object'})


async def test_recovered_run_has_the_external_tools_of_the_crashed_one(make: MakeAgent, store: SpyStore):
    def crash(commit: Commit) -> Exception | None:
        return StoreUnavailableError('power cut') if commit.ends else None

    agent = make([call('ls')], 'Lost.', call('weather', city='Rome'))
    root = await agent.create()
    store.refuse = crash
    with pytest.raises(StoreUnavailableError):
        await root.run(TurnOptions(prompt='a', external_tools=[WEATHER]))
    store.refuse = lambda commit: None
    (recovered,) = await agent.recover()

    assert [pending.tool for pending in recovered.pending] == ['weather']
