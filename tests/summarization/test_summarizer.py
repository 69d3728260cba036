"""Kinds of summarizers and their requests. The model of the run reads all but the question from its cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, PromptedOutput, ToolOutput
from pydantic_ai.messages import (
    CompactionPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from pydantic_deep import DeepAgentDeps, Todo, create_deep_agent
from pydantic_deep._messages.summary_metadata import find_summary, usage_of
from pydantic_deep._requests.canonical_request import canonical_request
from pydantic_deep.summarization import Messages, Summarization
from pydantic_deep.testing import ScriptedModel, SeenRequest, call

pytestmark = pytest.mark.anyio

Split = Callable[[ScriptedModel], tuple[list[SeenRequest], list[SeenRequest]]]
SUMMARY = 'Facts: the door is green.'


class Answer(BaseModel):
    """An answer."""

    text: str


def summarization(summarizer: Any = None, **options: Any) -> Summarization:
    return Summarization(trigger=Messages(6), keep=Messages(2), summarizer=summarizer, **options)


def says(*answers: Any, **options: Any) -> ScriptedModel:
    """Return a model that makes three calls, writes a summary on request, and then answers."""
    return ScriptedModel(*(call('work', n=n) for n in range(3)), *answers, **options)


def texts(messages: Sequence[ModelMessage]) -> str:
    part = find_summary(messages)
    assert part is not None
    return part.content or ''


def prompt_of(request: SeenRequest) -> str:
    (part,) = request.messages[0].parts
    assert isinstance(part, UserPromptPart)
    return str(part.content)


def assert_asked_in_place(model: ScriptedModel, split: Split) -> tuple[SeenRequest, SeenRequest]:
    """Assert that the question follows a prefix of the previous request."""
    _, (question,) = split(model)
    before = model.requests[model.requests.index(question) - 1]
    asked, sent = (canonical_request(each.messages, each.settings, each.parameters) for each in (question, before))
    assert asked.tools == sent.tools
    assert asked.instructions == sent.instructions
    assert asked.options.get('settings') == sent.options.get('settings')
    assert asked.options.get('output_tools') == sent.options.get('output_tools')
    *whole, last = asked.messages
    assert whole == sent.messages[: len(whole)]
    assert whole
    parts = cast('list[object]', last['parts'])
    before_question = parts[:-1]
    assert before_question == sent.messages[len(whole)]['parts'] or before_question == []
    return question, before


async def test_model_of_the_run_is_asked_with_its_own_prefix(
    agent_of: Callable[..., Agent[Any, Any]], split: Split
) -> None:
    model = says(SUMMARY, 'done')
    settings = ModelSettings(temperature=0.5, thinking='high')
    result = await agent_of(model, summarization(), instructions='Be brief.', model_settings=settings).run('go')
    assert_asked_in_place(model, split)
    assert SUMMARY in texts(result.all_messages())


OUTPUTS = {
    'tool': (ToolOutput(Answer), call('final_result', text='done')),
    'native': (NativeOutput(Answer), '{"text": "done"}'),
    'prompted': (PromptedOutput(Answer), '{"text": "done"}'),
    'default': (Answer, call('final_result', text='done')),
    'either': ([Answer, str], 'done'),
}


@pytest.mark.parametrize('mode', OUTPUTS)
async def test_structured_output_does_not_change_tools_or_instructions_of_the_question(
    agent_of: Callable[..., Agent[Any, Any]], split: Split, mode: str
) -> None:
    output_type, last = OUTPUTS[mode]
    model = says(SUMMARY, last)
    result = await agent_of(model, summarization(), instructions='Be brief.', output_type=output_type).run('go')
    question, _ = assert_asked_in_place(model, split)
    assert question.parameters.allow_text_output
    assert question.parameters.output_mode in ('text', 'tool')
    assert SUMMARY in texts(result.all_messages())
    assert getattr(result.output, 'text', result.output) == 'done'


async def test_native_output_schema_in_the_instructions_remains(
    agent_of: Callable[..., Agent[Any, Any]], split: Split
) -> None:
    profile = ModelProfile(
        supports_json_schema_output=True,
        native_output_requires_schema_in_instructions=True,
        supports_inline_system_prompts=True,
    )
    model = says(SUMMARY, '{"text": "done"}', profile=profile)
    await agent_of(model, summarization(), output_type=NativeOutput(Answer)).run('go')
    question, _ = assert_asked_in_place(model, split)
    assert 'Answer' in (question.instructions or '')


async def test_notices_in_the_history_are_sent_unchanged(split: Split) -> None:
    model = ScriptedModel(*(call('ls', path='/') for _ in range(3)), SUMMARY, 'done')
    deps = DeepAgentDeps(todos=[Todo(content='Open the door', status='in_progress')])
    await create_deep_agent(model, capabilities=[summarization()], summarization=False).run('go', deps=deps)
    question, _ = assert_asked_in_place(model, split)
    assert any('Todos:' in str(part) for message in question.messages for part in message.parts)


async def test_interrupted_turn_is_repaired_before_it_is_summarized(
    agent_of: Callable[..., Agent[Any, Any]], split: Split
) -> None:
    history: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart('begin')]),
        ModelResponse(parts=[call('work')], model_name='m'),
        ModelRequest(parts=[UserPromptPart('never mind')]),
        ModelResponse(parts=[TextPart('all right')], model_name='m'),
        *(ModelRequest(parts=[UserPromptPart('one')]), ModelRequest(parts=[UserPromptPart('two')])),
        ModelResponse(parts=[TextPart('yes')], model_name='m'),
    ]
    model = ScriptedModel(SUMMARY, 'done')
    await agent_of(model, summarization()).run('go', message_history=history)
    (question,) = split(model)[1]
    assert [message.kind for message in question.messages] == ['request', 'response'] * 2 + ['request']
    assert len(question.tool_returns) == 1


async def test_another_model_receives_a_transcript(agent_of: Callable[..., Agent[Any, Any]]) -> None:
    model, other = says('done'), ScriptedModel(SUMMARY, usage=RequestUsage(input_tokens=7, output_tokens=3))
    result = await agent_of(model, summarization(other), text='a word').run('go')
    (asked,) = other.requests
    assert (asked.tool_names, asked.instructions) == ([], None)
    prompt = prompt_of(asked)
    assert 'user: go\ncall work: {"n":0}\nresult of work: 0: a word\ncall work: {"n":1}' in prompt
    assert SUMMARY in texts(result.all_messages())


class Small(ScriptedModel):
    """A model with a small context window."""

    @property
    def context_window(self) -> int | None:
        return 250


async def test_transcript_is_summarized_in_sections_that_fit(agent_of: Callable[..., Agent[Any, Any]]) -> None:
    model, other = says('done'), Small(then=lambda messages, info: f'Facts: piece {len(other.requests)}.')
    result = await agent_of(model, summarization(other), text='word ' * 100).run('go')
    prompts = [prompt_of(request) for request in other.requests]
    assert len(prompts) >= 2
    assert 'summary: Facts: piece 1.' in prompts[1]
    assert f'Facts: piece {len(prompts)}.' in texts(result.all_messages())
    assert result.usage.requests == 4 + len(prompts)


async def test_summarizer_can_be_a_model_name(
    agent_of: Callable[..., Agent[Any, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = await agent_of(says('done'), summarization('test')).run('go')
    assert 'success (no tool calls)' in texts(result.all_messages())


async def test_summarizer_function_receives_the_messages(agent_of: Callable[..., Agent[Any, Any]]) -> None:
    given: list[Sequence[ModelMessage]] = []

    async def summarize(messages: Sequence[ModelMessage]) -> str:
        given.append(messages)
        return '  Remember the door. '

    result = await agent_of(says('done'), summarization(summarize)).run('go')
    assert len(given[0]) == 5
    assert texts(result.all_messages()) == 'The user asked first:\ngo\n\nRemember the door.'


async def test_summarizer_function_may_lack_async(agent_of: Callable[..., Agent[Any, Any]]) -> None:
    """No summary was written, and the removed messages were lost."""

    def summarize(messages: Sequence[ModelMessage]) -> str:
        return 'Remember the door.'

    result = await agent_of(says('done'), summarization(summarize)).run('go')
    assert texts(result.all_messages()) == 'The user asked first:\ngo\n\nRemember the door.'


async def test_usage_of_summaries_counts_in_the_run(agent_of: Callable[..., Agent[Any, Any]]) -> None:
    usage = RequestUsage(input_tokens=100, output_tokens=10)
    model = says(SUMMARY, 'done', usage=usage)
    result = await agent_of(model, summarization()).run('go')
    assert (result.usage.requests, result.usage.input_tokens, result.usage.output_tokens) == (5, 500, 50)
    assert usage_of(result.all_messages()).requests == 5
    assert usage_of(result.all_messages()).input_tokens == 500


class Native(ScriptedModel):
    """A model whose provider supports compaction."""

    compacted: list[ModelRequestContext]
    answer_with: tuple[Any, ...] = (CompactionPart(content='What was.', provider_name='scripted', id='c'),)

    async def compact_messages(
        self, request_context: ModelRequestContext, *, instructions: str | None = None
    ) -> ModelResponse:
        self.compacted.append(request_context)
        return ModelResponse(
            parts=list(self.answer_with),
            model_name='scripted',
            provider_name='scripted',
            usage=RequestUsage(input_tokens=70, output_tokens=30),
        )


async def test_provider_can_compact_the_history(agent_of: Callable[..., Agent[Any, Any]], watch: Any) -> None:
    model = Native(*(call('work', n=n) for n in range(3)), 'done', call('search_history', query='go'), 'found')
    model.compacted = []
    agent = agent_of(model, summarization('provider'))
    result = await agent.run('go', event_stream_handler=watch)
    (context,) = model.compacted
    assert len(context.messages) == 5
    messages = result.all_messages()
    assert isinstance(messages[0], ModelResponse)
    (part,) = messages[0].parts
    assert isinstance(part, CompactionPart)
    assert (part.content, part.provider_name, part.id) == ('What was.', 'scripted', 'c')
    assert usage_of(messages).requests == result.usage.requests == 5
    assert usage_of(messages).input_tokens == result.usage.input_tokens == 470
    assert [event.is_plain for event in watch.events] == [False]
    again = await agent.run('what was first?', message_history=messages)
    found = [part for message in again.all_messages() for part in message.parts if isinstance(part, ToolReturnPart)]
    assert 'user: go' in str(found[-1].content)


async def test_provider_response_without_a_compaction_causes_a_plain_summary(
    agent_of: Callable[..., Agent[Any, Any]], watch: Any
) -> None:
    model = Native(*(call('work', n=n) for n in range(3)), 'done')
    model.compacted, model.answer_with = [], (TextPart('no'),)
    result = await agent_of(model, summarization('provider')).run('go', event_stream_handler=watch)
    (event,) = watch.events
    assert event.is_plain
    assert event.error == 'NoSummaryError: scripted answered without a compaction.'
    assert result.usage.requests == 5


async def test_model_without_compaction_causes_a_plain_summary(
    agent_of: Callable[..., Agent[Any, Any]], watch: Any
) -> None:
    result = await agent_of(says('done'), summarization('provider')).run('go', event_stream_handler=watch)
    (event,) = watch.events
    assert event.is_plain
    assert event.error is not None
    assert event.error.startswith('NotImplementedError: ')
    assert 'No summary could be made of these 5 messages.' in texts(result.all_messages())
