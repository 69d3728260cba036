"""The official clients of OpenAI, Anthropic and Google against the server on loopback."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import anthropic
import anyio
import anyio.lowlevel
import google.genai as genai
import httpx
import openai
import pytest
from google.genai import errors as google_errors
from google.genai import types as google_types
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import create_deep_agent
from pydantic_deep.testing import ScriptedModel, call

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@dataclass
class Reply:
    """The response as seen by a client."""

    text: str
    finish: str
    calls: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list[tuple[str, str, dict[str, Any]]])
    """The id, name and arguments of each call."""
    tokens: tuple[int, int] = (0, 0)


@dataclass
class Chat:
    """A client of one API and its history."""

    base_url: str
    key: str
    model: str = 'writer'
    streamed: bool = False
    history: list[Any] = field(default_factory=list[Any])
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    """Further arguments of each request; for Google, the fields of its `config`."""

    async def say(self, text: str) -> Reply:
        """Send a user message."""
        self.history.append(self.user(text))
        return await self.ask()

    async def decide(self, id: str, text: str) -> Reply:
        """Send a decision for an approval."""
        self.history.append(self.result(id, text))
        return await self.ask()

    def user(self, text: str) -> Any:
        return {'role': 'user', 'content': text}

    def result(self, id: str, text: str, name: str = 'approval_required') -> Any:
        raise NotImplementedError

    async def ask(self) -> Reply:
        raise NotImplementedError


class OpenaiChat(Chat):
    """A client based on the package `openai`."""

    def result(self, id: str, text: str, name: str = 'approval_required') -> Any:
        return {'role': 'tool', 'tool_call_id': id, 'content': text}

    async def ask(self) -> Reply:
        async with openai.AsyncOpenAI(api_key=self.key, base_url=f'{self.base_url}/v1', max_retries=0) as client:
            completions: Any = client.chat.completions  # the type of the options is open
            if self.streamed:
                async with completions.stream(
                    model=self.model, messages=self.history, stream_options={'include_usage': True}, **self.options
                ) as stream:
                    done = await stream.get_final_completion()
            else:
                done = await completions.create(model=self.model, messages=self.history, **self.options)
        message, finish = done.choices[0].message, done.choices[0].finish_reason
        self.history.append(message.model_dump(exclude_none=True, exclude={'parsed'}))
        called: list[Any] = message.tool_calls or []
        calls = [(each.id, each.function.name, _json(each.function.arguments)) for each in called]
        assert done.usage is not None
        return Reply(message.content or '', finish, calls, (done.usage.prompt_tokens, done.usage.completion_tokens))


class AnthropicChat(Chat):
    """A client based on the package `anthropic`."""

    def result(self, id: str, text: str, name: str = 'approval_required') -> Any:
        return {'role': 'user', 'content': [{'type': 'tool_result', 'tool_use_id': id, 'content': text}]}

    async def ask(self) -> Reply:
        async with anthropic.AsyncAnthropic(api_key=self.key, base_url=self.base_url, max_retries=0) as client:
            messages: Any = client.messages
            if self.streamed:
                async with messages.stream(
                    model=self.model, max_tokens=99, messages=self.history, **self.options
                ) as stream:
                    done = await stream.get_final_message()
            else:
                done = await messages.create(model=self.model, max_tokens=99, messages=self.history, **self.options)
        self.history.append({'role': 'assistant', 'content': [block.model_dump() for block in done.content]})
        text = ''.join(block.text for block in done.content if block.type == 'text')
        calls = [(block.id, block.name, block.input) for block in done.content if block.type == 'tool_use']
        return Reply(text, done.stop_reason, calls, (done.usage.input_tokens, done.usage.output_tokens))


class GoogleChat(Chat):
    """A client based on the package `google-genai`."""

    def user(self, text: str) -> Any:
        return google_types.Content(role='user', parts=[google_types.Part(text=text)])

    def result(self, id: str, text: str, name: str = 'approval_required') -> Any:
        answer = google_types.FunctionResponse(id=id, name=name, response={'result': text})
        return google_types.Content(role='user', parts=[google_types.Part(function_response=answer)])

    async def ask(self) -> Reply:
        options = google_types.HttpOptions(base_url=self.base_url)
        async with genai.Client(api_key=self.key, http_options=options).aio as client:
            models: Any = client.models  # its types name some that are not installed
            asked: dict[str, Any] = {'model': self.model, 'contents': self.history, 'config': self.options or None}
            if self.streamed:
                chunks: list[google_types.GenerateContentResponse] = [
                    chunk async for chunk in await models.generate_content_stream(**asked)
                ]
            else:
                chunks = [await models.generate_content(**asked)]
        candidates = [each for chunk in chunks for each in chunk.candidates or []]
        parts = [part for each in candidates if each.content for part in each.content.parts or []]
        self.history.append(google_types.Content(role='model', parts=parts))
        text = ''.join(part.text or '' for part in parts)
        found = [part.function_call for part in parts if part.function_call]
        calls = [(each.id or '', each.name or '', each.args or {}) for each in found]
        finish, usage = candidates[-1].finish_reason, chunks[-1].usage_metadata
        assert finish is not None
        assert usage is not None
        return Reply(text, finish.value, calls, (usage.prompt_token_count or 0, usage.candidates_token_count or 0))


def _json(text: str) -> dict[str, Any]:
    return httpx.Response(200, text=text).json()


def answer(messages: Sequence[ModelMessage], info: AgentInfo) -> list[Any] | str:
    """Script of the agents: write a file on `write`, read it on `read`, raise on `fail`, and echo anything else."""
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    returned = [part for part in last.parts if isinstance(part, ToolReturnPart)]
    if returned:
        return f'It says: {returned[-1].model_response_str()}'
    said = [str(part.content) for part in last.parts if isinstance(part, UserPromptPart)]
    if 'write' in said[-1]:
        return ['I write.', call('write_file', path='/a.txt', content='Hello')]
    if 'read' in said[-1]:
        return [call('read_file', path='/a.txt')]
    if 'fail' in said[-1]:
        raise ValueError('the inside of the server')
    return f'You said: {said[-1]}, after {len(messages) - 1} messages.'


@pytest.fixture
def agents() -> dict[str, Any]:
    model = ScriptedModel(then=answer)
    return {
        'writer': create_deep_agent(model),
        'careful': create_deep_agent(model, interrupt_on={'write_file': True}),
    }


@dataclass(frozen=True)
class Live:
    """The application served on loopback."""

    url: str
    served: Any


@pytest.fixture
async def live(served: Any, listen: Any) -> AsyncGenerator[Live]:
    """Serve the application on a loopback port."""
    async with listen(served.app) as url:
        yield Live(url, served)


MakeChat = Callable[..., Awaitable[Chat]]


@pytest.fixture(params=[False, True], ids=['whole', 'streamed'])
def streamed(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture(params=[OpenaiChat, AnthropicChat, GoogleChat], ids=['openai', 'anthropic', 'google'])
async def make_chat(request: pytest.FixtureRequest, live: Any, streamed: bool) -> MakeChat:
    """Return a function that creates a client with a key of the scopes `run` and `approve`."""

    async def make(model: str = 'writer', *, key: str | None = None, owner: str = 'ada') -> Chat:
        key = await live.served.key('run', 'approve', owner=owner) if key is None else key
        return request.param(live.url, key, model, streamed)

    return make


async def test_client_uses_an_agent_as_a_model(make_chat: MakeChat) -> None:
    """004-12, 004-27: text, finish reason and usage."""
    reply = await (await make_chat()).say('Hi')

    assert reply.text == 'You said: Hi, after 0 messages.'
    assert reply.finish.lower() in ('stop', 'end_turn')
    assert reply.calls == []
    assert reply.tokens[0] > 0
    assert reply.tokens[1] > 0


async def test_conversation_continues_with_its_files(make_chat: MakeChat, live: Live) -> None:
    """A client that sends only text finds the files of earlier turns, because all turns belong to one conversation."""
    chat = await make_chat()
    wrote = await chat.say('Please write')
    read = await chat.say('Now read')

    assert wrote.text.startswith('I write.\n\nIt says: Created /a.txt')
    assert 'Hello' in read.text
    assert len(await live.served.store.conversations()) == 1


async def test_tool_activity_is_hidden(make_chat: MakeChat) -> None:
    """004-22: clients receive only text."""
    reply = await (await make_chat()).say('Please write')

    assert reply.calls == []
    assert 'write_file' not in reply.text


async def test_edited_history_creates_a_branch(make_chat: MakeChat, live: Live) -> None:
    chat = await make_chat()
    await chat.say('One')
    kept = list(chat.history)
    two = await chat.say('Two')
    chat.history[:] = kept
    other = await chat.say('Two, otherwise')

    assert two.text == 'You said: Two, after 2 messages.'
    assert other.text == 'You said: Two, otherwise, after 2 messages.'
    (conversation,) = await live.served.store.conversations()
    assert len(await live.served.store.branches(conversation.id)) == 2


async def test_foreign_history_is_given_to_the_agent_as_text(make_chat: MakeChat, live: Live) -> None:
    chat = await make_chat()
    other = await make_chat()
    await chat.say('One')
    other.history[:] = chat.history[:1]
    other.history.append(chat.history[1])
    other.key = await live.served.key('run', owner='bob')
    reply = await other.say('Two')

    assert reply.text == 'You said: Two, after 2 messages.'
    assert len(await live.served.store.conversations()) == 2


async def test_approval_is_a_tool_call_and_its_result_the_decision(make_chat: MakeChat) -> None:
    chat = await make_chat('careful')
    asked = await chat.say('Please write')

    assert asked.text == 'I write.'
    assert asked.finish.lower() in ('tool_calls', 'tool_use', 'stop')
    ((id, name, arguments),) = asked.calls
    assert name == 'approval_required'
    assert arguments['approval_id'] == id
    assert (arguments['tool'], arguments['arguments']) == ('write_file', {'path': '/a.txt', 'content': 'Hello'})
    [hunk] = arguments['view']['preview']['diff']['hunks']
    assert [(line['kind'], line['text']) for line in hunk['lines']] == [('added', ['Hello'])]

    answered = await chat.decide(id, 'approve')
    assert answered.text.startswith('It says: Created /a.txt')
    assert 'Hello' in (await chat.say('Now read')).text


async def test_a_call_that_is_denied_does_not_run(make_chat: MakeChat) -> None:
    chat = await make_chat('careful')
    ((id, _, _),) = (await chat.say('Please write')).calls
    answered = await chat.decide(id, 'deny: not today')

    assert answered.text == 'It says: not today'
    assert 'Hello' not in (await chat.say('Now read')).text


ERRORS = (openai.APIError, anthropic.APIError, google_errors.APIError)


def status_of(error: BaseException) -> int | None:
    return getattr(error, 'status_code', None) or getattr(error, 'code', None)


async def test_an_approval_is_answered_once(make_chat: MakeChat) -> None:
    chat = await make_chat('careful')
    ((id, _, _),) = (await chat.say('Please write')).calls
    again = list(chat.history)
    first = await chat.decide(id, 'approve')
    chat.history[:] = again
    assert await chat.decide(id, 'approve') == first  # a retry after a lost connection runs nothing again
    chat.history[:] = again

    with pytest.raises(ERRORS) as caught:
        await chat.decide(id, 'deny')
    assert status_of(caught.value) == 409


async def test_prompt_while_a_call_is_pending_is_answered_with_the_call(make_chat: MakeChat) -> None:
    chat = await make_chat('careful')
    await chat.say('Please write')

    with pytest.raises(ERRORS) as caught:
        await chat.say('And now?')
    assert status_of(caught.value) == 409


async def test_approval_of_another_owner_cannot_be_answered(make_chat: MakeChat, live: Live) -> None:
    chat = await make_chat('careful')
    ((id, _, _),) = (await chat.say('Please write')).calls
    for key, status in (
        (await live.served.key('run', 'approve', owner='bob'), 404),
        (await live.served.key('run', owner='ada'), 403),
    ):
        chat.key = key
        with pytest.raises(ERRORS) as caught:
            await chat.decide(id, 'approve')
        chat.history.pop()
        assert status_of(caught.value) == status


async def test_wrong_key_and_unknown_model_are_errors_of_the_api(make_chat: MakeChat) -> None:
    nobody = await make_chat(key='pd_none')
    with pytest.raises(ERRORS) as caught:
        await nobody.say('Hi')
    assert status_of(caught.value) == 401

    with pytest.raises(ERRORS) as caught:
        await (await make_chat('gpt-5')).say('Hi')
    assert status_of(caught.value) == 404


async def test_failed_run_is_an_error_of_the_api(make_chat: MakeChat) -> None:
    """A failed run must not end with a normal finish reason."""
    with pytest.raises(ERRORS) as caught:
        await (await make_chat()).say('Please fail')
    assert status_of(caught.value) == 500
    assert 'inside of the server' not in str(caught.value)


async def test_run_continues_after_the_client_disconnects(make_chat: MakeChat, live: Live) -> None:
    """The run completes, and another client with the full answer continues the conversation."""
    chat = await make_chat()
    headers = {'authorization': f'Bearer {chat.key}'}
    async with httpx.AsyncClient(base_url=live.url, headers=headers, timeout=60) as client:
        body: dict[str, Any] = {
            'model': 'writer',
            'stream': True,
            'messages': [{'role': 'user', 'content': 'Please write'}],
        }
        async with client.stream('POST', '/v1/chat/completions', json=body) as response:
            await anext(response.aiter_raw())
    (run,) = live.served.state.runs.runs_of('ada')
    await run.wait()
    while await live.served.state.threads.count() == 0:
        await anyio.lowlevel.checkpoint()

    said = 'I write.\n\nIt says: Created /a.txt: 1 line, 5 bytes.'
    messages: list[Any] = [
        *body['messages'],
        {'role': 'assistant', 'content': said},
        {'role': 'user', 'content': 'Now read'},
    ]
    async with openai.AsyncOpenAI(api_key=chat.key, base_url=f'{live.url}/v1') as other:
        done: Any = await other.chat.completions.create(model='writer', messages=messages)
    assert run.state == 'complete'
    assert 'Hello' in done.choices[0].message.content


async def test_agents_are_listed_as_models(live: Live) -> None:
    key = await live.served.key('run', agents=['writer'])
    async with openai.AsyncOpenAI(api_key=key, base_url=f'{live.url}/v1') as client:
        assert [each.id async for each in client.models.list()] == ['writer']
        assert (await client.models.retrieve('writer')).owned_by == 'pydantic-deep'
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve('careful')
    for version in ('v1', 'v1beta'):
        options = google_types.HttpOptions(base_url=live.url, api_version=version)
        async with genai.Client(api_key=key, http_options=options).aio as client:
            assert [each.name async for each in await client.models.list()] == ['models/writer']
            assert (await client.models.get(model='writer')).display_name == 'writer'
    async with anthropic.AsyncAnthropic(api_key=key, base_url=live.url) as client:
        assert [(each.type, each.display_name) async for each in client.models.list()] == [('model', 'writer')]
        assert (await client.models.retrieve('writer')).created_at.year == 2026


async def test_deleted_conversation_is_rebuilt_from_the_request(make_chat: MakeChat, live: Live) -> None:
    chat = await make_chat()
    await chat.say('One')
    (conversation,) = await live.served.store.conversations()
    for version in await live.served.store.versions():
        await live.served.store.delete(version.id)

    assert (await chat.say('Two')).text == 'You said: Two, after 2 messages.'
    assert [each.id for each in await live.served.store.conversations()] != [conversation.id]
