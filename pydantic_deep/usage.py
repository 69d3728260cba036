"""Where the tokens of a conversation go: counted by what they are, beside what providers have told.

What is counted is what the next request would send; what was told is of requests that were made. The two differ by
what no counter sees: images, marks of the provider, and, with the approximate counter, the language.
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
"""The tools of the filesystem room: what they are asked and what they answer counts as files."""

Kind: TypeAlias = Literal['system', 'skills', 'files', 'summary', 'history']
"""What a part of a message counts for; schemas of tools are in no message."""


@runtime_checkable
class RecordedVersion(Protocol):
    """A version of a conversation, such as `AgentVersion`."""

    @property
    def usage(self) -> RunUsage:
        """What the conversation has used up to it."""
        ...

    async def messages(self) -> list[ModelMessage]:
        """Return its history."""
        ...

    async def request_parameters(self) -> Mapping[str, JsonValue] | None:
        """Return what the last request said besides messages; `None` if there was none."""
        ...


@dataclass(frozen=True, kw_only=True)
class UsageReport:
    """The tokens of a conversation. The first six are counted, and parts of the context that the next request sends."""

    system: int | None
    """Instructions and system prompts, without the catalogue of skills; `None` where they are not known."""
    tools: int | None
    """The schemas of the tools and of the output; `None` where they are not known."""
    skills: int | None
    """The catalogue of skills, and what was loaded of them; `None` where neither is known."""
    files: int
    """Calls and results of the tools on files, notices of uploads, and images and documents in prompts."""
    summary: int
    """Summaries in place of earlier messages."""
    history: int
    """Everything else that was said: prompts, answers, thinking, other calls and their results."""
    counted: int
    """The sum of those that are known."""
    context_window: int | None
    """How many tokens the model takes; `None` where it is not known."""
    last: RequestUsage | None
    """What the provider told of the last request: `input_tokens`, `cache_read_tokens` and `cache_write_tokens` among
    them, `output_tokens`; `None` if it told nothing."""
    total: RunUsage
    """What providers told of all requests of the conversation, those that were summarized included."""
    cost: Decimal | None
    """US dollars, of the requests whose price is known; `None` if that is none of them."""
    unpriced_requests: int
    """How many requests the cost is without: their price is not known, or a store has their messages."""


async def usage_report(
    conversation: Conversation | Sequence[ModelMessage] | AgentRunResult[Any] | RecordedVersion,
    *,
    parameters: ModelRequestParameters | None = None,
    counter: TokenCounter = count_tokens_approximately,
    context_window: int | None = None,
) -> UsageReport:
    """Return where the tokens of a conversation go.

    Args:
        conversation: A conversation of pydantic-ai, a history, the result of a run, or an `AgentVersion`.
        parameters: What requests say besides messages, as a capability sees it in
            `request_context.model_request_parameters`. A version knows what its last request said. Without either, the
            instructions are those in the messages, and the tools are not known.
        counter: What counts a text; `load_tokenizer(model)` of `pydantic_deep.tokenizers` is exact for OpenAI's models.
        context_window: How many tokens the model takes: `model.context_window`. Without it, it is looked up by the name
            of the model that answered last.

    Raises:
        TypeError: It is none of these.
    """
    known: Mapping[str, JsonValue] | None = None
    given: object = conversation
    if isinstance(given, AgentRunResult):
        given = cast('AgentRunResult[object]', given).conversation
    if isinstance(given, Conversation):
        messages = given.messages
        # That of a run which was handed a history has its own requests only; one with subagents has theirs too.
        total = max(given.usage, usage_of(messages), key=lambda usage: usage.requests)
    elif isinstance(given, Sequence) and not isinstance(given, str | bytes):
        messages = given
        total = usage_of(messages)
    elif isinstance(given, RecordedVersion):
        messages, total = await given.messages(), given.usage
        known = await given.request_parameters()
    else:
        raise TypeError(
            f'There is no conversation in {type(given).__name__}. Pass a `Conversation`, a list of messages, the '
            '`AgentRunResult` of a run that has ended, or an `AgentVersion`.'
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
    catalogue, rest = _part_catalogue(instructions or '')
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
        last=_last_told(messages),
        total=replace(total),
        cost=sum(priced, Decimal()) if priced else None,
        unpriced_requests=max(total.requests, len(costs)) - len(priced),
    )


def _split(
    part: ModelRequestPart | ModelResponsePart,
) -> list[tuple[Kind, ModelRequestPart | ModelResponsePart]]:
    """Return a part as what it counts for; only a prompt with files in it is more than one thing."""
    match part:
        case SystemPromptPart() if any(noticed(part, each) is not None for each in (UPLOADS_HEADING, FILES_HEADING)):
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


def _part_catalogue(instructions: str) -> tuple[str, str]:
    """Return the catalogue of skills, and the instructions without it."""
    blocks = instructions.split('\n\n')  # as pydantic-ai joins them; in the catalogue is no empty line
    catalogue = [block for block in blocks if block.startswith(CATALOGUE_HEADING)]
    return '\n\n'.join(catalogue), '\n\n'.join(block for block in blocks if block not in catalogue)


def _last_instructions(messages: Sequence[ModelMessage]) -> str | None:
    """Return what the last request was made with; `None` if no message says it."""
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


def _last_told(messages: Sequence[ModelMessage]) -> RequestUsage | None:
    responses = (message for message in reversed(messages) if isinstance(message, ModelResponse))
    return next((replace(message.usage) for message in responses if message.usage.input_tokens), None)
