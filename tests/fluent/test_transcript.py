"""Transcripts: contents, saving and loading, and errors for invalid ones."""

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
    """Has instructions that are recorded in the history and change between requests."""

    id = 'canary'

    def get_instructions(self) -> Any:
        def instructions(ctx: RunContext[object]) -> InstructionPart:
            return InstructionPart(f'canary {ctx.run_step}', name='canary', on_change='append')

        return instructions


def part_kinds(union: Any) -> set[type]:
    """Return the member types of a union, however nested and annotated."""
    if isinstance(union, type):
        return {union}
    return {kind for each in get_args(union) if not isinstance(each, str) for kind in part_kinds(each)}


def is_part(kind: type) -> bool:
    return hasattr(kind, 'part_kind')


def dumped(document: object) -> str:
    return json.dumps(document, sort_keys=True)


# Contents of a transcript


def test_transcript_contains_only_messages_and_a_format_version(every_kind: list[ModelMessage]) -> None:
    """001-11, 001-18, 001-28: Only the messages and the number of the format are serialized."""
    document = MessageList(every_kind).to_dict()
    assert list(document) == ['format_version', 'messages']
    assert document['format_version'] == FORMAT_VERSION == 1


def test_messages_survive_a_round_trip(every_kind: list[ModelMessage], spoken: list[ModelMessage]) -> None:
    """001-02, 001-30: `to_dict` and `from_dict` lose no content, of any kind of part."""
    document = json.loads(json.dumps(MessageList(every_kind).to_dict()))
    assert list(MessageList.from_dict(document)) == spoken


def test_golden_transcript_of_format_1_still_loads(golden: Path, spoken: list[ModelMessage]) -> None:
    """001-28: A file of an earlier release, with instructions and system prompts, still loads: with all content, and
    without its configuration."""
    assert list(MessageList.load(golden / 'format_1.json')) == spoken


@pytest.mark.anyio
async def test_transcript_contains_no_configuration(begin: Begin, tmp_path: Path) -> None:
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


def test_summarized_messages_survive_a_round_trip(every_kind: list[ModelMessage]) -> None:
    """001-11: The earlier messages inside a summary are serialized like a transcript."""
    kept = MessageList(every_kind).to_dict()['messages']
    written = ModelMessagesTypeAdapter.dump_python(every_kind, mode='json')
    summary = CompactionPart('Short.', metadata={'pydantic_deep': {'reason': 'tokens', 'messages': written}})
    document: Any = MessageList([ModelRequest([summary])]).to_dict()
    assert document['messages'][0]['parts'][0]['metadata'] == {
        'pydantic_deep': {'reason': 'tokens', 'messages': kept},
    }


def test_save_creates_missing_directories(tmp_path: Path) -> None:
    """R11: The parent directories of a path need not exist."""
    MessageList([USER]).save(tmp_path / 'a' / 'b' / 'c.json')
    MessageList([USER]).save(str(tmp_path / 'd' / 'c.json'))
    assert MessageList.load(tmp_path / 'a' / 'b' / 'c.json') == MessageList.load(tmp_path / 'd' / 'c.json')


def test_every_format_has_a_golden_file(golden: Path) -> None:
    """C30: A new format requires a file of the old one."""
    assert {path.name for path in golden.iterdir()} == {f'format_{n}.json' for n in range(1, FORMAT_VERSION + 1)}


def test_golden_file_has_every_kind_of_part(every_kind: list[ModelMessage]) -> None:
    """A new kind of part in pydantic-ai must be added to the messages of these tests."""
    kinds = {kind for union in (ModelRequestPart, ModelResponsePart) for kind in part_kinds(union) if is_part(kind)}
    there = {type(part) for message in every_kind for part in message.parts}
    of_later_releases = {'CapabilityLoadDeltaPart'}
    missing = {kind.__name__ for kind in kinds - there} - of_later_releases
    # The first is deprecated and read as its replacement; the others are native parts with typed arguments.
    assert missing == {'RetryPromptPart', 'NativeToolSearchCallPart', 'NativeToolSearchReturnPart'}


def test_arguments_of_calls_are_unchanged() -> None:
    """C9: A string stays the same string, valid JSON or not, and a dictionary stays a dictionary."""
    written: list[str | dict[str, Any] | None] = ['{"a": 1,,', '{"b":1, "b":2}', '', {'c': [None]}, None]
    calls = [ToolCallPart('t', args, tool_call_id=str(n)) for n, args in enumerate(written)]
    loaded = MessageList.from_dict(MessageList([ModelResponse(calls)]).to_dict())
    assert [exchange.call.args for exchange in loaded.exchanges()] == written


def test_media_are_inlined_or_replaced_by_digests(spoken: list[ModelMessage]) -> None:
    """C32: The export form contains the bytes of media, the other form their digests."""
    messages = MessageList(spoken)
    media = messages.media()
    pixel = digest_of(b'\x89PNG\r\n\x1a\n\x00\xff')
    assert media == {pixel: b'\x89PNG\r\n\x1a\n\x00\xff', digest_of(b'RIFF'): b'RIFF'}

    inlined, referring = dumped(messages.to_dict()), dumped(messages.to_dict(inline_media=False))
    assert (inlined.count('iVBORw0KGgoA_w=='), inlined.count(pixel)) == (3, 0)
    assert (referring.count('iVBORw0KGgoA_w=='), referring.count(f'asset:{pixel}')) == (0, 3)
    assert MessageList.from_dict(messages.to_dict(inline_media=False), media=media) == messages
    assert MessageList.load(messages.to_dict(inline_media=False), media=media) == messages


def test_missing_media_are_named(every_kind: list[ModelMessage]) -> None:
    error = refused(MessageList(every_kind).to_dict(inline_media=False))
    assert (error.index, error.role, error.field) == (0, 'request', 'data')
    assert str(error) == snapshot(
        "Message 0 (request) refers to media with the digest 'sha256:d44c4eee8f72efac76c1f294e7260408825c8dad42adaaf6e9bee7e7ef4c7de3', which `media` does not have. Pass their bytes as `media=`, or export the transcript with `inline_media=True`."
    )


# The list


def test_media_with_a_wrong_digest_are_refused(every_kind: list[ModelMessage]) -> None:
    """C32: A digest identifies the bytes."""
    messages = MessageList(every_kind)
    forged = dict.fromkeys(messages.media(), b'something else')
    with pytest.raises(TranscriptError, match='which `media` does not have'):
        MessageList.from_dict(messages.to_dict(inline_media=False), media=forged)


def test_empty_media_must_be_passed_too() -> None:
    empty = MessageList([ModelRequest([UserPromptPart(['x', BinaryContent(b'', media_type='text/plain')])])])
    with pytest.raises(TranscriptError, match='which `media` does not have'):
        MessageList.from_dict(empty.to_dict(inline_media=False))
    assert MessageList.from_dict(empty.to_dict(inline_media=False), media=empty.media()) == empty


def test_message_list_is_a_mutable_sequence() -> None:
    """001-14: Messages are mutable."""
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


def test_value_that_is_not_a_message_is_refused() -> None:
    wrong: Any = 'Hello'
    with pytest.raises(TypeError, match=r"'Hello' is not a message. Messages are `ModelRequest`s"):
        MessageList([wrong])
    with pytest.raises(TypeError):
        MessageList().append(wrong)
    with pytest.raises(TypeError):
        MessageList()[:] = [wrong]


def test_exchanges_pair_calls_and_results() -> None:
    """C11: Calls and results are in separate messages, and `exchanges` pairs them."""
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


# Saving and loading


@pytest.fixture
def messages(spoken: list[ModelMessage]) -> MessageList:
    return MessageList(spoken)


def test_transcript_is_saved_to_and_loaded_from_a_path(tmp_path: Path, messages: MessageList) -> None:
    """R11, 001-02: A path is a `Path` or a `str`."""
    messages.save(tmp_path / 'a.json')
    messages.save(str(tmp_path / 'b.json'))
    assert MessageList.load(tmp_path / 'a.json') == MessageList.load(str(tmp_path / 'b.json')) == messages
    assert {path.name for path in tmp_path.iterdir()} == {'a.json', 'b.json'}


def test_transcript_is_saved_to_and_loaded_from_streams(messages: MessageList) -> None:
    """R11: Streams of text and of bytes are supported and stay open."""
    text, data = io.StringIO(), io.BytesIO()
    messages.save(text)
    messages.save(data)
    text.seek(0)
    data.seek(0)
    assert MessageList.load(text) == MessageList.load(data) == messages


def test_transcript_is_loaded_from_json_text_and_from_a_dictionary(messages: MessageList) -> None:
    """R11: A `str` that begins with a brace is JSON."""
    document = messages.to_dict()
    assert MessageList.load(f'\n {json.dumps(document)}') == MessageList.load(document) == messages


def test_str_that_looks_like_json_is_refused_as_a_path(tmp_path: Path, messages: MessageList) -> None:
    """`load` accepts every path that `save` accepts."""
    with pytest.raises(ValueError, match=r"'\{a\}.json' looks like JSON instead of a path. Pass a `Path`."):
        messages.save('{a}.json')
    messages.save(tmp_path / '{a}.json')
    assert MessageList.load(tmp_path / '{a}.json') == messages


def test_failed_save_leaves_the_file_unchanged(
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


def test_save_replaces_the_target_of_a_link(tmp_path: Path, messages: MessageList) -> None:
    link = tmp_path / 'link.json'
    link.symlink_to(tmp_path / 'a.json')
    for _ in range(2):  # the file is created, then replaced
        messages.save(link)
        assert link.is_symlink()
        assert MessageList.load(tmp_path / 'a.json') == messages


def test_save_writes_to_a_pipe_without_replacing_it(tmp_path: Path) -> None:
    """As root, `save('/dev/stdout')` would replace the device."""
    pipe = tmp_path / 'pipe'
    os.mkfifo(pipe)
    with open(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), 'rb') as reader:
        MessageList().save(pipe)
        assert MessageList.load(reader) == MessageList()
    assert pipe.is_fifo()


def test_transcript_is_loaded_from_bytes(messages: MessageList) -> None:
    assert MessageList.load(json.dumps(messages.to_dict()).encode()) == MessageList.from_dict(messages.to_dict())


@pytest.mark.parametrize('kind', [str, bytes, list, 'messages', None])
def test_load_refuses_what_is_no_transcript_with_advice(messages: MessageList, kind: object) -> None:
    """JSON of pydantic-ai was taken as the name of a file, and other types had no `read`."""
    dumped = ModelMessagesTypeAdapter.dump_json([*messages])
    sources: dict[object, Any] = {
        str: dumped.decode(), bytes: dumped, list: json.loads(dumped), 'messages': [*messages], None: None,
    }  # fmt: skip
    with pytest.raises(TranscriptError, match=r'Create one from pydantic-ai messages with `MessageList\(messages\)`\.'):
        MessageList.load(sources[kind])


def test_load_refuses_paths_that_are_not_regular_files(tmp_path: Path) -> None:
    """Reading from a pipe may block forever, and a device may have no end."""
    os.mkfifo(tmp_path / 'pipe')
    with pytest.raises(OSError, match=r'It is not a regular file\. Open it, and pass the stream'):
        MessageList.load(tmp_path / 'pipe')
    with pytest.raises(OSError, match='It is not a regular file'):
        MessageList.load('/dev/zero')
    with pytest.raises(IsADirectoryError):
        MessageList.load(tmp_path)


def test_byte_order_mark_is_skipped(messages: MessageList) -> None:
    text = '\ufeff' + json.dumps(messages.to_dict())
    assert MessageList.load(text) == MessageList.load(io.BytesIO(text.encode())) == messages


def test_missing_file_raises_file_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        MessageList.load(tmp_path / 'a.json')


# Invalid transcripts


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


@pytest.mark.slow
@pytest.mark.parametrize('nest', [in_a_list, in_an_object])
def test_deeply_nested_transcript_is_refused_without_exhausting_the_stack(nest: Callable[[object], object]) -> None:
    """Loading is safe: neither JSON text nor a dictionary can exhaust the stack."""
    value: Any = 'x'
    for _ in range(100_000):
        value = nest(value)
    document = with_part({'part_kind': 'tool-return', 'tool_name': 't', 'tool_call_id': 'c', 'content': value})
    assert (
        str(refused(document))
        == f'The transcript is nested more than {MAX_DEPTH} levels deep. No conversation is nested that deeply.'
    )
    while isinstance(value, (list, dict)):  # its garbage collection would exhaust the stack otherwise
        value = next(iter(value.values() if isinstance(value, dict) else value))  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType]
    text = '{"format_version": 1, "messages": ' + '[' * 100_000 + ']' * 100_000 + '}'
    with pytest.raises(TranscriptError, match='This is not valid JSON: recursion limit exceeded'):
        MessageList.load(text)


def test_nesting_of_90_levels_is_accepted() -> None:
    """Models and tools may nest values up to 90 levels deep."""
    value: Any = 'x'
    for _ in range(90):
        value = [value]
    messages = MessageList([ModelRequest([ToolReturnPart('t', value, 'c')])])
    assert MessageList.from_dict(messages.to_dict()) == messages


# Older formats


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two invented older formats: 0 named its messages differently, and -1 was plain text."""

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
def test_older_transcript_is_migrated_step_by_step() -> None:
    """001-28, C30: A table maps each format to the function that converts it to the next."""
    loaded = parse_document({'format_version': -1, 'text': 'Hello\nWorld'}, {})
    assert [part.content for message in loaded for part in message.parts if isinstance(part, UserPromptPart)] == [
        'Hello',
        'World',
    ]


@pytest.mark.usefixtures('older')
def test_invalid_older_transcript_raises_in_its_own_terms() -> None:
    assert refused({'format_version': -1}).field == 'text'
    assert str(refused({'format_version': -2})) == (
        'There is no format_version -2: formats begin with -1. Was it written by pydantic-deep?'
    )
