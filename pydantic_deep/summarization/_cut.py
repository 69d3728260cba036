"""Find positions where a history can be cut so that providers accept the rest. Pure.

Providers reject a result without its call. So a cut is safe if no result after it belongs to a call before it, even if
many messages are between them, as with calls that needed approval. Unanswered calls and the current request are
retained, too. The rest starts with a response: otherwise pydantic-ai would merge the summary and the following request
into one message permanently, which would change the history again.
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
    """Return the number of messages to remove from the start; 0 if none can be removed.

    The cut retains the requested size, or a little more to be safe. If no earlier position is safe, such as after a
    response with a large number of calls, it retains less: the first safe position after it.

    Args:
        messages: The history, with the current request at its end.
        sums: The token counts of all prefixes of the history, starting with the empty one.
        keep: The size of the end to retain.
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
    """Return all safe positions in order, as numbers of messages to remove. They never include the complete history."""
    bound = [0] * len(messages)
    for start, end in _spans(messages):
        bound[start] = max(bound[start], end)
    reaches = list(accumulate(bound, max))
    starts = (
        index
        for index, (before, message) in enumerate(pairwise(messages), start=1)
        # Adjacent responses belong together.
        if isinstance(message, ModelResponse) and not isinstance(before, ModelResponse)
    )
    return [index for index in starts if _is_safe_cutoff_point(reaches, index)]


def _is_safe_cutoff_point(reaches: Sequence[int], index: int) -> bool:
    """Return whether a history can start with the message at an index.

    Args:
        reaches: For each message, the index of the last message that must stay together with it or an earlier one.
        index: The index of the first remaining message.
    """
    return reaches[index - 1] < index


def _spans(messages: Sequence[ModelMessage]) -> list[tuple[int, int]]:
    """Return groups of messages that belong together, as pairs of the first and the last index."""
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
                asked[key] = index  # ids may repeat; a result belongs to the latest call with its id
                answered.discard(key)
            elif isinstance(part, _RETURN_TYPES):
                key = isinstance(part, ToolReturnPart), part.tool_call_id
                if key in asked:
                    spans.append((asked[key], index))
                    answered.add(key)
    if any(index == last_response and key not in answered for key, index in asked.items()):
        spans.append((last_response, len(messages) - 1))  # a result may still follow
    return spans
