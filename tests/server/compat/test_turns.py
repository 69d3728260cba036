"""Turns of the compatible APIs without an official client: keep-alives, failures and structured output."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import anthropic
import anyio
import httpx
import openai
import pytest
from pydantic import BaseModel
from pydantic_ai import ToolOutput
from pydantic_ai.messages import ModelMessage, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from starlette.responses import StreamingResponse

from pydantic_deep import create_deep_agent
from pydantic_deep.server import ServerSettings
from pydantic_deep.server.compat._dialogue import Dialogue
from pydantic_deep.server.compat._turns import CompatTurn, _until_first_content  # pyright: ignore[reportPrivateUsage] - silence cannot be timed from outside
from pydantic_deep.server.http._errors import NO_RETRY, ServerError
from pydantic_deep.server.runs._run_log import LogDiscardedError, RunLog
from pydantic_deep.streaming import (
    OpenaiEncoder,
    StartEvent,
    StreamEvent,
    TextEvent,
    encode_entry,
    openai_completion,
)
from pydantic_deep.testing import ScriptedModel, call

pytestmark = pytest.mark.anyio


class Sum(BaseModel):
    """A structured output."""

    value: int


def body(agent: str, *said: str, stream: bool = True) -> dict[str, Any]:
    roles = ('user', 'assistant')
    messages = [{'role': roles[place % 2], 'content': text} for place, text in enumerate(said)]
    return {'model': agent, 'stream': stream, 'messages': messages}


async def ask(client: httpx.AsyncClient, body: dict[str, Any]) -> httpx.Response:
    return await client.post('/v1/chat/completions', json=body)


def text_of(stream: str) -> str:
    lines = [line.removeprefix('data: ') for line in stream.splitlines() if line.startswith('data: {')]
    deltas = [choice['delta'] for line in lines for choice in json.loads(line)['choices']]
    return ''.join(delta.get('content') or '' for delta in deltas)


@pytest.mark.parametrize('worker', [True, False], ids=['here', 'workers'])
async def test_refused_request_leaves_no_conversation(serve: Any, gate: Any, worker: bool) -> None:
    """A blank prompt and too many runs are refused after the conversation was created."""
    settings = ServerSettings(requests_per_second=1000, request_burst=1000, max_runs_per_key=1, worker=worker)
    agent = create_deep_agent(ScriptedModel(call('hold'), 'Done.'), tools=[gate.hold])
    async with serve({'slow': agent}, settings) as served, served.client(await served.key('run')) as client:
        blank = await client.post('/v1/responses', json={'model': 'slow', 'input': ' '})
        begun = await client.post('/v1/responses', json={'model': 'slow', 'input': 'Go', 'background': True})
        busy = await ask(client, body('slow', 'Hi', 'Hello.', 'Go', stream=False))
        refused = await client.post('/v1/responses', json={'model': 'slow', 'input': 'Another'})
        conversations = (await client.get('/api/conversations')).json()['items']
        gate.opened.set()

        assert [response.status_code for response in (blank, begun, busy, refused)] == [400, 200, 429, 429]
        assert [conversation['name'] for conversation in conversations] == ['Go']
        assert await served.state.openai_objects.count() == 1


async def test_results_and_a_prompt_beyond_the_limit_change_nothing(serve: Any, gate: Any) -> None:
    """The results are no version before the turn can start, so that a later request with them moves the head."""
    settings = ServerSettings(requests_per_second=1000, request_burst=1000, max_runs_per_key=1)
    agent = create_deep_agent(ScriptedModel(call('look'), call('hold'), 'Held.', 'Done.'), tools=[gate.hold])
    async with serve({'slow': agent}, settings) as served, served.client(await served.key('run')) as client:
        tools = [{'type': 'function', 'name': 'look'}]
        paused = (await client.post('/v1/responses', json={'model': 'slow', 'input': 'Hi', 'tools': tools})).json()
        await client.post('/v1/responses', json={'model': 'slow', 'input': 'Hold', 'background': True})
        await gate.reached.wait()
        before = {version.id for version in await served.store.versions()}
        result = {'type': 'function_call_output', 'call_id': paused['output'][0]['call_id'], 'output': 'x'}
        sent = {'model': 'slow', 'input': [result, {'role': 'user', 'content': 'And now?'}]}
        refused = await client.post('/v1/responses', json=sent)

        assert refused.status_code == 429
        assert {version.id for version in await served.store.versions()} == before
        gate.opened.set()


async def test_structured_output_is_text_and_can_be_continued(serve: Any) -> None:
    answer = call('final_result', value=3)
    agent = create_deep_agent(ScriptedModel(answer, answer), output_type=ToolOutput(Sum))
    async with serve({'adder': agent}) as served, served.client(await served.key('run')) as client:
        told = text_of((await ask(client, body('adder', '1 + 2?'))).text)
        again = await ask(client, body('adder', '1 + 2?', told, 'And now?', stream=False))

        assert json.loads(told) == {'value': 3}
        assert again.status_code == 200
        assert len(await served.store.conversations()) == 1


async def test_silent_run_sends_blank_lines(serve: Any, gate: Any, listen: Any) -> None:
    """The client of Google treats each line that is not data as an error, so comments cannot serve as keep-alives."""
    then = ScriptedModel(['Begun.', call('hold')], 'Done.')
    settings = ServerSettings(keepalive_seconds=0.01)
    async with (
        serve({'slow': create_deep_agent(then, tools=[gate.hold])}, settings) as served,
        listen(served.app) as url,
    ):
        key = {'authorization': f'Bearer {await served.key("run")}'}
        async with (
            httpx.AsyncClient(base_url=url, headers=key, timeout=60) as client,
            client.stream('POST', '/v1/chat/completions', json=body('slow', 'Go')) as response,
        ):
            text = ''
            async for chunk in response.aiter_text():
                text += chunk
                if '\n\n\n' in text:
                    gate.opened.set()

    assert text_of(text) == 'Begun.\n\nDone.'
    assert text.endswith('data: [DONE]\n\n')


async def test_long_tool_call_sends_blank_lines(serve: Any, gate: Any, listen: Any) -> None:
    async def write(messages: list[ModelMessage], info: AgentInfo) -> AsyncGenerator[str | DeltaToolCalls]:
        if any(isinstance(part, ToolReturnPart) for message in messages for part in message.parts):
            yield 'Done.'
            return
        yield 'Begun.'
        yield {0: DeltaToolCall('hold', '{"text": "')}
        while not gate.opened.is_set():
            await anyio.sleep(0.01)
            yield {0: DeltaToolCall(json_args='x')}
        yield {0: DeltaToolCall(json_args='"}')}

    async def hold(text: str) -> str:
        return 'held'

    agent = create_deep_agent(FunctionModel(stream_function=write), tools=[hold])
    async with serve({'slow': agent}, ServerSettings(keepalive_seconds=0.2)) as served, listen(served.app) as url:
        key = {'authorization': f'Bearer {await served.key("run")}'}
        async with (
            httpx.AsyncClient(base_url=url, headers=key, timeout=20) as client,
            client.stream('POST', '/v1/chat/completions', json=body('slow', 'Go')) as response,
        ):
            text = ''
            async for chunk in response.aiter_text():
                text += chunk
                if '\n\n\n' in text:
                    gate.opened.set()

    assert text_of(text) == 'Begun.\n\nDone.'


async def test_silent_model_sends_blank_lines(serve: Any, gate: Any, listen: Any) -> None:
    """A model may think for minutes before it writes anything. Then the client and proxies must get something."""

    async def write(messages: list[ModelMessage], info: AgentInfo) -> AsyncGenerator[str]:
        await gate.opened.wait()
        yield 'Done.'

    agent = create_deep_agent(FunctionModel(stream_function=write))
    async with serve({'slow': agent}, ServerSettings(keepalive_seconds=0.01)) as served, listen(served.app) as url:
        key = {'authorization': f'Bearer {await served.key("run")}'}
        async with (
            httpx.AsyncClient(base_url=url, headers=key, timeout=20) as client,
            client.stream('POST', '/v1/chat/completions', json=body('slow', 'Go')) as response,
        ):
            text = ''
            async for chunk in response.aiter_text():
                text += chunk
                gate.opened.set()

    assert text_of(text) == 'Done.'


async def test_failure_before_the_first_text_is_an_http_error_in_streams(serve: Any, gate: Any) -> None:
    def fail(messages: Sequence[ModelMessage], info: AgentInfo) -> str:
        raise ValueError('inside')

    async with serve({'broken': create_deep_agent(ScriptedModel(then=fail))}) as served:
        response = await ask(served.client(await served.key('run')), body('broken', 'Go'))

    assert response.status_code == 500
    assert response.headers['content-type'] == 'application/json'
    assert 'inside' not in response.text


@pytest.mark.slow
async def test_clients_do_not_retry_failed_runs(serve: Any, listen: Any) -> None:
    asked: list[int] = []

    def fail(messages: Sequence[ModelMessage], info: AgentInfo) -> str:
        asked.append(len(messages))
        raise ValueError('inside')

    async with serve({'broken': create_deep_agent(ScriptedModel(then=fail))}) as served, listen(served.app) as url:
        key = await served.key('run')
        words: list[Any] = [{'role': 'user', 'content': 'Go'}]
        async with openai.AsyncOpenAI(api_key=key, base_url=f'{url}/v1') as client:
            with pytest.raises(openai.InternalServerError):
                await client.chat.completions.create(model='broken', messages=words)
        async with anthropic.AsyncAnthropic(api_key=key, base_url=url) as client:
            with pytest.raises(anthropic.InternalServerError):
                await client.messages.create(model='broken', messages=words, max_tokens=9)

        assert len(asked) == 2
        assert len(await served.store.conversations()) == 2


async def test_repeated_request_during_its_run_joins_it(serve: Any, gate: Any, listen: Any) -> None:
    agent = create_deep_agent(ScriptedModel('Hello.', [call('hold')], 'Done.'), tools=[gate.hold])
    texts: list[str | None] = []
    async with (
        serve({'slow': agent}) as served,
        listen(served.app) as url,
        openai.AsyncOpenAI(api_key=await served.key('run'), base_url=f'{url}/v1') as client,
    ):

        async def say(*said: str) -> None:
            words: list[Any] = body('slow', *said)['messages']
            answer = await client.chat.completions.create(model='slow', messages=words)
            texts.append(answer.choices[0].message.content)

        await say('Hi')
        async with anyio.create_task_group() as group:
            group.start_soon(say, 'Hi', 'Hello.', 'Go')
            await gate.reached.wait()
            group.start_soon(say, 'Hi', 'Hello.', 'Go')
            await anyio.wait_all_tasks_blocked()
            gate.opened.set()
        assert len(await served.store.runs()) == 2

    assert texts == ['Hello.', 'Done.', 'Done.']


async def test_requests_that_continue_one_history_at_the_same_time_are_branches(serve: Any, gate: Any) -> None:
    agent = create_deep_agent(ScriptedModel('Hello.', [call('hold')], 'Other.', 'Done.'), tools=[gate.hold])
    texts: list[str] = []
    async with serve({'slow': agent}) as served, served.client(await served.key('run')) as client:

        async def say(*said: str) -> None:
            answer = await ask(client, body('slow', *said, stream=False))
            texts.append(answer.json()['choices'][0]['message']['content'])

        await say('Hi')
        async with anyio.create_task_group() as group:
            group.start_soon(say, 'Hi', 'Hello.', 'Go')
            await gate.reached.wait()
            await say('Hi', 'Hello.', 'Another')
            gate.opened.set()
        (conversation,) = await served.store.conversations()
        assert len(await served.store.branches(conversation.id)) == 2

    assert texts == ['Hello.', 'Other.', 'Done.']


async def test_request_with_the_same_key_joins_an_ended_run(served: Any) -> None:
    """Another request with the key of an earlier one would get the answer to that, so it is refused."""
    async with served.client(await served.key('run')) as client:

        async def say(text: str, key: str, agent: str = 'analyst') -> str:
            sent = body(agent, text, stream=False)
            answer = (await client.post('/v1/chat/completions', json=sent, headers={'idempotency-key': key})).json()
            return answer['choices'][0]['message']['content'] if 'choices' in answer else answer['error']['message']

        assert [await say('One', 'a'), await say('One', 'a'), await say('Two', 'b')] == [
            'You said: One',
            'You said: One',
            'You said: Two',
        ]
        assert await say('Two', 'a') == (
            'The `Idempotency-Key` belongs to an earlier request with another body. Choose a new key.'
        )
        assert len(await served.store.runs()) == 2
        assert await say('Two', 'a', 'writer') == 'You said: Two'
        served.state.runs.clear_logs()
        assert await say('Three', 'a') == 'You said: Three'


async def test_failure_during_a_stream_is_sent_as_an_error(serve: Any) -> None:
    def fail(messages: Sequence[ModelMessage], info: AgentInfo) -> Any:
        if len(messages) > 1:
            raise ValueError('inside')
        return ['Words.', call('ls')]

    async with serve({'broken': create_deep_agent(ScriptedModel(then=fail))}) as served:
        response = await ask(served.client(await served.key('run')), body('broken', 'Go'))
        count = await served.state.threads.count()

    assert response.status_code == 200
    assert '"error"' in response.text
    assert '[DONE]' not in response.text
    assert count == 0


async def test_discarded_log_is_an_error(served: Any) -> None:
    secret = await served.key('run')
    async with served.client(secret) as client:
        await ask(client, body('analyst', 'Hi'))
    (run,) = served.state.runs.runs_of('ada')
    run.log.discard()
    asked = Dialogue(prompt=('Hi',))
    access = await served.access(secret)
    turn = CompatTurn(access=access, agent_name='analyst', request=asked, run=run)

    with pytest.raises(ServerError, match=f'GET /v1/responses/resp_{run.id}') as refused:
        await turn.respond(openai_completion)
    streamed = await turn.stream(OpenaiEncoder(), openai_completion)

    assert (refused.value.status_code, refused.value.headers) == (503, NO_RETRY)
    assert isinstance(streamed, StreamingResponse)
    assert '"error"' in ''.join([str(chunk) async for chunk in streamed.body_iterator])


async def test_the_answer_of_a_crashed_worker_is_that_of_the_next_one(served: Any) -> None:
    """A request without a stream waits for the worker that takes over, and gets its answer only."""
    secret = await served.key('run')
    async with served.client(secret) as client:
        await ask(client, body('analyst', 'Hi'))
    (run,) = served.state.runs.runs_of('ada')
    complete = run.log

    class CrashingLog(RunLog):
        """A log that another one replaces while it is read."""

        async def batches(
            self, after: int = 0, *, idle_seconds: float | None = None
        ) -> AsyncGenerator[list[tuple[int, bytes]]]:
            yield [(1, encode_entry(StartEvent(id=run.id))), (2, encode_entry(TextEvent(text='Half of')))]
            run.restart(complete)
            raise LogDiscardedError

    run.log = CrashingLog()
    access = await served.access(secret)
    turn = CompatTurn(access=access, agent_name='analyst', request=Dialogue(prompt=('Hi',)), run=run)
    answer = json.loads(bytes((await turn.respond(openai_completion)).body))

    assert answer['choices'][0]['message']['content'] == 'You said: Hi'


@pytest.mark.parametrize('content', [TextEvent(text='Hi'), None])
async def test_stream_starts_after_the_first_content_or_a_silence(content: StreamEvent | None) -> None:
    told = [StartEvent(), content, TextEvent(text=' there')]

    async def events() -> AsyncGenerator[StreamEvent | None]:
        for event in told:
            yield event

    assert [event async for event in _until_first_content(events())] == [StartEvent(), content]


async def test_decisions_for_several_responses_are_refused(serve: Any) -> None:
    write = [call('write_file', path='/a', content='a')]
    agent = create_deep_agent(ScriptedModel(write, write), interrupt_on={'write_file': True})
    async with serve({'careful': agent}) as served, served.client(await served.key('run', 'approve')) as client:
        ids: list[str] = []
        for said in ('One', 'Two'):
            answer = (await ask(client, body('careful', said, stream=False))).json()
            ids.append(answer['choices'][0]['message']['tool_calls'][0]['id'])
        messages: list[Any] = [
            {'role': 'user', 'content': 'One'},
            *({'role': 'tool', 'tool_call_id': id, 'content': 'approve'} for id in ids),
        ]
        sent: Any = {'model': 'careful', 'messages': [messages[0], {'role': 'assistant'}, *messages[1:]]}
        response = await client.post('/v1/chat/completions', json=sent)

        assert response.status_code == 400
        assert 'must belong to one response of this model' in response.text


async def test_google_streams_support_only_sse(served: Any) -> None:
    async with served.client(await served.key('run')) as client:
        sent = {'contents': [{'parts': [{'text': 'Hi'}]}]}
        response = await client.post('/v1beta/models/analyst:streamGenerateContent?alt=json', json=sent)

        assert (response.status_code, response.json()['error']['message']) == (
            400,
            "`alt` is 'json', but responses are streamed as server-sent events. Send `alt=sse`.",
        )


async def test_parts_of_a_prompt_remain_separate(served: Any) -> None:
    async with served.client(await served.key('run')) as client:
        content = [{'type': 'text', 'text': 'One'}, {'type': 'text', 'text': 'Two'}]
        sent = {'model': 'analyst', 'messages': [{'role': 'user', 'content': content}]}
        answer = (await client.post('/v1/chat/completions', json=sent)).json()

        assert answer['choices'][0]['message']['content'] == "You said: ['One', 'Two']"


async def test_null_options_are_treated_as_absent(served: Any) -> None:
    async with served.client(await served.key('run')) as client:
        sent = {**body('analyst', 'Hi'), 'stream': None, 'stream_options': {'include_usage': None}, 'stop': None}
        answer = (await ask(client, sent)).json()

        assert answer['choices'][0]['message']['content'] == 'You said: Hi'


async def test_repeated_decisions_return_the_stored_answer(serve: Any) -> None:
    write = [call('write_file', path='/a', content='a')]
    agent = create_deep_agent(ScriptedModel(write, 'Written.'), interrupt_on={'write_file': True})
    async with serve({'careful': agent}) as served, served.client(await served.key('run', 'approve')) as client:
        said = body('careful', 'Write', stream=False)
        waits = (await ask(client, said)).json()['choices'][0]['message']
        result = {'role': 'tool', 'tool_call_id': waits['tool_calls'][0]['id'], 'content': 'approve'}
        decided = {**said, 'messages': [*said['messages'], waits, result]}
        answers = [(await ask(client, {**decided, 'stream': stream})) for stream in (False, False, True)]
        result['content'] = 'deny'
        other = await ask(client, decided)
        result['content'] = 'approve'
        served.state.runs.clear_logs()
        forgotten = await ask(client, decided)

        assert [answer.json()['choices'][0]['message']['content'] for answer in answers[:2]] == ['Written.'] * 2
        assert text_of(answers[2].text) == 'Written.'
        assert len(await served.store.runs()) == 2
        assert (other.status_code, forgotten.status_code) == (409, 409)


@pytest.mark.slow
async def test_changed_system_text_is_sent_to_the_agent(served: Any) -> None:
    async with served.client(await served.key('run')) as client:

        async def say(system: str, *said: str) -> str:
            asked = body('analyst', *said, stream=False)
            asked['messages'].insert(0, {'role': 'system', 'content': system})
            return (await ask(client, asked)).json()['choices'][0]['message']['content']

        first = await say('It is 12:01.', 'Hi')
        same = await say('It is 12:01.', 'Hi', first, 'More')
        other = await say('It is 12:02.', 'Hi', first, 'More')

    assert same == 'You said: More'
    assert other == "You said: ['The instructions of this conversation are from now on:\\n\\nIt is 12:02.', 'More']"
    assert len(await served.store.conversations()) == 1


async def test_users_of_one_key_have_separate_conversations(served: Any) -> None:
    async with served.client(await served.key('run')) as client:
        for user in ('ben', 'eva'):
            first = (await ask(client, body('analyst', 'Hi', stream=False) | {'user': user})).json()
            said = first['choices'][0]['message']['content']
            await ask(client, body('analyst', 'Hi', said, 'More', stream=False) | {'user': user})

    conversations = await served.store.conversations()
    assert [len(await served.store.branches(each.id)) for each in conversations] == [1, 1]
