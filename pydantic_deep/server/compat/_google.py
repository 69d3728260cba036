"""Requests in the form of Google's `generateContent` (Gemini API reference, "Generating content")."""

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
    """Names come in camel case or snake case, as in any JSON of protocol buffers. New fields come."""

    model_config = ConfigDict(extra='ignore', alias_generator=to_camel, populate_by_name=True)


class Blob(_Lenient):
    """A file."""

    mime_type: str
    """What it is, such as `image/png`."""
    data: str
    """Base64, of either alphabet."""


class FileReference(_Lenient):
    """A file elsewhere."""

    file_uri: str
    """A `data:` URL; others are refused."""


class FunctionResponse(_Lenient):
    """A decision."""

    id: str | None = None
    """The id of the call, which is that of the approval."""
    name: str = ''
    """The tool."""
    response: dict[str, JsonValue] = {}
    """The decision: itself, or as `{"result": …}`."""


class Part(_Lenient):
    """A piece of what was said: one of these."""

    text: str | None = None
    """Words."""
    thought: bool = False
    """Whether the words are a thought, which is not looked at."""
    inline_data: Blob | None = None
    """A file."""
    file_data: FileReference | None = None
    """A file elsewhere."""
    function_response: FunctionResponse | None = None
    """A decision."""


class ContentBody(_Lenient):
    """Something that was said."""

    role: Literal['user', 'model', 'function'] = 'user'
    """Who said it."""
    parts: list[Part] = []
    """The pieces."""


class FunctionDeclaration(_Lenient):
    """A tool of the client's."""

    name: str
    """Its name."""


class GoogleToolBody(BaseModel):
    """Tools of the client's, or of Google's."""

    model_config = ConfigDict(extra='allow', alias_generator=to_camel, populate_by_name=True)

    function_declarations: list[FunctionDeclaration] = []
    """The client's."""


class GenerationConfig(_Lenient):
    """Settings of the turn."""

    temperature: Annotated[float | None, Field(ge=0, le=2)] = None
    """For the agent's own requests."""
    top_p: Annotated[float | None, Field(ge=0, le=1)] = None
    """For the agent's own requests."""
    top_k: float | None = None
    """For the agent's own requests."""
    max_output_tokens: Annotated[int | None, Field(ge=1)] = None
    """Of each of the agent's own requests."""
    stop_sequences: list[str] | None = None
    """For the agent's own requests."""
    seed: int | None = None
    """For the agent's own requests."""
    presence_penalty: float | None = None
    """For the agent's own requests."""
    frequency_penalty: float | None = None
    """For the agent's own requests."""
    candidate_count: int | None = None
    """How many answers: 1."""
    response_mime_type: str | None = None
    """Refused, but for `text/plain`: an agent answers in the form that it was built for."""


class GenerateContentRequest(_Lenient):
    """A dialogue to go on with. What is not named here is ignored; what cannot be done is refused."""

    contents: Annotated[list[ContentBody], Field(min_length=1)]
    """The dialogue."""
    system_instruction: ContentBody | None = None
    """What the client wants the agent to be told."""
    generation_config: GenerationConfig = GenerationConfig()
    """Settings of the turn."""
    tools: list[GoogleToolBody] = []
    """Refused, but for `approval_required`."""
    labels: dict[str, str] = {}
    """`session_id` in it is kept with the run."""


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
    decisions = {_id_of(each): parse_decision_value(each.response) for each in answers}
    return build_dialogue(system=system, messages=messages, decisions=decisions, model_settings=settings)


def _refuse(tools: list[GoogleToolBody], config: GenerationConfig) -> None:
    for tool in tools:
        check_tools([*(each.name for each in tool.function_declarations), *(tool.model_extra or {})])
    if config.candidate_count not in (None, 1):
        raise invalid_request(
            f'`candidateCount` is {config.candidate_count}, and an agent gives one answer: leave it out.'
        )
    if config.response_mime_type not in (None, 'text/plain'):
        raise invalid_request('`responseMimeType` is decided by the agent: leave it out.')


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
        raise invalid_request(f'The response of {response.name!r} has no `id`: send the one that the call has.')
    return response.id
