"""Answers by a schema as official clients of four APIs receive them: streamed while the model writes them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anthropic
import anyio
import google.genai as genai
import openai
import pytest
from google.genai import errors as google_errors
from google.genai import types as google_types
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.profiles import ModelProfile

from pydantic_deep import create_deep_agent
from tests.server.conftest import Listen, Served

pytestmark = pytest.mark.anyio

SCHEMA: dict[str, Any] = {
    'type': 'object',
    'properties': {
        'city': {'type': 'string'},
        'degrees': {'type': 'integer', 'maximum': 60},
        'notes': {'type': 'array', 'maxItems': 1},
    },
    'required': ['city', 'degrees'],
    'additionalProperties': False,
}
VALID = '{"city": "Rome", "degrees": 40}'
ANSWER = '{"city":"Rome","degrees":40}'
FAILURES = (openai.OpenAIError, anthropic.APIError, google_errors.APIError)

Client = Callable[[str, str, str], AsyncIterator[str]]
"""Streams the text of an answer, given the URL of the server, a key, and a prompt."""


async def chat(url: str, key: str, prompt: str) -> AsyncIterator[str]:
    async with openai.AsyncOpenAI(api_key=key, base_url=f'{url}/v1', max_retries=0) as client:
        completions: Any = client.chat.completions  # the type of the options is open
        form = {'type': 'json_schema', 'json_schema': {'name': 'weather', 'schema': SCHEMA}}
        messages = [{'role': 'user', 'content': prompt}]
        async for chunk in await completions.create(
            model='clerk', messages=messages, stream=True, response_format=form
        ):
            yield chunk.choices[0].delta.content or ''


async def responses(url: str, key: str, prompt: str, reasoning: Any = openai.omit) -> AsyncIterator[str]:
    async with openai.AsyncOpenAI(api_key=key, base_url=f'{url}/v1', max_retries=0) as client:
        created: Any = client.responses
        form = {'format': {'type': 'json_schema', 'name': 'weather', 'schema': SCHEMA}}
        async with created.stream(model='clerk', input=prompt, text=form, reasoning=reasoning) as stream:
            async for event in stream:
                if event.type == 'response.failed':  # which the client does not raise
                    raise openai.OpenAIError(event.response.error.message)
                if event.type == 'response.output_text.delta':
                    yield event.delta
            assert (await stream.get_final_response()).output_text == ANSWER


async def messages(url: str, key: str, prompt: str) -> AsyncIterator[str]:
    async with anthropic.AsyncAnthropic(api_key=key, base_url=url, max_retries=0) as client:
        asked: Any = client.messages
        form = {'format': {'type': 'json_schema', 'schema': SCHEMA}}
        said = [{'role': 'user', 'content': prompt}]
        async with asked.stream(model='clerk', max_tokens=99, messages=said, output_config=form) as stream:
            async for text in stream.text_stream:
                yield text


async def contents(url: str, key: str, prompt: str) -> AsyncIterator[str]:
    async with genai.Client(api_key=key, http_options=google_types.HttpOptions(base_url=url)).aio as client:
        models: Any = client.models
        config = {'response_mime_type': 'application/json', 'response_json_schema': SCHEMA}
        async for chunk in await models.generate_content_stream(model='clerk', contents=prompt, config=config):
            yield chunk.text or ''


@pytest.fixture(params=[chat, responses, messages, contents], ids=['chat', 'responses', 'anthropic', 'google'])
def client(request: pytest.FixtureRequest) -> Client:
    return request.param


@dataclass
class Writer:
    """A model that writes its responses in pieces of five characters, and can be held after the first half of one."""

    responses: list[str]
    half: anyio.Event = field(default_factory=anyio.Event)
    is_tool: bool = True
    thought: str = ''

    async def write(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        """Write the next response."""
        text = self.responses.pop(0)
        if self.thought:
            yield {1: DeltaThinkingPart(content=self.thought, signature='c2ln')}
        for start in range(0, len(text), 5):
            if start > len(text) // 2:
                await self.half.wait()
            piece, name = text[start : start + 5], None if start else 'final_result'
            yield {0: DeltaToolCall(name=name, json_args=piece, tool_call_id='c')} if self.is_tool else piece


@pytest.fixture
def writer() -> Writer:
    return Writer([VALID])


@pytest.fixture
def agents(writer: Writer) -> dict[str, Any]:
    native = ModelProfile(supports_json_schema_output=True, default_structured_output_mode='native')
    profile = ModelProfile() if writer.is_tool else native
    return {'clerk': create_deep_agent(FunctionModel(stream_function=writer.write, profile=profile))}


@pytest.fixture
async def url(served: Served, listen: Listen) -> AsyncGenerator[str]:
    async with listen(served.app) as url:
        yield url


async def text_of(pieces: AsyncIterator[str]) -> str:
    return ''.join([piece async for piece in pieces])


async def test_answer_arrives_while_the_model_writes_it(
    client: Client, served: Served, url: str, writer: Writer
) -> None:
    """The model writes the second half only after the client has a part of the first half."""
    received = ''
    with anyio.fail_after(30):
        async for piece in client(url, await served.key('run'), 'Weather?'):
            received += piece
            if piece:
                writer.half.set()

    assert received == ANSWER


@pytest.mark.parametrize('responses', [[VALID], ['{"city": "Ro', VALID], ['{"city": "Rome", "degrees": 400}', VALID]])
@pytest.mark.parametrize('writer', [Writer([], is_tool=False)])
async def test_answer_that_is_written_without_a_tool_arrives_too(
    served: Served, url: str, writer: Writer, responses: list[str]
) -> None:
    writer.responses = [*responses]
    writer.half.set()
    pieces = [piece async for piece in chat(url, await served.key('run'), 'Weather?') if piece]

    assert ''.join(pieces) == ANSWER
    assert len(pieces) > 2


async def test_end_that_was_not_certain_follows_with_the_end_of_the_run(
    served: Served, url: str, writer: Writer
) -> None:
    """A long value with constraints is not parsed with each piece, so that its end may be known only afterwards."""
    writer.responses = [VALID.replace('}', f', "notes": ["{"x" * 42}"]}}')]
    writer.half.set()

    text = await text_of(chat(url, await served.key('run'), 'Weather?'))
    assert text == ANSWER.replace('}', f',"notes":["{"x" * 42}"]}}')


REJECTED = '{"city": "Rome", "degrees": 400}'


@pytest.mark.parametrize(
    ('client', 'rejected'),
    [
        *((each, REJECTED) for each in (chat, responses, messages, contents)),
        (chat, '{"city": "Rome"}'),
        (chat, '{"city": "Rome", '),
    ],
)
async def test_rejected_answer_does_not_reach_the_client(
    client: Client, served: Served, url: str, writer: Writer, rejected: str
) -> None:
    """The model repeats the valid part of an answer that is rejected, and the client receives each part once."""
    writer.responses.insert(0, rejected)
    writer.half.set()

    assert await text_of(client(url, await served.key('run'), 'Weather?')) == ANSWER


async def test_answer_that_contradicts_what_was_sent_is_an_error(
    client: Client, served: Served, url: str, writer: Writer
) -> None:
    """A client never has a text that is not the answer. The answer is stored, and the dialogue continues from it."""
    writer.responses.insert(0, '{"city": "Roma", "degrees": 400}')
    writer.half.set()
    received, key = list[str](), await served.key('run')

    async def receive() -> None:
        async for piece in client(url, key, 'Weather?'):
            received.append(piece)

    with pytest.raises(FAILURES, match='written its answer again'):
        await receive()
    assert ''.join(received) == '{"city":"Roma"'
    async with served.client(key) as own:
        [run] = (await own.get('/api/runs')).json()['items']
    assert run['output'] == ANSWER


async def test_thoughts_of_a_second_attempt_do_not_divide_the_answer(served: Served, url: str, writer: Writer) -> None:
    """A message item ends before a thought, and the rest of the answer would be another item."""
    writer.responses.insert(0, REJECTED)
    writer.thought = 'Hm.'
    writer.half.set()

    reasoning = partial(responses, reasoning={'summary': 'auto'})
    assert await text_of(reasoning(url, await served.key('run'), 'Weather?')) == ANSWER
