"""Conversations: messages, persistence and continuation, through the public API."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import json
from collections.abc import AsyncGenerator, Callable, Iterable
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, FunctionToolset, Tool
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

import pydantic_deep.fluent
from pydantic_deep import Approve, DeepAgentDeps, Subagent, create_deep_agent, open_store
from pydantic_deep.fluent import (
    FORMAT_VERSION,
    Conversation,
    ConversationBusyError,
    MessageList,
    PromptBuilder,
    TranscriptError,
    TurnStoppedError,
    prompt,
)
from pydantic_deep.fluent._format import MIGRATIONS, Document
from pydantic_deep.store import Store, VersionConflictError
from pydantic_deep.summarization import Messages, Summarization
from pydantic_deep.testing import Answer, ScriptedModel, call
from pydantic_deep.versions import VersionedAgent

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parent.parent.parent
GUIDE = ' '.join((ROOT / 'docs/guides/conversations.md').read_text().split())

Begin = Callable[..., PromptBuilder[Any, Conversation[Any, Any]]]
"""Makes a builder of conversations with an agent, in memory or on a store."""


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with open_store('memory:') as store:
        yield store


@pytest.fixture(params=['plain', 'stored'])
def begin(request: pytest.FixtureRequest, store: Store) -> Begin:
    def make(agent: Agent[Any, Any], **options: Any) -> PromptBuilder[Any, Conversation[Any, Any]]:
        return prompt(agent, store=store if request.param == 'stored' else None, **options)

    return make


def told(messages: Iterable[ModelMessage]) -> list[str]:
    """Return a line for each part of messages; results other than success show their outcome."""

    def line(part: object) -> str:
        match part:
            case UserPromptPart(content=content):
                return f'user: {content}'
            case ToolCallPart(tool_name=name):
                return f'call {name}'
            case ToolReturnPart(tool_name=name, outcome='success', content=content):
                return f'{name}: {content}'
            case ToolReturnPart(tool_name=name, outcome=outcome):
                return f'{name}: {outcome}'
            case TextPart(content=content):
                return content
            case _:
                return type(part).__name__

    return [line(part) for message in messages for part in message.parts]


def numbered(messages: list[ModelMessage], info: object) -> str:
    """Answer with the number of messages so far."""
    return f'answer {len(messages)}'


class Looking:
    """An agent that calls `look` twice before each answer and counts the calls."""

    def __init__(self) -> None:
        self.looked = 0

        def look() -> str:
            self.looked += 1
            return 'a cat'

        def script(messages: list[ModelMessage], info: object) -> Answer:
            asked = [any(line.startswith('user') for line in told([message])) for message in messages]
            steps = asked[::-1].index(True) + 1
            return [f'step {steps}', call('look')] if steps < 5 else 'Done.'

        self.agent = Agent(ScriptedModel(then=script), tools=[look])


async def test_assistant_messages_are_injected(begin: Begin) -> None:
    """Messages injected at the start and later.

    001-01: Messages of the assistant can be injected into a chain, for priming and for continuation.

    001-29: `.assistant()` injects messages, strips whitespace around them, and preserves their order.
    """
    model = ScriptedModel('Four.', 'I was wrong.')
    builder = begin(Agent(model)).assistant('\n I count. \t').user('Whole numbers.').assistant(' Fine.  ')
    conversation = builder.user('2 + 2?').start()
    assert await conversation.run() == 'Four.'
    primed = ['I count.', 'user: Whole numbers.', 'Fine.', 'user: 2 + 2?']
    assert told(model.requests[0].messages) == primed

    await conversation.continuation.user('Sure?').assistant('  No, five.\n').user('Why?').prompt()
    continued = [*primed, 'Four.', 'user: Sure?', 'No, five.', 'user: Why?']
    assert told(model.requests[1].messages) == continued
    assert told(conversation.messages) == [*continued, 'I was wrong.']
    assert isinstance(model.requests[0].messages[0], ModelResponse)


async def test_conversation_is_restored_in_another_session(tmp_path: Path) -> None:
    """001-02: The state of a conversation can be saved, and restored across sessions.

    It is restored from a transcript in a file and from a store.
    """
    async with open_store(f'sqlite:///{tmp_path}/agents.db') as store:
        agent = Agent(ScriptedModel(call('look', what=''), 'A cat.'), tools=[look])
        first = prompt(agent, store=store, conversation_id='one').assistant('Ask.').user('What is it?').start()
        await first.run()
        first.messages.save(tmp_path / 'saved.json')
    before = ['Ask.', 'user: What is it?', 'call look', 'look: seen', 'A cat.']

    async with open_store(f'sqlite:///{tmp_path}/agents.db') as store:
        for restored in (
            Conversation(MessageList.load(tmp_path / 'saved.json'), agent=Agent(ScriptedModel('Yes.'))),
            Conversation(agent=Agent(ScriptedModel('Yes.')), store=store, conversation_id='one'),
        ):
            async with restored:
                assert told(restored.messages) == before
                assert await restored.continuation.user('Sure?').prompt() == 'Yes.'
                assert told(restored.messages) == [*before, 'user: Sure?', 'Yes.']


async def test_roles_are_separate_and_no_state_is_duplicated(begin: Begin) -> None:
    """The contents of each class.

    001-03: Responsibilities are separated cleanly, and nothing is duplicated.

    001-08: No state is duplicated: messages are only in the `MessageList`, configuration is only in the conversation,
    and builders have only deltas.

    001-13: There are three roles: a data container, a mutable execution context, and an immutable composition with a
    reference to a conversation.

    001-23: The rejected alternatives are not implemented: everything immutable, everything mutable, configuration on
    builders, and separate classes for execution.

    001-24: Mutability follows the role, deltas replace duplicates, references make the interface fluent, the boundary
    of serialization is explicit, and each class has one responsibility.

    001-31: Data, execution and composition are separate classes without duplicated state.
    """
    conversation = begin(Agent(ScriptedModel(then=numbered))).instructions('Be brief.').user('1').start()
    await conversation.run()
    builder = conversation.continuation.instructions('Be kind.').user('2')

    # Messages are only in the list, which is the only serializable object, and in no other list of the conversation.
    held = {name for name, value in vars(conversation).items() if isinstance(value, (list, tuple, MessageList))}
    assert held == {'_messages'}
    assert list(vars(conversation.messages)) == ['_messages']
    can_serialize = [
        each for each in (MessageList, Conversation, PromptBuilder) if hasattr(each, 'to_dict') or hasattr(each, 'save')
    ]
    assert can_serialize == [MessageList]

    # A builder has a frozen delta and the reference, but no earlier messages or configuration.
    assert PromptBuilder.__slots__ == ('_delta', '_target')
    delta, target = cast('Any', builder)._delta, cast('Any', builder)._target
    assert target is conversation
    assert (told(delta.messages), delta.config.instructions) == (['user: 2'], ('Be kind.',))
    with pytest.raises(dataclasses.FrozenInstanceError):
        delta.messages = ()
    with pytest.raises(AttributeError):
        cast('Any', builder).more = 1

    # Only the conversation executes, and it stays the same object.
    assert builder.start() is conversation
    assert told(conversation.messages) == ['user: 1', 'answer 1', 'user: 2']
    public = [getattr(pydantic_deep.fluent, name) for name in pydantic_deep.fluent.__all__]
    runs = [each for each in public if inspect.isclass(each) and hasattr(each, 'run')]
    assert runs == [Conversation]
    assert not hasattr(PromptBuilder, '__aiter__')
    assert not hasattr(MessageList, 'continuation')


async def test_iteration_can_be_aborted_and_continued_early(begin: Begin) -> None:
    """One message is taken in each possible way, followed by another request.

    001-04: Asynchronous iteration can be aborted, and continued with a new request.

    001-07: The builder of a continuation is available before an iteration completes.

    001-21: Early continuation: take one message by `await conversation.__anext__()`, stop, and continue with a
    follow-up; the state is current, and aborting works at any point.

    001-35: A conversation is continued early: after one message, before its iteration completes.
    """

    async def by_anext(conversation: Conversation[Any, Any]) -> ModelMessage:
        return await conversation.__anext__()

    async def by_builtin(conversation: Conversation[Any, Any]) -> ModelMessage:
        return await anext(conversation)

    async def by_loop(conversation: Conversation[Any, Any]) -> ModelMessage:
        async for message in conversation:
            return message
        raise AssertionError

    for take in (by_anext, by_builtin, by_loop):
        looking = Looking()
        conversation = begin(looking.agent).user('Go').start()
        assert told([await take(conversation)]) == ['step 1', 'call look']
        assert told(conversation.messages) == ['user: Go', 'step 1', 'call look']
        assert looking.looked == 0

        builder = conversation.continuation.user('Else')
        await conversation.stop()
        assert conversation.state == 'interrupted'
        assert await builder.prompt() == 'Done.'
        assert told(conversation.messages)[:5] == ['user: Go', 'step 1', 'call look', 'look: interrupted', 'user: Else']
        assert looking.looked == 2


@pytest.mark.slow
async def test_iteration_can_be_aborted_at_any_point(begin: Begin) -> None:
    """After each number of messages, with and without a stop in between.

    001-09: The conversation is mutable, so that the handle a user holds, asynchronous iteration and continuation never
    see stale state.

    001-32: Continuation is flexible: before, during and after an iteration it reflects the state so far, repeatedly.
    """
    whole = ['user: Go', 'step 1', 'call look', 'look: a cat', 'step 3', 'call look', 'look: a cat', 'Done.']
    ends = [1, 3, 4, 6, 7, 8]  # number of lines in `whole` after each message
    for stops in (True, False):
        for taken in range(1, 6):
            looking = Looking()
            first = begin(looking.agent).user('Go').start()
            builders = [first.continuation.user('Else')]
            seen: list[ModelMessage] = []
            while len(seen) < taken:
                message = await anext(first)
                seen.append(message)
                assert first.messages[-1] is message
                assert told(first.messages) == whole[: ends[len(seen)]]
                builders.append(first.continuation.user('Else'))
            if stops:
                await first.stop()
                assert first.state == 'interrupted' or taken == 5
                assert told(first.messages)[: ends[taken]] == whole[: ends[taken]]
            before = whole[: ends[taken]]
            for number, builder in enumerate([builders[0], builders[-1]]):
                assert builder.start() is first
                assert await first.run() == 'Done.'
                said = told(first.messages)
                assert said[: len(before)] == before
                assert said.count('user: Else') == number + 1
                before = said
            calls = [exchange.result for exchange in first.messages.exchanges()]
            assert None not in calls  # every call has a result, or one that says it was interrupted


async def test_builder_is_immutable(begin: Begin) -> None:
    """Each method of a builder, used twice, with later changes by its caller and its conversations.

    001-05: The builder is immutable, and composition is functional.

    001-10: A builder that is used for two requests gives two uncontaminated conversations: with
    `b = prompt(agent).instructions('…')`, `b.user('Question 1').start()` and `b.user('Question 2').start()` share
    nothing.

    001-33: Composition is immutable: no method, no conversation and no caller changes the contents of a builder.
    """
    model = ScriptedModel(then=numbered)
    body: dict[str, Any] = {'seed': 1}
    b = begin(Agent(model, name='sky')).instructions('Be brief.').assistant('Hi.').settings(extra_body=body)
    verbs: dict[str, Any] = {
        'instructions': 'x', 'user': 'x', 'assistant': 'x', 'tools': look, 'model': 'test', 'agent': 'x',
        'request': 'x', 'context': 'x', 'provider': 'openai',
    }  # fmt: skip
    before = repr(b)
    made = [getattr(b, verb)(value) for verb, value in verbs.items()] + [b.settings(temperature=0)]
    public = {name for name in dir(PromptBuilder) if not name.startswith('_')}
    assert public == {*verbs, 'settings', 'start', 'prompt', 'prompt_conversation'}
    assert all(type(each) is PromptBuilder and each is not b for each in made)
    assert before not in [repr(each) for each in made]
    assert repr(b) == before

    body['seed'] = 2
    first, second = b.user('Question 1').start(), b.user('Question 2').start()
    for message in first.messages:
        for part in message.parts:
            part.content = 'CONTAMINATED'  # pyright: ignore[reportAttributeAccessIssue] - of any kind
    first.messages.clear()
    await first.continuation.instructions('CONTAMINATED').settings(temperature=1).user('Else').prompt()
    cast('Any', model.requests[0].settings)['extra_body']['seed'] = 3
    await second.run()
    third = b.user('Question 3').start()
    await third.run()

    assert repr(b) == before
    assert len({first.id, second.id, third.id}) == 3
    assert told(second.messages) == ['Hi.', 'user: Question 2', 'answer 2']
    assert told(third.messages) == ['Hi.', 'user: Question 3', 'answer 2']
    for request in model.requests[1:]:
        assert (request.instructions, request.settings) == ('Be brief.', {'extra_body': {'seed': 1}})
        assert 'CONTAMINATED' not in str([told(request.messages), request.instructions])


class CanaryAnswer(BaseModel):
    """A CANARY."""

    answer: str


@pytest.fixture
def canary_skills(tmp_path: Path) -> Path:
    folder = tmp_path / 'skills' / 'greeting'
    folder.mkdir(parents=True)
    (folder / 'SKILL.md').write_text(
        '---\nname: greeting\ndescription: Use it when you greet, CANARY.\nmetadata:\n  a: CANARY\n---\n\nCANARY\n'
    )
    return folder.parent


def look(what: str = 'CANARY') -> str:
    """Look, CANARY.

    Args:
        what: What, CANARY.
    """
    return 'seen'


async def shorten(messages: object) -> str:
    return 'It is short.'


def canary_agent(skills: Path) -> Agent[Any, Any]:
    """Return a deep agent with canaries in its whole configuration.

    Its model makes an invalid call, calls an unknown tool, delegates, writes a file that needs approval,
    answers wrongly, and answers.
    """
    steps = [
        call('look', what='nothing'),
        call('look', where='there'),
        call('no_such_tool'),
        call('task', subagent='leaf', description='Do it.'),
        call('write_todos', todos=[{'content': 'Look', 'status': 'pending'}]),
        call('write_file', path='/a.txt', content='x'),
        call('final_result', reply='no'),
        call('final_result', answer='Said.'),
    ]
    leaf = Subagent(
        'leaf',
        'Works, CANARY.',
        instructions='CANARY',
        model=ScriptedModel(call('look'), 'It is done.', model_name='CANARY'),
        tools=[Tool(look, description='CANARY')],
        max_depth=0,
    )
    agent: Agent[Any, Any] = create_deep_agent(
        ScriptedModel(*steps, model_name='CANARY', settings={'stop_sequences': ['CANARY']}),
        name='CANARY',
        instructions=['CANARY', 'And CANARY.'],
        output_type=CanaryAnswer,
        tools=[Tool(look, metadata={'a': 'CANARY'}), Tool(look, name='CANARY_1', description='CANARY')],
        toolsets=[FunctionToolset([look], id='CANARY', instructions='CANARY').prefixed('CANARY_2')],
        capabilities=[Summarization(trigger=Messages(9), keep=Messages(4), summarizer=shorten)],
        subagents=[leaf, Subagent('CANARY_3', 'CANARY')],
        skills=[skills],
        interrupt_on={'write_file': True},
        model_settings={'extra_body': {'user': 'CANARY'}, 'temperature': 0.987123454321},
    )
    agent.system_prompt(lambda: 'CANARY')
    return agent


@pytest.mark.slow
async def test_transcript_contains_no_configuration_of_any_kind(
    begin: Begin, canary_skills: Path, tmp_path: Path
) -> None:
    """An agent with canaries in its whole configuration, and a model with every kind of error.

    001-11: Only the `MessageList` is serialized; tools, selectors and configuration are recreated.

    001-18: Only messages serialize, and nothing that an agent or a builder was configured with: tools hold functions,
    selectors are complex, and configuration is recreated for flexibility.
    """
    deps = DeepAgentDeps(metadata={'a': 'CANARY'})
    builder = (
        begin(canary_agent(canary_skills), deps=deps, conversation_id='CANARY')
        .instructions('CANARY')
        .tools(
            Tool(look, name='CANARY_4', description='CANARY'), FunctionToolset([look], id='CANARY').prefixed('CANARY_5')
        )
        .settings(stop_sequences=['CANARY'], extra_body={'a': 'CANARY'})
    )
    conversation = builder.user('Go.').start()
    saved: list[str] = []

    async def save() -> None:
        for transcript in (conversation.messages, await conversation.export()):
            transcript.save(tmp_path / 'saved.json')
            saved.append((tmp_path / 'saved.json').read_text())
            for options in ({}, {'inline_media': False}):
                saved.append(json.dumps(transcript.to_dict(**options)))

    async for _ in conversation:
        await save()
    await conversation.resume({each.id: Approve() for each in conversation.pending})
    await save()

    assert conversation.output == CanaryAnswer(answer='Said.')
    assert 'CANARY' in str(list(conversation.messages))  # present at run time, but not in the saved transcript
    assert [
        word for text in saved for word in ('canary', '987123454321', str(tmp_path).lower()) if word in text.lower()
    ] == []
    assert {tuple(json.loads(text)) for text in saved} == {('format_version', 'messages')}
    for said in ('Go.', 'seen', 'no_such_tool', 'It is done.', '/a.txt', 'Said.', 'It is short.'):
        assert said in saved[-1]

    # Configuration is recreated: the same transcript runs under another one and brings none.
    model = ScriptedModel('Yes.')
    loaded = Conversation(MessageList.load(tmp_path / 'saved.json'), agent=Agent(model, instructions='Mine.'))
    assert await loaded.continuation.user('Sure?').prompt() == 'Yes.'
    [request] = model.requests
    assert (request.instructions, request.tool_names, dict(request.settings or {})) == ('Mine.', [], {})
    assert 'CANARY' not in str(request)


def test_only_a_message_list_serializes() -> None:
    """001-30: Serialization is by the `MessageList`: `.to_dict()` contains only data of messages and the version, and
    `from_dict` restores all messages.
    """
    messages: list[ModelMessage] = [
        ModelRequest([UserPromptPart('Hi')], instructions='CANARY', run_id='CANARY', metadata={'a': 'CANARY'}),
        ModelResponse([TextPart('Look.'), ToolCallPart('look', '{"a": 1}', 'c')], model_name='CANARY'),
        ModelRequest([ToolReturnPart('look', {'b': [1, None]}, 'c')]),
    ]
    document = json.loads(json.dumps(MessageList(messages).to_dict()))
    assert (list(document), document['format_version']) == (['format_version', 'messages'], FORMAT_VERSION)
    assert 'CANARY' not in json.dumps(document)
    loaded = MessageList.from_dict(document)
    assert [message.parts for message in loaded] == [message.parts for message in messages]
    assert loaded.to_dict() == document


async def test_continuation_refers_to_its_conversation(begin: Begin) -> None:
    """The builder holds the conversation.

    001-12: A continuation needs no passing of the conversation by hand.

    001-16: The builder holds the reference and always applies to the same conversation, and this hidden state is
    documented.

    001-20: A conversation continues by `conversation.continuation.request().prompt_conversation()`, on the same object.
    """
    conversation = begin(Agent(ScriptedModel(then=numbered))).request('1').prompt_conversation()
    await conversation.run()
    kept = conversation.continuation.request('again')
    for _ in range(3):
        assert kept.prompt_conversation() is conversation
        async for message in conversation:
            assert conversation.messages[-1] is message
    assert told(conversation.messages)[2:] == ['user: again', 'answer 3', 'user: again', 'answer 5', 'user: again', 'answer 7']  # fmt: skip
    for verb in ('user', 'request', 'prompt', 'start', 'prompt_conversation'):
        assert not {'conversation', 'messages'} & set(inspect.signature(getattr(PromptBuilder, verb)).parameters)
    assert 'the messages and settings to add next, and a reference to its conversation' in GUIDE


async def test_list_and_conversation_are_mutable_and_builder_is_not(begin: Begin) -> None:
    """001-14: The `MessageList` is mutable and serializable at any point; the conversation is mutable and long-lived,
    and its continuation is always current; the builder is immutable, and each method returns a new instance.
    """
    looking = Looking()
    conversation = begin(looking.agent).user('Go').start()
    kept = conversation.continuation
    texts = [told(MessageList.from_dict(conversation.messages.to_dict()))]
    async for _ in conversation:
        texts.append(told(MessageList.from_dict(conversation.messages.to_dict())))
        assert texts[-1] == told(conversation.messages)
    assert [len(text) for text in texts] == [1, 3, 4, 6, 7, 8]

    for turn in range(5):
        conversation.messages.append(ModelRequest.user_text_prompt(f'by hand {turn}'))
        assert await kept.prompt() == 'Done.'
        assert len(conversation.messages) == 6 * (turn + 2)
    assert told(conversation.messages).count('Done.') == 6
    del conversation.messages[6:]
    builder = conversation.continuation.user('now')
    assert builder.user('x') is not builder
    assert await builder.prompt() == 'Done.'
    assert told(conversation.messages)[7:10] == ['Done.', 'user: now', 'step 1']


async def test_configuration_belongs_to_the_conversation(begin: Begin) -> None:
    """Configuration set by a builder applies to its conversation from the next turn on.

    001-15: Builders accumulate deltas, messages and configuration, and apply them on execution.

    001-17: The full configuration lives on the conversation, and builders carry deltas of it.
    """
    first, second = ScriptedModel(then=numbered), ScriptedModel(then=numbered)
    agent = Agent(first, instructions='Agent.', model_settings={'max_tokens': 5})
    conversation = begin(agent).instructions('One.').settings(temperature=0.5).user('a').start()
    await conversation.run()
    builder = conversation.continuation.instructions('Two.').tools(Tool(look)).settings(temperature=0, top_p=1)
    builder = builder.model(second).assistant('A').user('b')
    assert len(conversation.messages) == 2  # nothing is applied before the builder is started
    await conversation.continuation.user('c').prompt()
    assert (first.requests[1].instructions, first.requests[1].tool_names) == ('Agent.\n\nOne.', [])

    await builder.prompt()
    await conversation.continuation.user('d').prompt()
    assert told(conversation.messages)[4:] == ['A', 'user: b', 'answer 6', 'user: d', 'answer 8']
    for request in second.requests:
        assert request.instructions == 'Agent.\n\nOne.\n\nTwo.'
        assert request.tool_names == ['look']
        assert request.settings == {'max_tokens': 5, 'temperature': 0, 'top_p': 1}
    assert len(second.requests) == 2
    assert (agent.model_settings, len(first.requests)) == ({'max_tokens': 5}, 2)


async def test_documented_patterns_work_as_written(begin: Begin) -> None:
    """The patterns of the requirements.

    001-19: A fresh conversation is `llm.agent().assistant().request().prompt_conversation()`.

    001-22: A conversation is restored by `messages.to_dict()`, `MessageList.from_dict()`, `LLMConversation(messages)`
    and `.continuation.provider('anthropic').tools(t)`.
    """
    model = ScriptedModel('Four.')
    llm = begin(Agent(model))
    conversation = llm.agent('Count.').assistant('I count.').request('2 + 2?').prompt_conversation()
    assert [told([message]) async for message in conversation] == [['Four.']]
    assert (model.requests[0].instructions, told(model.requests[0].messages)) == (
        'Count.',
        ['I count.', 'user: 2 + 2?'],
    )

    def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    messages = MessageList.from_dict(json.loads(json.dumps(conversation.messages.to_dict())))
    restored = Conversation(messages)
    assert restored.messages is messages
    builder = restored.continuation.provider('anthropic').tools(double)
    assert "model 'anthropic:" in repr(builder)
    model = ScriptedModel(call('double', number=4), 'Eight.')
    assert await builder.model(model).request('Doubled?').prompt() == 'Eight.'
    assert told(restored.messages) == [
        'I count.', 'user: 2 + 2?', 'Four.', 'user: Doubled?', 'call double', 'double: 8', 'Eight.',
    ]  # fmt: skip
    assert 'double' in model.requests[0].tool_names


def test_applying_deltas_does_not_depend_on_the_length_of_the_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    """001-25: Applying a delta stays fast on large conversations.

    Counted by reads of earlier messages: as many for 20,000 messages as for 20.
    """

    class Uncopied(ModelResponse):
        def __deepcopy__(self, memo: object) -> Uncopied:
            raise AssertionError('A message of before was copied.')

    original: Any = MessageList.__getitem__
    reads: list[object] = []

    def read(self: MessageList, index: Any) -> Any:
        reads.append(index)
        return original(self, index)

    monkeypatch.setattr(MessageList, '__iter__', None)
    monkeypatch.setattr(MessageList, '__getitem__', read)
    counts: list[int] = []
    for count in (20, 20_000):
        history: list[ModelMessage] = [ModelRequest.user_text_prompt('x'), Uncopied([TextPart('y')])] * (count // 2)
        conversation = Conversation(history, agent=Agent())
        reads.clear()
        for _ in range(10):
            conversation.continuation.instructions('x').user('a').assistant('b').tools(look).settings(top_p=1).start()
        assert all(index == -1 for index in reads)
        counts.append(len(reads))
        assert len(conversation.messages) == count + 20
    assert counts == [20, 20]


async def test_concurrent_builders_have_a_defined_order(begin: Begin, store: Store) -> None:
    """While one turn is awaited, and while none is.

    001-27: Several builders on one conversation have a defined behaviour under concurrency.
    """
    may_end, is_asked = asyncio.Event(), asyncio.Event()

    async def answer(messages: list[ModelMessage], info: object) -> Answer:
        is_asked.set()
        await may_end.wait()
        return f'to {told(messages)[-1]}'

    conversation = begin(Agent(ScriptedModel(then=answer))).user('1').start()
    two, three = conversation.continuation.user('2'), conversation.continuation.user('3')
    running = asyncio.create_task(conversation.run())
    await is_asked.wait()
    for builder in (two, three):  # refused completely while another turn is awaited
        with pytest.raises(ConversationBusyError):
            builder.start()
    may_end.set()
    assert await running == 'to user: 1'
    assert told(conversation.messages) == ['user: 1', 'to user: 1']

    two.start()  # both messages are added before a turn runs
    assert await three.prompt() == "to user: ['2', '3']"
    iterator = aiter(two.start())
    assert told([await anext(iterator)]) == ['to user: 2']
    assert await three.prompt() == 'to user: 3'  # the previous turn is not awaited, so it is stopped, and its loop
    # raises
    with pytest.raises(TurnStoppedError):
        await anext(iterator)
    assert told(conversation.messages)[-4:] == ['user: 2', 'to user: 2', 'user: 3', 'to user: 3']


async def test_one_of_two_handles_moves_the_head(store: Store) -> None:
    """001-27: Several builders on one conversation have a defined behaviour under concurrency.

    C4: of two handles in any processes, the other gets a conflict, and its turn is a branch.
    """
    both = asyncio.Barrier(2)

    async def answer(messages: list[ModelMessage], info: object) -> Answer:
        if len(messages) > 1:
            await both.wait()
        return f'to {told(messages)[-1]}'

    agent = Agent(ScriptedModel(then=answer))
    one = prompt(agent, store=store).user('1').start()
    await one.run()
    two = await Conversation(agent=agent, store=store, conversation_id=one.id).load()
    runs = [handle.continuation.user(said).prompt() for handle, said in ((one, 'a'), (two, 'b'))]
    done = await asyncio.gather(*runs, return_exceptions=True)

    [answered] = [each for each in done if isinstance(each, str)]
    [error] = [each for each in done if isinstance(each, VersionConflictError)]
    assert told(one.messages) == told(two.messages) == ['user: 1', 'to user: 1', answered.removeprefix('to '), answered]
    lost = await VersionedAgent(agent, store).load(error.yours)
    assert {answered, told(await lost.messages())[-1]} == {'to user: a', 'to user: b'}


def first_message(document: Document) -> Document:
    """Migrate a document of the newest format to an invented next one."""
    return {'messages': cast('list[Any]', document['messages'])[:1]}


def test_formats_are_numbered_and_old_files_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """001-28: The format of the serialization has a version and can evolve: old files still load."""
    golden = sorted((ROOT / 'tests/fluent/golden').glob('format_*.json'))
    assert [file.stem for file in golden] == [f'format_{number + 1}' for number in range(FORMAT_VERSION)]
    for file in golden:
        messages = MessageList.load(file)
        assert len(messages) == len(json.loads(file.read_text())['messages']) > 5
        messages.save(tmp_path / 'saved.json')
        assert json.loads((tmp_path / 'saved.json').read_text())['format_version'] == FORMAT_VERSION
        assert MessageList.load(tmp_path / 'saved.json') == messages

    newer: dict[str, Any] = {'format_version': FORMAT_VERSION + 1, 'messages': []}
    with pytest.raises(TranscriptError, match=f'format_version {FORMAT_VERSION + 1}.*Update pydantic-deep'):
        MessageList.from_dict(newer)
    # Simulates the next release, in which a migration applies.
    monkeypatch.setattr('pydantic_deep.fluent._format.FORMAT_VERSION', FORMAT_VERSION + 1)
    monkeypatch.setitem(MIGRATIONS, FORMAT_VERSION, first_message)
    assert [len(MessageList.load(file)) for file in golden] == [1] * len(golden)
    assert len(MessageList.from_dict(newer)) == 0
