"""Requests in the format of Google's `generateContent` (Gemini API reference, "Generating content")."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, JsonValue
from pydantic.alias_generators import to_camel

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
    file_from_base64,
    invalid_request,
    linked_file,
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

    role: Literal['user', 'model', 'function'] = 'user'
    """The author of the message."""
    parts: list[Part] = []
    """The parts of the message."""


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


class GoogleToolBody(BaseModel):
    """Tools of the client, or of Google."""

    model_config = ConfigDict(extra='allow', alias_generator=to_camel, populate_by_name=True)

    function_declarations: list[FunctionDeclaration] = []
    """The functions of the client."""


class FunctionCallingConfig(_Lenient):
    """Whether the model may or must call a function of the client."""

    mode: Literal['MODE_UNSPECIFIED', 'AUTO', 'ANY', 'NONE', 'VALIDATED'] = 'MODE_UNSPECIFIED'
    """The choice. The agent's own tools are not affected by `NONE`."""
    allowed_function_names: list[str] = []
    """The functions that the model may call; empty for all."""


class ToolConfig(_Lenient):
    """The configuration of tools."""

    function_calling_config: FunctionCallingConfig = FunctionCallingConfig()
    """Whether the model may or must call a function of the client."""


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
    """`text/plain` or `application/json`."""
    response_schema: dict[str, JsonValue] | None = None
    """The schema of the answer, as Google defines schemas."""
    response_json_schema: Annotated[
        dict[str, JsonValue] | None,
        Field(validation_alias=AliasChoices('responseJsonSchema', 'response_json_schema', '_responseJsonSchema')),
    ] = None
    """The JSON schema of the answer, instead of `response_schema`."""


class GenerateContentRequest(_Lenient):
    """A dialogue to continue. Other fields are ignored; unsupported options are rejected."""

    contents: Annotated[list[ContentBody], Field(min_length=1)]
    """The messages of the dialogue so far."""
    system_instruction: ContentBody | None = None
    """The client's system prompt, in addition to the agent's own instructions."""
    generation_config: GenerationConfig = GenerationConfig()
    """Model settings for the turn."""
    tools: list[GoogleToolBody] = []
    """Functions of the client, which it runs itself. The main agent can call them beside its own tools."""
    tool_config: ToolConfig = ToolConfig()
    """Whether the model may or must call a function of the client."""
    labels: dict[str, str] = {}
    """Labels of the request. `session_id` is stored with the run."""


class CountTokensRequest(_Lenient):
    """A request whose tokens are counted. Either field is set."""

    contents: list[ContentBody] = []
    """The messages alone."""
    generate_content_request: GenerateContentRequest | None = None
    """The whole request."""


def parse_count_request(body: CountTokensRequest) -> Dialogue:
    """Parse a request whose tokens are counted.

    Raises:
        ServerError: The request has an unsupported option, or no content.
    """
    if body.generate_content_request is not None:
        return parse_google_request(body.generate_content_request, continues=False)
    if not body.contents:
        raise invalid_request('There is nothing to count. Send `contents`, or a `generateContentRequest`.')
    return parse_google_request(GenerateContentRequest(contents=body.contents), continues=False)


def parse_google_request(body: GenerateContentRequest, *, continues: bool = True) -> Dialogue:
    """Parse a request.

    Args:
        body: The request.
        continues: Whether the request continues the dialogue, and must contain something new.

    Raises:
        ServerError: The request has an unsupported option, or neither a prompt nor a decision.
    """
    config = body.generation_config
    _refuse(config)
    messages: list[DialogueMessage] = []
    answers: list[FunctionResponse] = []
    for content in body.contents:
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
    )
    system = [] if body.system_instruction is None else [part.text or '' for part in body.system_instruction.parts]
    return build_dialogue(
        system=system,
        messages=messages,
        decisions={_id_of(answer): parse_decision_value(answer.response) for answer in answers},
        model_settings=settings,
        tools=_tools(body),
        output_schema=_output_schema(config),
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
            parameters=function.parameters_json_schema or from_google_schema(function.parameters or {}),
        )
        for function in functions
    ]
    choices: dict[str, ToolChoice] = {'ANY': allowed or 'required', 'NONE': 'none'}
    return client_tools(declared, choices.get(config.mode, 'auto'))


def _output_schema(config: GenerationConfig) -> dict[str, JsonValue] | None:
    if config.response_mime_type not in (None, 'text/plain', 'application/json'):
        raise invalid_request(
            f'`responseMimeType` is {config.response_mime_type[:80]!r}. Send `application/json`, or omit it.'
        )
    if config.response_json_schema is not None:
        return config.response_json_schema
    if config.response_schema is not None:
        return from_google_schema(config.response_schema)
    return {'type': ['object', 'array']} if config.response_mime_type == 'application/json' else None


def _refuse(config: GenerationConfig) -> None:
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


def _id_of(response: FunctionResponse) -> str:
    if not response.id:
        raise invalid_request(f'The response of {response.name!r} has no `id`. Send the id of the call.')
    return response.id
