"""Builders: immutable, and only what they add."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from inline_snapshot import snapshot
from pydantic_ai import Agent, FunctionToolset, RunContext, Tool
from pydantic_ai.messages import ImageUrl, ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart

from pydantic_deep import DeepAgentDeps, Model, create_deep_agent
from pydantic_deep.fluent import Conversation, EmptyMessageError, PromptBuilder, prompt
from pydantic_deep.testing import ScriptedModel, call

from .conftest import Begin, Told

pytestmark = pytest.mark.anyio


def plus(ctx: RunContext[object], a: int, b: int) -> int:
    """Add."""
    return a + b


def times(a: int, b: int) -> int:
    """Multiply."""
    return a * b


async def test_a_builder_that_is_used_twice_makes_two_conversations_that_share_nothing(
    begin: Begin, told: Told
) -> None:
    """001-10, Requirement 3: `b.user('Question 1').start()` and `b.user('Question 2').start()`."""
    model = ScriptedModel('One.', 'Two.')
    b = begin(Agent(model)).instructions('Be brief.')
    first, second = b.user('Question 1').start(), b.user('Question 2').start()
    assert [await first.run(), await second.run()] == ['One.', 'Two.']
    assert told(first.messages) == ['user: Question 1', 'One.']
    assert told(second.messages) == ['user: Question 2', 'Two.']
    assert [request.instructions for request in model.requests] == ['Be brief.', 'Be brief.']
    assert first.id != second.id
    assert first.messages is not second.messages


def test_each_method_returns_another_builder_and_changes_none() -> None:
    """001-05, 001-14, 001-33: a builder is immutable."""
    start = prompt(Agent(ScriptedModel(), name='sky'))
    builders: list[PromptBuilder[Any, Conversation[Any, Any]]] = [
        start,
        start.instructions('Be brief.'),
        start.user('Hello'),
        start.assistant('Hi.'),
        start.tools(times),
        start.model('test'),
        start.settings(temperature=0),
    ]
    assert len({id(builder) for builder in builders}) == len(builders)
    assert repr(start) == "<PromptBuilder on a new conversation with 'sky': nothing>"
    with pytest.raises(AttributeError):
        start.user_name = 'Ann'  # pyright: ignore[reportAttributeAccessIssue]


def test_a_builder_says_what_it_adds() -> None:
    builder = (
        prompt(Agent(name='sky'))
        .instructions('a')
        .assistant('b')
        .user('c')
        .tools(times)
        .model(ScriptedModel())
        .settings(temperature=0, max_tokens=9)
    )
    assert repr(builder) == snapshot(
        "<PromptBuilder on a new conversation with 'sky': 2 messages, 1 instructions, 1 toolsets, model scripted:scripted, settings {'temperature': 0, 'max_tokens': 9}>"
    )
    assert repr(prompt(Agent(name='sky')).model('test')) == snapshot(
        "<PromptBuilder on a new conversation with 'sky': model 'test'>"
    )


async def test_what_an_assistant_says_is_stripped_and_stays_in_its_place(begin: Begin, told: Told) -> None:
    """R1, 001-01, 001-29: assistant messages are injected where they were said, without the spaces around them."""
    model = ScriptedModel('Fine.')
    conversation = (
        begin(Agent(model))
        .assistant('\n  I am ready.  ')
        .user('Who are you?')
        .assistant(' A pirate. ')
        .assistant('Arr.')
        .user('And')
        .user('how are you?')
        .start()
    )
    injected = ['I am ready.', 'user: Who are you?', 'A pirate. + Arr.', 'user: And + user: how are you?']
    assert told(conversation.messages) == injected
    assert await conversation.run() == 'Fine.'
    sent = ['I am ready.', 'user: Who are you?', 'A pirate. + Arr.', "user: ['And', 'how are you?']"]
    assert told(model.requests[0].messages) == sent
    assert told(conversation.messages) == [*sent, 'Fine.']


async def test_an_assistant_is_corrected_in_the_middle_of_a_conversation(begin: Begin, told: Told) -> None:
    """001-01: injection for continuation."""
    model = ScriptedModel('Four.', 'Because you are wrong.')
    conversation = begin(Agent(model)).user('What is 2 + 2?').start()
    await conversation.run()
    await conversation.continuation.user('Sure?').assistant('No, it is five.').user('Why?').prompt()
    assert told(conversation.messages) == [
        'user: What is 2 + 2?',
        'Four.',
        'user: Sure?',
        'No, it is five.',
        'user: Why?',
        'Because you are wrong.',
    ]
    assert told(model.requests[1].messages) == told(conversation.messages)[:-1]


@pytest.mark.parametrize('empty', ['', '  \n'])
def test_a_message_says_something(empty: str) -> None:
    builder = prompt(Agent())
    with pytest.raises(EmptyMessageError, match=r'The message of the assistant is empty. Remove it'):
        builder.assistant(empty)
    with pytest.raises(EmptyMessageError, match='user'):
        builder.user(empty)
    with pytest.raises(EmptyMessageError, match='instructions'):
        builder.instructions(empty)
    with pytest.raises(EmptyMessageError, match='user'):
        builder.user([])


async def test_a_user_says_text_with_media(begin: Begin) -> None:
    model = ScriptedModel('A cat.')
    picture = ImageUrl(url='https://example.com/cat.png')
    assert await begin(Agent(model)).user(['What is this?', picture]).prompt() == 'A cat.'
    [message] = model.requests[0].messages
    assert isinstance(message.parts[0], UserPromptPart)
    assert message.parts[0].content == ['What is this?', picture]


async def test_configuration_is_of_the_conversation_and_builders_add_to_it(begin: Begin) -> None:
    """001-15, 001-17: instructions and tools are added, the model and settings replaced, from the next turn on."""
    first, second = ScriptedModel('1', model_name='first'), ScriptedModel('2', '3', model_name='second')
    agent = Agent(first, instructions='You are an agent.', model_settings={'max_tokens': 5})
    conversation = begin(agent).instructions('Be brief.').tools(times).settings(temperature=0.5).user('a').start()
    await conversation.run()
    toolset = FunctionToolset[object]([Tool(plus)])
    more = conversation.continuation.instructions('Be kind.').tools(toolset).model(second).settings(temperature=0)
    await more.user('b').prompt()
    await conversation.continuation.user('c').prompt()

    asked = [*first.requests, *second.requests]
    before, after = 'You are an agent.\n\nBe brief.', 'You are an agent.\n\nBe brief.\n\nBe kind.'
    assert [request.instructions for request in asked] == [before, after, after]
    assert [request.tool_names for request in asked] == [['times'], ['times', 'plus'], ['times', 'plus']]
    assert [request.settings for request in asked] == [
        {'max_tokens': 5, 'temperature': 0.5},
        {'max_tokens': 5, 'temperature': 0},
        {'max_tokens': 5, 'temperature': 0},
    ]


async def test_an_agent_is_not_changed_by_its_conversations(begin: Begin) -> None:
    """001-18: what is configured is in no place that another conversation sees."""
    model = ScriptedModel('1', '2')
    agent = Agent(model)
    await begin(agent).instructions('Be brief.').tools(times).settings(temperature=1).user('a').prompt()
    await begin(agent).user('a').prompt()
    assert (model.requests[1].instructions, model.requests[1].tool_names) == (None, [])
    assert model.requests[1].settings in (None, {})
    assert agent.name is None


async def test_tools_of_a_conversation_run_with_its_deps(begin: Begin) -> None:
    def whoami(ctx: RunContext[str]) -> str:
        return ctx.deps

    agent = Agent(ScriptedModel(call('whoami'), 'You are Ann.'), deps_type=str)
    conversation = begin(agent, deps='Ann').tools(whoami).user('Who am I?').start()
    await conversation.run()
    assert [exchange.result and exchange.result.content for exchange in conversation.messages.exchanges()] == ['Ann']


async def test_one_shot_goes_the_way_of_conversations(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """R9: `.prompt()` starts a conversation and runs it."""
    started: list[Conversation[Any, Any]] = []
    original = Conversation[Any, Any].run

    async def run(self: Conversation[Any, Any]) -> object:
        started.append(self)
        return await original(self)

    monkeypatch.setattr(Conversation, 'run', run)
    assert await begin(Agent(ScriptedModel('Hi.'))).user('Hello').prompt() == 'Hi.'
    [conversation] = started
    assert (conversation.output, conversation.state, len(conversation.messages)) == ('Hi.', 'complete', 2)


def test_a_continuation_holds_a_reference_and_no_messages() -> None:
    """001-08, 001-12, 001-16, 001-26: no part of a long conversation is copied into its builders."""
    messages: list[ModelMessage] = [ModelRequest.user_text_prompt('Hello'), ModelResponse([TextPart('Hi.')])] * 5_000
    conversation = Conversation(messages, agent=Agent())
    builder = conversation.continuation.user('And now?')
    assert builder._target is conversation  # pyright: ignore[reportPrivateUsage]
    delta = builder._delta  # pyright: ignore[reportPrivateUsage]
    assert len(delta.messages) == 1
    referents = {id(each) for each in gc.get_referents(builder, delta, delta.messages)}
    assert not referents & {id(message) for message in conversation.messages}


@pytest.mark.parametrize(
    ('provider', 'model'),
    [
        ('anthropic', Model.CLAUDE_OPUS),
        ('openai', Model.GPT),
        ('google', Model.GEMINI_PRO),
        ('mistral', Model.MISTRAL_LARGE),
        ('openai:gpt-5', 'openai:gpt-5'),
    ],
)
def test_a_provider_selects_its_newest_large_model(provider: str, model: str) -> None:
    """001-22: `.provider('anthropic')`."""
    assert repr(prompt(Agent(name='a')).provider(provider)).endswith(f': model {model!r}>')


async def test_a_model_alone_is_asked_by_a_deep_agent() -> None:
    model = ScriptedModel('Hi.')
    conversation = prompt(model).user('Hello').start()
    assert await conversation.run() == 'Hi.'
    deep = ScriptedModel('Hi.')
    await create_deep_agent(deep).run('Hello', deps=DeepAgentDeps())
    assert model.requests[0].tool_names == deep.requests[0].tool_names
