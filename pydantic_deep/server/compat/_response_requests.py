"""Bodies of requests to OpenAI's Responses API, with their items, tools and options."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias, cast

from pydantic import AliasChoices, BaseModel, Discriminator, Field, JsonValue, Tag

from ._openai import AudioData, ReasoningEffort

RESPONSE: Final = 'resp_'
"""The prefix of the ids of responses."""

CONVERSATION: Final = 'conv_'
"""The prefix of the ids of conversations."""

APPROVAL: Final = 'mcpr_'
"""The prefix of the ids of approval requests."""

Metadata: TypeAlias = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]], Field(max_length=16)
]
"""Metadata, with OpenAI's limits."""


class InputText(BaseModel):
    """A text part."""

    type: Literal['input_text', 'output_text', 'text']
    """The type of the part."""
    text: str
    """The text of the part."""


class InputRefusal(BaseModel):
    """A refusal by the assistant."""

    type: Literal['refusal']
    """The type of the part."""
    refusal: str
    """The text of the refusal."""


class InputImage(BaseModel):
    """An image part."""

    type: Literal['input_image']
    """The type of the part."""
    image_url: str | None = None
    """A `data:` URL, or one of a domain from which the server fetches files."""


class InputFile(BaseModel):
    """A file part."""

    type: Literal['input_file']
    """The type of the part."""
    file_data: str | None = None
    """A `data:` URL, or base64 with a `filename`. Ids of files that were uploaded to another service are rejected."""
    filename: str | None = None
    """The name of the file, by which its media type is known."""
    file_url: str | None = None
    """A `data:` URL, or one of a domain from which the server fetches files."""


class InputAudio(BaseModel):
    """An audio part."""

    type: Literal['input_audio']
    """The type of the part."""
    input_audio: AudioData
    """The contents of the recording."""


InputPart = Annotated[InputText | InputRefusal | InputImage | InputFile | InputAudio, Field(discriminator='type')]


class InputMessage(BaseModel):
    """A message of the user, the agent, or the client's system."""

    type: Literal['message'] | None = None
    """The type of the item."""
    id: str | None = None
    """The id of the item, if it was part of a response."""
    role: Literal['user', 'assistant', 'system', 'developer']
    """The author of the message."""
    content: str | list[InputPart]
    """Text, or parts with text and files."""


class ItemReference(BaseModel):
    """A reference to an item of a response."""

    type: Literal['item_reference'] | None = None
    """The type of the item."""
    id: str
    """The id of the item."""


class ApprovalResponse(BaseModel):
    """A decision on an approval."""

    type: Literal['mcp_approval_response']
    """The type of the item."""
    approval_request_id: str
    """The id of the approval request."""
    approve: bool
    """Whether the call may run."""
    reason: str | None = None
    """For a denied call: the reason that the model receives."""


class FunctionCallItem(BaseModel):
    """A call of a function of the client."""

    type: Literal['function_call']
    """The type of the item."""
    id: str | None = None
    """The id of the item."""
    call_id: str
    """The id of the call."""
    name: str
    """The name of the function."""
    arguments: str
    """The arguments as JSON."""


class FunctionCallOutput(BaseModel):
    """The result of a function of the client."""

    type: Literal['function_call_output']
    """The type of the item."""
    call_id: str
    """The id of the call."""
    output: str | list[InputPart]
    """The result as text, or as parts with text."""


class OtherItem(BaseModel):
    """An item of a response that is sent back."""

    type: Literal['reasoning', 'mcp_approval_request']
    """The type of the item."""
    id: str | None = None
    """The id of the item."""


def _type_of(item: object) -> str:
    """Return the tag of an input item. OpenAI allows messages and references without a type."""
    fields = cast('dict[str, object]', item) if isinstance(item, dict) else {}
    return str(fields.get('type') or ('message' if 'role' in fields else 'item_reference'))


InputItem: TypeAlias = Annotated[
    Annotated[InputMessage, Tag('message')]
    | Annotated[ItemReference, Tag('item_reference')]
    | Annotated[ApprovalResponse, Tag('mcp_approval_response')]
    | Annotated[FunctionCallItem, Tag('function_call')]
    | Annotated[FunctionCallOutput, Tag('function_call_output')]
    | Annotated[OtherItem, Tag('reasoning')]
    | Annotated[OtherItem, Tag('mcp_approval_request')],
    Discriminator(_type_of),
]
"""An input item. Items that only OpenAI's own tools have are rejected."""


class ConversationReference(BaseModel):
    """The conversation that a response belongs to."""

    id: str
    """The id of the conversation."""


class ReasoningOptions(BaseModel):
    """Options of reasoning."""

    effort: ReasoningEffort | None = None
    """How much the model thinks, for providers that support it."""
    summary: Annotated[
        Literal['auto', 'concise', 'detailed'] | None,
        Field(validation_alias=AliasChoices('summary', 'generate_summary')),
    ] = None
    """Any value adds the model's thinking to the response, as `reasoning` items."""


class TextFormat(BaseModel):
    """The format of the answer."""

    type: Literal['text', 'json_object', 'json_schema']
    """Text, any JSON object, or JSON that is valid by a schema."""
    name: str | None = None
    """The name of the schema."""
    description: str | None = None
    """The description of the answer."""
    json_schema: Annotated[dict[str, JsonValue] | None, Field(alias='schema')] = None
    """The JSON schema, for the type `json_schema`."""
    strict: bool | None = None
    """Whether the provider enforces the schema."""


class TextOptions(BaseModel):
    """Options of the text."""

    format: TextFormat | None = None
    """The format of the answer."""
    verbosity: Literal['low', 'medium', 'high'] | None = None
    """How long the answer is, for models of OpenAI."""


class FunctionTool(BaseModel):
    """A tool of the client."""

    type: str
    """The type of the tool. Only `function` is supported, and `mcp` for the agent itself."""
    name: str = ''
    """The name of the function."""
    description: str | None = None
    """The description of the function."""
    parameters: dict[str, JsonValue] | None = None
    """The JSON schema of the arguments."""
    strict: bool | None = None
    """Whether the provider enforces the schema."""
    server_label: str | None = None
    """Of a tool of the type `mcp`: the agent itself, whose approvals the client handles. It adds no tools."""


class NamedResponseTool(BaseModel):
    """The choice of a function."""

    type: Literal['function']
    """The type of the tool."""
    name: str
    """The name of the function."""


class AllowedResponseTools(BaseModel):
    """The functions that the model may call."""

    type: Literal['allowed_tools']
    """The type of the choice."""
    mode: Literal['auto', 'required']
    """Whether it must call one of them."""
    tools: list[NamedResponseTool]
    """The functions."""


class ResponseRequest(BaseModel):
    """A response to create. Other fields are ignored; unsupported options are rejected."""

    model: str
    """The name of an agent."""
    input: str | list[InputItem]
    """The prompt, or the new items of the dialogue."""
    instructions: str | None = None
    """A system prompt of the client, in addition to the agent's own instructions."""
    previous_response_id: str | None = None
    """The response to continue. Each continuation of the same response is a branch."""
    conversation: str | ConversationReference | None = None
    """The conversation to continue at its head."""
    background: bool | None = None
    """Whether to respond as soon as the run has started."""
    stream: bool | None = None
    """Whether to stream the response as events."""
    store: bool | None = None
    """`false` is rejected: every turn is stored."""
    metadata: Metadata | None = None
    """Metadata, returned with the response. `session_id` is stored with the run."""
    temperature: Annotated[float | None, Field(ge=0, le=2)] = None
    """Sampling temperature for all model requests of the turn."""
    top_p: Annotated[float | None, Field(ge=0, le=1)] = None
    """Nucleus sampling for all model requests of the turn."""
    max_output_tokens: Annotated[int | None, Field(ge=1)] = None
    """Maximum number of tokens in each model response."""
    parallel_tool_calls: bool | None = None
    """Whether a model response may contain several tool calls."""
    reasoning: ReasoningOptions | None = None
    """Options of reasoning."""
    text: TextOptions | None = None
    """Options of the text."""
    tools: list[FunctionTool] | None = None
    """Functions of the client, which it runs itself. The main agent can call them beside its own tools."""
    tool_choice: Literal['auto', 'none', 'required'] | NamedResponseTool | AllowedResponseTools | None = None
    """Whether the model may or must call a function of the client. The agent's own tools are not affected by `none`."""
    include: list[str] | None = None
    """More fields of items. Log probabilities are rejected; the others are of OpenAI's own tools and of unstored items."""
    prompt: JsonValue = None
    """A prompt template of OpenAI. Rejected."""
    top_logprobs: int | None = None
    """Not supported: a positive number is rejected."""
    max_tool_calls: int | None = None
    """Not supported: rejected."""
    user: str | None = None
    """The client's own id of its user or session, which is stored with the run."""
    safety_identifier: str | None = None
    """The successor of `user`."""
    moderation: JsonValue = None
    """Moderation by OpenAI. Rejected."""

    @property
    def conversation_id(self) -> str | None:
        """The id of the conversation."""
        return self.conversation.id if isinstance(self.conversation, ConversationReference) else self.conversation

    @property
    def session_id(self) -> str | None:
        """The client's own session id."""
        return (self.metadata or {}).get('session_id', self.user or self.safety_identifier)


class InputTokensRequest(ResponseRequest):
    """A response whose input tokens are counted. Options that only matter for a response are ignored."""

    input: str | list[InputItem] = Field(default_factory=list[InputItem])
    """The prompt, or the new items of the dialogue."""
