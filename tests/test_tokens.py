"""Token counts of messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai import (
    ModelRequest,
    ModelResponse,
    PydanticAIDeprecationWarning,
    RequestUsage,
    ToolDefinition,
    messages,
)
from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    CachePoint,
    CompactionPart,
    DocumentUrl,
    FilePart,
    ImageUrl,
    InstructionBaselinePart,
    InstructionDeltaPart,
    InstructionPart,
    ModelMessage,
    ModelRequestPart,
    ModelResponsePart,
    ModelSettingsDeltaPart,
    NativeToolCallPart,
    NativeToolReturnPart,
    RetryFeedbackPart,
    RetryInfo,
    SpeechPart,
    StructuredContent,
    SystemPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolAvailabilityDeltaPart,
    ToolCallPart,
    ToolReturnPart,
    UploadedFile,
    UserContent,
    UserPromptPart,
    VideoUrl,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_core import ErrorDetails

from pydantic_deep.tokens import (
    DOCUMENT_TOKENS,
    IMAGE_TOKENS,
    MEDIA_TOKENS,
    PART_TOKENS,
    MessageTokens,
    count_head,
    count_message,
    count_tokens_approximately,
)

IMAGE = BinaryContent(b'\x89PNG', media_type='image/png')


def part_tokens(part: ModelRequestPart | ModelResponsePart) -> int:
    """Return the tokens of the contents of a part, at one token per character."""
    message = ModelResponse([part]) if part.part_kind in RESPONSE_KINDS else ModelRequest([part])  # type: ignore[list-item]
    return count_message(message, len) - PART_TOKENS


RESPONSE_KINDS = {'text', 'thinking', 'file', 'tool-call', 'builtin-tool-call', 'builtin-tool-return', 'compaction'}


@pytest.mark.parametrize(('text', 'tokens'), [('', 0), ('a', 1), ('abcd', 1), ('abcde', 2), ('ü' * 400, 100)])
def test_text_takes_about_one_token_per_four_characters(text: str, tokens: int) -> None:
    assert count_tokens_approximately(text) == tokens


@pytest.mark.parametrize(
    ('item', 'tokens'),
    [
        ('text', 4),
        (TextContent('tagged', metadata={'not': 'sent'}), 6),
        (StructuredContent({'a': 1}, content='a is 1'), 6),
        (CachePoint(), 0),
        (ImageUrl('https://example.com/a.png'), IMAGE_TOKENS),
        (DocumentUrl('https://example.com/a.pdf'), DOCUMENT_TOKENS),
        (AudioUrl('https://example.com/a.mp3'), MEDIA_TOKENS),
        (VideoUrl('https://example.com/a.mp4'), MEDIA_TOKENS),
        (IMAGE, IMAGE_TOKENS),
        (BinaryContent(b'%PDF', media_type='application/pdf'), DOCUMENT_TOKENS),
        (BinaryContent(b'ID3', media_type='audio/mpeg'), MEDIA_TOKENS),
        (BinaryContent(b'\0', media_type='video/mp4'), MEDIA_TOKENS),
        (BinaryContent(b'a,b\n1,2\n', media_type='text/csv'), 8),
        (BinaryContent(b'{"a": "\xff"}', media_type='application/json'), 10),
        (UploadedFile('file-1', 'openai', media_type='image/png'), IMAGE_TOKENS),
        (UploadedFile('file-1', 'openai'), DOCUMENT_TOKENS),
    ],
)
def test_each_kind_of_content_is_counted(item: UserContent, tokens: int) -> None:
    assert part_tokens(UserPromptPart([item, 'and'])) == tokens + 3


@pytest.mark.parametrize(
    ('part', 'tokens'),
    [
        (SystemPromptPart('be kind'), 7),
        (UserPromptPart('hello'), 5),
        (UserPromptPart(['hello', IMAGE, 'you']), 8 + IMAGE_TOKENS),
        (ToolReturnPart('read_file', 'text', tool_call_id='1'), 4),
        (ToolReturnPart('read_file', {'a': 1}, tool_call_id='1'), len('{"a":1}')),
        (ToolReturnPart('read_file', ['seen', IMAGE], tool_call_id='1'), len('seen') + IMAGE_TOKENS),
        (CompactionPart(content='what was'), 8),
        (CompactionPart(content=None, id='encrypted', provider_name='openai'), 0),
        (SpeechPart(speaker='user', transcript='spoken'), 6),
        (InstructionDeltaPart(id=None, content='changed'), 7),
        (InstructionDeltaPart(id=None, content=None), 0),
        (ToolAvailabilityDeltaPart(tools_added=['a', 'bc']), 4),
        (TextPart('answer'), 6),
        (ThinkingPart('hmm', signature='not text'), 3),
        (FilePart(IMAGE), IMAGE_TOKENS),
        (ToolCallPart('grep', {'q': 'x'}), len('grep{"q":"x"}')),
        (ToolCallPart('grep', '{"q": "x"}'), len('grep{"q":"x"}')),
        (NativeToolCallPart('web_search', {'q': 'x'}), len('web_search{"q":"x"}')),
        (NativeToolReturnPart('web_search', 'found', tool_call_id='1'), 5),
    ],
)
def test_each_kind_of_part_is_counted(part: ModelRequestPart | ModelResponsePart, tokens: int) -> None:
    assert part_tokens(part) == tokens


def test_feedback_is_counted_as_shown_to_the_model() -> None:
    error = ErrorDetails(type='missing', loc=('a',), msg='Field required', input={})
    part = RetryFeedbackPart([error], retry=RetryInfo(cause='validation_error'))

    assert part_tokens(part) == len(part.model_response())
    assert 'Field required' in part.model_response()


@pytest.mark.parametrize(
    ('content', 'tokens'),
    [('no such file', 12), ([ErrorDetails(type='missing', loc=('a',), msg='Field required', input={})], 66)],
)
def test_legacy_retry_is_counted(content: str | list[ErrorDetails], tokens: int) -> None:
    with pytest.warns(PydanticAIDeprecationWarning, match='RetryPromptPart'):
        part = messages.RetryPromptPart(content)  # pyright: ignore[reportDeprecated] in memory it is still found

    assert part_tokens(part) == tokens


@pytest.mark.parametrize('part', [InstructionBaselinePart(instructions=[]), ModelSettingsDeltaPart(settings={})])
def test_parts_for_the_application_take_no_tokens(part: ModelRequestPart) -> None:
    assert count_message(ModelRequest([part])) == 0


def test_every_kind_of_part_of_pydantic_ai_is_tested() -> None:
    tested = {'retry-feedback', 'retry-prompt', 'instruction-baseline', 'model-settings-delta'}
    for mark in getattr(test_each_kind_of_part_is_counted, 'pytestmark'):  # noqa: B009
        tested |= {part.part_kind for part, _ in mark.args[1]}

    newer = {'capability-load-delta'}  # kinds of releases newer than the oldest supported one, never sent to a model
    known = kinds_of(ModelRequest) | kinds_of(ModelResponse)
    assert tested == known - newer


def kinds_of(message: type[ModelRequest | ModelResponse]) -> set[str]:
    """Return the kinds of parts that a message can contain, from its schema."""
    definitions = messages.ModelMessagesTypeAdapter.json_schema()['$defs']
    parts = definitions[message.__name__]['properties']['parts']['items']['oneOf']
    names = [part['$ref'].rpartition('/')[2] for part in parts]
    return {definitions[name]['properties']['part_kind']['const'] for name in names}


def test_head_consists_of_instructions_and_schemas() -> None:
    tool = ToolDefinition(name='grep', description='Search.', parameters_json_schema={'type': 'object'})
    answer = replace(tool, name='answer')
    plain = ModelRequestParameters(instruction_parts=[InstructionPart('one'), InstructionPart('two')])
    with_tools = replace(plain, function_tools=[tool], output_tools=[answer])
    with_output = replace(plain, output_object=OutputObjectDefinition(json_schema={'type': 'object'}))

    assert count_head(ModelRequestParameters(), len) == 0
    assert count_head(plain, len) == len('one\n\ntwo')
    schema = '{"name":"grep","description":"Search.","parameters":{"type":"object"}}'
    assert count_head(with_tools, len) == len('one\n\ntwo') + len(f'[{schema},{schema}]') + len('answer') - len('grep')
    assert count_head(with_output, len) == len('one\n\ntwo') + len('[{"type":"object"}]')


class Counted:
    """A counter that records its calls."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def __call__(self, text: str) -> int:
        self.asked[text] += 1
        return len(text)


@st.composite
def histories(draw: st.DrawFn) -> list[list[ModelMessage]]:
    """Draw a sequence of histories, each derived from the previous one: extended, cut or rewritten."""
    number = iter(range(10_000))
    history: list[ModelMessage] = []
    drawn: list[list[ModelMessage]] = [[]]
    for change in draw(st.lists(st.sampled_from(['grow', 'cut head', 'cut tail', 'rewrite', 'copy']), max_size=12)):
        at = draw(st.integers(0, len(history)))
        match change:
            case 'grow':
                added = draw(st.integers(1, 4))
                history = [*history, *(ModelRequest([UserPromptPart(f'text {next(number)}')]) for _ in range(added))]
            case 'cut head':
                history = history[at:]
            case 'cut tail':
                history = history[:at]
            case 'rewrite':
                summary = ModelRequest([CompactionPart(content=f'summary {next(number)}')])
                history = [summary, *history[at:]]
            case _:
                history = history[:]
        drawn.append(history)
    return drawn


@given(histories())
def test_sums_of_any_sequence_of_histories_equal_a_fresh_count(drawn: list[list[ModelMessage]]) -> None:
    tokens = MessageTokens(counter=len)

    for history in drawn:
        assert list(tokens.sums(history)) == afresh(history)


def afresh(history: Sequence[ModelMessage]) -> list[int]:
    """Return the sums of all prefixes, each counted afresh."""
    return [sum(count_message(message, len) for message in history[:end]) for end in range(len(history) + 1)]


@given(st.lists(st.integers(1, 5), max_size=8))
def test_counter_is_called_once_per_text_of_a_growing_history(steps: list[int]) -> None:
    counter = Counted()
    tokens = MessageTokens(counter=counter)
    history: list[ModelMessage] = []
    for step in steps:
        start = len(history)
        history.extend(ModelResponse([TextPart(f'text {start + index}')]) for index in range(step))
        tokens.sums(history)
        tokens.sums(list(history))

    assert counter.asked == {f'text {index}': 1 for index in range(sum(steps))}


def test_messages_after_a_new_head_are_counted_again() -> None:
    counter = Counted()
    tokens = MessageTokens(counter=counter)
    tail = [ModelRequest([UserPromptPart('b')]), ModelRequest([UserPromptPart('c')])]
    tokens.sums([ModelRequest([UserPromptPart('a')]), *tail])
    tokens.sums([ModelRequest([CompactionPart(content='s')]), *tail])

    assert counter.asked == {'a': 1, 's': 1, 'b': 2, 'c': 2}


def response(text: str, *, input_tokens: int = 0, output_tokens: int = 0) -> ModelResponse:
    usage = RequestUsage(input_tokens=input_tokens, output_tokens=output_tokens)
    return ModelResponse([TextPart(text)], usage=usage)


def prompt(text: str) -> ModelRequest:
    return ModelRequest([UserPromptPart(text)])


PARAMETERS = ModelRequestParameters(instruction_parts=[InstructionPart('x' * 30)])


@pytest.mark.parametrize(
    ('history', 'expected'),
    [
        ([], 30),
        ([prompt('12345')], 30 + 5 + PART_TOKENS),
        ([prompt('12345'), response('ok', input_tokens=100, output_tokens=7)], 107),
        ([prompt('12345'), response('ok', input_tokens=100, output_tokens=7), prompt('abc')], 107 + 3 + PART_TOKENS),
        ([response('ok', input_tokens=100), response('no')], 30 + 4 + 2 * PART_TOKENS),
        (
            [response('ok', input_tokens=100), ModelRequest([CompactionPart(content='sum')])],
            30 + 5 + 2 * PART_TOKENS,
        ),
        (
            [ModelRequest([CompactionPart(content='sum')]), response('ok', input_tokens=50), prompt('abc')],
            50 + 3 + PART_TOKENS,
        ),
    ],
)
def test_context_is_the_last_reported_usage_plus_later_messages(history: list[ModelMessage], expected: int) -> None:
    assert MessageTokens(counter=len).context(history, PARAMETERS) == expected


def test_context_without_parameters_is_its_messages() -> None:
    assert MessageTokens(counter=len).context([prompt('12345')]) == 5 + PART_TOKENS
