"""Contents of a summary that are preserved over many summaries and across processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import (
    CompactionPart,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    RetryFeedbackPart,
    RetryInfo,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.usage import RequestUsage, RunUsage

from pydantic_deep import DeepAgentDeps, Skill, Todo, Todos, create_deep_agent
from pydantic_deep._messages.summary_metadata import (
    carried_state,
    find_summary,
    is_summary,
    read_summary,
    replaced_messages,
    usage_of,
)
from pydantic_deep.summarization._text import GOAL_CHARS, clip, lines_of
from pydantic_deep.testing import ScriptedModel, call

from .conftest import summarization

pytestmark = pytest.mark.anyio


def summary_of(messages: Sequence[ModelMessage]) -> CompactionPart:
    part = find_summary(messages)
    assert part is not None
    return part


def text_of(messages: Sequence[ModelMessage]) -> str:
    return summary_of(messages).content or ''


async def talk(agent: Agent[Any, Any], prompts: Sequence[str], **options: Any) -> list[ModelMessage]:
    """Run a turn per prompt, passing the messages on as JSON."""
    history: list[ModelMessage] = []
    for prompt in prompts:
        result = await agent.run(prompt, message_history=history, **options)
        history = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(result.all_messages()))
    return history


async def test_first_and_last_user_prompts_are_retained_verbatim(
    agent_of: Callable[..., Agent[Any, Any]],
) -> None:
    steps = [*(call('work', n=n) for n in range(20)), 'done']
    agent = agent_of(ScriptedModel('hello', 'yes', *steps), summarization())
    messages = await talk(agent, ['Paint the door green.', 'Are you there?', 'Now the window, at No. 7.'])
    assert text_of(messages) == (
        'The user asked first:\nPaint the door green.\n\nThe user asked last:\nNow the window, at No. 7.\n\nFacts: some.'
    )


async def test_prompt_in_the_retained_messages_is_not_repeated(agent_of: Callable[..., Agent[Any, Any]]) -> None:
    agent = agent_of(ScriptedModel(then=lambda messages, info: 'yes'), summarization())
    messages = await talk(agent, [f'turn {n}' for n in range(5)])
    assert text_of(messages) == 'The user asked first:\nturn 0\n\nFacts: some.'


async def test_no_message_is_lost_over_many_summaries(agent_of: Callable[..., Agent[Any, Any]], watch: Any) -> None:
    agent = agent_of(ScriptedModel(then=lambda messages, info: f'answer to {len(messages)}'), summarization())
    messages = await talk(agent, [f'turn {n}' for n in range(40)], event_stream_handler=watch)
    assert len(watch.events) >= 5
    assert text_of(messages).startswith('The user asked first:\nturn 0\n\n')
    earlier = replaced_messages(messages)
    prompts = [
        part.content for message in [*earlier, *messages] for part in message.parts if isinstance(part, UserPromptPart)
    ]
    assert prompts == [f'turn {n}' for n in range(40)]
    assert not any(is_summary(part) for message in earlier for part in message.parts)
    assert sum(is_summary(part) for message in messages for part in message.parts) == 1


async def test_usage_is_exact_over_summaries(agent_of: Callable[..., Agent[Any, Any]]) -> None:
    writer = ScriptedModel(then=lambda m, i: 'Facts: some.', usage=RequestUsage(input_tokens=7, output_tokens=3))
    model = ScriptedModel(then=lambda m, i: 'yes', usage=RequestUsage(input_tokens=100, output_tokens=10))
    agent = agent_of(model, summarization(summarizer=writer))
    history: list[ModelMessage] = []
    used = RunUsage()
    for turn in range(20):
        result = await agent.run(f'turn {turn}', message_history=history)
        used, history = used + result.usage, result.all_messages()
    assert len(writer.requests) >= 3
    assert used == usage_of(history)
    assert used.requests == 20 + len(writer.requests)
    assert used.input_tokens == 2_000 + 7 * len(writer.requests)


async def test_todos_are_carried_over_without_deep_agent_deps(agent_of: Callable[..., Agent[Any, Any]]) -> None:
    todos = [
        {'content': 'Paint the door', 'status': 'completed'},
        {'content': 'Paint the window', 'status': 'in_progress'},
    ]
    model = ScriptedModel(call('write_todos', todos=todos), *(call('work', n=n) for n in range(8)), 'done', 'done')
    agent = agent_of(model, Todos(), summarization())
    messages = await talk(agent, ['go', 'go on'])
    assert 'Paint the door' in text_of(messages)
    assert 'Paint the window' in text_of(messages)
    assert carried_state(messages, 'todos') is not None
    last = ScriptedModel(*(call('work', n=n) for n in range(12)), 'done')
    result = await agent.run('more', model=last, message_history=messages)
    assert 'Paint the window' in text_of(result.all_messages())
    # The summary contains the list, so no notice repeats it.
    assert not any('Todos:' in str(part) for request in last.requests for part in request.messages[-1].parts)


async def test_files_and_skills_are_carried_over_summaries() -> None:
    steps = [
        call('load_skill', name='paint'),
        call('write_file', path='/door.txt', content='green'),
        call('read_file', path='/door.txt', offset=0, limit=10),
        call('read_file', path='/gone.txt', offset=0, limit=10),
        *(call('ls', path='/') for _ in range(16)),
    ]
    model = ScriptedModel(*steps, 'done', 'done')
    skill = Skill('paint', 'How to paint.', body='With a brush.')
    agent = create_deep_agent(model, capabilities=[summarization()], summarization=False, skills=[skill])
    messages = await talk(agent, ['go', 'go on'], deps=DeepAgentDeps(todos=[Todo(content='Dry', status='pending')]))
    text = text_of(messages)
    assert 'Files changed: /door.txt.' in text
    assert 'gone' not in text
    assert 'Skills loaded before: paint.' in text
    assert 'Dry' in text
    state = read_summary(summary_of(messages)).carried
    assert set(state) >= {'filesystem', 'skills'}


# ---------------------------------------------------------------------------------------------------------------- text


def test_long_text_keeps_its_head_and_tail() -> None:
    text = 'a' * 3_000 + 'b' * 3_000
    clipped = clip(text)
    assert clipped.startswith('a' * 2_000 + '\n[2,000 characters left out]\n')
    assert clipped.endswith('b' * 2_000)
    assert clip('a' * GOAL_CHARS) == 'a' * GOAL_CHARS


def test_transcript_lines_name_their_author() -> None:
    image = ImageUrl('http://x/y.png')
    request = ModelRequest(
        parts=[
            UserPromptPart(['look', image, TextContent('there')]),
            UserPromptPart([image]),
            ToolReturnPart('work', {'a': 1}, tool_call_id='c'),
            CompactionPart(content='What was.'),
            CompactionPart(content=None),
            RetryFeedbackPart(content='No.', retry=RetryInfo(cause='no_output')),
        ]
    )
    assert lines_of(request) == ['user: look\nthere', 'result of work: {"a":1}', 'summary: What was.']
    response = ModelResponse(parts=[ThinkingPart('hm'), TextPart('yes'), call('work', n=1)])
    assert lines_of(response) == ['assistant: yes', 'call work: {"n":1}']
