"""A long history is summarized once each time it exceeds the limit, and is otherwise sent unchanged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelContextWindowExceededError
from pydantic_ai.messages import (
    CompactionPart,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.usage import RequestUsage, UsageLimits

from pydantic_deep import DeepAgentDeps, create_deep_agent
from pydantic_deep._messages.summary_metadata import find_summary, is_summary
from pydantic_deep.summarization import Fraction, Messages, Summarization, Tokens
from pydantic_deep.testing import Answer, ScriptedModel, SeenRequest, call

pytestmark = pytest.mark.anyio

Split = Callable[[ScriptedModel], tuple[list[SeenRequest], list[SeenRequest]]]
Breaks = Callable[[Sequence[SeenRequest]], list[int]]
NO_LIMIT = UsageLimits(request_limit=None)


def working(steps: int) -> _Working:
    """Return a model that makes this many tool calls in each run, and writes summaries on request."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
        last = messages[-1].parts[-1]
        if isinstance(last, UserPromptPart) and 'Summarize' in str(last.content):
            return 'Facts: it works.'
        done = model.work_count
        model.work_count = (done + 1) % (steps + 1)
        part = call('work', n=done) if done < steps else TextPart('finished')
        return ModelResponse(parts=[part], usage=model.reported)

    model = _Working(then=answer, usage=RequestUsage())
    return model


class _Working(ScriptedModel):
    work_count = 0
    reported = RequestUsage()


@pytest.mark.slow
async def test_long_run_is_summarized_once_each_time_the_limit_is_exceeded(
    agent_of: Callable[..., Agent[Any, Any]], split: Split, breaks: Breaks, watch: Any
) -> None:
    model = working(100)
    summarization = Summarization(trigger=Tokens(3_000), keep=Tokens(800))
    result = await agent_of(model, summarization).run('go', usage_limits=NO_LIMIT, event_stream_handler=watch)
    requests, questions = split(model)
    assert result.output == 'finished'
    assert len(requests) == 101
    assert len(questions) == len(watch.events) == len(breaks(requests))
    assert 4 <= len(questions) <= 8
    for event in watch.events:
        assert event.tokens_before > 3_000
        assert event.tokens_after < 1_500
        assert (event.reason, event.is_plain, event.error) == ('tokens', False, None)


async def test_search_history_is_offered_only_after_a_summary(
    agent_of: Callable[..., Agent[Any, Any]], split: Split
) -> None:
    """The request for the first summary has the tools of the requests before it, so its prefix is cached."""
    model = working(30)
    await agent_of(model, Summarization(trigger=Messages(20), keep=Messages(6))).run('go')
    first_summary = model.requests.index(split(model)[1][0])
    before, after = model.requests[: first_summary + 1], model.requests[first_summary + 1 :]
    assert {tuple(request.tool_names) for request in before} == {('work',)}
    assert {tuple(request.tool_names) for request in after} == {('work', 'search_history')}


async def test_search_history_is_not_announced_by_a_message(agent_of: Callable[..., Agent[Any, Any]]) -> None:
    result = await agent_of(working(30), Summarization(trigger=Messages(20), keep=Messages(6))).run('go')
    assert 'tool-availability-delta' not in {
        part.part_kind for message in result.all_messages() for part in message.parts
    }


async def test_request_after_an_overflow_offers_search_history(agent_of: Callable[..., Agent[Any, Any]]) -> None:
    too_long = ModelContextWindowExceededError('scripted', 'too long')
    model = ScriptedModel(*(call('work') for _ in range(4)), too_long, 'A summary.', 'done')
    await agent_of(model, Summarization(trigger=(), keep=Messages(2))).run('go')
    rejected, _, repeated = model.requests[-3:]
    assert (rejected.tool_names, repeated.tool_names) == (['work'], ['work', 'search_history'])


@pytest.mark.parametrize('as_json', [False, True])
async def test_next_run_does_not_repeat_the_summary(
    agent_of: Callable[..., Agent[Any, Any]], split: Split, breaks: Breaks, as_json: bool
) -> None:
    model = working(12)
    agent = agent_of(model, Summarization(trigger=Messages(20), keep=Messages(6)))
    history = (await agent.run('go')).all_messages()
    asked = len(split(model)[1])
    assert asked == 1
    if as_json:
        history = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(history))
    model.requests.clear()
    model.work_count = 12
    result = await agent.run('and now?', message_history=history)
    assert split(model)[1] == []
    assert sum(is_summary(part) for message in result.all_messages() for part in message.parts) == 1


async def test_oversized_tail_is_not_summarized_repeatedly(
    agent_of: Callable[..., Agent[Any, Any]], split: Split
) -> None:
    model = ScriptedModel(*(call('work') for _ in range(10)), 'done', usage=RequestUsage())
    summarization = Summarization(trigger=Tokens(500), keep=Messages(30))
    history: list[ModelMessage] = [
        *(ModelRequest(parts=[UserPromptPart('short')]), ModelResponse(parts=[call('work')])),
        ModelRequest(parts=[ToolReturnPart('work', 'x' * 40_000, tool_call_id='')]),
    ]
    result = await agent_of(model, summarization, text='y').run(message_history=history)
    assert result.output == 'done'
    assert split(model)[1] == []


async def test_oversized_head_causes_few_summaries(agent_of: Callable[..., Agent[Any, Any]], split: Split) -> None:
    model = working(40)
    summarization = Summarization(trigger=Tokens(1_000), keep=Tokens(200))
    await agent_of(model, summarization, instructions='i' * 8_000).run('go')
    # Instructions take 2,000 tokens and a step about 120, so about one step in five causes a summary.
    assert 4 <= len(split(model)[1]) <= 8


@pytest.mark.parametrize(('reported', 'asked'), [(1_000, True), (10, False)])
async def test_usage_reported_by_the_provider_counts(
    agent_of: Callable[..., Agent[Any, Any]], split: Split, reported: int, asked: bool
) -> None:
    model = working(4)
    model.reported = RequestUsage(input_tokens=reported, output_tokens=10)
    await agent_of(model, Summarization(trigger=Tokens(1_020), keep=Tokens(150))).run('go')
    assert bool(split(model)[1]) is asked


class Windowed(ScriptedModel):
    """A model with a context window."""

    window: int | None = None

    @property
    def context_window(self) -> int | None:
        return self.window


@pytest.mark.parametrize(('window', 'asked'), [(1_500, True), (None, False)])
async def test_fraction_is_relative_to_the_context_window_if_known(
    agent_of: Callable[..., Agent[Any, Any]], split: Split, watch: Any, window: int | None, asked: bool
) -> None:
    steps = [*(call('work') for _ in range(11)), 'Facts: none.', *(call('work') for _ in range(2)), 'done']
    model = Windowed(*(steps if asked else [*(call('work') for _ in range(13)), 'done']), usage=RequestUsage())
    model.window = window
    summarization = Summarization(trigger=[Messages(1_000), Fraction(0.7), Tokens(90_000)], keep=Messages(6))
    await agent_of(model, summarization).run('go', event_stream_handler=watch)
    assert bool(split(model)[1]) is asked
    assert [event.reason for event in watch.events] == (['fraction'] if asked else [])


@pytest.mark.slow
async def test_each_message_is_counted_once(agent_of: Callable[..., Agent[Any, Any]]) -> None:
    counted: list[str] = []

    def counter(text: str) -> int:
        counted.append(text)
        return len(text) // 4

    model = working(200)
    summarization = Summarization(trigger=Tokens(10_000_000), keep=Tokens(100), counter=counter)
    await agent_of(model, summarization, text='x').run('go', usage_limits=NO_LIMIT)
    # A prompt, and for each step the name and arguments of a call and its result. Instructions and tools are counted at
    # most twice per request.
    messages = 1 + 3 * 200
    heads = [text for text in counted if text in ('',) or text.startswith('[{')]
    assert len(counted) - len(heads) <= messages
    assert len(heads) <= 2 * 201


@pytest.mark.slow
async def test_messages_are_counted_once_across_summaries(agent_of: Callable[..., Agent[Any, Any]]) -> None:
    counted: list[str] = []

    def counter(text: str) -> int:
        counted.append(text)
        return len(text) // 4

    model = working(200)
    summarization = Summarization(trigger=Messages(60), keep=Messages(10), counter=counter)
    await agent_of(model, summarization, text='x').run('go', usage_limits=NO_LIMIT)
    results = [text for text in counted if text.endswith(': x')]
    # Once each, and once more for each of the 8 summaries that retain them.
    assert len(results) <= 200 + 2 * 8 * 10


async def test_retained_messages_are_the_same_objects_without_duplicates(
    agent_of: Callable[..., Agent[Any, Any]],
) -> None:
    model = working(40)
    result = await agent_of(model, Summarization(trigger=Messages(20), keep=Messages(6))).run('go')
    messages = result.all_messages()
    numbers = [part.args_as_dict()['n'] for each in messages for part in each.parts if isinstance(part, ToolCallPart)]
    assert numbers == list(range(numbers[0], 40))
    returned = [part.tool_call_id for each in messages for part in each.parts if isinstance(part, ToolReturnPart)]
    assert len(returned) == len(set(returned)) == len(numbers)


async def test_new_messages_are_those_of_the_run(agent_of: Callable[..., Agent[Any, Any]]) -> None:
    model = working(3)
    agent = agent_of(model, Summarization(trigger=Messages(14), keep=Messages(2)))
    first = await agent.run('one')
    second = await agent.run('two', message_history=first.all_messages())
    assert find_summary(second.all_messages()) is not None
    new = second.new_messages()
    assert new
    assert all(any(message is each for each in second.all_messages()) for message in new)
    assert not any(message is each for message in new for each in first.all_messages())
    assert new[-1] is second.all_messages()[-1]


async def test_summary_is_the_first_message_in_a_user_request(agent_of: Callable[..., Agent[Any, Any]]) -> None:
    result = await agent_of(working(12), Summarization(trigger=Messages(10), keep=Messages(4))).run('go')
    first = result.all_messages()[0]
    assert isinstance(first, ModelRequest)
    (part,) = first.parts
    assert isinstance(part, CompactionPart)
    assert part.content is not None
    assert part.content.startswith('The user asked first:\ngo\n\nFacts: it works.')


async def test_system_prompts_of_the_agent_are_retained(agent_of: Callable[..., Agent[Any, Any]], split: Split) -> None:
    model = working(40)
    summarization = Summarization(trigger=Messages(20), keep=Messages(6))
    result = await agent_of(model, summarization, system_prompt=('You are one.', 'You are two.')).run('go')
    assert len(split(model)[1]) > 1
    kinds = [(part.part_kind, getattr(part, 'content', '')) for part in result.all_messages()[0].parts]
    assert kinds[:2] == [('system-prompt', 'You are one.'), ('system-prompt', 'You are two.')]
    assert [kind for kind, _ in kinds] == ['system-prompt', 'system-prompt', 'compaction']


async def test_runs_of_one_agent_share_no_state(agent_of: Callable[..., Agent[Any, Any]]) -> None:
    summarization = Summarization(trigger=Messages(10), keep=Messages(4))
    agent = agent_of(working(12), summarization)
    await agent.run('go')
    model = ScriptedModel(call('search_history', query='works'), 'hello')
    await agent.run('hi', model=model)
    assert model.requests[1].tool_returns[0].content == 'No message was replaced: all of them are above.'
    assert summarization == Summarization(trigger=Messages(10), keep=Messages(4))


@pytest.mark.parametrize('mode', ['iter', 'run_stream', 'events'])
async def test_every_run_method_summarizes(agent_of: Callable[..., Agent[Any, Any]], split: Split, mode: str) -> None:
    model = working(12)
    agent = agent_of(model, Summarization(trigger=Messages(10), keep=Messages(4)))
    if mode == 'iter':
        async with agent.iter('go') as run:
            async for _ in run:
                pass
            assert run.result is not None
            messages = run.result.all_messages()
    elif mode == 'run_stream':
        async with agent.run_stream('go') as streamed:
            assert await streamed.get_output() == 'finished'
            messages = streamed.all_messages()
    else:
        async with agent.run_stream_events('go') as events:
            results = [event.result async for event in events if event.event_kind == 'agent_run_result']
        messages = results[0].all_messages()
    assert len(split(model)[1]) >= 1
    assert find_summary(messages) is not None


@pytest.mark.slow
async def test_deep_agent_breaks_its_prefix_only_for_summaries(split: Split, breaks: Breaks) -> None:
    def todos(n: int) -> ToolCallPart:
        return call('write_todos', todos=[{'content': f'Step {n}', 'status': 'in_progress'}])

    def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
        last = messages[-1].parts[-1]
        if isinstance(last, UserPromptPart) and 'Summarize' in str(last.content):
            return 'Facts: a file.'
        count = len(model.requests)
        steps = (todos(count), call('write_file', path=f'/f{count % 5}.txt', content='y' * 900), call('ls', path='/'))
        return 'answered' if count % 4 == 0 else steps[count % 3]

    model = ScriptedModel(then=answer, usage=RequestUsage())
    agent = create_deep_agent(
        model, capabilities=[Summarization(trigger=Tokens(7_000), keep=Tokens(1_500))], summarization=False
    )
    history: list[ModelMessage] = []
    deps = DeepAgentDeps()
    for turn in range(60):
        history = (await agent.run(f'turn {turn}', deps=deps, message_history=history)).all_messages()
    requests, questions = split(model)
    assert len(questions) >= 3
    assert len(breaks(requests)) == len(questions)
    assert sum(isinstance(message, ModelResponse) for message in history) < 60


async def test_next_run_does_not_change_the_summary_or_later_messages(
    agent_of: Callable[..., Agent[Any, Any]],
) -> None:
    agent = agent_of(
        ScriptedModel(then=lambda messages, info: 'yes'), Summarization(trigger=Messages(8), keep=Messages(3))
    )
    history: list[ModelMessage] = []
    summarized = 0
    for turn in range(12):
        after = (await agent.run(f'turn {turn}', message_history=history)).all_messages()
        is_new = find_summary(after) is not find_summary(history)
        summarized += is_new
        assert is_new or all(before is again for before, again in zip(history, after, strict=False))
        history = after
    assert summarized >= 2


async def test_token_estimate_adapts_to_the_usage_reported_by_the_provider(
    agent_of: Callable[..., Agent[Any, Any]], split: Split
) -> None:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
        if 'Summarize' in str(messages[-1].parts[-1]):
            return 'Facts: none.'
        reported = sum(map(size_of, messages))  # one token per character
        parts = [call('work')] if len(model.requests) < 30 else [TextPart('done')]
        return ModelResponse(parts=parts, usage=RequestUsage(input_tokens=reported, output_tokens=1))

    model = ScriptedModel(then=answer)
    await agent_of(model, Summarization(trigger=Tokens(10_000), keep=Tokens(500))).run('go')
    requests, questions = split(model)
    assert questions
    assert max(sum(map(size_of, request.messages)) for request in requests) < 12_000


def size_of(message: ModelMessage) -> int:
    return sum(len(str(getattr(part, 'content', ''))) for part in message.parts)


async def test_message_limit_cuts_many_short_messages() -> None:
    async def write(messages: Sequence[ModelMessage]) -> str:
        return f'{len(messages)} messages'

    model = ScriptedModel(*(call('work') for _ in range(6)), 'done')
    agent = Agent(model, capabilities=[Summarization(trigger=Messages(10), summarizer=write)])

    @agent.tool_plain
    def work() -> str:
        return 'worked'

    result = await agent.run('go')
    (summary,) = (part for part in result.all_messages()[0].parts if isinstance(part, CompactionPart))
    assert summary.content == 'The user asked first:\ngo\n\n5 messages'
