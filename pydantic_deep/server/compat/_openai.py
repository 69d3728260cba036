"""Requests in the format of OpenAI's chat completions (API reference, "Create chat completion")."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias, cast

from pydantic import BaseModel, Discriminator, Field, JsonValue, Tag
from pydantic_ai.settings import ThinkingLevel

from ._client_tools import (
    APPROVAL_TOOL,
    ClientCall,
    ClientTools,
    ToolChoice,
    client_tool,
    client_tools,
    parse_args,
    without_tools_of_provider,
)
from ._dialogue import (
    Content,
    Dialogue,
    DialogueMessage,
    build_dialogue,
    client_result,
    file_from_base64,
    invalid_request,
    linked_file,
    model_settings_from,
    named_file,
    parse_decision,
    refuse_options,
    text_of,
    words,
)


class TextContent(BaseModel):
    """A text part."""

    type: Literal['text', 'refusal'] = 'text'
    """The type of the part."""
    text: str = ''
    """The text of the part."""
    refusal: str = ''
    """The text of a refusal by the assistant."""


class ImageUrl(BaseModel):
    """The location of an image."""

    url: str
    """A `data:` URL, or one of a domain from which the server fetches files."""


class ImageContent(BaseModel):
    """An image part."""

    type: Literal['image_url']
    """The type of the part."""
    image_url: ImageUrl
    """The location of the image."""


class AudioData(BaseModel):
    """A base64-encoded audio recording."""

    data: str
    """The base64-encoded contents of the recording."""
    format: str
    """The audio format: `wav` or `mp3`."""


class AudioContent(BaseModel):
    """An audio part."""

    type: Literal['input_audio']
    """The type of the part."""
    input_audio: AudioData
    """The contents of the recording."""


class FileData(BaseModel):
    """The contents of a file."""

    file_data: str | None = None
    """A `data:` URL, or base64 with a `filename`. Ids of files that were uploaded to another service are rejected."""
    filename: str | None = None
    """The name of the file, by which its media type is known."""


class FileContent(BaseModel):
    """A file part."""

    type: Literal['file']
    """The type of the part."""
    file: FileData
    """The contents of the file."""


def _type_of(part: object) -> str:
    """Return the tag of a part. Texts may omit their type."""
    return str(cast('dict[str, object]', part).get('type') or 'text') if isinstance(part, dict) else 'text'


ContentPart: TypeAlias = Annotated[
    Annotated[TextContent, Tag('text')]
    | Annotated[TextContent, Tag('refusal')]
    | Annotated[ImageContent, Tag('image_url')]
    | Annotated[AudioContent, Tag('input_audio')]
    | Annotated[FileContent, Tag('file')],
    Discriminator(_type_of),
]
"""A part of a message."""


class SystemMessage(BaseModel):
    """A system prompt of the client, in addition to the agent's own instructions."""

    role: Literal['system', 'developer']
    """The author of the message."""
    content: str | list[TextContent]
    """The text of the message."""


class UserMessage(BaseModel):
    """A message of the user."""

    role: Literal['user']
    """The author of the message."""
    content: str | list[ContentPart]
    """Text, or parts with text and files."""


class CalledFunction(BaseModel):
    """A called function."""

    name: str
    """The name of the function."""
    arguments: str = ''
    """The arguments as JSON."""


class ToolCall(BaseModel):
    """A call in an earlier message."""

    id: str
    """The id of the call."""
    function: CalledFunction | None = None
    """The called function, if the tool is one."""


class AssistantMessage(BaseModel):
    """A message of the agent."""

    role: Literal['assistant']
    """The author of the message."""
    content: str | list[TextContent] | None = None
    """The text of the message."""
    tool_calls: list[ToolCall] | None = None
    """The calls of functions in the message."""


class ToolMessage(BaseModel):
    """The result of a call: of a function of the client, or the decision on an approval."""

    role: Literal['tool']
    """The author of the message."""
    tool_call_id: str
    """The id of the call."""
    content: str | list[ContentPart]
    """The result as text, or the decision. Files are rejected in new results, and ignored in earlier ones."""


Message = Annotated[SystemMessage | UserMessage | AssistantMessage | ToolMessage, Field(discriminator='role')]


class FunctionBody(BaseModel):
    """A function of the client."""

    name: str
    """The name of the function."""
    description: str | None = None
    """The description of the function."""
    parameters: dict[str, JsonValue] | None = None
    """The JSON schema of the arguments."""
    strict: bool | None = None
    """Whether the provider enforces the schema."""


class OpenaiToolBody(BaseModel):
    """A tool of the client."""

    type: str = 'function'
    """The type of the tool. Only `function` is supported."""
    function: FunctionBody | None = None
    """The function, if the tool is one."""


class NamedFunction(BaseModel):
    """The name of a function."""

    name: str
    """The name."""


class NamedTool(BaseModel):
    """The choice of a function."""

    type: Literal['function'] = 'function'
    """The type of the tool."""
    function: NamedFunction
    """The function."""


class AllowedTools(BaseModel):
    """The functions that the model may call."""

    mode: Literal['auto', 'required']
    """Whether it must call one of them."""
    tools: list[NamedTool]
    """The functions."""


class AllowedToolsChoice(BaseModel):
    """The choice of several functions."""

    type: Literal['allowed_tools']
    """The type of the choice."""
    allowed_tools: AllowedTools
    """The functions."""


class JsonSchemaFormat(BaseModel):
    """A JSON schema with a name."""

    name: str = ''
    """The name of the schema."""
    description: str | None = None
    """The description of the answer."""
    json_schema: Annotated[dict[str, JsonValue], Field(alias='schema')]
    """The JSON schema."""


class ResponseFormat(BaseModel):
    """The format of the answer."""

    type: Literal['text', 'json_object', 'json_schema']
    """Text, any JSON object, or JSON that is valid by a schema."""
    json_schema: JsonSchemaFormat | None = None
    """The schema, for the type `json_schema`."""


ReasoningEffort: TypeAlias = Literal['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max']
"""How much a model thinks."""


class StreamOptions(BaseModel):
    """Options of the stream."""

    include_usage: bool | None = None
    """Whether the last chunk contains the usage."""


class ChatCompletionRequest(BaseModel):
    """A dialogue to continue. Other fields are ignored; unsupported options are rejected."""

    model: str
    """The name of an agent."""
    messages: Annotated[list[Message], Field(min_length=1)]
    """The messages of the dialogue so far."""
    stream: bool | None = None
    """Whether to stream the response as chunks."""
    stream_options: StreamOptions | None = None
    """Options of the stream."""
    temperature: Annotated[float | None, Field(ge=0, le=2)] = None
    """Sampling temperature for all model requests of the turn."""
    top_p: Annotated[float | None, Field(ge=0, le=1)] = None
    """Nucleus sampling for all model requests of the turn."""
    max_tokens: Annotated[int | None, Field(ge=1)] = None
    """Maximum number of tokens in each model response."""
    max_completion_tokens: Annotated[int | None, Field(ge=1)] = None
    """The same as `max_tokens`, and takes precedence over it."""
    seed: int | None = None
    """Seed for sampling, for providers that support it."""
    presence_penalty: float | None = None
    """Penalty for tokens that already occurred."""
    frequency_penalty: float | None = None
    """Penalty for tokens by how often they occurred."""
    stop: str | list[str] | None = None
    """Sequences at which the model stops generating."""
    n: int | None = None
    """The number of responses. Only 1 is supported."""
    tools: list[OpenaiToolBody] | None = None
    """Functions of the client, which it runs itself. The main agent can call them beside its own tools."""
    tool_choice: Literal['auto', 'none', 'required'] | NamedTool | AllowedToolsChoice | None = None
    """Whether the model may or must call a function of the client. The agent's own tools are not affected by `none`."""
    parallel_tool_calls: bool | None = None
    """Whether a response may contain several calls."""
    functions: list[FunctionBody] | None = None
    """The predecessor of `tools`. Rejected."""
    response_format: ResponseFormat | None = None
    """The format of the answer."""
    reasoning_effort: ReasoningEffort | None = None
    """How much the model thinks, for providers that support it."""
    verbosity: Literal['low', 'medium', 'high'] | None = None
    """How long the answer is, for models of OpenAI."""
    logit_bias: dict[str, int] | None = None
    """The bias of tokens, for providers that support it."""
    logprobs: bool | None = None
    """Not supported: `true` is rejected."""
    top_logprobs: int | None = None
    """Not supported: a positive number is rejected."""
    modalities: list[str] | None = None
    """The kinds of output. Only `text` is supported."""
    audio: JsonValue = None
    """The voice of spoken answers. Rejected."""
    web_search_options: dict[str, JsonValue] | None = None
    """Options of OpenAI's own web search. Rejected."""
    user: str | None = None
    """The client's own id of its user or session, which is stored with the run."""
    safety_identifier: str | None = None
    """The successor of `user`."""
    moderation: JsonValue = None
    """Moderation by OpenAI. Rejected."""
    metadata: dict[str, str] | None = None
    """Metadata of the request. `session_id` is stored with the run."""


def parse_openai_request(body: ChatCompletionRequest) -> Dialogue:
    """Parse a request.

    Raises:
        ServerError: The request has an unsupported option, or neither a prompt nor a decision.
    """
    _refuse(body)
    messages: list[DialogueMessage] = []
    system: list[str] = []
    results: dict[str, str] = {}
    names: dict[str, str] = {}
    asked: set[str] = set()
    for message in body.messages:
        match message:
            case SystemMessage():
                system.append(_text(message.content))
            case UserMessage():
                messages.append(DialogueMessage(role='user', content=_content(message.content)))
                results = {}
            case AssistantMessage():
                calls = _calls(message)
                names |= {call.id: call.name for call in calls if call.id}
                asked |= {call.id for call in message.tool_calls or ()}
                messages.append(DialogueMessage(role='assistant', content=words(_text(message.content)), calls=calls))
                results = {}
            case ToolMessage(tool_call_id=id) if id in names:
                messages.append(
                    DialogueMessage(role='user', results=(client_result(id, names[id], _content(message.content)),))
                )
            case _:
                results[message.tool_call_id] = text_of(_content(message.content))
    settings = model_settings_from(
        temperature=body.temperature,
        top_p=body.top_p,
        max_tokens=body.max_completion_tokens or body.max_tokens,
        seed=body.seed,
        presence_penalty=body.presence_penalty,
        frequency_penalty=body.frequency_penalty,
        stop_sequences=[body.stop] if isinstance(body.stop, str) else body.stop,
        parallel_tool_calls=body.parallel_tool_calls,
        thinking=thinking_of(body.reasoning_effort),
        logit_bias=body.logit_bias,
        openai_text_verbosity=body.verbosity,
    )
    return build_dialogue(
        system=system,
        messages=messages,
        decisions={id: parse_decision(text, unknown_id=None if id in asked else id) for id, text in results.items()},
        model_settings=settings,
        tools=_tools(body),
        output_schema=_output_schema(body.response_format),
    )


def openai_session_id(body: ChatCompletionRequest) -> str | None:
    """Return the client's own session id."""
    return (body.metadata or {}).get('session_id', body.user or body.safety_identifier)


def thinking_of(effort: ReasoningEffort | None) -> ThinkingLevel | None:
    """Return the model setting for an effort."""
    return False if effort == 'none' else effort


def _refuse(body: ChatCompletionRequest) -> None:
    if body.functions:
        raise invalid_request('`functions` is not supported. Declare them in `tools`.')
    if body.n not in (None, 1):
        raise invalid_request(f'`n` is {body.n}, but an agent gives one answer. Omit it.')
    if {*(body.modalities or ())} - {'text'}:
        raise invalid_request('`modalities` has more than `text`, but agents answer with text only. Omit it.')
    if body.web_search_options is not None:
        raise invalid_request('`web_search_options` is not supported: agents have their own tools. Omit it.')
    refuse_options(body, 'logprobs', 'top_logprobs', 'audio', 'moderation')


def _calls(message: AssistantMessage) -> tuple[ClientCall, ...]:
    return tuple(
        ClientCall(id=call.id, name=call.function.name, args=parse_args(call.function.arguments))
        for call in message.tool_calls or ()
        if call.function is not None and call.function.name != APPROVAL_TOOL
    )


def _tools(body: ChatCompletionRequest) -> ClientTools:
    without_tools_of_provider(tool.type for tool in body.tools or () if tool.function is None)
    functions = [tool.function for tool in body.tools or () if tool.function is not None]
    choice: ToolChoice
    match body.tool_choice:
        case NamedTool(function=named):
            choice = [named.name]
        case AllowedToolsChoice(allowed_tools=allowed):
            names = [tool.function.name for tool in allowed.tools]
            functions = [function for function in functions if function.name in names]
            choice = names if allowed.mode == 'required' else 'auto'
        case word:
            choice = word or 'auto'
    declared = [
        client_tool(
            function.name, description=function.description, parameters=function.parameters, strict=function.strict
        )
        for function in functions
    ]
    return client_tools(declared, choice)


def _output_schema(format: ResponseFormat | None) -> dict[str, JsonValue] | None:
    if format is None or format.type == 'text':
        return None
    if format.type == 'json_object':
        return {'type': 'object'}
    if format.json_schema is None:
        raise invalid_request('`response_format` has the type `json_schema` and no schema. Send it in `json_schema`.')
    description = format.json_schema.description
    described: dict[str, JsonValue] = {} if description is None else {'description': description}
    return {**described, **format.json_schema.json_schema}


def _content(content: str | list[ContentPart]) -> tuple[Content, ...]:
    if isinstance(content, str):
        return words(content)
    return tuple(piece for part in content for piece in _piece(part))


def _piece(part: ContentPart) -> tuple[Content, ...]:
    match part:
        case TextContent():
            return words(part.text)
        case ImageContent():
            return (linked_file(part.image_url.url),)
        case AudioContent():
            return (file_from_base64(part.input_audio.data, f'audio/{part.input_audio.format}'),)
        case _:
            if part.file.file_data is None:
                raise invalid_request('Files by id are not supported. Send the file in `file_data`, as a `data:` URL.')
            return (named_file(part.file.file_data, part.file.filename),)


def _text(content: str | list[TextContent] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ''
    return ''.join(part.text or part.refusal for part in content)
