"""Requests in the format of Anthropic's messages (API reference, "Create a Message")."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, Field, JsonValue
from pydantic_ai.settings import ThinkingLevel

from pydantic_deep.server.http._errors import ServerError

from ._client_tools import (
    APPROVAL_TOOL,
    ClientCall,
    ClientResult,
    ClientTools,
    ToolChoice,
    client_tool,
    client_tools,
    without_tools_of_provider,
)
from ._dialogue import (
    Content,
    Dialogue,
    DialogueMessage,
    build_dialogue,
    effort_of,
    file_from_base64,
    invalid_request,
    linked_file,
    model_settings_from,
    parse_decision,
    refuse_options,
    words,
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
    """A `data:` URL, or one of a domain from which the server fetches files."""


Source: TypeAlias = Annotated[Base64Source | TextSource | UrlSource, Field(discriminator='type')]


class Citations(BaseModel):
    """Whether the answer cites a document."""

    enabled: bool = False
    """Not supported: `true` is rejected."""


class FileBlock(BaseModel):
    """An image or a document."""

    type: Literal['image', 'document']
    """The type of the block."""
    source: Source
    """The source of the file contents."""
    title: str | None = None
    """The title of a document, which the model reads before it."""
    context: str | None = None
    """Text about a document, which the model reads before it."""
    citations: Citations | None = None
    """Whether the answer cites the document."""


class UnreadResult(BaseModel):
    """Content of a tool result other than text, which is ignored."""

    type: str
    """The type of the content."""


class ToolUseBlock(BaseModel):
    """A call of a tool of the client."""

    type: Literal['tool_use']
    """The type of the block."""
    id: str
    """The id of the call."""
    name: str
    """The name of the tool."""
    input: dict[str, JsonValue] = {}
    """The arguments."""


class ToolResultBlock(BaseModel):
    """The result of a call: of a tool of the client, or the decision on an approval."""

    type: Literal['tool_result']
    """The type of the block."""
    tool_use_id: str
    """The id of the call."""
    content: str | list[TextBlock | UnreadResult] = ''
    """The result as text, or the decision. Other content is rejected in new results, and ignored in earlier ones."""
    is_error: bool = False
    """Whether the call failed, and the content is the reason."""


class UnreadBlock(BaseModel):
    """Assistant content other than text and calls: thinking, and Anthropic's own tools. It is ignored."""

    type: Literal[
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


Block: TypeAlias = Annotated[
    TextBlock | FileBlock | ToolUseBlock | ToolResultBlock | UnreadBlock, Field(discriminator='type')
]


class MessageParam(BaseModel):
    """A message of the dialogue."""

    role: Literal['user', 'assistant', 'system']
    """The author of the message. The text of `system` is part of the system prompt."""
    content: str | list[Block]
    """Text, files and decisions."""


class ToolParam(BaseModel):
    """A tool of the client."""

    type: str | None = None
    """The type of the tool. Only `custom` is supported, which is the default."""
    name: str = ''
    """The name of the tool."""
    description: str | None = None
    """The description of the tool."""
    input_schema: dict[str, JsonValue] | None = None
    """The JSON schema of the arguments."""
    strict: bool | None = None
    """Whether the provider enforces the schema."""


class ToolChoiceParam(BaseModel):
    """Whether the model may or must call a tool of the client."""

    type: Literal['auto', 'any', 'tool', 'none']
    """The choice. The agent's own tools are not affected by `none`."""
    name: str = ''
    """The name of the tool, for the type `tool`."""
    disable_parallel_tool_use: bool | None = None
    """Whether a response contains at most one call."""


class OutputFormat(BaseModel):
    """The format of the answer."""

    type: Literal['json_schema']
    """The type of the format."""
    json_schema: Annotated[dict[str, JsonValue], Field(alias='schema')]
    """The JSON schema."""


class OutputConfig(BaseModel):
    """The output of the agent."""

    format: OutputFormat | None = None
    """The format of the answer."""
    effort: Literal['low', 'medium', 'high', 'xhigh', 'max'] | None = None
    """How much the model thinks, for providers that support it."""


class Thinking(BaseModel):
    """Whether the model thinks."""

    type: Literal['enabled', 'adaptive', 'between_tools', 'disabled']
    """Whether it thinks. The response has its thinking if the provider has signed it."""
    budget_tokens: int | None = None
    """How much it thinks: the effort that is closest to this budget."""


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
    """Tools of the client, which it runs itself. The main agent can call them beside its own tools."""
    tool_choice: ToolChoiceParam | None = None
    """Whether the model may or must call a tool of the client."""
    output_config: OutputConfig | None = None
    """The format of the answer."""
    output_format: OutputFormat | None = None
    """The predecessor of `output_config.format`."""
    metadata: RequestMetadata | None = None
    """Metadata that is stored with the run."""
    thread: dict[str, JsonValue] | None = None
    """Rejected: the server finds its own history by the messages. Official clients then send the whole dialogue."""
    thinking: Thinking | None = None
    """Whether the model thinks, for providers that support it."""
    mcp_servers: list[JsonValue] = []
    """MCP servers that Anthropic calls. Rejected."""
    inference_geo: str | None = None
    """The region of the inference, which the operator determines. Rejected, except for `global`."""
    container: JsonValue = None
    """A container of Anthropic, with its skills. Rejected."""

    @property
    def has_thinking(self) -> bool:
        """Whether the response has the model's thinking."""
        return self.thinking is not None and self.thinking.type != 'disabled'


def parse_anthropic_request(body: MessagesRequest, *, continues: bool = True) -> Dialogue:
    """Parse a request.

    Args:
        body: The request.
        continues: Whether the request continues the dialogue, and must contain something new.

    Raises:
        ServerError: The request has an unsupported option, or neither a prompt nor a decision.
    """
    if body.thread is not None:
        raise ServerError(
            'invalid',
            '`thread` is not supported. Omit it and send the whole dialogue, by which the server finds its own history.',
            facts={'error_code': 'thread_unsupported_request', 'unsupported': ['thread']},
        )
    refuse_options(body, 'mcp_servers', 'container', *([] if body.inference_geo == 'global' else ['inference_geo']))
    system = [_text(body.system)]
    messages: list[DialogueMessage] = []
    decided: list[ToolResultBlock] = []
    asked: set[str] = set()
    names: dict[str, str] = {}
    for message in body.messages:
        blocks: list[Block] = _blocks(message.content)
        if message.role == 'system':
            system.append(_text([block for block in blocks if isinstance(block, TextBlock)]))
            continue
        asked |= {block.id for block in blocks if isinstance(block, ToolUseBlock)}
        calls = [block for block in blocks if isinstance(block, ToolUseBlock) and block.name != APPROVAL_TOOL]
        names |= {call.id: call.name for call in calls}
        results = [block for block in blocks if isinstance(block, ToolResultBlock)]
        messages.append(
            DialogueMessage(
                role=message.role,
                content=tuple(piece for block in blocks for piece in _piece(block)),
                calls=tuple(ClientCall(id=call.id, name=call.name, args=call.input) for call in calls),
                results=tuple(
                    _client_result(each, names[each.tool_use_id]) for each in results if each.tool_use_id in names
                ),
            )
        )
        decided = [block for block in results if block.tool_use_id not in names]
    settings = model_settings_from(
        max_tokens=body.max_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        stop_sequences=body.stop_sequences,
        parallel_tool_calls=False if body.tool_choice and body.tool_choice.disable_parallel_tool_use else None,
        thinking=_thinking(body),
    )
    config = body.output_config
    format = body.output_format if config is None or config.format is None else config.format
    return build_dialogue(
        system=system,
        messages=messages,
        decisions={
            block.tool_use_id: parse_decision(
                _result(block), unknown_id=None if block.tool_use_id in asked else block.tool_use_id
            )
            for block in decided
        },
        model_settings=settings,
        tools=_tools(body),
        output_schema=None if format is None else format.json_schema,
        continues=continues,
    )


def _thinking(body: MessagesRequest) -> ThinkingLevel | None:
    thinking, effort = body.thinking, None if body.output_config is None else body.output_config.effort
    if thinking is not None and thinking.type == 'disabled':
        return False
    if effort is not None or thinking is None:
        return effort
    return True if thinking.budget_tokens is None else effort_of(thinking.budget_tokens)


def _tools(body: MessagesRequest) -> ClientTools:
    tools = body.tools or []
    without_tools_of_provider(tool.type for tool in tools if tool.type not in (None, 'custom'))
    choice = body.tool_choice
    choices: dict[str, ToolChoice] = {'auto': 'auto', 'any': 'required', 'none': 'none'}
    declared = [
        client_tool(tool.name, description=tool.description, parameters=tool.input_schema, strict=tool.strict)
        for tool in tools
    ]
    return client_tools(declared, 'auto' if choice is None else choices.get(choice.type, [choice.name]))


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
            if block.citations is not None and block.citations.enabled:
                raise invalid_request('`citations` of a document is enabled, but agents do not support it. Omit it.')
            about = '\n'.join(text for text in (block.title, block.context) if text)
            return (*words(about), _file(block.source))
        case _:
            return ()


def _file(source: Source) -> Content:
    match source:
        case Base64Source():
            return file_from_base64(source.data, source.media_type)
        case TextSource():
            return source.data
        case _:
            return linked_file(source.url)


def _text(content: str | list[TextBlock]) -> str:
    return content if isinstance(content, str) else ''.join(block.text for block in content)


def _client_result(block: ToolResultBlock, name: str) -> ClientResult:
    return ClientResult(
        id=block.tool_use_id,
        name=name,
        content=_result(block),
        is_error=block.is_error,
        is_incomplete=not isinstance(block.content, str)
        and any(isinstance(each, UnreadResult) for each in block.content),
    )


def _result(block: ToolResultBlock) -> str:
    if isinstance(block.content, str):
        return block.content
    return _text([part for part in block.content if isinstance(part, TextBlock)])
