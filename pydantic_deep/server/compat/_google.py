"""Requests in the format of Google's `generateContent` (Gemini API reference, "Generating content")."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue
from pydantic.alias_generators import to_camel

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
    parse_decision_value,
)


class _Lenient(BaseModel):
    """Accepts names in camel case and snake case, as JSON of protocol buffers does, and ignores unknown fields."""

    model_config = ConfigDict(extra='ignore', alias_generator=to_camel, populate_by_name=True)


class Blob(_Lenient):
    """A base64-encoded file."""

    mime_type: str
    """The media type of the file, such as `image/png`."""
    data: str
    """The base64-encoded contents, in the standard or the URL-safe alphabet."""


class FileReference(_Lenient):
    """A file given by URL."""

    file_uri: str
    """A `data:` URL. Other URLs are rejected."""


class FunctionResponse(_Lenient):
    """A decision on an approval."""

    id: str | None = None
    """The id of the call, which is the id of the approval."""
    name: str = ''
    """The name of the tool."""
    response: dict[str, JsonValue] = {}
    """The decision, directly or as `{"result": …}`."""


class Part(_Lenient):
    """A part of a message. One of the fields is set."""

    text: str | None = None
    """The text of the part."""
    thought: bool = False
    """Whether the text is thinking, which is ignored."""
    inline_data: Blob | None = None
    """A file in the request itself."""
    file_data: FileReference | None = None
    """A file given by URL."""
    function_response: FunctionResponse | None = None
    """A decision on an approval."""


class ContentBody(_Lenient):
    """A message of the dialogue."""

    role: Literal['user', 'model', 'function'] = 'user'
    """The author of the message."""
    parts: list[Part] = []
    """The parts of the message."""


class FunctionDeclaration(_Lenient):
    """A tool of the client."""

    name: str
    """The name of the tool."""


class GoogleToolBody(BaseModel):
    """Tools of the client, or of Google."""

    model_config = ConfigDict(extra='allow', alias_generator=to_camel, populate_by_name=True)

    function_declarations: list[FunctionDeclaration] = []
    """The tools of the client."""


class GenerationConfig(_Lenient):
    """Model settings for the turn."""

    temperature: Annotated[float | None, Field(ge=0, le=2)] = None
    """Sampling temperature for all model requests of the turn."""
    top_p: Annotated[float | None, Field(ge=0, le=1)] = None
    """Nucleus sampling for all model requests of the turn."""
    top_k: float | None = None
    """Top-k sampling for all model requests of the turn."""
    max_output_tokens: Annotated[int | None, Field(ge=1)] = None
    """Maximum number of tokens in each model response."""
    stop_sequences: list[str] | None = None
    """Sequences at which the model stops generating."""
    seed: int | None = None
    """Seed for sampling, for providers that support it."""
    presence_penalty: float | None = None
    """Penalty for tokens that already occurred."""
    frequency_penalty: float | None = None
    """Penalty for tokens by how often they occurred."""
    candidate_count: int | None = None
    """The number of responses. Only 1 is supported."""
    response_mime_type: str | None = None
    """Rejected, except for `text/plain`: the agent determines its output format."""


class GenerateContentRequest(_Lenient):
    """A dialogue to continue. Other fields are ignored; unsupported options are rejected."""

    contents: Annotated[list[ContentBody], Field(min_length=1)]
    """The messages of the dialogue so far."""
    system_instruction: ContentBody | None = None
    """The client's system prompt, in addition to the agent's own instructions."""
    generation_config: GenerationConfig = GenerationConfig()
    """Model settings for the turn."""
    tools: list[GoogleToolBody] = []
    """Tools of the client. Rejected, except for `approval_required`."""
    labels: dict[str, str] = {}
    """Labels of the request. `session_id` is stored with the run."""


def parse_google_request(body: GenerateContentRequest) -> Dialogue:
    """Parse a request.

    Raises:
        ServerError: The request has an unsupported option, or neither a prompt nor a decision.
    """
    config = body.generation_config
    _refuse(body.tools, config)
    messages: list[DialogueMessage] = []
    answers: list[FunctionResponse] = []
    for content in body.contents:
        role = 'assistant' if content.role == 'model' else 'user'
        messages.append(
            DialogueMessage(role=role, content=tuple(piece for part in content.parts for piece in _piece(part)))
        )
        answers = [part.function_response for part in content.parts if part.function_response is not None]
    settings = model_settings_from(
        temperature=config.temperature,
        top_p=config.top_p,
        top_k=None if config.top_k is None else int(config.top_k),
        max_tokens=config.max_output_tokens,
        stop_sequences=config.stop_sequences,
        seed=config.seed,
        presence_penalty=config.presence_penalty,
        frequency_penalty=config.frequency_penalty,
    )
    system = [] if body.system_instruction is None else [part.text or '' for part in body.system_instruction.parts]
    decisions = {_id_of(answer): parse_decision_value(answer.response) for answer in answers}
    return build_dialogue(system=system, messages=messages, decisions=decisions, model_settings=settings)


def _refuse(tools: list[GoogleToolBody], config: GenerationConfig) -> None:
    for tool in tools:
        check_tools([*(function.name for function in tool.function_declarations), *(tool.model_extra or {})])
    if config.candidate_count not in (None, 1):
        raise invalid_request(f'`candidateCount` is {config.candidate_count}, but an agent gives one answer. Omit it.')
    if config.response_mime_type not in (None, 'text/plain'):
        raise invalid_request('`responseMimeType` is determined by the agent. Omit it.')


def _piece(part: Part) -> tuple[Content, ...]:
    if part.inline_data is not None:
        # Protocol buffers write either alphabet of base64 (RFC 4648, sections 4 and 5).
        data = part.inline_data.data.replace('-', '+').replace('_', '/')
        return (file_from_base64(data + '=' * (-len(data) % 4), part.inline_data.mime_type),)
    if part.file_data is not None:
        return (file_from_url(part.file_data.file_uri),)
    return (part.text,) if part.text and not part.thought else ()


def _id_of(response: FunctionResponse) -> str:
    if not response.id:
        raise invalid_request(f'The response of {response.name!r} has no `id`. Send the id of the call.')
    return response.id
