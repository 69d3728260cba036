"""Tools of clients and answers by a schema, with the official clients of three APIs on loopback."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

import pytest
from google.genai import types as google_types
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import create_deep_agent
from pydantic_deep.testing import ScriptedModel, call
from tests.server.routes.test_compat import ERRORS, AnthropicChat, Chat, GoogleChat, Live, OpenaiChat, status_of

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

CITY: dict[str, Any] = {'type': 'object', 'properties': {'city': {'type': 'string'}}, 'required': ['city']}


def answer(messages: Sequence[ModelMessage], info: AgentInfo) -> list[Any] | str:
    """Script of the agents: the words of the prompt name the calls of the first response."""
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    returned = [part for part in last.parts if isinstance(part, ToolReturnPart) and part.tool_name != 'final_result']
    if info.output_tools and not any(tool.name == 'weather' for tool in info.function_tools):
        return [call('final_result', city='Rome', degrees=40)]
    if returned:
        return ', '.join(f'{part.tool_name}: {part.model_response_str()}' for part in returned)
    prompt = [str(part.content) for part in last.parts if isinstance(part, UserPromptPart)][-1]
    calls: list[Any] = ['I look.'] if 'look' in prompt else []
    calls += [call('weather', city=city) for city in ('Rome', 'Oslo') if city in prompt]
    calls += [call('write_file', path='/a.txt', content='Hello')] if 'write' in prompt else []
    return calls or f'You said: {prompt}, after {len(messages) - 1} messages.'


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel(then=answer)


@pytest.fixture
def agents(model: ScriptedModel) -> dict[str, Any]:
    return {
        'writer': create_deep_agent(model),
        'careful': create_deep_agent(model, interrupt_on={'write_file': True}),
    }


@pytest.fixture
async def live(served: Any, listen: Any) -> AsyncGenerator[Live]:
    async with listen(served.app) as url:
        yield Live(url, served)


MakeChat = Callable[..., Awaitable[Chat]]


@pytest.fixture(params=[False, True], ids=['whole', 'streamed'])
def streamed(request: pytest.FixtureRequest) -> bool:
    return request.param


def openai_tools(name: str) -> dict[str, Any]:
    function = {'name': name, 'description': 'The weather of a city.', 'parameters': CITY}
    return {'tools': [{'type': 'function', 'function': function}]}


def anthropic_tools(name: str) -> dict[str, Any]:
    return {'tools': [{'name': name, 'description': 'The weather of a city.', 'input_schema': CITY}]}


def google_tools(name: str) -> dict[str, Any]:
    schema = {'type': 'OBJECT', 'properties': {'city': {'type': 'STRING'}}, 'required': ['city']}
    function = {'name': name, 'description': 'The weather of a city.', 'parameters': schema}
    return {'tools': [{'function_declarations': [function]}]}


CLIENTS = {OpenaiChat: openai_tools, AnthropicChat: anthropic_tools, GoogleChat: google_tools}


@pytest.fixture(params=CLIENTS, ids=['openai', 'anthropic', 'google'])
async def make_chat(request: pytest.FixtureRequest, live: Live, streamed: bool) -> MakeChat:
    """Return a function that creates a client that declares a tool, with a key of the scope `run`."""

    async def make(
        model: str = 'writer', *, tool: str = 'weather', owner: str = 'ada', scopes: tuple[Any, ...] = ('run',)
    ) -> Chat:
        key = await live.served.key(*scopes, owner=owner)
        return request.param(live.url, key, model, streamed, options=CLIENTS[request.param](tool))

    return make


async def send_results(chat: Chat, *results: tuple[str, str]) -> Any:
    """Send the results of calls in the form that the client's API wants them."""
    messages = [chat.result(id, text, 'weather') for id, text in results]
    if isinstance(chat, OpenaiChat):
        chat.history += messages
    elif isinstance(chat, AnthropicChat):
        chat.history.append({'role': 'user', 'content': [part for message in messages for part in message['content']]})
    else:
        parts = [part for message in messages for part in message.parts]
        chat.history.append(google_types.Content(role='user', parts=parts))
    return await chat.ask()


async def test_declared_function_is_called_and_its_result_continues_the_run(
    make_chat: MakeChat, model: ScriptedModel
) -> None:
    chat = await make_chat()
    asked = await chat.say('Please look at Rome')

    assert asked.text == 'I look.'
    assert asked.finish.lower() in ('tool_calls', 'tool_use', 'stop')
    ((id, name, arguments),) = asked.calls
    assert (name, arguments) == ('weather', {'city': 'Rome'})
    declared = next(tool for tool in model.requests[0].parameters.function_tools if tool.name == 'weather')
    assert (declared.description, declared.parameters_json_schema) == ('The weather of a city.', CITY)

    told = await send_results(chat, (id, 'hot'))
    assert 'hot' in told.text
    assert told.calls == []
    assert (await chat.say('Thanks')).text == 'You said: Thanks, after 4 messages.'


async def test_parallel_calls_run_beside_the_tools_of_the_agent(make_chat: MakeChat, live: Live) -> None:
    """The calls of the agent's own tools are hidden, and run before the client answers."""
    chat = await make_chat()
    asked = await chat.say('Rome, Oslo, and write')

    assert [arguments['city'] for _, _, arguments in asked.calls] == ['Rome', 'Oslo']
    (rome, oslo) = [id for id, _, _ in asked.calls]
    told = await send_results(chat, (oslo, 'cold'), (rome, 'hot'))
    assert told.text.index('hot') < told.text.index('cold')
    (conversation,) = await live.served.store.conversations()
    head = await live.served.state.agents['writer'].load(conversation.head_id)
    assert await (await head.files()).read_bytes('/a.txt') == b'Hello'


async def test_name_of_an_own_tool_is_refused(make_chat: MakeChat) -> None:
    chat = await make_chat(tool='write_file')

    with pytest.raises(ERRORS, match='the agent itself has tools with these names: write_file') as caught:
        await chat.say('Rome')
    assert status_of(caught.value) == 400


async def test_result_resumes_after_a_restart_of_the_server(
    make_chat: MakeChat, live: Live, serve: Any, listen: Any, store: Any
) -> None:
    chat = await make_chat()
    ((id, _, _),) = (await chat.say('Rome')).calls
    async with serve(store=store) as served, listen(served.app) as url:
        chat.base_url = url
        assert 'hot' in (await send_results(chat, (id, 'hot'))).text


async def test_repeated_result_joins_the_run_and_another_result_is_a_branch(make_chat: MakeChat, live: Live) -> None:
    chat = await make_chat()
    ((id, _, _),) = (await chat.say('Rome')).calls
    before = list(chat.history)
    first = await send_results(chat, (id, 'hot'))
    chat.history[:] = before
    again = await send_results(chat, (id, 'hot'))
    chat.history[:] = before
    other = await send_results(chat, (id, 'cold'))

    assert (again, 'cold' in other.text) == (first, True)
    assert len(await live.served.store.runs()) == 3
    assert len(await live.served.store.conversations()) == 1


async def test_result_of_another_owner_starts_an_own_conversation(make_chat: MakeChat, live: Live) -> None:
    """The ids of another owner are unknown, so the request becomes a history of its own."""
    chat = await make_chat()
    ((id, _, _),) = (await chat.say('Rome')).calls
    other = await make_chat(owner='bob')
    other.history = chat.history
    told = await send_results(other, (id, 'hot'))

    assert 'hot' in told.text
    assert len(await live.served.store.conversations()) == 2
    assert (await other.say('Thanks')).text == 'You said: Thanks, after 4 messages.'


async def test_approval_beside_a_call_of_the_client(make_chat: MakeChat) -> None:
    chat = await make_chat('careful', scopes=('run', 'approve'))
    asked = await chat.say('Rome and write')
    (weather, approval) = asked.calls

    assert (weather[1], approval[1]) == ('weather', 'approval_required')
    result, decision = chat.result(weather[0], 'hot', 'weather'), chat.result(approval[0], 'approve')
    if isinstance(chat, OpenaiChat):
        chat.history += [result, decision]
    elif isinstance(chat, AnthropicChat):
        chat.history.append({'role': 'user', 'content': [*result['content'], *decision['content']]})
    else:
        chat.history.append(google_types.Content(role='user', parts=[*result.parts, *decision.parts]))
    told = await chat.ask()
    assert 'hot' in told.text
    assert 'Created /a.txt' in told.text


async def test_pending_approval_cannot_be_answered_as_a_call_of_the_client(make_chat: MakeChat) -> None:
    """A key without the scope `approve` cannot pass a result off as a decision."""
    chat = await make_chat('careful')
    ((id, _, _),) = (await chat.say('write')).calls
    pending = chat.history.pop()
    text = json.dumps(pending.model_dump(mode='json') if isinstance(chat, GoogleChat) else pending)
    forged = json.loads(text.replace('approval_required', 'weather'))
    chat.history.append(google_types.Content.model_validate(forged) if isinstance(chat, GoogleChat) else forged)

    with pytest.raises(ERRORS, match='needs a decision') as caught:
        await send_results(chat, (id, 'Created.'))
    assert status_of(caught.value) == 400


SCHEMA: dict[str, Any] = {
    'type': 'object',
    'properties': {'city': {'type': 'string'}, 'degrees': {'type': 'integer'}},
    'required': ['city', 'degrees'],
}
FORMATS: dict[type[Chat], dict[str, Any]] = {
    OpenaiChat: {'response_format': {'type': 'json_schema', 'json_schema': {'name': 'weather', 'schema': SCHEMA}}},
    AnthropicChat: {'output_config': {'format': {'type': 'json_schema', 'schema': SCHEMA}}},
    GoogleChat: {'response_mime_type': 'application/json', 'response_json_schema': SCHEMA},
}


async def test_answer_is_json_by_the_schema_of_the_client(make_chat: MakeChat, live: Live) -> None:
    chat = await make_chat()
    chat.options = FORMATS[type(chat)]
    told = await chat.say('Weather?')

    assert json.loads(told.text) == {'city': 'Rome', 'degrees': 40}
    assert told.finish.lower() in ('stop', 'end_turn')
    chat.options = {}
    assert (await chat.say('Thanks')).text.startswith('You said: Thanks, after ')
    assert len(await live.served.store.conversations()) == 1


async def test_schema_that_cannot_be_used_is_an_error_of_the_api(make_chat: MakeChat) -> None:
    chat = await make_chat()
    text = json.dumps(FORMATS[type(chat)]).replace('"integer"', '"whole"')
    chat.options = json.loads(text)

    with pytest.raises(ERRORS, match='not a JSON schema that can be used') as caught:
        await chat.say('Weather?')
    assert status_of(caught.value) == 400
