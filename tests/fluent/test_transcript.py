"""Transcripts: what is in them, where they can be kept, and what is said of a wrong one."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from inline_snapshot import snapshot
from pydantic import BaseModel
from pydantic_ai import Agent, FunctionToolset, InstructionPart, ModelSettings, RunContext, Tool, ToolOutput
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    BinaryContent,
    CompactionPart,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from pydantic_deep import DeepAgentDeps
from pydantic_deep.fluent import FORMAT_VERSION, MessageList, TranscriptError
from pydantic_deep.fluent._format import MAX_DEPTH, MIGRATIONS, Document, parse_document
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.todos import Todos
from pydantic_deep_backends import digest_of

from .conftest import ASSISTANT, USER, Begin, refused, with_part


class Instructions(AbstractCapability[object]):
    """Has instructions that are recorded in the history, and change between requests."""

    id = 'canary'

    def get_instructions(self) -> Any:
        def instructions(ctx: RunContext[object]) -> InstructionPart:
            return InstructionPart(f'canary {ctx.run_step}', name='canary', on_change='append')

        return instructions


def part_kinds(union: Any) -> set[type]:
    """Return the types of a union, however it is nested and annotated."""
    if isinstance(union, type):
        return {union}
    return {kind for each in get_args(union) if not isinstance(each, str) for kind in part_kinds(each)}


def is_part(kind: type) -> bool:
    return hasattr(kind, 'part_kind')


def dumped(document: object) -> str:
    return json.dumps(document, sort_keys=True)


def contents(messages: list[ModelMessage]) -> list[object]:
    return [getattr(part, 'content', None) for message in messages for part in message.parts]


# What is in a transcript


def test_a_transcript_has_messages_and_a_format_version_and_nothing_else(every_kind: list[ModelMessage]) -> None:
    """001-11, 001-18, 001-28: what serializes is the messages, and the number of the format."""
    document = MessageList(every_kind).to_dict()
    assert list(document) == ['format_version', 'messages']
    assert document['format_version'] == FORMAT_VERSION == 1


def test_messages_survive_a_round_trip(every_kind: list[ModelMessage], spoken: list[ModelMessage]) -> None:
    """001-02, 001-30: `to_dict` and `from_dict` lose nothing that was said, of any kind of part."""
    document = json.loads(json.dumps(MessageList(every_kind).to_dict()))
    assert list(MessageList.from_dict(document)) == spoken


def test_the_golden_file_of_format_1_still_loads(golden: Path, spoken: list[ModelMessage]) -> None:
    """001-28: a file that an earlier release wrote, with instructions and system prompts in it, still loads: with all
    that was said, and without the configuration of then.
    """
    assert list(MessageList.load(golden / 'format_1.json')) == spoken


@pytest.mark.anyio
async def test_nothing_that_was_configured_is_in_a_transcript(begin: Begin, tmp_path: Path) -> None:
    """001-11, 001-18: only messages serialize. Instructions, system prompts, names and descriptions of tools that were
    not called, toolsets, output types, models, providers, settings, metadata and ids of conversations are not in a
    transcript, wherever they were set: on the agent, in a capability, on a builder, or in the deps.
    """

    def look(what: str = 'canary') -> str:
        """Look, canary.

        Args:
            what: What, canary.
        """
        return 'seen'

    class CanaryOutput(BaseModel):
        answer: str

    tool = Tool(look, name='look', description='canary', metadata={'canary': 'canary'})
    settings = ModelSettings(temperature=0.123454321, stop_sequences=['canary'], thinking='high')
    model = ScriptedModel(
        call('look', what=''),
        call('final_result', answer='Done.'),
        model_name='canary-model',
        settings=ModelSettings(max_tokens=123454321),
    )
    agent = Agent(
        model,
        name='canary',
        instructions='canary',
        system_prompt='canary',
        deps_type=DeepAgentDeps,
        output_type=ToolOutput(CanaryOutput, name='final_result', description='canary'),
        tools=[tool],
        toolsets=[FunctionToolset([look], id='canary', instructions='canary').prefixed('canary')],
        capabilities=[Instructions(), Todos()],
        metadata={'canary': 'canary'},
        model_settings=settings,
    )
    deps = DeepAgentDeps(metadata={'canary': 'canary'})
    builder = (
        begin(agent, deps=deps, conversation_id='canary')
        .instructions('canary')
        .tools(Tool(look, name='canary', description='canary'))
        .settings(**settings)
        .settings(extra_body={'x-canary': 'canary'})
        .model(model)
    )
    conversation = builder.user('Look.').start()
    await conversation.run()
    assert 'canary' in str(conversation.messages[0])
    for transcript in (conversation.messages, await conversation.export()):
        transcript.save(tmp_path / 'saved.json')
        saved = (tmp_path / 'saved.json').read_text()
        assert [word for word in ('canary', '123454321') if word in saved.lower()] == []
        assert '"Look."' in saved
        assert '"seen"' in saved


@pytest.mark.anyio
async def test_a_transcript_is_asked_under_the_system_prompt_of_whoever_loads_it(begin: Begin) -> None:
    """001-06, 001-18: configuration is set again where a transcript is loaded, once, and none comes with it."""
    first = begin(Agent(ScriptedModel('One.'), system_prompt='Old.')).user('1').start()
    await first.run()
    model = ScriptedModel('Two.', 'Three.')
    loaded = begin(Agent(model, system_prompt='New.')).start()
    loaded.messages.extend(MessageList.from_dict(first.messages.to_dict()))
    await loaded.continuation.user('2').prompt()
    await loaded.continuation.user('3').prompt()
    for request in model.requests:
        assert contents(request.messages)[:3] == ['New.', '1', 'One.']
        assert str(request.messages).count('New.') == 1


@pytest.mark.anyio
async def test_a_history_that_begins_with_an_answer_gets_the_system_prompt_too(begin: Begin) -> None:
    model = ScriptedModel('Yes.')
    await begin(Agent(model, system_prompt='New.')).assistant('Ready?').user('Go').prompt()
    assert contents(model.requests[0].messages) == ['New.', 'Ready?', 'Go']


@pytest.mark.anyio
async def test_a_system_prompt_that_was_put_there_by_hand_stays_the_only_one(begin: Begin) -> None:
    model = ScriptedModel('Yes.')
    conversation = begin(Agent(model, system_prompt='New.')).start()
    own = ModelRequest([SystemPromptPart('Own.'), UserPromptPart('1')])
    conversation.messages.extend([own, ModelResponse([TextPart('One.')])])
    await conversation.continuation.user('2').prompt()
    assert 'New.' not in str(model.requests[0].messages)


def test_summarized_messages_survive_a_round_trip(every_kind: list[ModelMessage]) -> None:
    """001-11: what a summary keeps of earlier messages is a transcript too."""
    kept = MessageList(every_kind).to_dict()['messages']
    written = ModelMessagesTypeAdapter.dump_python(every_kind, mode='json')
    summary = CompactionPart('Short.', metadata={'pydantic_deep': {'reason': 'tokens', 'messages': written}})
    document: Any = MessageList([ModelRequest([summary])]).to_dict()
    assert document['messages'][0]['parts'][0]['metadata'] == {
        'pydantic_deep': {'reason': 'tokens', 'messages': kept},
    }


def test_directories_are_made_for_a_transcript(tmp_path: Path) -> None:
    """R11: a path whose directories are not there yet can be written to."""
    MessageList([USER]).save(tmp_path / 'a' / 'b' / 'c.json')
    MessageList([USER]).save(str(tmp_path / 'd' / 'c.json'))
    assert MessageList.load(tmp_path / 'a' / 'b' / 'c.json') == MessageList.load(tmp_path / 'd' / 'c.json')


def test_every_format_has_a_golden_file(golden: Path) -> None:
    """C30: whoever makes a new format keeps a file of the old one."""
    assert {path.name for path in golden.iterdir()} == {f'format_{n}.json' for n in range(1, FORMAT_VERSION + 1)}


def test_the_golden_file_has_every_kind_of_part(every_kind: list[ModelMessage]) -> None:
    """A kind that pydantic-ai adds must be added to the messages of these tests."""
    kinds = {kind for union in (ModelRequestPart, ModelResponsePart) for kind in part_kinds(union) if is_part(kind)}
    there = {type(part) for message in every_kind for part in message.parts}
    of_later_releases = {'CapabilityLoadDeltaPart'}
    missing = {kind.__name__ for kind in kinds - there} - of_later_releases
    # The first is deprecated and read as what replaced it; the others are the native parts with arguments of a type.
    assert missing == {'RetryPromptPart', 'NativeToolSearchCallPart', 'NativeToolSearchReturnPart'}


def test_arguments_of_calls_stay_as_the_model_wrote_them() -> None:
    """C9: a string stays the same string, valid JSON or not, and a dictionary a dictionary."""
    written: list[str | dict[str, Any] | None] = ['{"a": 1,,', '{"b":1, "b":2}', '', {'c': [None]}, None]
    calls = [ToolCallPart('t', args, tool_call_id=str(n)) for n, args in enumerate(written)]
    loaded = MessageList.from_dict(MessageList([ModelResponse(calls)]).to_dict())
    assert [exchange.call.args for exchange in loaded.exchanges()] == written


def test_media_are_in_a_transcript_unless_it_is_to_have_their_digests(spoken: list[ModelMessage]) -> None:
    """C32: the export form has the bytes of media in it, the other form their digests."""
    messages = MessageList(spoken)
    media = messages.media()
    pixel = digest_of(b'\x89PNG\r\n\x1a\n\x00\xff')
    assert media == {pixel: b'\x89PNG\r\n\x1a\n\x00\xff', digest_of(b'RIFF'): b'RIFF'}

    inlined, referring = dumped(messages.to_dict()), dumped(messages.to_dict(inline_media=False))
    assert (inlined.count('iVBORw0KGgoA_w=='), inlined.count(pixel)) == (3, 0)
    assert (referring.count('iVBORw0KGgoA_w=='), referring.count(f'asset:{pixel}')) == (0, 3)
    assert MessageList.from_dict(messages.to_dict(inline_media=False), media=media) == messages
    assert MessageList.load(messages.to_dict(inline_media=False), media=media) == messages


def test_media_that_are_not_at_hand_are_named(every_kind: list[ModelMessage]) -> None:
    error = refused(MessageList(every_kind).to_dict(inline_media=False))
    assert (error.index, error.role, error.field) == (0, 'request', 'data')
    assert str(error) == snapshot(
        "Message 0 (request) refers to media with the digest 'sha256:d44c4eee8f72efac76c1f294e7260408825c8dad42adaaf6e9bee7e7ef4c7de3', which `media` does not have. Pass their bytes as `media=`, or export the transcript with `inline_media=True`."
    )


# The list


def test_media_of_another_digest_are_none(every_kind: list[ModelMessage]) -> None:
    """C32: a digest says what the bytes are."""
    messages = MessageList(every_kind)
    forged = dict.fromkeys(messages.media(), b'something else')
    with pytest.raises(TranscriptError, match='which `media` does not have'):
        MessageList.from_dict(messages.to_dict(inline_media=False), media=forged)


def test_empty_media_are_missing_too_if_nobody_passes_them() -> None:
    empty = MessageList([ModelRequest([UserPromptPart(['x', BinaryContent(b'', media_type='text/plain')])])])
    with pytest.raises(TranscriptError, match='which `media` does not have'):
        MessageList.from_dict(empty.to_dict(inline_media=False))
    assert MessageList.from_dict(empty.to_dict(inline_media=False), media=empty.media()) == empty


def test_a_message_list_is_a_list() -> None:
    """001-14: messages are mutable."""
    messages = MessageList([USER])
    messages.append(ASSISTANT)
    messages.insert(0, ASSISTANT)
    messages[1] = ASSISTANT
    assert (len(messages), messages[2], messages[:2]) == (3, ASSISTANT, [ASSISTANT, ASSISTANT])
    messages[:2] = [USER]
    del messages[1]
    assert list(messages) == [USER]
    assert messages == MessageList([USER])
    assert messages != MessageList([ASSISTANT])
    assert messages != [USER]
    assert repr(messages) == '<MessageList of 1 messages>'
    with pytest.raises(TypeError):
        hash(messages)


def test_what_is_no_message_is_refused_at_once() -> None:
    wrong: Any = 'Hello'
    with pytest.raises(TypeError, match=r"'Hello' is not a message. Messages are `ModelRequest`s"):
        MessageList([wrong])
    with pytest.raises(TypeError):
        MessageList().append(wrong)
    with pytest.raises(TypeError):
        MessageList()[:] = [wrong]


def test_a_call_and_its_result_are_seen_as_one() -> None:
    """C11: messages have calls and results apart, and `exchanges` pairs them."""
    messages = MessageList(
        [
            ModelResponse([ToolCallPart('a', {}, 'one'), TextPart('and'), ToolCallPart('b', {}, 'two')]),
            ModelRequest([ToolReturnPart('b', 'B', 'two'), ToolReturnPart('a', 'A', 'one')]),
            ModelResponse([ToolCallPart('a', {}, 'one')]),
            ModelRequest([ToolReturnPart('a', 'again', 'one'), ToolReturnPart('x', 'of nothing', 'gone')]),
            ModelResponse([ToolCallPart('a', {}, 'three')]),
        ]
    )
    pairs = [(pair.call.tool_call_id, pair.result and pair.result.content) for pair in messages.exchanges()]
    assert pairs == [('one', 'A'), ('two', 'B'), ('one', 'again'), ('three', None)]


# Where it can be kept


@pytest.fixture
def messages(spoken: list[ModelMessage]) -> MessageList:
    return MessageList(spoken)


def test_a_transcript_is_saved_to_and_loaded_from_a_path(tmp_path: Path, messages: MessageList) -> None:
    """R11, 001-02: a `Path`, and a `str` that is one."""
    messages.save(tmp_path / 'a.json')
    messages.save(str(tmp_path / 'b.json'))
    assert MessageList.load(tmp_path / 'a.json') == MessageList.load(str(tmp_path / 'b.json')) == messages
    assert {path.name for path in tmp_path.iterdir()} == {'a.json', 'b.json'}


def test_a_transcript_is_saved_to_and_loaded_from_streams(messages: MessageList) -> None:
    """R11: streams of text and of bytes, which stay open."""
    text, data = io.StringIO(), io.BytesIO()
    messages.save(text)
    messages.save(data)
    text.seek(0)
    data.seek(0)
    assert MessageList.load(text) == MessageList.load(data) == messages


def test_a_transcript_is_loaded_from_its_json_and_from_a_dictionary(messages: MessageList) -> None:
    """R11: a `str` that begins with a brace is JSON."""
    document = messages.to_dict()
    assert MessageList.load(f'\n {json.dumps(document)}') == MessageList.load(document) == messages


def test_a_path_that_looks_like_json_is_not_written_as_a_str(tmp_path: Path, messages: MessageList) -> None:
    """What `save` took as a path, `load` takes as one too."""
    with pytest.raises(ValueError, match=r"'\{a\}.json' looks like JSON instead of a path. Pass a `Path`."):
        messages.save('{a}.json')
    messages.save(tmp_path / '{a}.json')
    assert MessageList.load(tmp_path / '{a}.json') == messages


def test_a_file_that_cannot_be_written_is_left_as_it_was(
    tmp_path: Path, messages: MessageList, monkeypatch: pytest.MonkeyPatch
) -> None:
    MessageList().save(tmp_path / 'a.json')

    def full(descriptor: int) -> None:
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr('os.fsync', full)
    with pytest.raises(OSError, match='No space'):
        messages.save(tmp_path / 'a.json')
    assert MessageList.load(tmp_path / 'a.json') == MessageList()
    assert [path.name for path in tmp_path.iterdir()] == ['a.json']


def test_what_a_link_leads_to_is_replaced_and_the_link_stays(tmp_path: Path, messages: MessageList) -> None:
    link = tmp_path / 'link.json'
    link.symlink_to(tmp_path / 'a.json')
    for _ in range(2):  # the file is made, and replaced
        messages.save(link)
        assert link.is_symlink()
        assert MessageList.load(tmp_path / 'a.json') == messages


def test_what_is_no_file_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    """A device would be gone: `save('/dev/stdout')` by root."""
    pipe = tmp_path / 'pipe'
    os.mkfifo(pipe)
    with open(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), 'rb') as reader:
        MessageList().save(pipe)
        assert MessageList.load(reader) == MessageList()
    assert pipe.is_fifo()


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    """Nothing may ever be in a pipe, and there is no end of a device."""
    os.mkfifo(tmp_path / 'pipe')
    with pytest.raises(OSError, match=r'It is not a regular file\. Open it, and pass the stream'):
        MessageList.load(tmp_path / 'pipe')
    with pytest.raises(OSError, match='It is not a regular file'):
        MessageList.load('/dev/zero')
    with pytest.raises(IsADirectoryError):
        MessageList.load(tmp_path)


def test_a_byte_order_mark_is_skipped(messages: MessageList) -> None:
    text = '\ufeff' + json.dumps(messages.to_dict())
    assert MessageList.load(text) == MessageList.load(io.BytesIO(text.encode())) == messages


def test_a_file_that_is_not_there_is_an_error_of_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        MessageList.load(tmp_path / 'a.json')


# What is wrong


def test_invalid_json_raises(tmp_path: Path) -> None:
    (tmp_path / 'a.json').write_bytes(b'\xff\xfe not JSON')
    with pytest.raises(TranscriptError, match=r'This is not valid JSON: .* It begins with '):
        MessageList.load(tmp_path / 'a.json')
    with pytest.raises(TranscriptError, match='This is not valid JSON'):
        MessageList.load('{"format_version": 1, "messages": [')


def in_a_list(value: object) -> object:
    return [value]


def in_an_object(value: object) -> object:
    return {'a': value}


@pytest.mark.parametrize('nest', [in_a_list, in_an_object])
def test_what_is_nested_too_deeply_is_refused_and_does_not_stop_the_program(nest: Callable[[object], object]) -> None:
    """Loading is safe: neither JSON nor a dictionary can use up the stack."""
    value: Any = 'x'
    for _ in range(100_000):
        value = nest(value)
    document = with_part({'part_kind': 'tool-return', 'tool_name': 't', 'tool_call_id': 'c', 'content': value})
    assert (
        str(refused(document))
        == f'The transcript is nested more than {MAX_DEPTH} levels deep. No conversation is nested that deeply.'
    )
    while isinstance(value, (list, dict)):  # or to forget it would use up the stack
        value = next(iter(value.values() if isinstance(value, dict) else value))  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType]
    text = '{"format_version": 1, "messages": ' + '[' * 100_000 + ']' * 100_000 + '}'
    with pytest.raises(TranscriptError, match='This is not valid JSON: recursion limit exceeded'):
        MessageList.load(text)


def test_a_conversation_is_not_nested_too_deeply() -> None:
    """What models and tools nest, up to 90 levels, is kept."""
    value: Any = 'x'
    for _ in range(90):
        value = [value]
    messages = MessageList([ModelRequest([ToolReturnPart('t', value, 'c')])])
    assert MessageList.from_dict(messages.to_dict()) == messages


# Older formats


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch) -> None:
    """Formats that never were: 0 called its messages otherwise, and before that they were a text."""

    def rename(document: Document) -> Document:
        return {'messages': document['dialogue']}

    def split(document: Document) -> Document:
        if not isinstance(document.get('text'), str):
            raise TranscriptError(f'The `text` is {document.get("text")!r}.', field='text')
        return {
            'dialogue': [
                {'kind': 'request', 'parts': [{'part_kind': 'user-prompt', 'content': line}]}
                for line in str(document['text']).splitlines()
            ]
        }

    monkeypatch.setitem(MIGRATIONS, 0, rename)
    monkeypatch.setitem(MIGRATIONS, -1, split)


@pytest.mark.usefixtures('older')
def test_an_older_transcript_is_migrated_step_by_step() -> None:
    """001-28, C30: the table has what makes of each format the next."""
    loaded = parse_document({'format_version': -1, 'text': 'Hello\nWorld'}, {})
    assert [part.content for message in loaded for part in message.parts if isinstance(part, UserPromptPart)] == [
        'Hello',
        'World',
    ]


@pytest.mark.usefixtures('older')
def test_an_invalid_older_transcript_raises_in_its_own_terms() -> None:
    assert refused({'format_version': -1}).field == 'text'
    assert str(refused({'format_version': -2})) == (
        'There is no format_version -2: formats begin with -1. Was it written by pydantic-deep?'
    )
