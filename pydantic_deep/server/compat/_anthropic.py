"""Requests in the form of Anthropic's messages (API reference, "Create a Message")."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, Field, JsonValue

from ._dialogue import (
    Content,
    Dialogue,
    DialogueMessage,
    build_dialogue,
    check_tools,
    file_from_base64,
    file_from_url,
    model_settings_from,
    parse_decision,
)


class TextBlock(BaseModel):
    """Words."""

    type: Literal['text']
    """What it is."""
    text: str
    """The words."""


class Base64Source(BaseModel):
    """A file as base64."""

    type: Literal['base64']
    """How it is sent."""
    media_type: str
    """What it is, such as `image/png`."""
    data: str
    """Base64."""


class TextSource(BaseModel):
    """A document as text."""

    type: Literal['text']
    """How it is sent."""
    data: str
    """The text."""


class UrlSource(BaseModel):
    """A file elsewhere."""

    type: Literal['url']
    """How it is sent."""
    url: str
    """A `data:` URL; others are refused."""


Source: TypeAlias = Annotated[Base64Source | TextSource | UrlSource, Field(discriminator='type')]


class FileBlock(BaseModel):
    """An image or a document."""

    type: Literal['image', 'document']
    """What it is."""
    source: Source
    """The file."""


class UnreadResult(BaseModel):
    """What the result of a tool has besides words."""

    type: str
    """What it is."""


class ToolResultBlock(BaseModel):
    """A decision."""

    type: Literal['tool_result']
    """What it is."""
    tool_use_id: str
    """The id of the call, which is that of the approval."""
    content: str | list[TextBlock | UnreadResult] = ''
    """The decision: its words. The results of other tools, in a dialogue from elsewhere, are anything."""


class UnreadBlock(BaseModel):
    """What an answer has besides words: calls, thoughts, and what Anthropic's own tools did. They are not looked at."""

    type: Literal[
        'tool_use',
        'thinking',
        'redacted_thinking',
        'server_tool_use',
        'web_search_tool_result',
        'web_fetch_tool_result',
        'code_execution_tool_result',
        'bash_code_execution_tool_result',
        'text_editor_code_execution_tool_result',
        'tool_search_tool_result',
    ]
    """What it is."""


Block: TypeAlias = Annotated[TextBlock | FileBlock | ToolResultBlock | UnreadBlock, Field(discriminator='type')]


class MessageParam(BaseModel):
    """Something that was said."""

    role: Literal['user', 'assistant']
    """Who said it."""
    content: str | list[Block]
    """The words, files and decisions."""


class ToolParam(BaseModel):
    """A tool of the client's."""

    name: str = 'tools'
    """Its name."""


class RequestMetadata(BaseModel):
    """What is kept with the run."""

    user_id: str | None = None
    """The client's own id of its user or session."""


class MessagesRequest(BaseModel):
    """A dialogue to go on with. What is not named here is ignored; what cannot be done is refused."""

    model: str
    """The name of an agent."""
    messages: Annotated[list[MessageParam], Field(min_length=1)]
    """The dialogue."""
    max_tokens: Annotated[int | None, Field(ge=1)] = None
    """Of each of the agent's own requests."""
    system: str | list[TextBlock] = ''
    """What the client wants the agent to be told."""
    stream: bool = False
    """Whether the answer comes as a stream of events."""
    temperature: Annotated[float | None, Field(ge=0, le=1)] = None
    """For the agent's own requests."""
    top_p: Annotated[float | None, Field(ge=0, le=1)] = None
    """For the agent's own requests."""
    top_k: Annotated[int | None, Field(ge=0)] = None
    """For the agent's own requests."""
    stop_sequences: list[str] | None = None
    """For the agent's own requests."""
    tools: list[ToolParam] | None = None
    """Refused, but for `approval_required`."""
    metadata: RequestMetadata | None = None
    """What is kept with the run."""
    thinking: dict[str, JsonValue] | None = None
    """Not looked at: the agent's own settings say whether its model thinks."""


def parse_anthropic_request(body: MessagesRequest) -> Dialogue:
    """Parse a request.

    Raises:
        ServerError: The request has an unsupported option, or neither a prompt nor a decision.
    """
    check_tools(tool.name for tool in body.tools or ())
    messages: list[DialogueMessage] = []
    results: dict[str, str] = {}
    for message in body.messages:
        blocks: list[Block] = _blocks(message.content)
        messages.append(
            DialogueMessage(role=message.role, content=tuple(piece for block in blocks for piece in _piece(block)))
        )
        results = {block.tool_use_id: _result(block) for block in blocks if isinstance(block, ToolResultBlock)}
    settings = model_settings_from(
        max_tokens=body.max_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        stop_sequences=body.stop_sequences,
    )
    decisions = {id: parse_decision(text) for id, text in results.items()}
    return build_dialogue(system=[_text(body.system)], messages=messages, decisions=decisions, model_settings=settings)


def anthropic_session_id(body: MessagesRequest) -> str | None:
    """Return the session id of the client."""
    return None if body.metadata is None else body.metadata.user_id


def _blocks(content: str | list[Block]) -> list[Block]:
    return [TextBlock(type='text', text=content)] if isinstance(content, str) else content


def _piece(block: Block) -> tuple[Content, ...]:
    match block:
        case TextBlock():
            return (block.text,) if block.text else ()
        case FileBlock():
            return (_file(block.source),)
        case _:
            return ()


def _file(source: Source) -> Content:
    match source:
        case Base64Source():
            return file_from_base64(source.data, source.media_type)
        case TextSource():
            return source.data
        case _:
            return file_from_url(source.url)


def _text(content: str | list[TextBlock]) -> str:
    return content if isinstance(content, str) else ''.join(block.text for block in content)


def _result(block: ToolResultBlock) -> str:
    if isinstance(block.content, str):
        return block.content
    return _text([part for part in block.content if isinstance(part, TextBlock)])
