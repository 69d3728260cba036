"""Report the token usage of a conversation: counts by category, and the usage that providers reported.

Counts refer to the next request, and reported usage to past requests. They differ by parts that cannot be counted:
images, provider delimiters and, with the approximate counter, languages other than English.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final, Literal, Protocol, TypeAlias, cast, runtime_checkable

from pydantic import JsonValue
from pydantic_ai import AgentRunResult, Conversation
from pydantic_ai.messages import (
    CompactionPart,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    SystemPromptPart,
    TextContent,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.usage import RequestUsage, RunUsage
from pydantic_core import to_json

from ._messages.grants import LOAD_TOOL
from ._messages.headings import CATALOGUE_HEADING, FILES_HEADING, TODOS_HEADING, UPLOADS_HEADING
from ._messages.notice import noticed
from ._messages.summary_metadata import usage_of, whole
from ._requests.canonical_request import canonical_request
from ._requests.prices import price_of, window_of
from .tokens import TokenCounter, count_part, count_tokens_approximately

FILE_TOOLS: Final = frozenset({'ls', 'read_file', 'write_file', 'edit_file', 'glob', 'grep', 'execute'})
"""Tools of the filesystem capability, with calls and results that count as files."""

Kind: TypeAlias = Literal['system', 'skills', 'files', 'summary', 'history']
"""The category of a message part. Tool schemas are not part of messages."""


@runtime_checkable
class RecordedVersion(Protocol):
    """A version of a conversation, such as `AgentVersion`."""

    @property
    def usage(self) -> RunUsage:
        """The usage of the conversation up to this version."""
        ...

    async def messages(self) -> list[ModelMessage]:
        """Return the message history."""
        ...

    async def request_parameters(self) -> Mapping[str, JsonValue] | None:
        """Return the other parts of the last request; `None` if there was none."""
        ...


@dataclass(frozen=True, kw_only=True)
class UsageReport:
    """The token usage of a conversation. The first six fields are counts for the context of the next request."""

    system: int | None
    """Instructions and system prompts, without the catalogue of skills; `None` if unknown."""
    tools: int | None
    """Tool and output schemas; `None` if unknown."""
    skills: int | None
    """The catalogue of skills and loaded skills; `None` if unknown."""
    files: int
    """Calls and results of file tools, notices of uploads, and images and documents in prompts."""
    summary: int
    """Summaries of earlier messages."""
    history: int
    """All other messages: prompts, responses, thinking, other calls and their results."""
    counted: int
    """The sum of the known counts."""
    context_window: int | None
    """The context window of the model in tokens; `None` if unknown."""
    last: RequestUsage | None
    """The usage of the last request as reported by the provider, including `input_tokens`, `cache_read_tokens`,
    `cache_write_tokens` and `output_tokens`; `None` if it reported none.
    """
    total: RunUsage
    """The reported usage of all requests of the conversation, including summarized ones."""
    cost: Decimal | None
    """The cost in US dollars of all requests with a known price; `None` if there are none."""
    unpriced_requests: int
    """The number of requests that are missing in the cost, as their price is unknown or only a store has their
    messages.
    """


async def usage_report(
    conversation: Conversation | Sequence[ModelMessage] | AgentRunResult[Any] | RecordedVersion,
    *,
    parameters: ModelRequestParameters | None = None,
    counter: TokenCounter = count_tokens_approximately,
    context_window: int | None = None,
) -> UsageReport:
    """Return a report on the token usage of a conversation.

    Args:
        conversation: A pydantic-ai conversation, a history, the result of a run, or an `AgentVersion`.
        parameters: The other parts of requests, as in a capability's `request_context.model_request_parameters`. A
            version contains those of its last request. Otherwise, instructions are taken from the messages, and tools
            are unknown.
        counter: Counts the tokens of a text. `load_tokenizer(model)` of `pydantic_deep.tokenizers` is exact for
            OpenAI's models.
        context_window: The context window in tokens: `model.context_window`. By default it is looked up by the name of
            the model of the last response.

    Raises:
        TypeError: `conversation` is none of these.
    """
    known: Mapping[str, JsonValue] | None = None
    source: object = conversation
    if isinstance(source, AgentRunResult):
        source = cast('AgentRunResult[object]', source).conversation
    if isinstance(source, Conversation):
        messages = source.messages
        # A run with a message history has the usage of its own requests only; one with subagents includes theirs.
        total = max(source.usage, usage_of(messages), key=lambda usage: usage.requests)
    elif isinstance(source, Sequence) and not isinstance(source, str | bytes):
        messages = source
        total = usage_of(messages)
    elif isinstance(source, RecordedVersion):
        messages, total = await source.messages(), source.usage
        known = await source.request_parameters()
    else:
        raise TypeError(
            f'There is no conversation in {type(source).__name__}. Pass a `Conversation`, a list of messages, the '
            '`AgentRunResult` of a completed run, or an `AgentVersion`.'
        )
    if parameters is not None:
        head = canonical_request((), None, parameters)
        known = {'instructions': head.instructions, 'tools': cast('JsonValue', head.tools), 'options': head.options}
    return _report(messages, total, known, counter, context_window)


def _report(
    messages: Sequence[ModelMessage],
    total: RunUsage,
    known: Mapping[str, JsonValue] | None,
    counter: TokenCounter,
    context_window: int | None,
) -> UsageReport:
    sums: dict[Kind, int] = dict.fromkeys(('system', 'skills', 'files', 'summary', 'history'), 0)
    for message in messages:
        for part in message.parts:
            for kind, piece in _split(part):
                sums[kind] += count_part(piece, counter)
    instructions = _last_instructions(messages) if known is None else cast('str | None', known['instructions']) or ''
    catalogue, rest = _split_catalogue(instructions or '')
    has_system = instructions is not None or sums['system'] > 0
    system = sums['system'] + counter(rest) if has_system else None
    skills = sums['skills'] + counter(catalogue) if has_system or sums['skills'] else None
    tools = None if known is None else _count_tools(known, counter)
    costs = [price_of(message) for message in whole(messages) if isinstance(message, ModelResponse)]
    priced = [cost for cost in costs if cost is not None]
    return UsageReport(
        system=system,
        tools=tools,
        skills=skills,
        files=sums['files'],
        summary=sums['summary'],
        history=sums['history'],
        counted=(system or 0) + (tools or 0) + (skills or 0) + sums['files'] + sums['summary'] + sums['history'],
        context_window=context_window or _last_window(messages),
        last=_last_usage(messages),
        total=replace(total),
        cost=sum(priced, Decimal()) if priced else None,
        unpriced_requests=max(total.requests, len(costs)) - len(priced),
    )


def _split(
    part: ModelRequestPart | ModelResponsePart,
) -> list[tuple[Kind, ModelRequestPart | ModelResponsePart]]:
    """Return a part by category. Only a prompt with files has several."""
    match part:
        case SystemPromptPart() if any(
            noticed(part, heading) is not None for heading in (UPLOADS_HEADING, FILES_HEADING)
        ):
            return [('files', part)]
        case SystemPromptPart() if noticed(part, TODOS_HEADING) is not None:
            return [('history', part)]
        case SystemPromptPart():
            return [('system', part)]
        case CompactionPart():
            return [('summary', part)]
        case ToolCallPart() | ToolReturnPart() if part.tool_name == LOAD_TOOL:
            return [('skills', part)]
        case ToolCallPart() | ToolReturnPart() if part.tool_name in FILE_TOOLS:
            return [('files', part)]
        case UserPromptPart() if not isinstance(part.content, str):
            texts = [item for item in part.content if isinstance(item, str | TextContent)]
            files = [item for item in part.content if not isinstance(item, str | TextContent)]
            pieces: list[tuple[Kind, UserPromptPart]] = [
                ('history', replace(part, content=texts)),
                ('files', replace(part, content=files)),
            ]
            return [(kind, piece) for kind, piece in pieces if piece.content]
        case _:
            return [('history', part)]


def _split_catalogue(instructions: str) -> tuple[str, str]:
    """Return the catalogue of skills, and the instructions without it."""
    blocks = instructions.split('\n\n')  # pydantic-ai joins instructions with an empty line, and the catalogue has none
    catalogue = [block for block in blocks if block.startswith(CATALOGUE_HEADING)]
    return '\n\n'.join(catalogue), '\n\n'.join(block for block in blocks if block not in catalogue)


def _last_instructions(messages: Sequence[ModelMessage]) -> str | None:
    """Return the instructions of the last request; `None` if no message has any."""
    requests = (message for message in reversed(messages) if isinstance(message, ModelRequest))
    return next((message.instructions for message in requests if message.instructions is not None), None)


def _count_tools(known: Mapping[str, JsonValue], counter: TokenCounter) -> int:
    options = cast('Mapping[str, JsonValue]', known['options'])
    schemas = [*cast('list[JsonValue]', known['tools']), *cast('list[JsonValue]', options.get('output_tools', []))]
    schemas += [options[key] for key in ('output_schema', 'native_tools') if key in options]
    return counter(to_json(schemas).decode()) if schemas else 0


def _last_window(messages: Sequence[ModelMessage]) -> int | None:
    last = next((message for message in reversed(messages) if isinstance(message, ModelResponse)), None)
    return None if last is None else window_of(last)


def _last_usage(messages: Sequence[ModelMessage]) -> RequestUsage | None:
    responses = (message for message in reversed(messages) if isinstance(message, ModelResponse))
    return next((replace(message.usage) for message in responses if message.usage.input_tokens), None)
