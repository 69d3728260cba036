"""Properties of the cut: the rest of any history is valid for every provider and has the requested size.

Messages are mapped by pydantic-ai's own model classes, as for a request, but nothing is sent.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, cast

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai.messages import (
    BinaryContent,
    CompactionPart,
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    NativeToolCallPart,
    NativeToolReturnPart,
    RetryFeedbackPart,
    RetryInfo,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
    repair_messages,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RunUsage

from pydantic_deep._messages.summary_metadata import SummaryMetadata
from pydantic_deep.summarization import Messages, Tokens
from pydantic_deep.summarization._capability import _request_with  # pyright: ignore[reportPrivateUsage]
from pydantic_deep.summarization._cut import find_cut, safe_cuts
from pydantic_deep.summarization._overflow import sendable
from pydantic_deep.tokens import count_message

KEY = 'no-key'
PARAMETERS = ModelRequestParameters(
    function_tools=[ToolDefinition(name='work', parameters_json_schema={'type': 'object', 'properties': {}})],
    instruction_parts=[InstructionPart(content='Be brief.')],
    allow_text_output=True,
)

# --------------------------------------------------------------------------------------------------------------- wires


@dataclass(frozen=True)
class Turn:
    """One item of a request, independent of the provider."""

    role: str
    """`user`, `model`, or `call` and `result` for APIs with separate items for these."""
    calls: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    signatures: tuple[str, ...] = ()


@dataclass(frozen=True)
class Wire:
    """One provider's API: the mapping of messages by its model class."""

    name: str
    model: Model
    map: Callable[[list[ModelMessage]], Awaitable[tuple[object, list[Turn]]]]
    """Return the body of a request and the turns in it."""
    answers_at_once: bool
    """Whether all results must be in the turn right after their calls."""

    async def check(self, messages: Sequence[ModelMessage]) -> list[Turn]:
        """Assert that the provider would accept the messages, and return the turns."""
        _, turns = await self.map(sendable(self.model, messages, PARAMETERS))
        assert turns, self.name
        assert turns[0].role == 'user', (self.name, turns)
        open_calls: list[str] = []
        for before, turn in pairwise([Turn('start'), *turns]):
            if self.answers_at_once:
                assert sorted(turn.results) == sorted(before.calls), (self.name, turns)
            if turn.role in ('user', 'model') and not turn.results:
                assert not open_calls or turn.role == 'model', (self.name, turns)
            for id in turn.results:
                assert id in open_calls, (self.name, turns)
                open_calls.remove(id)
            open_calls += turn.calls
        assert not open_calls, (self.name, turns)
        return turns


def make_wires() -> list[Wire]:
    openai = OpenAIProvider(api_key=KEY)
    chat = OpenAIChatModel('gpt-5.2', provider=openai)
    responses = OpenAIResponsesModel('gpt-5.2', provider=openai)
    anthropic = AnthropicModel('claude-opus-5-5', provider=AnthropicProvider(api_key=KEY))
    google = GoogleModel('gemini-2.5-pro', provider=GoogleProvider(api_key=KEY))

    async def of_chat(messages: list[ModelMessage]) -> tuple[object, list[Turn]]:
        _, parameters = chat.prepare_request(None, PARAMETERS)
        mapped = cast('list[dict[str, Any]]', await getattr(chat, '_map_messages')(messages, parameters))  # noqa: B009
        return mapped, [_chat_turn(each) for each in mapped if each['role'] not in ('system', 'developer')]

    async def of_responses(messages: list[ModelMessage]) -> tuple[object, list[Turn]]:
        settings, parameters = responses.prepare_request(None, PARAMETERS)
        map_messages = getattr(responses, '_map_messages')  # noqa: B009
        said, mapped = await map_messages(messages, settings or {}, parameters)
        turns = [_item_turn(each) for each in mapped if each.get('role') not in ('system', 'developer')]
        return (said, mapped), turns

    async def of_anthropic(messages: list[ModelMessage]) -> tuple[object, list[Turn]]:
        settings, parameters = anthropic.prepare_request(None, PARAMETERS)
        said, mapped = await getattr(anthropic, '_map_message')(messages, parameters, settings or {})  # noqa: B009
        return (said, mapped), [_block_turn(each) for each in mapped]

    async def of_google(messages: list[ModelMessage]) -> tuple[object, list[Turn]]:
        _, parameters = google.prepare_request(None, PARAMETERS)
        said, mapped = await getattr(google, '_map_messages')(messages, parameters)  # noqa: B009
        return (said, mapped), [_content_turn(each) for each in mapped]

    return [
        Wire('openai chat', chat, of_chat, answers_at_once=False),
        Wire('openai responses', responses, of_responses, answers_at_once=False),
        Wire('anthropic', anthropic, of_anthropic, answers_at_once=True),
        Wire('google', google, of_google, answers_at_once=True),
    ]


def _role_of(message: dict[str, Any]) -> str:
    return 'model' if message['role'] == 'assistant' else str(message['role'])


def _chat_turn(message: dict[str, Any]) -> Turn:
    calls = tuple(call['id'] for call in message.get('tool_calls') or ())
    if message['role'] == 'tool':
        return Turn('result', results=(message['tool_call_id'],))
    return Turn(_role_of(message), calls=calls)


def _item_turn(item: dict[str, Any]) -> Turn:
    match item.get('type', 'message'):
        case 'function_call':
            return Turn('call', calls=(item['call_id'],))
        case 'function_call_output':
            return Turn('result', results=(item['call_id'],))
        case 'reasoning':
            return Turn('model', signatures=(item['encrypted_content'],) if item.get('encrypted_content') else ())
        case 'message':
            return Turn(_role_of(item))
        case _:
            return Turn('model')


def _block_turn(message: dict[str, Any]) -> Turn:
    blocks = cast('list[dict[str, Any]]', message['content'])
    return Turn(
        _role_of(message),
        calls=tuple(block['id'] for block in blocks if block['type'] == 'tool_use'),
        results=tuple(block['tool_use_id'] for block in blocks if block['type'] == 'tool_result'),
        signatures=tuple(block['signature'] for block in blocks if block['type'] == 'thinking'),
    )


def _content_turn(content: dict[str, Any]) -> Turn:
    parts = cast('list[dict[str, Any]]', content['parts'])
    return Turn(
        content['role'],
        calls=tuple(part['function_call']['id'] for part in parts if 'function_call' in part),
        results=tuple(part['function_response']['id'] for part in parts if 'function_response' in part),
        signatures=tuple(str(part['thought_signature']) for part in parts if part.get('thought_signature')),
    )


# ----------------------------------------------------------------------------------------------------------- histories

IMAGE = BinaryContent(b'\x89PNG', media_type='image/png')


class History(list[ModelMessage]):
    """A history with a short repr for failing examples."""

    def __repr__(self) -> str:
        return '\n'.join(f'{m.kind}: {[(p.part_kind, getattr(p, "tool_call_id", "")) for p in m.parts]}' for m in self)


@dataclass
class Draft:
    """A history under construction."""

    messages: list[ModelMessage]
    waiting: list[ToolCallPart]
    """Calls without a result yet."""
    count: int = 0

    def say(self, *parts: ModelResponsePart, provider: str | None = None) -> None:
        self.count += 1
        self.messages.append(ModelResponse(parts=list(parts), model_name='m', provider_name=provider))

    def tell(self, *parts: Any) -> None:
        self.messages.append(ModelRequest(parts=list(parts)))

    def call(self, id: str | None = None) -> ToolCallPart:
        self.count += 1
        return ToolCallPart('work', {'n': self.count}, tool_call_id=id or f'c{self.count}')


def result_of(call: ToolCallPart, text: str = 'done') -> ToolReturnPart:
    return ToolReturnPart(call.tool_name, text, tool_call_id=call.tool_call_id)


EPISODES = (
    *(
        'text',
        'calls',
        'calls',
        'same ids',
        'deferred',
        'late answer',
        'thinking',
        'image',
        'native',
        'feedback',
        'retried call',
    ),
    *('skill', 'interrupted', 'two requests', 'two responses', 'notice', 'failed'),
)


@st.composite
def histories(draw: st.DrawFn, kinds: Sequence[str] = EPISODES) -> list[ModelMessage]:
    """A history of an agent that ends with the current request."""
    d = Draft([], [])
    begin = draw(st.sampled_from(('prompt', 'system', 'summary', 'system and summary', 'late summary')))
    system = [SystemPromptPart('You are an agent.')] if 'system' in begin else []
    summary = [CompactionPart(content='Earlier things.')] if begin.endswith('summary') else []
    if begin == 'late summary':
        d.tell(UserPromptPart('hello'))
        d.say(TextPart('hi'))
    d.tell(*system, *(summary or [UserPromptPart('begin')]))
    for kind in draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=8)):
        _episode(draw, d, kind)
    if isinstance(d.messages[-1], ModelResponse):
        d.tell(*map(result_of, d.waiting), UserPromptPart('go on'))
    return History(d.messages)


def _prompted(d: Draft) -> None:
    """Add a user prompt if the last message is a response."""
    if isinstance(d.messages[-1], ModelResponse):
        d.tell(UserPromptPart(f'turn {len(d.messages)}'))


def _episode(draw: st.DrawFn, d: Draft, kind: str) -> None:
    _prompted(d)
    match kind:
        case 'calls':
            calls = [d.call() for _ in range(draw(st.integers(1, 4)))]
            d.say(TextPart('I work.'), *calls)
            d.tell(*map(result_of, draw(st.permutations(calls))))
        case 'same ids':
            for _ in range(draw(st.integers(2, 3))):
                call = d.call('same')
                d.say(call)
                d.tell(result_of(call))
        case 'deferred':
            first, second = d.call(), d.call()
            d.say(first, second)
            d.tell(result_of(first))
            if draw(st.booleans()):  # a note of the application before the person answers
                d.tell(UserPromptPart('a note'))
            d.tell(result_of(second))
        case 'late answer':
            call = d.call()
            d.say(call)
            d.tell(UserPromptPart('and?'))
            d.say(TextPart('It waits.'))
            d.tell(result_of(call))
        case 'thinking':
            call = d.call()
            provider = draw(st.sampled_from(('anthropic', 'openai', 'google')))
            thought = ThinkingPart(
                'hm', signature=b64encode(f'sig{d.count}'.encode()).decode(), provider_name=provider, id=f'rs_{d.count}'
            )
            d.say(thought, call, provider=provider)
            d.tell(result_of(call))
        case 'image':
            call = d.call()
            d.say(call)
            d.tell(
                ToolReturnPart('work', ['see', IMAGE], tool_call_id=call.tool_call_id),
                UserPromptPart(['it', IMAGE]),
            )
        case 'native':
            id = f'n{d.count}'
            d.say(
                NativeToolCallPart('web_search', {'query': 'q'}, tool_call_id=id, provider_name='x'),
                NativeToolReturnPart('web_search', {'found': 1}, tool_call_id=id, provider_name='x'),
                TextPart('found'),
            )
        case 'feedback':
            d.say(TextPart('{'))
            d.tell(RetryFeedbackPart(content='No JSON.', retry=RetryInfo(cause='validation_error')))
        case 'retried call':
            call = d.call()
            d.say(call)
            d.tell(ToolReturnPart('work', 'again', tool_call_id=call.tool_call_id, outcome='failed'))
            d.say(again := d.call())
            d.tell(result_of(again))
        case 'skill':
            call = ToolCallPart('load_skill', {'name': 'pdf'}, tool_call_id=f's{d.count}')
            d.say(call)
            d.tell(ToolReturnPart('load_skill', '# How', tool_call_id=call.tool_call_id, metadata={'skill': 'pdf'}))
        case 'interrupted':
            calls = [d.call(), d.call()]
            d.say(*calls)
            if draw(st.booleans()):
                d.tell(result_of(calls[0]))
            d.tell(UserPromptPart('never mind'))
        case 'two requests':
            d.say(TextPart('yes'))
            d.tell(UserPromptPart('one'))
            d.tell(UserPromptPart('two'))
        case 'two responses':
            d.say(TextPart('part one'))
            d.say(TextPart('part two'))
        case 'notice':
            call = d.call()
            d.say(call)
            d.tell(result_of(call), SystemPromptPart('Todos:\n- a'))
        case 'failed':
            call = d.call()
            d.say(call)
            d.tell(ToolReturnPart('work', 'no', tool_call_id=call.tool_call_id, outcome='failed'))
        case _:
            d.say(TextPart(f'text {d.count}'))


# --------------------------------------------------------------------------------------------------------------- laws

WIRES = make_wires()
METADATA_MARK = 'never to be sent'


def cut_at(messages: Sequence[ModelMessage], cut: int) -> list[ModelMessage]:
    """Return the history that the capability creates with a cut."""
    if cut == 0:
        return list(messages)
    summary = SummaryMetadata(
        reason='tokens', is_plain=False, goal=METADATA_MARK, carried={}, usage=RunUsage(), messages=messages[:cut]
    )
    return [_request_with(messages[:cut], summary.part('What was.')), *messages[cut:]]


def sums_of(messages: Sequence[ModelMessage]) -> list[int]:
    return [0, *accumulate(map(count_message, messages))]


def exchanges(messages: Sequence[ModelMessage]) -> list[ToolCallPart | ToolReturnPart]:
    """Return the calls and results sent to a provider, in order, after unmatched ones were repaired or dropped."""
    parts = [part for message in repair_messages(messages) for part in message.parts]
    return [part for part in parts if isinstance(part, (ToolCallPart, ToolReturnPart))]


def shown(parts: Sequence[ToolCallPart | ToolReturnPart]) -> list[tuple[str, str]]:
    return [(part.part_kind, part.tool_call_id) for part in parts]


def doubled_turns(turns: Sequence[Turn]) -> int:
    """Return the number of consecutive turns with the same role."""
    return sum(before.role == after.role for before, after in pairwise(turns))


@pytest.mark.slow
@settings(max_examples=150)
@given(histories([kind for kind in EPISODES if kind != 'late answer']))
def test_every_safe_cut_is_valid_for_every_provider(messages: list[ModelMessage]) -> None:
    async def check() -> None:
        for wire in WIRES:
            before = await wire.check(messages)
            for cut in safe_cuts(messages):
                after = await wire.check(cut_at(messages, cut))
                assert wire.name != 'anthropic' or doubled_turns(after) <= doubled_turns(before)

    anyio.run(check)


@pytest.mark.slow
@settings(max_examples=300)
@given(histories())
def test_safe_cuts_preserve_the_results_of_later_calls(messages: list[ModelMessage]) -> None:
    original = exchanges(messages)
    for cut in safe_cuts(messages):
        after = exchanges(cut_at(messages, cut))
        assert shown(after) == shown(original)[len(original) - len(after) :], cut
        kept = {id(part) for message in messages[cut:] for part in message.parts}
        assert [id(each) for each in after if id(each) in kept] == [
            id(each) for each in original if id(each) in kept
        ], cut


@pytest.mark.slow
@settings(max_examples=200)
@given(histories())
def test_messages_after_a_cut_are_the_same_objects(messages: list[ModelMessage]) -> None:
    for cut in safe_cuts(messages):
        history = cut_at(messages, cut)
        assert all(map(lambda a, b: a is b, history[1:], messages[cut:]))
        assert len(history) == len(messages) - cut + 1


@pytest.mark.slow
@settings(max_examples=300)
@given(histories(), st.integers(1, 12), st.booleans())
def test_cut_retains_the_requested_size_if_a_safe_cut_allows_it(
    messages: list[ModelMessage], kept: int, by_tokens: bool
) -> None:
    sums, safe = sums_of(messages), safe_cuts(messages)

    def size(cut: int) -> int:
        return sums[-1] - sums[cut] if by_tokens else len(messages) - cut

    keep = Tokens(kept * 8) if by_tokens else Messages(kept)
    cut = find_cut(messages, sums, keep)
    assert cut == 0 or cut in safe
    if cut == 0:
        return
    enough = [each for each in safe if size(each) >= keep.value]
    if cut in enough:
        # Minimal: no later safe cut retains enough.
        assert not [each for each in enough if each > cut and size(each) > keep.value]
    elif by_tokens:
        # At most the requested size, because no safe cut retains exactly that.
        assert not [each for each in safe if cut < each and size(each) > keep.value]
    else:
        assert not enough
        assert cut == safe[0]


def test_thinking_signatures_are_sent_unchanged() -> None:
    thought = ThinkingPart('hm', signature='sig', provider_name='anthropic')
    call = ToolCallPart('work', {}, tool_call_id='a')
    messages: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart('begin')]),
        ModelResponse(parts=[TextPart('yes')], provider_name='anthropic'),
        ModelRequest(parts=[UserPromptPart('go on')]),
        ModelResponse(parts=[thought, call], provider_name='anthropic'),
        ModelRequest(parts=[result_of(call)]),
    ]
    (anthropic,) = (wire for wire in WIRES if wire.name == 'anthropic')
    for cut in safe_cuts(messages):
        turns = anyio.run(anthropic.check, cut_at(messages, cut))
        assert [each for turn in turns for each in turn.signatures] == ['sig']


@pytest.mark.parametrize('wire', WIRES, ids=lambda wire: wire.name)
def test_summary_metadata_are_not_sent_to_models(wire: Wire) -> None:
    messages: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart(METADATA_MARK)]),
        ModelResponse(parts=[TextPart('yes')]),
        ModelRequest(parts=[UserPromptPart('go on')]),
    ]

    async def body() -> object:
        return (await wire.map(sendable(wire.model, cut_at(messages, 2), PARAMETERS)))[0]

    sent = str(anyio.run(body))
    assert 'What was.' in sent
    assert 'go on' in sent
    assert METADATA_MARK not in sent
    assert 'pydantic_deep' not in sent


def test_result_without_a_call_does_not_prevent_a_cut() -> None:
    call = ToolCallPart('work', {}, tool_call_id='a')
    messages: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart('begin')]),
        ModelResponse(parts=[TextPart('yes')]),
        ModelRequest(parts=[result_of(call)]),
        ModelResponse(parts=[TextPart('yes')]),
        ModelRequest(parts=[UserPromptPart('go on')]),
    ]
    assert safe_cuts(messages) == [1, 3]


def test_pending_calls_and_the_new_request_are_retained() -> None:
    call = ToolCallPart('work', {}, tool_call_id='a')
    messages: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart('begin')]),
        ModelResponse(parts=[TextPart('yes')]),
        ModelRequest(parts=[UserPromptPart('go on')]),
        ModelResponse(parts=[call]),
        ModelRequest(parts=[UserPromptPart('and?')]),
    ]
    assert safe_cuts(messages) == [1, 3]
    assert safe_cuts(messages[:4]) == [1, 3]
    assert find_cut(messages, sums_of(messages), Messages(1)) == 3
    assert find_cut(messages[:1], sums_of(messages[:1]), Messages(1)) == 0


def test_late_results_retain_their_calls() -> None:
    call = ToolCallPart('work', {}, tool_call_id='a')
    middle = [
        message
        for n in range(3)
        for message in (ModelRequest(parts=[UserPromptPart(str(n))]), ModelResponse(parts=[TextPart('yes')]))
    ]
    messages: list[ModelMessage] = [
        *(ModelRequest(parts=[UserPromptPart('begin')]), ModelResponse(parts=[call])),
        *middle,
        *(ModelRequest(parts=[result_of(call)]), ModelResponse(parts=[TextPart('done')])),
        ModelRequest(parts=[UserPromptPart('go on')]),
    ]
    assert safe_cuts(messages) == [1, 9]
