"""Pairs of a tool call and its result, which are in separate messages. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart, ToolReturnPart


@dataclass(frozen=True, kw_only=True)
class ToolExchange:
    """A tool call and its result."""

    call: ToolCallPart
    """The call, with its arguments as the model wrote them."""
    result: ToolReturnPart | None
    """The result, including that of a failed, denied or interrupted call; `None` if the call is running or pending."""


def pair_exchanges(messages: Iterable[ModelMessage]) -> list[ToolExchange]:
    """Return the calls in messages with their results, in the order of the calls.

    Ids may repeat in later runs: a result belongs to the latest call with its id.
    """
    calls: list[ToolCallPart] = []
    results: dict[int, ToolReturnPart] = {}
    newest: dict[str, int] = {}
    for message in messages:
        if isinstance(message, ModelResponse):
            for call in message.tool_calls:
                newest[call.tool_call_id] = len(calls)
                calls.append(call)
        else:
            for part in message.parts:
                if isinstance(part, ToolReturnPart) and part.tool_call_id in newest:
                    results[newest.pop(part.tool_call_id)] = part
    return [ToolExchange(call=call, result=results.get(index)) for index, call in enumerate(calls)]
