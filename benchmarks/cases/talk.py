"""Plays a session for an agent on pydantic-ai: converts its requests for the player, and the replies for the agent.

Requests are recorded where pydantic-ai passes them to the model class, after all changes by agents, history processors
and capabilities.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from ledger import Kind, Segments
from measure import Case, Figures, Sizes
from player import WINDOW_TOKENS, Player, Request, Spell
from pydantic_ai.agent import AgentRunResult
from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    RetryFeedbackPart,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage
from pydantic_core import to_json
from sessions import NAMES_OF_SESSIONS, Session, lookup, page, session

Say: TypeAlias = Callable[[str, Sequence[ModelMessage]], Awaitable[AgentRunResult[object]]]
"""Runs one turn: the user's text, after this history."""

Begin: TypeAlias = Callable[[Session, Model], Say]
"""Creates the agent of a session, with its initial files."""

IsSummary: TypeAlias = Callable[[Sequence[ModelMessage], AgentInfo], bool]
"""Returns whether a request asks for a summary."""


async def fetch(url: str) -> str:
    """Return the text of a page."""
    return page(url)


async def find_customer(key: str) -> str:
    """Return what is known of a customer."""
    return lookup(key)


TOOLS: Mapping[str, list[Callable[[str], Awaitable[str]]]] = {
    'coding': [],
    'research': [fetch],
    'support': [find_customer],
    'todos': [find_customer],
}
"""The user's tools in each session."""


def is_without_tools(_messages: Sequence[ModelMessage], info: AgentInfo) -> bool:
    """Return whether the request has no tools, as requests for a summary do, unlike other requests."""
    return not info.function_tools


def cases(begin: Begin, spell: Spell, is_summary: IsSummary = is_without_tools) -> Mapping[str, Case]:
    """Return the cases of a contestant, one per session."""

    def case(name: str) -> Case:
        def measure(sizes: Sizes) -> Figures:
            played = session(name, sizes.session_turns)
            player = Player(played, spell)
            asyncio.run(_play(player, begin(played, _model(player, is_summary))))
            return player.ledger.figures(name)

        return measure

    return {f'context-{name}': case(name) for name in NAMES_OF_SESSIONS}


async def _play(player: Player, say: Say) -> None:
    history: list[ModelMessage] = []
    for turn in player.session.turns:
        player.start(turn)
        history = (await say(turn.prompt, history)).all_messages()
    player.end()


def _model(player: Player, is_summary: IsSummary) -> FunctionModel:
    """Return the model that the player answers for."""

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        request = Request(
            segments=_segments(messages, info),
            is_summary=is_summary(messages, info),
            result_by_id=dict(_results(messages)),
        )
        reply = player.respond(request)
        usage = RequestUsage(
            input_tokens=reply.usage.input, cache_read_tokens=reply.usage.cached, output_tokens=reply.usage.output
        )
        calls = [ToolCallPart(call.name, dict(call.args), tool_call_id=call.id) for call in reply.calls]
        text = [TextPart(reply.text)] if reply.text else []
        return ModelResponse(parts=[*text, *calls], usage=usage, model_name='scripted')

    return FunctionModel(respond, model_name='scripted', profile={'context_window': WINDOW_TOKENS})


def _segments(messages: Sequence[ModelMessage], info: AgentInfo) -> Segments:
    tools = [
        {'name': tool.name, 'description': tool.description, 'parameters': tool.parameters_json_schema}
        for tool in (*info.function_tools, *info.output_tools)
    ]
    instructions = info.model_request_parameters.instruction_parts or _instructions(info)
    head: list[tuple[Kind, str]] = [('head', to_json(tools).decode())] if tools else []
    head.extend(('head', part.content) for part in instructions)
    return [*head, *(_segment(part) for message in messages for part in message.parts)]


def _instructions(info: AgentInfo) -> list[InstructionPart]:
    return [InstructionPart(content=info.instructions)] if info.instructions else []


def _segment(part: ModelRequestPart | ModelResponsePart) -> tuple[Kind, str]:
    match part:
        case SystemPromptPart():
            return 'head', part.content
        case UserPromptPart():
            return 'said', part.content if isinstance(part.content, str) else to_json(part.content).decode()
        case ToolReturnPart():
            return 'results', f'{part.tool_call_id} {part.model_response_str()}'
        case RetryFeedbackPart():
            raise TypeError(f'{part!r}: a call has failed, and a session is one without failures.')
        case ToolCallPart():
            return 'calls', f'{part.tool_call_id} {part.tool_name} {part.args_as_json_str()}'
        case _:
            content: object = getattr(part, 'content', None)
            if not isinstance(content, str):
                raise TypeError(f'{part!r} is nothing that a session has in it.')
            return 'said', content


def _results(messages: Sequence[ModelMessage]) -> Iterator[tuple[str, str]]:
    """Yield the tool results after the last response."""
    for message in reversed(messages):
        if isinstance(message, ModelResponse):
            return
        for part in message.parts:
            if isinstance(part, ToolReturnPart):
                yield part.tool_call_id, part.model_response_str()
