"""Where a history can be cut so that what is left is one that providers accept. Pure.

A result needs its call: providers refuse one without the other. So a cut is safe where no result after it answers a
call before it, be they in messages next to each other or far apart, as with calls that waited for a person. What was
asked and has no answer yet stays too, and so does the request that is being made. What is left begins with a response:
pydantic-ai would make one message of a summary and a request after it, for good, and the history would change once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final

from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    ToolCallPart,
    ToolReturnPart,
)

from ._types import Keep, Messages

_CALL_TYPES: Final = (ToolCallPart, NativeToolCallPart)
_RETURN_TYPES: Final = (ToolReturnPart, NativeToolReturnPart)


def find_cut(messages: Sequence[ModelMessage], sums: Sequence[int], keep: Keep) -> int:
    """Return how many messages from the beginning can go; 0 if none can.

    The cut keeps as much as is asked for or, where that is not safe, a little more. Where nothing before it is safe,
    as after a response with very many calls, it keeps less: the first safe place after it.

    Args:
        messages: The history, with the request that is being made at its end.
        sums: What each beginning of it takes in tokens, the empty one first.
        keep: How much of its end is to stay.
    """
    safe = safe_cuts(messages)
    if isinstance(keep, Messages):
        wanted = len(messages) - keep.value
    else:
        wanted = next(index for index, before in enumerate(sums) if sums[-1] - before <= keep.value)
    if wanted < 1 or not safe:
        return 0
    return max((index for index in safe if index <= wanted), default=safe[0])


def safe_cuts(messages: Sequence[ModelMessage]) -> list[int]:
    """Return all places where a history can be cut, in order: the numbers of messages that go, never all of them."""
    bound = [0] * len(messages)
    for start, end in _spans(messages):
        bound[start] = max(bound[start], end)
    reaches = list(accumulate(bound, max))
    begins = (
        index
        for index, (before, message) in enumerate(pairwise(messages), start=1)
        if isinstance(message, ModelResponse) and not isinstance(before, ModelResponse)  # two are one answer
    )
    return [index for index in begins if _is_safe_cutoff_point(reaches, index)]


def _is_safe_cutoff_point(reaches: Sequence[int], index: int) -> bool:
    """Return whether a history can begin with its message at that index.

    Args:
        reaches: For each message the last one that must stay with it or with one before it.
        index: The place.
    """
    return reaches[index - 1] < index


def _spans(messages: Sequence[ModelMessage]) -> list[tuple[int, int]]:
    """Return which messages belong together, as pairs of the first and the last."""
    spans: list[tuple[int, int]] = []
    asked: dict[tuple[bool, str], int] = {}
    answered: set[tuple[bool, str]] = set()
    last_response = -1
    for index, message in enumerate(messages):
        if isinstance(message, ModelResponse):
            last_response = index
        for part in message.parts:
            if isinstance(part, _CALL_TYPES):
                key = isinstance(part, ToolCallPart), part.tool_call_id
                asked[key] = index  # ids repeat: an answer is for the newest call of that id
                answered.discard(key)
            elif isinstance(part, _RETURN_TYPES):
                key = isinstance(part, ToolReturnPart), part.tool_call_id
                if key in asked:
                    spans.append((asked[key], index))
                    answered.add(key)
    if any(index == last_response and key not in answered for key, index in asked.items()):
        spans.append((last_response, len(messages) - 1))  # somebody may still answer
    return spans
