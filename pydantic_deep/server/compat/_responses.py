"""Requests in the format of OpenAI's Responses API (API reference, "Create a model response").

The mapping to our terms:

- A response is a run: `resp_` and the id of the run. Item ids contain the id of their response.
- `previous_response_id` is the version that the run ended with. Continuing it twice creates two branches.
- `conversation` is a conversation at its head. Without both, the client sends the whole dialogue: the last item with an
  id of ours names the response that it continues, and without such an item, the texts identify the version.
- `mcp_approval_response` is the decision on the approval `approval_request_id`: `mcpr_` and the id of the approval.
- A `function_call` of a tool that the client declares has the id of its pending call as `call_id`, and a
  `function_call_output` with that id resumes the turn.
- `instructions` and messages of the system are the system prompt of the client. It remains in the history: OpenAI
  replaces it for each response, here new instructions are sent with the prompt.
- Items of an earlier response are not compared with it: the server has its own history.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from pydantic import JsonValue

from pydantic_deep.approvals import Approve, Decision, Deny
from pydantic_deep.server.http._errors import ServerError

from ._client_tools import (
    ClientCall,
    ClientResult,
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
    refuse_options,
    text_of,
    words,
)
from ._openai import thinking_of
from ._response_requests import (
    APPROVAL,
    AllowedResponseTools,
    ApprovalResponse,
    FunctionCallItem,
    FunctionCallOutput,
    InputAudio,
    InputImage,
    InputItem,
    InputMessage,
    InputPart,
    InputRefusal,
    InputText,
    ItemReference,
    NamedResponseTool,
    ResponseRequest,
    TextOptions,
)

_OUTPUT_ITEM: Final = re.compile(r'(?:msg|rs|fc)_([0-9a-f-]{36})_[0-9]+')
"""The id of an output item, with the id of its run."""


def parse_response_request(body: ResponseRequest, *, is_rest: bool, continues: bool = True) -> Dialogue:
    """Parse a request.

    Args:
        body: The request.
        is_rest: Whether the request continues a response or a conversation, so that only the items after the last one
            of a response are read.
        continues: Whether the request continues the dialogue, and must contain something new.

    Raises:
        ServerError: The request has an unsupported option, or neither a prompt nor a decision nor a result; or it names
            what it continues and contains other messages of the assistant too.
    """
    _refuse(body)
    items = _items(body)
    system, messages, decisions = parse_items(items[_last_response(items)[0] + 1 :] if is_rest else items)
    dialogue = build_dialogue(
        system=[body.instructions or '', *system],
        messages=messages,
        decisions=decisions,
        model_settings=model_settings_from(
            temperature=body.temperature,
            top_p=body.top_p,
            max_tokens=body.max_output_tokens,
            parallel_tool_calls=body.parallel_tool_calls,
            thinking=None if body.reasoning is None else thinking_of(body.reasoning.effort),
            openai_text_verbosity=None if body.text is None else body.text.verbosity,
        ),
        tools=_tools(body),
        output_schema=output_schema_of(body.text),
        continues=continues,
    )
    if is_rest and dialogue.messages:
        raise invalid_request(
            '`input` contains messages of the assistant that are not part of the response or the conversation that the '
            'request continues. Send new items only, or the whole dialogue and no id.'
        )
    return dialogue


def last_run_id(body: ResponseRequest) -> str | None:
    """Return the run of the last items of the assistant; `None` if they have no id of ours."""
    return _last_response(_items(body))[1]


def _items(body: ResponseRequest) -> Sequence[InputItem]:
    return [InputMessage(role='user', content=body.input)] if isinstance(body.input, str) else body.input


def _last_response(items: Sequence[InputItem]) -> tuple[int, str | None]:
    """Return the index of the last item of the assistant and its run; -1 and `None` if the run is not known.

    The items of a response follow one another. Clients omit the ids of calls, and approvals have ids of their own.
    """
    last = next((index for index in reversed(range(len(items))) if not _is_of_client(items[index])), -1)
    for item in reversed(items[: last + 1]):
        run_id = _run_id_of(item)
        if run_id is not None:
            return last, run_id
        if isinstance(item, (InputMessage, ApprovalResponse, FunctionCallOutput)):
            break
    return -1, None


def _is_of_client(item: InputItem) -> bool:
    is_message = isinstance(item, InputMessage) and item.role != 'assistant'
    return is_message or isinstance(item, (ApprovalResponse, FunctionCallOutput))


def _run_id_of(item: InputItem) -> str | None:
    found = None if isinstance(item, (ApprovalResponse, FunctionCallOutput)) else _OUTPUT_ITEM.fullmatch(item.id or '')
    return None if found is None else found[1]


def parse_items(items: Sequence[InputItem]) -> tuple[list[str], list[DialogueMessage], dict[str, Decision]]:
    """Return the system prompts in items, the messages, and the decisions that follow the last item of the assistant.

    Raises:
        ServerError: A file cannot be read, or an item refers to an unknown one.
    """
    system: list[str] = []
    messages: list[DialogueMessage] = []
    decisions: dict[str, Decision] = {}
    names: dict[str, str] = {}
    for item in items:
        match item:
            case InputMessage(role='system' | 'developer'):
                system.append(text_of(_content(item.content)))
            case InputMessage(role='user'):
                messages.append(DialogueMessage(role='user', content=_content(item.content)))
            case ApprovalResponse():
                decision = Approve() if item.approve else Deny(item.reason) if item.reason else Deny()
                decisions[item.approval_request_id.removeprefix(APPROVAL)] = decision
            case FunctionCallOutput():
                messages.append(DialogueMessage(role='user', results=(_result(item, names.get(item.call_id, '')),)))
            case ItemReference() if not item.id.startswith(APPROVAL):
                message = 'An item that `input` refers to does not exist. Send the item itself.'
                raise ServerError('not_found', message, facts={'code': 'item_not_found'})
            case _:
                messages.append(_of_assistant(item))
                decisions = {}
                names |= {call.id: call.name for call in messages[-1].calls if call.id}
    return system, messages, decisions


def _of_assistant(item: InputItem) -> DialogueMessage:
    match item:
        case InputMessage():
            return DialogueMessage(role='assistant', content=_content(item.content))
        case FunctionCallItem():
            call = ClientCall(id=item.call_id, name=item.name, args=parse_args(item.arguments))
            return DialogueMessage(role='assistant', calls=(call,))
        case _:  # it has no content here, but what follows it is new
            return DialogueMessage(role='assistant')


def _result(item: FunctionCallOutput, name: str) -> ClientResult:
    return client_result(item.call_id, name, _content(item.output))


def _tools(body: ResponseRequest) -> ClientTools:
    tools = [tool for tool in body.tools or () if tool.type != 'mcp' or tool.server_label != body.model]
    without_tools_of_provider(tool.type for tool in tools if tool.type != 'function')
    choice: ToolChoice
    match body.tool_choice:
        case NamedResponseTool(name=name):
            choice = [name]
        case AllowedResponseTools(mode=mode, tools=allowed):
            names = [tool.name for tool in allowed]
            tools = [tool for tool in tools if tool.name in names]
            choice = names if mode == 'required' else 'auto'
        case word:
            choice = word or 'auto'
    declared = [
        client_tool(tool.name, description=tool.description, parameters=tool.parameters, strict=tool.strict)
        for tool in tools
    ]
    return client_tools(declared, choice)


def output_schema_of(options: TextOptions | None) -> dict[str, JsonValue] | None:
    """Return the schema that a request asks for, if any.

    Raises:
        ServerError: The format has no schema.
    """
    format = None if options is None else options.format
    if format is None or format.type == 'text':
        return None
    if format.type == 'json_object':
        return {'type': 'object'}
    if format.json_schema is None:
        raise invalid_request('`text.format` has the type `json_schema` and no schema. Send it in `schema`.')
    described: dict[str, JsonValue] = {} if format.description is None else {'description': format.description}
    return {**described, **format.json_schema}


def _refuse(body: ResponseRequest) -> None:
    if body.store is False:
        raise invalid_request(
            '`store` is false, but this server stores every turn as a version, which later turns and approvals need. '
            'Omit it, and delete the response when you no longer need it.'
        )
    if body.prompt is not None:
        raise invalid_request('Prompt templates (`prompt`) are stored at OpenAI. Send the text in `instructions`.')
    refuse_options(body, 'top_logprobs', 'moderation')
    if 'message.output_text.logprobs' in (body.include or ()):
        raise invalid_request('Agents do not support `message.output_text.logprobs` in `include`. Remove it.')
    if body.max_tool_calls is not None:
        raise invalid_request('`max_tool_calls` is not supported: the operator limits the work of a turn. Omit it.')


def _content(content: str | list[InputPart]) -> tuple[Content, ...]:
    if isinstance(content, str):
        return words(content)
    return tuple(piece for part in content for piece in _piece(part))


def _piece(part: InputPart) -> tuple[Content, ...]:
    match part:
        case InputText():
            return words(part.text)
        case InputRefusal():
            return words(part.refusal)
        case InputAudio():
            return (file_from_base64(part.input_audio.data, f'audio/{part.input_audio.format}'),)
        case InputImage():
            return (_file(part.image_url),)
        case _:
            return (_file(part.file_url) if part.file_data is None else named_file(part.file_data, part.filename),)


def _file(url: str | None) -> Content:
    if url is None:
        raise invalid_request('Files by id are not supported. Send the file itself, as a `data:` URL.')
    return linked_file(url)
