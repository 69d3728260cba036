"""Requests in the form of OpenAI's chat completions (API reference, "Create chat completion")."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field, JsonValue

from ._dialogue import (
    Content,
    Dialogue,
    DialogueMessage,
    build_dialogue,
    check_tools,
    file_from_base64,
    file_from_url,
    invalid_request,
    model_settings_from,
    parse_decision,
)


class TextContent(BaseModel):
    """Words."""

    type: Literal['text', 'refusal'] = 'text'
    """What it is."""
    text: str = ''
    """The words."""
    refusal: str = ''
    """The words of an answer that refused."""


class ImageUrl(BaseModel):
    """Where an image is."""

    url: str
    """A `data:` URL; others are refused."""


class ImageContent(BaseModel):
    """An image."""

    type: Literal['image_url']
    """What it is."""
    image_url: ImageUrl
    """Where it is."""


class AudioData(BaseModel):
    """A recording."""

    data: str
    """Base64."""
    format: str
    """`wav` or `mp3`."""


class AudioContent(BaseModel):
    """A recording."""

    type: Literal['input_audio']
    """What it is."""
    input_audio: AudioData
    """The recording."""


class FileData(BaseModel):
    """A file."""

    file_data: str | None = None
    """A `data:` URL. The id of a file that was uploaded elsewhere is refused."""


class FileContent(BaseModel):
    """A file."""

    type: Literal['file']
    """What it is."""
    file: FileData
    """The file."""


ContentPart = TextContent | ImageContent | AudioContent | FileContent


class SystemMessage(BaseModel):
    """What the client wants the agent to be told."""

    role: Literal['system', 'developer']
    """Who says it."""
    content: str | list[TextContent]
    """The words."""


class UserMessage(BaseModel):
    """What the user says."""

    role: Literal['user']
    """Who says it."""
    content: str | list[ContentPart]
    """The words, and files."""


class AssistantMessage(BaseModel):
    """What the agent has answered."""

    role: Literal['assistant']
    """Who says it."""
    content: str | list[TextContent] | None = None
    """The words. What it has called is not looked at."""


class ToolMessage(BaseModel):
    """A decision."""

    role: Literal['tool']
    """Who says it."""
    tool_call_id: str
    """The id of the call, which is that of the approval."""
    content: str | list[TextContent]
    """The decision."""


Message = Annotated[SystemMessage | UserMessage | AssistantMessage | ToolMessage, Field(discriminator='role')]


class FunctionBody(BaseModel):
    """A tool of the client's."""

    name: str
    """Its name."""


class OpenaiToolBody(BaseModel):
    """A tool of the client's."""

    function: FunctionBody | None = None
    """What it is."""


class StreamOptions(BaseModel):
    """How a stream is told."""

    include_usage: bool | None = None
    """Whether the last chunk has the usage."""


class ChatCompletionRequest(BaseModel):
    """A dialogue to go on with. What is not named here is ignored; what cannot be done is refused."""

    model: str
    """The name of an agent."""
    messages: Annotated[list[Message], Field(min_length=1)]
    """The dialogue."""
    stream: bool | None = None
    """Whether the answer comes as a stream of chunks."""
    stream_options: StreamOptions | None = None
    """How the stream is told."""
    temperature: Annotated[float | None, Field(ge=0, le=2)] = None
    """For the agent's own requests."""
    top_p: Annotated[float | None, Field(ge=0, le=1)] = None
    """For the agent's own requests."""
    max_tokens: Annotated[int | None, Field(ge=1)] = None
    """Of each of the agent's own requests."""
    max_completion_tokens: Annotated[int | None, Field(ge=1)] = None
    """The same; it wins over `max_tokens`."""
    seed: int | None = None
    """For the agent's own requests."""
    presence_penalty: float | None = None
    """For the agent's own requests."""
    frequency_penalty: float | None = None
    """For the agent's own requests."""
    stop: str | list[str] | None = None
    """For the agent's own requests."""
    n: int | None = None
    """How many answers: 1."""
    tools: list[OpenaiToolBody] | None = None
    """Refused, but for `approval_required`."""
    functions: list[FunctionBody] | None = None
    """Refused likewise."""
    response_format: dict[str, JsonValue] | None = None
    """Refused, but for `{"type": "text"}`: an agent answers in the form that it was built for."""
    logprobs: bool | None = None
    """Refused."""
    user: str | None = None
    """The client's own id of its user or session: it is kept with the run."""
    metadata: dict[str, str] | None = None
    """`session_id` in it is kept with the run."""


def parse_openai_request(body: ChatCompletionRequest) -> Dialogue:
    """Parse a request.

    Raises:
        ServerError: The request has an unsupported option, or neither a prompt nor a decision.
    """
    _refuse(body)
    messages: list[DialogueMessage] = []
    system: list[str] = []
    results: dict[str, str] = {}
    for message in body.messages:
        match message:
            case SystemMessage():
                system.append(_text(message.content))
            case UserMessage():
                messages.append(DialogueMessage(role='user', content=_content(message.content)))
                results = {}
            case AssistantMessage():
                messages.append(DialogueMessage(role='assistant', content=_words(_text(message.content))))
                results = {}
            case _:
                results[message.tool_call_id] = _text(message.content)
    settings = model_settings_from(
        temperature=body.temperature,
        top_p=body.top_p,
        max_tokens=body.max_completion_tokens or body.max_tokens,
        seed=body.seed,
        presence_penalty=body.presence_penalty,
        frequency_penalty=body.frequency_penalty,
        stop_sequences=[body.stop] if isinstance(body.stop, str) else body.stop,
    )
    decisions = {id: parse_decision(text) for id, text in results.items()}
    return build_dialogue(system=system, messages=messages, decisions=decisions, model_settings=settings)


def openai_session_id(body: ChatCompletionRequest) -> str | None:
    """Return the session id of the client."""
    return (body.metadata or {}).get('session_id', body.user)


def _refuse(body: ChatCompletionRequest) -> None:
    check_tools(tool.function.name if tool.function else 'tools' for tool in body.tools or ())
    check_tools(function.name for function in body.functions or ())
    if body.n not in (None, 1):
        raise invalid_request(f'`n` is {body.n}, and an agent gives one answer: leave it out.')
    if body.logprobs:
        raise invalid_request('`logprobs` are not known of an agent: leave it out.')
    if body.response_format is not None and body.response_format.get('type') != 'text':
        raise invalid_request('`response_format` is decided by the agent: leave it out.')


def _content(content: str | list[ContentPart]) -> tuple[Content, ...]:
    if isinstance(content, str):
        return _words(content)
    return tuple(piece for part in content for piece in _piece(part))


def _piece(part: ContentPart) -> tuple[Content, ...]:
    match part:
        case TextContent():
            return _words(part.text)
        case ImageContent():
            return (file_from_url(part.image_url.url),)
        case AudioContent():
            return (file_from_base64(part.input_audio.data, f'audio/{part.input_audio.format}'),)
        case _:
            if part.file.file_data is None:
                raise invalid_request('A file by its id is not known here. Send it as `file_data`, a `data:` URL.')
            return (file_from_url(part.file.file_data),)


def _text(content: str | list[TextContent] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ''
    return ''.join(part.text or part.refusal for part in content)


def _words(text: str) -> tuple[Content, ...]:
    return (text,) if text else ()
