"""Functions that a client declares in its requests, in a common format. Pure.

Each is an external tool of the main agent for this run: a call of it ends the response, and the client's next request
contains the result. Subagents do not have them. `_client_results` resumes the run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias, cast

from pydantic import JsonValue
from pydantic_ai import ToolDefinition
from pydantic_ai.messages import ToolReturnPart

from pydantic_deep._messages.call_ids import unescape_call_id
from pydantic_deep.approvals import Decision, Deny, Respond
from pydantic_deep.server.http._errors import ServerError
from pydantic_deep.server.http._json_route import parse_json

APPROVAL_TOOL: Final = 'approval_required'
"""The tool that a response calls for each pending approval. The tool result is the decision."""

_NAME: Final = re.compile(r'[A-Za-z0-9_-]{1,64}')
"""The names of functions that the models of all providers accept."""

ToolChoice: TypeAlias = Literal['auto', 'none', 'required'] | Sequence[str]
"""Whether the model may or must call a tool of the client; names for one of these tools."""


@dataclass(frozen=True, kw_only=True)
class ClientCall:
    """A call of a client's tool in an earlier message."""

    id: str | None
    """The id of the call; `None` if the client did not send it."""
    name: str
    """The name of the tool."""
    args: Mapping[str, JsonValue]
    """The arguments."""


@dataclass(frozen=True, kw_only=True)
class ClientResult:
    """The result of a call of a client's tool."""

    id: str | None
    """The id of the call; `None` if the client did not send it."""
    name: str
    """The name of the tool."""
    content: JsonValue
    """The result."""
    is_error: bool = False
    """Whether the call failed, and the content is the reason."""
    is_incomplete: bool = False
    """Whether the client sent more than the content, such as an image."""

    @property
    def text(self) -> str:
        """The result as text."""
        return self.content if isinstance(self.content, str) else json.dumps(self.content, ensure_ascii=False)

    @property
    def decision(self) -> Decision:
        """The answer to the pending call."""
        return Deny(self.text) if self.is_error else Respond(self.content)

    def part(self, tool: str, pending_id: str) -> ToolReturnPart:
        """Return the result as a part of the history.

        Args:
            tool: The name of the tool.
            pending_id: The id of the pending call.
        """
        outcome = 'failed' if self.is_error else 'success'
        return ToolReturnPart(tool, self.content, unescape_call_id(pending_id), outcome=outcome)


@dataclass(frozen=True, kw_only=True)
class ClientTools:
    """The tools that a request declares."""

    tools: Sequence[ToolDefinition] | None = None
    """The tools; `None` if the request declares none."""
    choice: Sequence[str] | None = None
    """The tools of which each response must call one; `None` if the model decides."""


def client_tool(
    name: str, *, description: str | None, parameters: Mapping[str, JsonValue] | None, strict: bool | None = None
) -> ToolDefinition:
    """Return the definition of a function.

    Raises:
        ServerError: The name is invalid, or the parameters are not an object.
    """
    if not _NAME.fullmatch(name):
        raise _invalid(
            f'The name of a function is {name[:80]!r}. Use at most 64 letters, digits, underscores and hyphens.'
        )
    schema: dict[str, Any] = {'type': 'object', 'properties': {}, **(parameters or {})}
    if schema['type'] != 'object':
        raise _invalid(f'The parameters of the function {name!r} must have the type `object`.')
    return ToolDefinition(name=name, description=description or None, parameters_json_schema=schema, strict=strict)


def client_tools(declared: Iterable[ToolDefinition], choice: ToolChoice) -> ClientTools:
    """Return the tools of a request, without `approval_required`, which the server itself calls.

    `none` withholds the client's tools. The agent still has its own.

    Raises:
        ServerError: Two tools have the same name, or a choice requires a tool that is not declared.
    """
    tools = [tool for tool in declared if tool.name != APPROVAL_TOOL]
    names = [tool.name for tool in tools]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise _invalid(f'The request declares two functions with the name {twice[0]!r}. Rename one of them.')
    if choice == 'none':
        return ClientTools(tools=())
    if choice == 'auto':
        return ClientTools(tools=tools or None)
    chosen = names if choice == 'required' else [*choice]
    unknown = [name for name in chosen if name not in names]
    if unknown or not chosen:
        which = ', '.join(map(repr, unknown)) if unknown else 'a function'
        raise _invalid(f'The tool choice requires {which}, and the request does not declare it in its tools.')
    return ClientTools(tools=tools, choice=chosen)


def without_tools_of_provider(kinds: Iterable[str]) -> None:
    """Refuse tools that a provider runs itself, such as its web search.

    Raises:
        ServerError: There is one.
    """
    kind = next(iter(kinds), None)
    if kind is not None:
        raise _invalid(
            f'Tools of the type {kind[:80]!r} are not supported: agents have their own tools. Declare functions only, and '
            'run them yourself.'
        )


def parse_args(text: str) -> Mapping[str, JsonValue]:
    """Return the arguments of an earlier call. Those that are not a JSON object are passed on as pydantic-ai does.

    JSON that cannot be encoded again is none here either, since the arguments become part of a stored history.
    """
    try:
        args = parse_json(text.encode() or b'{}')
    except ValueError:
        args = None
    return cast('dict[str, JsonValue]', args) if isinstance(args, dict) else {'INVALID_JSON': text}


def with_call_ids(results: Iterable[ClientResult], calls: Sequence[ClientCall]) -> list[ClientResult]:
    """Return results with the ids of the calls that they answer. Those without an id are matched by name, in order."""
    answered = {result.id for result in results if result.id}
    free = [call for call in calls if call.id not in answered]
    matched: list[ClientResult] = []
    for result in results:
        call = None if result.id else next((call for call in free if call.name == result.name), None)
        if call is not None:
            free.remove(call)
            result = replace(result, id=call.id)
        matched.append(result)
    return matched


def calls_key(calls: Sequence[ClientCall], results: Sequence[ClientResult]) -> list[JsonValue]:
    """Return the identity of calls and results, without their ids; empty if there are none."""
    if not calls and not results:
        return []
    return [
        [[call.name, _canonical(cast('JsonValue', call.args))] for call in calls],
        [[result.name, ''.join(_canonical(result.content).split())] for result in results],
    ]


def from_google_schema(schema: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the JSON schema for a `Schema` of Google's API (<https://ai.google.dev/api/caching#Schema>).

    Its types are in upper case, its whole numbers are strings, and `nullable` is a field.
    """
    converted: dict[str, JsonValue] = {}
    for name, value in schema.items():
        match name, value:
            case ('type', str()):
                converted['type'] = value.lower()
            case ('properties', dict()):
                converted['properties'] = {key: _google_value(each) for key, each in value.items()}
            case ('items' | 'anyOf', _):
                converted[name] = _google_value(value)
            case ('minItems' | 'maxItems' | 'minLength' | 'maxLength' | 'minProperties' | 'maxProperties', str()):
                converted[name] = int(value) if value.isdecimal() else value
            case ('nullable' | 'propertyOrdering' | 'example', _):
                pass
            case _:
                converted[name] = value
    if schema.get('nullable') is True and 'type' in converted:
        converted['type'] = [converted['type'], 'null']
    return converted


def _google_value(value: JsonValue) -> JsonValue:
    if isinstance(value, list):
        return [_google_value(item) for item in value]
    return from_google_schema(value) if isinstance(value, dict) else value


def _canonical(value: JsonValue) -> str:
    """Return JSON that does not depend on the order of keys, or on how a client writes whole numbers."""
    return json.dumps(_whole(value), sort_keys=True, separators=(',', ':'))


def _whole(value: JsonValue) -> JsonValue:
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_whole(item) for item in value]
        case dict():
            return {key: _whole(item) for key, item in value.items()}
        case _:
            return value


def _invalid(message: str) -> ServerError:
    return ServerError('invalid', message)
