"""Requests in the format of Anthropic's messages (API reference, "Create a Message")."""

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
    """A text block."""

    type: Literal['text']
    """The type of the block."""
    text: str
    """The text of the block."""


class Base64Source(BaseModel):
    """A base64-encoded file."""

    type: Literal['base64']
    """The type of the source."""
    media_type: str
    """The media type of the file, such as `image/png`."""
    data: str
    """The base64-encoded contents of the file."""


class TextSource(BaseModel):
    """A document as plain text."""

    type: Literal['text']
    """The type of the source."""
    data: str
    """The text of the document."""


class UrlSource(BaseModel):
    """A file given by URL."""

    type: Literal['url']
    """The type of the source."""
    url: str
    """A `data:` URL. Other URLs are rejected."""


Source: TypeAlias = Annotated[Base64Source | TextSource | UrlSource, Field(discriminator='type')]


class FileBlock(BaseModel):
    """An image or a document."""

    type: Literal['image', 'document']
    """The type of the block."""
    source: Source
    """The source of the file contents."""


class UnreadResult(BaseModel):
    """Content of a tool result other than text, which is ignored."""

    type: str
    """The type of the content."""


class ToolResultBlock(BaseModel):
    """A decision on an approval."""

    type: Literal['tool_result']
    """The type of the block."""
    tool_use_id: str
    """The id of the call, which is the id of the approval."""
    content: str | list[TextBlock | UnreadResult] = ''
    """The decision as text. In a dialogue from another server, results of other tools may have any content."""


class UnreadBlock(BaseModel):
    """Assistant content other than text: calls, thinking, and Anthropic's own tools. It is ignored."""

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
    """The type of the block."""


Block: TypeAlias = Annotated[TextBlock | FileBlock | ToolResultBlock | UnreadBlock, Field(discriminator='type')]


class MessageParam(BaseModel):
    """A message of the dialogue."""

    role: Literal['user', 'assistant']
    """The author of the message."""
    content: str | list[Block]
    """Text, files and decisions."""


class ToolParam(BaseModel):
    """A tool of the client."""

    name: str = 'tools'
    """The name of the tool."""


class RequestMetadata(BaseModel):
    """Metadata that is stored with the run."""

    user_id: str | None = None
    """The client's own id of its user or session."""


class MessagesRequest(BaseModel):
    """A dialogue to continue. Other fields are ignored; unsupported options are rejected."""

    model: str
    """The name of an agent."""
    messages: Annotated[list[MessageParam], Field(min_length=1)]
    """The messages of the dialogue so far."""
    max_tokens: Annotated[int | None, Field(ge=1)] = None
    """Maximum number of tokens in each model response."""
    system: str | list[TextBlock] = ''
    """The client's system prompt, in addition to the agent's own instructions."""
    stream: bool = False
    """Whether to stream the response as events."""
    temperature: Annotated[float | None, Field(ge=0, le=1)] = None
    """Sampling temperature for all model requests of the turn."""
    top_p: Annotated[float | None, Field(ge=0, le=1)] = None
    """Nucleus sampling for all model requests of the turn."""
    top_k: Annotated[int | None, Field(ge=0)] = None
    """Top-k sampling for all model requests of the turn."""
    stop_sequences: list[str] | None = None
    """Sequences at which the model stops generating."""
    tools: list[ToolParam] | None = None
    """Tools of the client. Rejected, except for `approval_required`."""
    metadata: RequestMetadata | None = None
    """Metadata that is stored with the run."""
    thinking: dict[str, JsonValue] | None = None
    """Ignored: the settings of the agent determine whether its model thinks."""


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
    """Return the client's own session id."""
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
