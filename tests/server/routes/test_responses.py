"""OpenAI's Responses API, used with the official client."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import NoneType
from typing import Any

import anyio
import anyio.lowlevel
import httpx2
import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response
from pydantic import BaseModel
from pydantic_ai import ImageUrl
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.toolsets import FunctionToolset
from starlette.responses import StreamingResponse

from pydantic_deep import create_deep_agent
from pydantic_deep.errors import ValidationError
from pydantic_deep.server import AnyAgent
from pydantic_deep.server._state import OWNER
from pydantic_deep.server.access._ownership import Access
from pydantic_deep.server.compat import _client_events, _response_turns
from pydantic_deep.server.compat._response_objects import OwnConversation, load_response
from pydantic_deep.server.compat._response_turns import stream_response
from pydantic_deep.server.compat._turns import KEEPALIVE
from pydantic_deep.store import Commit, VersionConflictError, VersionFilter
from pydantic_deep.testing import ScriptedModel, call
from tests.server.compat.conftest import PIXEL
from tests.server.conftest import Gate, Served
from tests.streaming.conftest import RESPONSE_EVENTS

pytestmark = pytest.mark.anyio

MakeOpenai = Callable[..., Awaitable[AsyncOpenAI]]
"""Returns the official client with a key of the given scopes and owner."""


def answer(messages: Sequence[ModelMessage], info: AgentInfo) -> list[Any] | str:
    """Write a file on `write`, wait at the gate on `hold`, fail on `fail`, call a function of the client on `weather`,
    and echo anything else."""
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    returned = [part for part in last.parts if isinstance(part, ToolReturnPart)]
    if returned:
        return f'Done: {", ".join(part.model_response_str() for part in returned)}'
    said = [part.content for part in last.parts if isinstance(part, UserPromptPart)][-1]
    word = said if isinstance(said, str) else ' '.join(piece for piece in said if isinstance(piece, str))
    if word.endswith('write'):
        return ['I write.', call('write_file', path='/a.txt', content='Hello')]
    if word.endswith('hold'):
        return ['I wait.', call('hold')]
    if word.endswith('weather'):
        return ['I ask.', call('get_weather', city='Paris'), call('get_weather', city='Rome')]
    if word.endswith('fail'):
        raise ValueError('the inside of the server')
    if info.output_tools:
        return ['I answer.', call(info.output_tools[0].name, city='Paris', degrees=20)]
    return f'You said: {word}, after {len(messages) - 1} messages.'


@pytest.fixture
def agents(gate: Gate) -> dict[str, AnyAgent]:
    model = ScriptedModel(then=answer)
    tools = FunctionToolset[Any]()
    tools.add_function(gate.hold, metadata={'effect': 'read'})
    return {
        'writer': create_deep_agent(model, toolsets=[tools]),
        'careful': create_deep_agent(model, interrupt_on={'write_file': True}),
    }


@pytest.fixture
async def make_openai(served: Served) -> AsyncGenerator[MakeOpenai]:
    clients: list[AsyncOpenAI] = []

    async def make(*scopes: Any, **options: Any) -> AsyncOpenAI:
        key = await served.key(*(scopes or ('run', 'approve')), **options)
        http = httpx2.AsyncClient(transport=httpx2.ASGITransport(served.app))
        clients.append(AsyncOpenAI(api_key=key, base_url='http://localhost/v1', http_client=http, max_retries=0))
        return clients[-1]

    yield make
    for client in clients:
        await client.close()


@pytest.fixture
async def ada(make_openai: MakeOpenai) -> AsyncOpenAI:
    return await make_openai(owner='ada')


@pytest.fixture
async def bob(make_openai: MakeOpenai) -> AsyncOpenAI:
    return await make_openai(owner='bob')


async def test_a_response_is_created(ada: AsyncOpenAI) -> None:
    """The name of an agent is the model, and the text of the response is the answer."""
    made = await ada.responses.create(model='writer', input='Hi', instructions='Be brief.', metadata={'a': 'b'})
    assert made.output_text == 'You said: Hi, after 0 messages.'
    assert (made.status, made.model, made.metadata, made.instructions) == (
        'completed',
        'writer',
        {'a': 'b'},
        'Be brief.',
    )
    assert made.id.startswith('resp_')
    assert made.usage is not None
    assert made.usage.total_tokens > 0


OPEN_RESPONSES: dict[str, type | tuple[type, ...]] = {
    'id': str,
    'object': str,
    'created_at': int,
    'completed_at': (int, NoneType),
    'status': str,
    'incomplete_details': (dict, NoneType),
    'model': str,
    'previous_response_id': (str, NoneType),
    'instructions': (str, NoneType),
    'output': list,
    'error': (dict, NoneType),
    'tools': list,
    'tool_choice': (str, dict),
    'truncation': str,
    'parallel_tool_calls': bool,
    'text': dict,
    'top_p': (int, float),
    'presence_penalty': (int, float),
    'frequency_penalty': (int, float),
    'top_logprobs': int,
    'temperature': (int, float),
    'reasoning': (dict, NoneType),
    'user': (str, NoneType),
    'usage': (dict, NoneType),
    'max_output_tokens': (int, NoneType),
    'max_tool_calls': (int, NoneType),
    'store': bool,
    'background': bool,
    'service_tier': str,
    'metadata': dict,
    'safety_identifier': (str, NoneType),
    'prompt_cache_key': (str, NoneType),
}
"""The required fields of a response, with their types (the OpenAPI document of Open Responses 2.3, `ResponseResource`)."""


async def test_a_response_has_all_fields_of_open_responses(ada: AsyncOpenAI) -> None:
    raw = await ada.responses.with_raw_response.create(
        model='writer',
        input='Hello',
        tools=[{'type': 'function', 'name': 'look', 'parameters': {'type': 'object'}, 'strict': True}],
        reasoning={'effort': 'low'},
        text={'verbosity': 'low'},
    )
    response = json.loads(raw.text)

    assert {name for name, types in OPEN_RESPONSES.items() if not isinstance(response.get(name, ...), types)} == set()
    assert response['tools'] == [
        {'type': 'function', 'name': 'look', 'description': None, 'parameters': {'type': 'object'}, 'strict': True}
    ]
    assert response['reasoning'] == {'effort': 'low', 'summary': None}
    assert response['text'] == {'format': {'type': 'text'}, 'verbosity': 'low'}


async def test_a_response_is_streamed(ada: AsyncOpenAI) -> None:
    """Each event is one of the SDK's union, and the last one has the response that is retrieved later."""
    stream = await ada.responses.create(model='writer', input='write', stream=True)
    events = [event async for event in stream]
    for event in events:
        RESPONSE_EVENTS[event.type].model_validate(event.model_dump(exclude_unset=True))
    assert [event.type for event in events[:3]] == [
        'response.created', 'response.in_progress', 'response.output_item.added',
    ]  # fmt: skip
    done: Any = events[-1]
    assert done.type == 'response.completed'
    assert done.response.output_text.startswith('I write.\n\nDone: Created /a.txt')
    again = await ada.responses.retrieve(done.response.id)
    assert again.output == done.response.output
    assert again.usage == done.response.usage


@pytest.mark.slow
async def test_the_stream_helper_collects_the_response(ada: AsyncOpenAI) -> None:
    """The SDK's `stream` helper accepts the order of the events."""
    async with ada.responses.stream(model='writer', input='write') as stream:
        done = await stream.get_final_response()
    assert done.output_text.startswith('I write.\n\nDone: Created')


async def test_the_async_and_the_sync_way_to_parse_an_answer(ada: AsyncOpenAI) -> None:
    """The SDK's `parse` helper gets the answer as an object: the text is JSON that is valid by the schema."""

    class Weather(BaseModel):
        city: str
        degrees: int

    made = await ada.responses.parse(model='writer', input='How is it?', text_format=Weather)
    assert made.output_parsed == Weather(city='Paris', degrees=20)
    again = await ada.responses.retrieve(made.id)
    assert again.output_text == made.output_text
    assert again.text is not None
    async with ada.responses.stream(model='writer', input='How is it?', text_format=Weather) as stream:
        done = await stream.get_final_response()
    assert done.output_parsed == Weather(city='Paris', degrees=20)


async def test_any_json_object_can_be_requested(ada: AsyncOpenAI) -> None:
    """`json_object` is a schema without fields."""
    made = await ada.responses.create(model='writer', input='How is it?', text={'format': {'type': 'json_object'}})
    assert json.loads(made.output_text) == {'city': 'Paris', 'degrees': 20}


# Continuing


async def test_a_response_is_continued_twice(ada: AsyncOpenAI) -> None:
    """`previous_response_id` names a version, so each continuation is a branch of its own."""
    first = await ada.responses.create(model='writer', input='One')
    second = await ada.responses.create(model='writer', input='Two', previous_response_id=first.id)
    branch = await ada.responses.create(model='writer', input='Three', previous_response_id=first.id)
    third = await ada.responses.create(model='writer', input='Four', previous_response_id=second.id)
    assert second.previous_response_id == first.id
    assert [each.output_text for each in (second, branch, third)] == [
        'You said: Two, after 2 messages.',
        'You said: Three, after 2 messages.',
        'You said: Four, after 4 messages.',
    ]


async def test_a_dialogue_with_items_of_a_response_continues_it(ada: AsyncOpenAI, served: Served) -> None:
    """A client that sends all items again continues the response of the last item, with its files and todos."""
    dialogue: list[Any] = [{'role': 'user', 'content': 'write'}]
    for words in ('One', 'Two'):
        made = await ada.responses.create(model='writer', input=dialogue)
        dialogue += [*(item.model_dump() for item in made.output), {'role': 'user', 'content': words}]
    made = await ada.responses.create(model='writer', input=dialogue)
    assert made.output_text == 'You said: Two, after 6 messages.'
    assert len(await served.store.conversations()) == 1


async def test_a_dialogue_of_texts_continues_the_version_with_these_texts(ada: AsyncOpenAI, served: Served) -> None:
    """Without ids, the texts of the messages identify the version."""
    dialogue: list[Any] = [{'role': 'user', 'content': 'One'}]
    for streamed in (False, True):
        if streamed:
            async with ada.responses.stream(model='writer', input=dialogue) as stream:
                made: Response = await stream.get_final_response()
        else:
            made = await ada.responses.create(model='writer', input=dialogue)
        dialogue += [{'role': 'assistant', 'content': made.output_text}, {'role': 'user', 'content': 'More'}]
    made = await ada.responses.create(model='writer', input=dialogue)
    assert made.output_text == 'You said: More, after 4 messages.'
    assert len(await served.store.conversations()) == 1


async def test_items_of_another_server_become_the_history(ada: AsyncOpenAI) -> None:
    """Items whose response does not exist here are read as a dialogue, whose calls and texts become the history."""
    other = '00000000-0000-7000-8000-000000000000'
    made = await ada.responses.create(
        model='writer',
        input=[
            {'role': 'system', 'content': 'Be brief.'},
            {'role': 'user', 'content': 'How is it?'},
            {'type': 'function_call', 'call_id': 'c1', 'name': 'look', 'arguments': '{"at": "sky"}', 'id': f'fc_{other}_0'},
            {'type': 'function_call_output', 'call_id': 'c1', 'output': 'blue'},
            {
                'type': 'message', 'role': 'assistant', 'id': f'msg_{other}_1', 'status': 'completed',
                'content': [{'type': 'output_text', 'text': 'Blue.', 'annotations': []}],
            },
            {'role': 'user', 'content': 'Thanks'},
        ],
    )  # fmt: skip
    assert made.output_text == 'You said: Thanks, after 4 messages.'


async def test_a_reference_to_an_item_continues_its_response(ada: AsyncOpenAI) -> None:
    """A client may send the id of an item in place of the item."""
    first = await ada.responses.create(model='writer', input='One')
    reference: Any = {'type': 'item_reference', 'id': first.output[0].id}
    made = await ada.responses.create(model='writer', input=[reference, {'role': 'user', 'content': 'Two'}])
    assert made.output_text == 'You said: Two, after 2 messages.'
    reference = {'type': 'item_reference', 'id': 'msg_unknown'}
    with pytest.raises(openai.NotFoundError, match='does not exist'):
        await ada.responses.create(model='writer', input=[reference, {'role': 'user', 'content': 'Two'}])


async def test_new_instructions_are_sent_with_the_prompt(ada: AsyncOpenAI) -> None:
    """Instructions that are in effect are not sent again; other ones precede the prompt, and are not an input item."""
    first = await ada.responses.create(model='writer', input='One', instructions='Be brief.')
    same = await ada.responses.create(
        model='writer', input='Two', previous_response_id=first.id, instructions='Be brief.'
    )
    later = await ada.responses.create(model='writer', input='Three', previous_response_id=same.id)
    new = await ada.responses.create(
        model='writer', input='Four', previous_response_id=later.id, instructions='Be long.'
    )
    assert same.output_text == 'You said: Two, after 2 messages.'
    assert later.output_text == 'You said: Three, after 4 messages.'
    assert 'from now on:\n\nBe long. Four, after' in new.output_text
    [item] = (await ada.responses.input_items.list(new.id)).data
    assert item.model_dump()['content'] == [{'type': 'input_text', 'text': 'Four', 'prompt_cache_breakpoint': None}]


async def test_a_response_in_progress_cannot_be_continued(ada: AsyncOpenAI, gate: Gate) -> None:
    """The error says to wait for the response or to cancel it."""
    first = await ada.responses.create(model='writer', input='hold', background=True)
    await gate.reached.wait()
    with pytest.raises(openai.ConflictError, match='in progress'):
        await ada.responses.create(model='writer', input='Two', previous_response_id=first.id)
    gate.opened.set()


async def test_a_failed_response_is_an_error_and_can_be_continued(ada: AsyncOpenAI) -> None:
    """The client gets an HTTP error, or the event `response.failed`, without internals of the server."""
    with pytest.raises(openai.InternalServerError, match='ValueError') as failed:
        await ada.responses.create(model='writer', input='fail')
    assert 'inside' not in str(failed.value)
    events = [event async for event in await ada.responses.create(model='writer', input='fail', stream=True)]
    last: Any = events[-1]
    assert (last.type, last.response.status) == ('response.failed', 'failed')
    stored = await ada.responses.retrieve(last.response.id)
    assert (stored.status, stored.error and stored.error.type) == ('failed', 'run_failed')
    made = await ada.responses.create(model='writer', input='Go on', previous_response_id=stored.id)
    assert made.output_text.startswith('You said: Go on')


# Tools of the client, approvals


WEATHER: Any = {
    'type': 'function',
    'name': 'get_weather',
    'description': 'Get the weather.',
    'parameters': {'type': 'object', 'properties': {'city': {'type': 'string'}}},
    'strict': False,
}


@pytest.mark.parametrize('is_streamed', [False, True])
@pytest.mark.parametrize('sends_all', [False, True])
async def test_the_client_runs_its_functions(ada: AsyncOpenAI, is_streamed: bool, sends_all: bool) -> None:
    """A call of a client's function is an item, and its output resumes the turn, with or without the whole dialogue."""

    responses: Any = ada.responses

    async def create(**options: Any) -> Response:
        if not is_streamed:
            return await responses.create(model='writer', tools=[WEATHER], **options)
        async with responses.stream(model='writer', tools=[WEATHER], **options) as stream:
            return await stream.get_final_response()

    question: Any = {'role': 'user', 'content': 'weather'}
    made = await create(input=[question])
    message, *calls = [item.model_dump(exclude={'parsed_arguments'}) for item in made.output]
    assert (message['phase'], message['content'][0]['text']) == ('commentary', 'I ask.')
    assert [(each['name'], json.loads(each['arguments'])) for each in calls] == [
        ('get_weather', {'city': 'Paris'}),
        ('get_weather', {'city': 'Rome'}),
    ]
    again = await ada.responses.retrieve(made.id)
    assert [tool.to_dict() for tool in again.tools] == [WEATHER]
    assert (again.output_text, [item.id for item in again.output]) == (
        made.output_text,
        [item.id for item in made.output],
    )
    outputs: list[Any] = [
        {'type': 'function_call_output', 'call_id': each['call_id'], 'output': f'{number} degrees'}
        for number, each in enumerate(calls)
    ]
    done = (
        await create(input=[question, message, *calls, *outputs])
        if sends_all
        else await create(input=outputs, previous_response_id=made.id)
    )
    assert done.output_text == 'Done: 0 degrees, 1 degrees'
    items = (await ada.responses.input_items.list(done.id, order='asc')).data
    assert [(item.type, getattr(item, 'call_id', None), getattr(item, 'output', None)) for item in items] == [
        ('function_call_output', each['call_id'], each['output']) for each in outputs
    ]


async def test_outputs_before_a_prompt_are_input_items(ada: AsyncOpenAI) -> None:
    """A request with outputs and a prompt has both among its items, also after the response with the calls is deleted."""
    responses: Any = ada.responses
    conversation = await ada.conversations.create()
    options: Any = {'model': 'writer', 'tools': [WEATHER], 'conversation': conversation.id}
    made = await responses.create(input='weather', **options)
    calls = [item.call_id for item in made.output if item.type == 'function_call']
    outputs: list[Any] = [{'type': 'function_call_output', 'call_id': id, 'output': 'hot'} for id in calls]
    done = await responses.create(input=[*outputs, {'role': 'user', 'content': 'And?'}], **options)
    items = (await responses.input_items.list(done.id, order='asc')).data
    assert [getattr(item, 'call_id', item.type) for item in items] == [*calls, 'message']
    listed = (await ada.conversations.items.list(conversation.id, order='asc')).data
    assert [item.type for item in listed] == [
        *('message', 'message', 'function_call', 'function_call'),
        *('function_call_output', 'function_call_output', 'message', 'message'),
    ]
    await responses.delete(made.id)
    assert (await responses.input_items.list(done.id, order='asc')).data == items


async def test_an_output_of_a_call_of_another_response_is_refused(ada: AsyncOpenAI) -> None:
    """With the id of a response, the outputs must belong to its calls."""
    responses: Any = ada.responses
    first = await ada.responses.create(model='writer', input='One')
    made = await ada.responses.create(model='writer', input='weather', tools=[WEATHER])
    output: Any = {'type': 'function_call_output', 'call_id': made.output[1].model_dump()['call_id'], 'output': 'x'}
    for wrong in (output, {**output, 'call_id': 'unknown'}):
        with pytest.raises(openai.BadRequestError, match='not pending in the response'):
            await responses.create(model='writer', input=[wrong], previous_response_id=first.id)


async def test_a_pending_call_is_approved_by_an_item(ada: AsyncOpenAI) -> None:
    """The request for an approval has the tool, the arguments and the view; the answer resumes the turn."""
    made = await ada.responses.create(model='careful', input='write')
    asked: Any = made.output[1]
    assert (asked.type, asked.name, asked.server_label) == ('mcp_approval_request', 'write_file', 'careful')
    assert json.loads(asked.arguments) == {'path': '/a.txt', 'content': 'Hello'}
    assert asked.view['tool'] == ['write_file']
    assert (await ada.responses.retrieve(made.id)).output == made.output
    approval: Any = {'type': 'mcp_approval_response', 'approval_request_id': asked.id, 'approve': True}
    done = await ada.responses.create(model='careful', input=[approval], previous_response_id=made.id)
    assert done.output_text.startswith('Done: Created')
    again = await ada.responses.create(model='careful', input=[approval], previous_response_id=made.id)
    assert again.id == done.id
    [item] = (await ada.responses.input_items.list(done.id)).data
    assert item.model_dump(exclude={'id'}) == {**approval, 'reason': None}


async def test_a_denied_call_does_not_run(ada: AsyncOpenAI) -> None:
    """The reason reaches the model, also if the client sends all items."""
    question: Any = {'role': 'user', 'content': 'write'}
    made = await ada.responses.create(model='careful', input=[question])
    items: list[Any] = [item.model_dump() for item in made.output]
    denial: Any = {
        'type': 'mcp_approval_response',
        'approval_request_id': items[-1]['id'],
        'approve': False,
        'reason': 'not today',
    }
    responses: Any = ada.responses
    done = await responses.create(model='careful', input=[question, *items, denial])
    assert done.output_text == 'Done: not today'
    [item] = (await ada.responses.input_items.list(done.id)).data
    assert (item.model_dump()['approve'], item.model_dump()['reason']) == (False, 'not today')


async def test_a_decision_of_another_response_is_refused(ada: AsyncOpenAI, make_openai: MakeOpenai) -> None:
    """With the id of a response, the decisions must belong to it, and they require the scope `approve`."""
    first = await ada.responses.create(model='careful', input='One')
    made = await ada.responses.create(model='careful', input='write')
    approval: Any = {'type': 'mcp_approval_response', 'approval_request_id': made.output[1].id, 'approve': True}
    with pytest.raises(openai.BadRequestError, match='not pending in the response'):
        await ada.responses.create(model='careful', input=[approval], previous_response_id=first.id)
    runner = await make_openai('run', owner='ada')
    with pytest.raises(openai.PermissionDeniedError, match='approve'):
        await runner.responses.create(model='careful', input=[approval])


# Runs that outlive their clients


async def test_a_background_response_is_polled(ada: AsyncOpenAI, gate: Gate) -> None:
    """The response comes as soon as its run has started, and has the output once the run has ended."""
    made = await ada.responses.create(model='writer', input='hold', background=True)
    assert (made.status, made.background, made.output) == ('in_progress', True, [])
    await gate.reached.wait()
    partial = await ada.responses.retrieve(made.id)
    assert (partial.status, partial.output_text) == ('in_progress', 'I wait.')
    gate.opened.set()
    while (done := await ada.responses.retrieve(made.id)).status == 'in_progress':
        pass
    assert (done.status, done.output_text) == ('completed', 'I wait.\n\nDone: held')
    assert (done.created_at, done.completed_at is not None) == (made.created_at, True)


async def test_a_dialogue_of_a_background_response_is_continued_by_its_texts(ada: AsyncOpenAI, served: Served) -> None:
    """The thread of the dialogue is stored when the run ends, though no client has waited for it."""
    question: Any = {'role': 'user', 'content': 'One'}
    made = await ada.responses.create(model='writer', input=[question], background=True)
    while (done := await ada.responses.retrieve(made.id)).status == 'in_progress':
        pass
    while not await served.state.threads.count():
        await anyio.lowlevel.checkpoint()
    dialogue: Any = [question, {'role': 'assistant', 'content': done.output_text}, {'role': 'user', 'content': 'Two'}]
    again = await ada.responses.create(model='writer', input=dialogue)
    assert again.output_text == 'You said: Two, after 2 messages.'
    assert len(await served.store.conversations()) == 1


async def test_a_response_is_cancelled(ada: AsyncOpenAI, gate: Gate) -> None:
    """Its work is preserved, and cancelling it again has no effect."""
    made = await ada.responses.create(model='writer', input='hold', background=True)
    await gate.reached.wait()
    for _ in range(2):
        cancelled = await ada.responses.cancel(made.id)
        assert (cancelled.status, cancelled.output_text, cancelled.error) == ('cancelled', 'I wait.', None)


async def test_a_stream_is_resumed_after_an_event(ada: AsyncOpenAI, gate: Gate) -> None:
    """The events of a response can be read again, from the beginning or after the last one that was read."""
    gate.opened.set()
    events = [event async for event in await ada.responses.create(model='writer', input='hold', stream=True)]
    created: Any = events[0]
    for after in (None, 0, 4, len(events) - 2, len(events) - 1):
        options: dict[str, Any] = {} if after is None else {'starting_after': after}
        again = await ada.responses.retrieve(created.response.id, stream=True, **options)
        rest = events if after is None else events[after + 1 :]
        read = [event async for event in again]
        assert [event.to_json() for event in read[:-1]] == [event.to_json() for event in rest[:-1]]
        assert [event.sequence_number for event in read[-1:]] == [event.sequence_number for event in rest[-1:]]


async def test_a_stream_without_its_log_is_read_from_its_beginning(ada: AsyncOpenAI, served: Served) -> None:
    """Without the log the events are divided otherwise, so a position in them is refused; the contents are the same."""
    made = await ada.responses.create(model='careful', input='write')
    served.state.runs.clear_logs()
    with pytest.raises(openai.ConflictError, match='`starting_after` has no meaning'):
        await ada.responses.retrieve(made.id, stream=True, starting_after=1)
    events: list[Any] = [event async for event in await ada.responses.retrieve(made.id, stream=True)]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].response.output == made.output


async def test_a_stream_of_a_run_of_another_process_follows_the_store(
    ada: AsyncOpenAI, served: Served, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events appear as the store gets them, and while there are none, the connection is kept alive."""
    monkeypatch.setattr(_client_events, 'POLL_SECONDS', 0)
    made = await ada.responses.create(model='writer', input='hold', background=True)
    await gate.reached.wait()

    def unknown(id: str) -> None:
        return None

    monkeypatch.setattr(served.state.runs, 'get', unknown)
    access = await served.access(ada.api_key)
    response = await stream_response(access, await load_response(access, made.id), starting_after=None)
    assert isinstance(response, StreamingResponse)
    seen: list[bytes] = []
    async for chunk in response.body_iterator:
        assert isinstance(chunk, bytes)
        seen.append(chunk)
        if chunk == KEEPALIVE:
            gate.opened.set()
    assert KEEPALIVE in seen
    assert b'event: response.completed' in seen[-2]


# Deleting, listing, conversations


async def test_a_response_is_deleted_with_its_conversation(ada: AsyncOpenAI, served: Served) -> None:
    """After the only response, nothing of the conversation is left."""
    made = await ada.responses.create(model='writer', input='One')
    await ada.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError) as missing:
        await ada.responses.retrieve(made.id)
    assert missing.value.code == 'response_not_found'
    with pytest.raises(openai.NotFoundError):
        await ada.responses.create(model='writer', input='Two', previous_response_id=made.id)
    assert await served.store.versions(VersionFilter()) == []


async def test_later_responses_remain_without_a_deleted_one(ada: AsyncOpenAI, served: Served) -> None:
    """They keep the messages of the deleted response; and without the last response, the head moves back."""
    first = await ada.responses.create(model='writer', input='One')
    second = await ada.responses.create(model='writer', input='Two', previous_response_id=first.id)
    third = await ada.responses.create(model='writer', input='Three', previous_response_id=second.id)
    await ada.responses.delete(third.id)
    [conversation] = await served.store.conversations()
    assert conversation.head_id is not None
    assert (await served.store.version(conversation.head_id)).run_id == second.id.removeprefix('resp_')
    await ada.responses.delete(first.id)
    assert (await ada.responses.retrieve(second.id)).output_text == second.output_text
    again = await ada.responses.create(model='writer', input='Four', previous_response_id=second.id)
    assert again.output_text == 'You said: Four, after 4 messages.'


async def test_a_response_in_progress_is_not_deleted(ada: AsyncOpenAI, gate: Gate) -> None:
    """The error says to cancel it first."""
    made = await ada.responses.create(model='writer', input='hold', background=True)
    await gate.reached.wait()
    with pytest.raises(openai.ConflictError, match='Cancel it first'):
        await ada.responses.delete(made.id)
    gate.opened.set()


async def test_input_items_are_those_of_the_request(ada: AsyncOpenAI) -> None:
    """Texts, images and files of the prompt are listed as they were sent."""
    content: Any = [
        {'type': 'input_text', 'text': 'Look'},
        {'type': 'input_image', 'image_url': f'data:image/png;base64,{PIXEL}', 'detail': 'auto'},
        {'type': 'input_file', 'file_data': 'data:text/plain;base64,aGk='},
    ]
    made = await ada.responses.create(model='writer', input=[{'role': 'user', 'content': content}])
    [item] = (await ada.responses.input_items.list(made.id)).data
    assert item.to_dict() == {
        'id': f'msg_{made.id.removeprefix("resp_")}_input',
        'type': 'message',
        'role': 'user',
        'status': 'completed',
        'content': content,
    }


async def test_a_conversation_collects_its_responses(ada: AsyncOpenAI, served: Served) -> None:
    """Its items are listed in pages; its first items are the beginning of the history; its head moves."""
    made = await ada.conversations.create(
        items=[
            {'role': 'developer', 'content': 'Be brief.'},
            {'role': 'user', 'content': 'Hello'},
            {'role': 'assistant', 'content': [{'type': 'output_text', 'text': 'Hi', 'annotations': []}]},  # type: ignore[list-item]
        ],
        metadata={'topic': 'demo'},
    )
    assert (await ada.conversations.retrieve(made.id)).metadata == {'topic': 'demo'}
    first = await ada.responses.create(model='writer', input='One', conversation=made.id)
    second = await ada.responses.create(model='writer', input='Two', conversation={'id': made.id})
    assert first.output_text == 'You said: One, after 2 messages.'
    assert second.output_text == 'You said: Two, after 4 messages.'
    assert second.conversation is not None
    assert second.conversation.id == made.id

    items = [item async for item in ada.conversations.items.list(made.id, order='asc', limit=2)]
    texts = [item.content[0].text for item in items if item.type == 'message']  # type: ignore[union-attr]
    assert texts == ['Be brief.', 'Hello', 'Hi', 'One', first.output_text, 'Two', second.output_text]
    newest = await ada.conversations.items.list(made.id, limit=1)
    assert newest.data[0].id == second.output[0].id
    with pytest.raises(openai.BadRequestError, match='`after`'):
        await ada.conversations.items.list(made.id, after='unknown')

    await ada.conversations.update(made.id, metadata={'topic': 'other'})
    assert (await ada.conversations.retrieve(made.id)).metadata == {'topic': 'other'}
    await ada.responses.delete(second.id)
    third = await ada.responses.create(model='writer', input='Three', conversation=made.id)
    assert third.output_text == 'You said: Three, after 4 messages.'
    deleted = await ada.conversations.delete(made.id)
    assert (deleted.deleted, await served.store.versions(VersionFilter())) == (True, [])
    for id in (made.id, f'conv_{made.id}'):
        with pytest.raises(openai.NotFoundError):
            await ada.conversations.retrieve(id)


async def count_input(client: AsyncOpenAI, **request: Any) -> int:
    counted = await client.responses.input_tokens.count(model='writer', **request)
    assert counted.object == 'response.input_tokens'
    return counted.input_tokens


async def test_input_tokens_of_a_dialogue_are_estimated(ada: AsyncOpenAI, served: Served) -> None:
    """A request that the server does not know counts by its own texts, and creates nothing."""
    tool: Any = {'type': 'function', 'name': 'get_weather', 'description': 'w' * 400, 'parameters': {'type': 'object'}}
    assert await count_input(ada, input='x' * 400) == 104
    assert await count_input(ada, input='x' * 400, instructions='s' * 80) == 128
    assert await count_input(ada, input='x' * 400, tools=[tool]) > 204
    assert await count_input(ada) == 0
    assert await served.store.conversations() == []


async def test_input_tokens_after_a_response_include_its_context(ada: AsyncOpenAI) -> None:
    """The scripted model reports 110 tokens for the first turn, which its id, conversation and texts all name."""
    made = await ada.conversations.create()
    first = await ada.responses.create(model='writer', input='Hi', conversation=made.id)
    assert first.usage is not None
    known = first.usage.total_tokens + 104
    assert await count_input(ada, input='x' * 400, previous_response_id=first.id) == known
    assert await count_input(ada, input='x' * 400, conversation=made.id) == known


async def test_input_tokens_before_the_first_response_include_the_first_items(ada: AsyncOpenAI) -> None:
    """A conversation without a response has the messages that its client created it with."""
    made = await ada.conversations.create(items=[{'role': 'user', 'content': 'y' * 400}])
    assert await count_input(ada, input='x' * 400, conversation=made.id) > 204


def texts_of(items: Any) -> list[str]:
    return [item.content[0].text for item in items]


async def test_messages_are_added_to_a_conversation(ada: AsyncOpenAI, served: Served) -> None:
    """Added messages are a version, so the model gets them with the next prompt, and they are listed in order."""
    made = await ada.conversations.create(items=[{'role': 'user', 'content': 'Zero'}])
    before = await ada.conversations.items.create(made.id, items=[{'role': 'user', 'content': 'Before'}])
    first = await ada.responses.create(model='writer', input='One', conversation=made.id)
    talk: Any = [{'role': 'user', 'content': 'Who?'}, {'role': 'assistant', 'content': 'Ada.'}]
    added = await ada.conversations.items.create(made.id, items=talk)
    second = await ada.responses.create(model='writer', input='Two', conversation=made.id)

    listed = (await ada.conversations.items.list(made.id, order='asc')).data
    said = [first.output_text, 'Who?', 'Ada.', 'Two', second.output_text]
    assert texts_of(listed) == ['Zero', 'Before', 'One', *said]
    assert second.output_text == 'You said: Two, after 4 messages.'
    assert [before.data[0].id, *(item.id for item in added.data)] == [listed[1].id, listed[4].id, listed[5].id]
    assert len({item.id for item in listed}) == 8
    for item in listed:
        assert await ada.conversations.items.retrieve(item.id or '', conversation_id=made.id) == item
    with pytest.raises(openai.NotFoundError, match='no such item') as missing:
        await ada.conversations.items.retrieve('msg_1', conversation_id=made.id)
    assert missing.value.code == 'item_not_found'


@pytest.mark.slow
async def test_messages_after_a_deleted_version_are_not_known(ada: AsyncOpenAI, served: Served) -> None:
    """Without the version before them, nobody knows which messages were added."""
    made = await ada.conversations.create()
    first = await ada.responses.create(model='writer', input='One', conversation=made.id)
    await ada.conversations.items.create(made.id, items=[{'role': 'user', 'content': 'Who?'}])
    own = await load_response(await served.access(ada.api_key), first.id)
    assert own.run.stored is not None
    assert own.run.stored.version is not None
    await served.store.delete(own.run.stored.version.id)
    assert (await ada.conversations.items.list(made.id)).data == []


async def test_only_messages_of_the_dialogue_are_added(ada: AsyncOpenAI) -> None:
    """System prompts come with a response, and other items are made by responses."""
    made = await ada.conversations.create()
    await ada.responses.create(model='writer', input='One', conversation=made.id)
    with pytest.raises(openai.BadRequestError, match='`instructions` of the next response'):
        await ada.conversations.items.create(made.id, items=[{'role': 'developer', 'content': 'Be brief.'}])
    with pytest.raises(openai.BadRequestError, match='Only messages can be added'):
        await ada.conversations.items.create(made.id, items=[{'type': 'item_reference', 'id': 'msg_1'}])


async def test_calls_and_their_results_are_items_of_a_conversation_without_responses(ada: AsyncOpenAI) -> None:
    """The OpenAI Agents SDK stores its sessions so. Reasoning has no content here, and is omitted."""
    made = await ada.conversations.create(items=[{'role': 'user', 'content': 'The weather?'}])
    called: Any = {'type': 'function_call', 'call_id': 'c', 'name': 'get_weather', 'arguments': '{"city": "Rome"}'}
    reasoning: Any = {'type': 'reasoning', 'id': 'rs_1', 'summary': []}
    result: Any = {'type': 'function_call_output', 'call_id': 'c', 'output': 'Sun'}
    await ada.conversations.items.create(made.id, items=[reasoning, called, result])
    await ada.conversations.items.create(made.id, items=[{'role': 'assistant', 'content': 'Sun.'}])
    listed = (await ada.conversations.items.list(made.id, order='asc')).data
    assert [item.type for item in listed] == ['message', 'function_call', 'function_call_output', 'message']
    assert (await ada.conversations.items.retrieve(listed[1].id or '', conversation_id=made.id)).type == 'function_call'
    after = await ada.responses.create(model='writer', input='And now?', conversation=made.id)
    assert after.output_text == 'You said: And now?, after 4 messages.'


async def test_pending_calls_are_named_as_the_client_knows_them(ada: AsyncOpenAI) -> None:
    """Each call of a response needs a result before the next prompt; a missing one is named by its `call_id`."""
    asked = await ada.responses.create(model='writer', input='weather', tools=[WEATHER])
    first, second = [item.call_id for item in asked.output if item.type == 'function_call']
    output: Any = {'type': 'function_call_output', 'call_id': first, 'output': 'Sun'}
    with pytest.raises(openai.BadRequestError, match=f'These calls have no result: {second}. Send a result for each'):
        await ada.responses.create(model='writer', input=[output], previous_response_id=asked.id, tools=[WEATHER])
    with pytest.raises(openai.ConflictError, match=f"{first} of 'get_weather', {second} of 'get_weather'. Send their"):
        await ada.responses.create(model='writer', input='Never mind', previous_response_id=asked.id)
    image: Any = {'type': 'input_image', 'image_url': f'data:image/png;base64,{PIXEL}'}
    seen: Any = {**output, 'output': [image]}
    with pytest.raises(openai.BadRequestError, match=f"The result of '{first}' contains more than text"):
        await ada.responses.create(model='writer', input=[seen], previous_response_id=asked.id, tools=[WEATHER])


async def test_changes_of_a_conversation_at_the_same_time_are_all_stored(ada: AsyncOpenAI) -> None:
    conversation = await ada.conversations.create(items=[{'role': 'user', 'content': 'first'}])
    first: Any = (await ada.conversations.items.list(conversation.id)).data[0]

    async with anyio.create_task_group() as group:
        for text in 'abc':
            added: list[Any] = [{'role': 'user', 'content': text}]
            group.start_soon(partial(ada.conversations.items.create, conversation.id, items=added))
        group.start_soon(partial(ada.conversations.update, conversation.id, metadata={'topic': 'letters'}))
        group.start_soon(partial(ada.conversations.items.delete, first.id, conversation_id=conversation.id))
    items: list[Any] = (await ada.conversations.items.list(conversation.id)).data

    assert {item.content[0].text for item in items} == {*'abc'}
    assert (await ada.conversations.retrieve(conversation.id)).metadata == {'topic': 'letters'}


async def test_instructions_are_no_items(ada: AsyncOpenAI) -> None:
    """The system prompt of the first response is in the history before its prompt, and is not listed."""
    made = await ada.conversations.create()
    first = await ada.responses.create(model='writer', input='One', instructions='Be brief.', conversation=made.id)
    listed = (await ada.conversations.items.list(made.id, order='asc')).data
    assert texts_of(listed) == ['One', first.output_text]


async def test_items_are_removed_before_the_first_response_only(ada: AsyncOpenAI) -> None:
    """Versions never change, so an item of one is not removed from it."""
    first: Any = [{'role': 'user', 'content': 'Zero'}, {'role': 'user', 'content': 'One'}]
    made = await ada.conversations.create(items=first)
    zero, one = (await ada.conversations.items.list(made.id, order='asc')).data
    assert (await ada.conversations.items.delete(zero.id or '', conversation_id=made.id)).id == made.id
    assert texts_of((await ada.conversations.items.list(made.id)).data) == ['One']
    with pytest.raises(openai.NotFoundError):
        await ada.conversations.items.delete(zero.id or '', conversation_id=made.id)
    await ada.responses.create(model='writer', input='Two', conversation=made.id)
    with pytest.raises(openai.ConflictError, match='DELETE /v1/responses'):
        await ada.conversations.items.delete(one.id or '', conversation_id=made.id)


async def test_an_empty_conversation_remains_after_its_only_response(ada: AsyncOpenAI, served: Served) -> None:
    """A conversation that a client has created is deleted by the client only."""
    made = await ada.conversations.create()
    assert (await ada.conversations.items.list(made.id)).data == []
    only = await ada.responses.create(model='writer', input='One', conversation=made.id)
    await ada.responses.delete(only.id)
    again = await ada.responses.create(model='writer', input='Two', conversation=made.id)
    assert again.output_text == 'You said: Two, after 0 messages.'
    assert len(await served.store.conversations()) == 1


async def test_responses_and_conversations_of_other_routes_are_read(ada: AsyncOpenAI, served: Served) -> None:
    """Every run is a response, and every conversation is one of this API."""
    async with served.client(ada.api_key) as client:
        conversation = (await client.post('/api/conversations', json={'agent': 'writer'})).json()['id']
        run = (await client.post(f'/api/conversations/{conversation}/turns', json={'prompt': 'Hi'})).json()['id']
    read = await ada.responses.retrieve(f'resp_{run}')
    assert (read.output_text, read.metadata) == ('You said: Hi, after 0 messages.', {})
    assert (await ada.conversations.retrieve(f'conv_{conversation}')).metadata == {}
    made = await ada.responses.create(model='writer', input='Two', conversation=f'conv_{conversation}')
    assert made.output_text == 'You said: Two, after 2 messages.'


async def test_two_first_responses_of_a_conversation_share_it(
    ada: AsyncOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If another request has created the conversation meanwhile, this one continues it."""
    made = await ada.conversations.create()
    await ada.responses.create(model='writer', input='One', conversation=made.id)
    load = _response_turns.load_conversation
    calls: list[str] = []

    async def load_stale(access: Access, id: str) -> OwnConversation:
        own = await load(access, id)
        calls.append(id)
        return replace(own, stored=None) if len(calls) == 1 else own

    monkeypatch.setattr(_response_turns, 'load_conversation', load_stale)
    second = await ada.responses.create(model='writer', input='Two', conversation=made.id)
    assert second.output_text == 'You said: Two, after 2 messages.'


async def test_first_responses_at_the_same_time_share_their_conversation(ada: AsyncOpenAI) -> None:
    """Each request is answered, or refused while the run of another one is active."""
    made = await ada.conversations.create()
    answers: list[str] = []

    async def create(prompt: str) -> None:
        with suppress(openai.ConflictError):
            response = await ada.responses.create(model='writer', input=prompt, conversation=made.id)
            answers.append(response.output_text)

    async with anyio.create_task_group() as group:
        for prompt in 'abc':
            group.start_soon(create, prompt)
    items = (await ada.conversations.items.list(made.id)).data
    assert answers
    assert [item.type for item in items] == ['message'] * 2 * len(answers)


async def test_items_after_a_deleted_response_are_listed(ada: AsyncOpenAI) -> None:
    """What led to a deleted response is not known any more."""
    made = await ada.conversations.create()
    first = await ada.responses.create(model='writer', input='One', conversation=made.id)
    second = await ada.responses.create(model='writer', input='Two', conversation=made.id)
    await ada.responses.delete(first.id)
    items = (await ada.conversations.items.list(made.id)).data
    assert [item.id for item in items] == [second.output[0].id, f'msg_{second.id.removeprefix("resp_")}_input']


async def test_a_conversation_without_responses_is_deleted(ada: AsyncOpenAI) -> None:
    """Its id stays unknown."""
    made = await ada.conversations.create()
    await ada.conversations.delete(made.id)
    with pytest.raises(openai.NotFoundError) as missing:
        await ada.responses.create(model='writer', input='One', conversation=made.id)
    assert missing.value.code == 'conversation_not_found'


async def test_a_response_is_not_deleted_if_the_head_moves_meanwhile(
    ada: AsyncOpenAI, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says to delete it again."""
    made = await ada.responses.create(model='writer', input='One')

    async def commit(commit: Commit) -> None:
        raise VersionConflictError('c', 'h')

    monkeypatch.setattr(served.store, 'commit', commit)
    with pytest.raises(openai.ConflictError, match='Delete it again'):
        await ada.responses.delete(made.id)


async def test_content_that_only_python_code_sends_is_named(ada: AsyncOpenAI, served: Served) -> None:
    """A URL in a prompt is listed by its kind, and a run of Python code is a response too."""
    root = await served.state.agents['writer'].create(metadata={OWNER: 'ada'})
    version = await root.advance(['Look', ImageUrl('https://example.com/a.png')])
    [item] = (await ada.responses.input_items.list(f'resp_{version.record.run_id}')).data
    assert [part['text'] for part in item.to_dict()['content']] == ['Look', '[image-url]']  # type: ignore[union-attr]


# Refusals


async def test_two_histories_are_refused(ada: AsyncOpenAI) -> None:
    """A request continues a response or a conversation."""
    with pytest.raises(openai.BadRequestError, match='exclude each other'):
        await ada.responses.create(model='writer', input='Hi', conversation='conv_1', previous_response_id='resp_1')


async def test_a_conversation_begins_with_messages(ada: AsyncOpenAI) -> None:
    """Other items have no meaning there."""
    with pytest.raises(openai.BadRequestError, match="type 'item_reference' cannot be added"):
        await ada.conversations.create(items=[{'type': 'item_reference', 'id': 'msg_1'}])


async def test_other_errors_of_a_new_conversation_are_reported(
    ada: AsyncOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a conversation that exists already is continued."""

    async def start_conversation(*args: object, **options: object) -> None:
        raise ValidationError('name', 'it is blank')

    monkeypatch.setattr(_response_turns, 'start_conversation', start_conversation)
    made = await ada.conversations.create()
    with pytest.raises(openai.BadRequestError, match='it is blank'):
        await ada.responses.create(model='writer', input='Hi', conversation=made.id)


async def test_a_history_of_another_agent_is_refused(ada: AsyncOpenAI) -> None:
    """The error names the agent that the history belongs to."""
    made = await ada.conversations.create()
    first = await ada.responses.create(model='writer', input='One', conversation=made.id)
    for options in ({'conversation': made.id}, {'previous_response_id': first.id}):
        with pytest.raises(openai.BadRequestError, match="belongs to the agent 'writer'"):
            await ada.responses.create(model='careful', input='Two', **options)  # type: ignore[call-overload]


async def test_items_of_another_response_are_refused(ada: AsyncOpenAI) -> None:
    """The items in `input` must not contradict `previous_response_id`."""
    first = await ada.responses.create(model='writer', input='One')
    other = await ada.responses.create(model='writer', input='Two')
    items: Any = [*(item.to_dict() for item in other.output), {'role': 'user', 'content': 'Three'}]
    with pytest.raises(openai.BadRequestError, match='items of another response'):
        await ada.responses.create(model='writer', input=items, previous_response_id=first.id)


async def test_an_unknown_approval_is_not_found(ada: AsyncOpenAI) -> None:
    decision: Any = {'type': 'mcp_approval_response', 'approval_request_id': 'mcpr_1', 'approve': True}
    with pytest.raises(openai.NotFoundError, match='This approval does not exist') as refused:
        await ada.responses.create(model='careful', input=[decision])
    assert refused.value.code == 'approval_not_found'


async def test_an_unknown_agent_is_not_found(ada: AsyncOpenAI) -> None:
    """The error is that of an unknown model."""
    with pytest.raises(openai.NotFoundError) as refused:
        await ada.responses.create(model='nobody', input='Hi')
    assert refused.value.code == 'model_not_found'


async def test_objects_of_another_owner_are_not_found(ada: AsyncOpenAI, bob: AsyncOpenAI) -> None:
    """Neither a conversation without responses, nor an item, nor an approval of ada exists for bob."""
    conversation = await ada.conversations.create()
    mine = await ada.responses.create(model='careful', input='write')
    asked: Any = {'type': 'mcp_approval_response', 'approval_request_id': mine.output[1].id, 'approve': True}
    item: Any = [{'type': 'item_reference', 'id': mine.output[0].id}, {'role': 'user', 'content': 'Hi'}]
    for options in ({'input': [asked]}, {'input': item}, {'input': 'Hi', 'conversation': conversation.id}):
        with pytest.raises(openai.NotFoundError):
            await bob.responses.create(model='careful', **options)  # type: ignore[call-overload]
    with pytest.raises(openai.NotFoundError):
        await bob.conversations.retrieve(conversation.id)
