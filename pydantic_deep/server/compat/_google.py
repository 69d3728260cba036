"""Requests in the format of Google's `generateContent` (Gemini API reference, "Generating content")."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias, TypeVar, cast

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, model_validator
from pydantic.alias_generators import to_camel
from pydantic_ai.settings import ThinkingLevel

from ._client_tools import (
    APPROVAL_TOOL,
    ClientCall,
    ClientResult,
    ClientTools,
    ToolChoice,
    client_tool,
    client_tools,
    from_google_schema,
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
    parse_decision_value,
    refuse_options,
)

_ENUM: Final = 'text/x.enum'
"""The media type of an answer that is one of several strings, without quotes."""


def _as_list(value: object) -> object:
    """Return a list: a single object stands for a list of one, as clients that write JSON by hand may send it."""
    return [cast('object', value)] if isinstance(value, dict) else value


_T = TypeVar('_T')
_ListOf: TypeAlias = Annotated[list[_T], BeforeValidator(_as_list)]


class _Lenient(BaseModel):
    """Accepts names in camel case and snake case, and null for an absent field, as JSON of protocol buffers does. Ignores
    unknown fields.
    """

    model_config = ConfigDict(extra='ignore', alias_generator=to_camel, populate_by_name=True)

    @model_validator(mode='before')
    @classmethod
    def _without_nulls(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        return {name: field for name, field in cast('dict[str, object]', value).items() if field is not None}


class Blob(_Lenient):
    """A base64-encoded file."""

    mime_type: str
    """The media type of the file, such as `image/png`."""
    data: str
    """The base64-encoded contents, in the standard or the URL-safe alphabet."""


class FileReference(_Lenient):
    """A file given by URL."""

    file_uri: str
    """A `data:` URL, or one of a domain from which the server fetches files."""
    mime_type: str | None = None
    """The media type of a file whose server does not know it."""


class FunctionCall(_Lenient):
    """A call of a function of the client."""

    id: str | None = None
    """The id of the call. Clients may omit it."""
    name: str = ''
    """The name of the function."""
    args: dict[str, JsonValue] = {}
    """The arguments."""


class FunctionResponse(_Lenient):
    """The result of a call: of a function of the client, or the decision on an approval."""

    id: str | None = None
    """The id of the call. Clients may omit it, except for a decision."""
    name: str = ''
    """The name of the function."""
    response: dict[str, JsonValue] = {}
    """The result; or the decision, directly or as `{"result": …}`."""
    parts: list[JsonValue] = []
    """Files in the result. They are rejected in new results."""


class Part(_Lenient):
    """A part of a message. One of the fields is set."""

    model_config = ConfigDict(extra='allow')

    text: str | None = None
    """The text of the part."""
    thought: bool = False
    """Whether the text is thinking, which is ignored."""
    inline_data: Blob | None = None
    """A file in the request itself."""
    file_data: FileReference | None = None
    """A file given by URL."""
    function_call: FunctionCall | None = None
    """A call of a function of the client."""
    function_response: FunctionResponse | None = None
    """The result of a call."""


class ContentBody(_Lenient):
    """A message of the dialogue."""

    role: Literal['user', 'model', 'function', 'tool'] = 'user'
    """The author of the message. `function` and `tool` send results for the user."""
    parts: _ListOf[Part] = []
    """The parts of the message."""


class TextPart(_Lenient):
    """A part of a system prompt."""

    text: str
    """The text of the part."""


class SystemInstruction(_Lenient):
    """A system prompt."""

    parts: _ListOf[TextPart] = []
    """Its parts. Only text is supported."""


class FunctionDeclaration(_Lenient):
    """A function of the client."""

    name: str
    """The name of the function."""
    description: str | None = None
    """The description of the function."""
    parameters: dict[str, JsonValue] | None = None
    """The schema of the arguments, as Google defines schemas."""
    parameters_json_schema: dict[str, JsonValue] | None = None
    """The JSON schema of the arguments, instead of `parameters`."""


class GoogleToolBody(_Lenient):
    """Tools of the client, or of Google."""

    model_config = ConfigDict(extra='allow')

    function_declarations: _ListOf[FunctionDeclaration] = []
    """The functions of the client."""


class FunctionCallingConfig(_Lenient):
    """Whether the model may or must call a function of the client."""

    mode: Annotated[
        Literal['MODE_UNSPECIFIED', 'AUTO', 'ANY', 'NONE', 'VALIDATED'],
        BeforeValidator(lambda mode: mode.upper() if isinstance(mode, str) else mode),
    ] = 'MODE_UNSPECIFIED'
    """The choice. The agent's own tools are not affected by `NONE`."""
    allowed_function_names: list[str] = []
    """The functions that the model may call; empty for all."""


class ToolConfig(_Lenient):
    """The configuration of tools."""

    function_calling_config: FunctionCallingConfig = FunctionCallingConfig()
    """Whether the model may or must call a function of the client."""


class ThinkingConfig(_Lenient):
    """Whether the model thinks."""

    include_thoughts: bool = False
    """Whether the response has the model's thinking."""
    thinking_budget: int | None = None
    """How much it thinks: the effort that is closest to this budget. 0 for not at all, -1 for the model's choice."""
    thinking_level: Literal['THINKING_LEVEL_UNSPECIFIED', 'MINIMAL', 'LOW', 'MEDIUM', 'HIGH', 'XHIGH'] | None = None
    """How much it thinks, instead of a budget."""

    @property
    def thinking(self) -> ThinkingLevel | None:
        """The model setting."""
        levels: dict[str | None, ThinkingLevel] = {
            'MINIMAL': 'minimal',
            'LOW': 'low',
            'MEDIUM': 'medium',
            'HIGH': 'high',
            'XHIGH': 'xhigh',
        }
        if self.thinking_level in levels:
            return levels[self.thinking_level]
        return None if self.thinking_budget is None else effort_of(self.thinking_budget)


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
    """`text/plain`, `application/json`, or `text/x.enum` for an answer that is one of the strings of the schema."""
    response_schema: dict[str, JsonValue] | None = None
    """The schema of the answer, as Google defines schemas."""
    response_json_schema: Annotated[
        dict[str, JsonValue] | None,
        Field(validation_alias=AliasChoices('responseJsonSchema', 'response_json_schema', '_responseJsonSchema')),
    ] = None
    """The JSON schema of the answer, instead of `response_schema`."""
    thinking_config: ThinkingConfig = ThinkingConfig()
    """Whether the model thinks, for providers that support it."""
    response_modalities: list[str] | None = None
    """The kinds of output. Only `TEXT` is supported."""
    response_logprobs: bool | None = None
    """Not supported: `true` is rejected."""
    logprobs: int | None = None
    """Not supported: a positive number is rejected."""
    response_format: JsonValue = None
    """A newer form of `response_schema`. Rejected."""


class GenerateContentRequest(_Lenient):
    """A dialogue to continue. Other fields are ignored; unsupported options are rejected."""

    contents: Annotated[list[ContentBody], BeforeValidator(_as_list), Field(min_length=1)]
    """The messages of the dialogue so far."""
    system_instruction: SystemInstruction | None = None
    """The client's system prompt, in addition to the agent's own instructions."""
    generation_config: GenerationConfig = GenerationConfig()
    """Model settings for the turn."""
    tools: _ListOf[GoogleToolBody] = []
    """Functions of the client, which it runs itself. The main agent can call them beside its own tools."""
    tool_config: ToolConfig = ToolConfig()
    """Whether the model may or must call a function of the client."""
    labels: dict[str, str] = {}
    """Labels of the request. `session_id` is stored with the run."""
    cached_content: str | None = None
    """Content that is stored at Google. Rejected."""


class CountTokensRequest(GenerateContentRequest):
    """A request whose tokens are counted."""

    contents: _ListOf[ContentBody] = []
    """The messages of the dialogue so far."""
    generate_content_request: GenerateContentRequest | None = None
    """The whole request, instead of the other fields."""


def parse_count_request(body: CountTokensRequest) -> Dialogue:
    """Parse a request whose tokens are counted.

    Raises:
        ServerError: The request has an unsupported option, or no content.
    """
    request = body.generate_content_request or body
    if not request.contents:
        raise invalid_request('There is nothing to count. Send `contents`, or a `generateContentRequest`.')
    return parse_google_request(request, continues=False)


def parse_google_request(body: GenerateContentRequest, *, continues: bool = True) -> Dialogue:
    """Parse a request.

    Args:
        body: The request.
        continues: Whether the request continues the dialogue, and must contain something new.

    Raises:
        ServerError: The request has an unsupported option, or neither a prompt nor a decision.
    """
    config = body.generation_config
    _refuse(body)
    messages: list[DialogueMessage] = []
    answers: list[FunctionResponse] = []
    for content in body.contents:
        for part in content.parts if content.role != 'model' else ():
            _check_part(part)
        calls = [part.function_call for part in content.parts if part.function_call is not None]
        results = [part.function_response for part in content.parts if part.function_response is not None]
        messages.append(
            DialogueMessage(
                role='assistant' if content.role == 'model' else 'user',
                content=tuple(piece for part in content.parts for piece in _piece(part)),
                calls=tuple(
                    ClientCall(id=call.id, name=call.name, args=call.args)
                    for call in calls
                    if call.name != APPROVAL_TOOL
                ),
                results=tuple(
                    ClientResult(id=each.id, name=each.name, content=each.response, is_incomplete=bool(each.parts))
                    for each in results
                    if each.name != APPROVAL_TOOL
                ),
            )
        )
        answers = [result for result in results if result.name == APPROVAL_TOOL]
    settings = model_settings_from(
        temperature=config.temperature,
        top_p=config.top_p,
        top_k=None if config.top_k is None else int(config.top_k),
        max_tokens=config.max_output_tokens,
        stop_sequences=config.stop_sequences,
        seed=config.seed,
        presence_penalty=config.presence_penalty,
        frequency_penalty=config.frequency_penalty,
        thinking=config.thinking_config.thinking,
    )
    system = [] if body.system_instruction is None else [part.text for part in body.system_instruction.parts]
    return build_dialogue(
        system=system,
        messages=messages,
        decisions={_id_of(answer): parse_decision_value(answer.response) for answer in answers},
        model_settings=settings,
        tools=_tools(body),
        output_schema=_output_schema(config),
        has_plain_output=config.response_mime_type == _ENUM,
        continues=continues,
    )


def _tools(body: GenerateContentRequest) -> ClientTools:
    without_tools_of_provider(kind for tool in body.tools for kind in tool.model_extra or {})
    config = body.tool_config.function_calling_config
    allowed = config.allowed_function_names
    functions = [
        function
        for tool in body.tools
        for function in tool.function_declarations
        if not allowed or function.name in allowed
    ]
    declared = [
        client_tool(
            function.name,
            description=function.description,
            parameters=from_google_schema(function.parameters_json_schema or function.parameters or {}),
        )
        for function in functions
    ]
    choices: dict[str, ToolChoice] = {'ANY': allowed or 'required', 'NONE': 'none'}
    return client_tools(declared, choices.get(config.mode, 'auto'))


def _output_schema(config: GenerationConfig) -> dict[str, JsonValue] | None:
    if config.response_mime_type not in (None, 'text/plain', 'application/json', _ENUM):
        raise invalid_request(
            f'`responseMimeType` is {config.response_mime_type[:80]!r}. Send `application/json`, or omit it.'
        )
    given = config.response_json_schema if config.response_schema is None else config.response_schema
    schema = None if given is None else from_google_schema(given)
    if config.response_mime_type == _ENUM and (schema is None or schema.get('type') != 'string'):
        raise invalid_request(
            f'`responseMimeType` is {_ENUM!r}. Send a `responseSchema` of the type `STRING` with an `enum`.'
        )
    if schema is not None:
        return schema
    return {'type': ['object', 'array']} if config.response_mime_type == 'application/json' else None


def _refuse(body: GenerateContentRequest) -> None:
    config = body.generation_config
    refuse_options(body, 'cached_content')
    refuse_options(config, 'response_logprobs', 'logprobs', 'response_format')
    others = sorted({*(config.response_modalities or ())} - {'TEXT', 'MODALITY_UNSPECIFIED'})
    if others:
        raise invalid_request(
            f'`responseModalities` has {others[0][:80]!r}, but agents answer with text only. Omit it.'
        )
    if config.candidate_count not in (None, 1):
        raise invalid_request(f'`candidateCount` is {config.candidate_count}, but an agent gives one answer. Omit it.')


def _piece(part: Part) -> tuple[Content, ...]:
    if part.inline_data is not None:
        # Protocol buffers write either alphabet of base64 (RFC 4648, sections 4 and 5).
        data = part.inline_data.data.replace('-', '+').replace('_', '/')
        return (file_from_base64(data + '=' * (-len(data) % 4), part.inline_data.mime_type),)
    if part.file_data is not None:
        return (linked_file(part.file_data.file_uri, part.file_data.mime_type),)
    return (part.text,) if part.text and not part.thought else ()


def _check_part(part: Part) -> None:
    """Refuse a part of the user that the model would not read."""
    if part.model_fields_set <= {'thought', *(part.model_extra or ())}:
        found = ', '.join(sorted(part.model_extra or ()))[:80] or 'nothing'
        raise invalid_request(
            f'A part contains {found!r}. Send `text`, `inlineData`, `fileData`, `functionCall` or `functionResponse`.'
        )


def _id_of(response: FunctionResponse) -> str:
    if not response.id:
        raise invalid_request(f'The response of {response.name!r} has no `id`. Send the id of the call.')
    return response.id
