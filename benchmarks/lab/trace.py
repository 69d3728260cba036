"""The trace of a run: the texts and calls of the model, and their results. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

MAX_RESULT_CHARS = 2_000
"""Maximum length of a result in a trace, in characters. A longer one is cut at the end."""

Message = Mapping[str, Any]
"""A message of the chat completions API, as it came off the wire."""


class Call(TypedDict):
    """A tool call of the model."""

    tool: str
    arguments: Any
    """The parsed arguments; the text itself if it is not JSON."""
    result: str | None
    """The result that the model received, at most `MAX_RESULT_CHARS`; `None` if the run ended before."""


class Step(TypedDict):
    """One response of the model."""

    text: str
    calls: list[Call]


def trace_of(exchanges: Iterable[tuple[Sequence[Message], Message]]) -> list[Step]:
    """Return the steps of a run, subagents included, from the messages and the reply of each request."""
    pairs = list(exchanges)
    result_by_id = {
        message['tool_call_id']: text_of(message)
        for messages, _ in pairs
        for message in messages
        if message.get('role') == 'tool'
    }
    return [_step(reply, result_by_id) for _, reply in pairs]


def text_of(message: Message) -> str:
    """Return the text of a message, whose content is a string, a list of parts, or nothing."""
    content = message.get('content') or ''
    return content if isinstance(content, str) else ''.join(part.get('text', '') for part in content)


def count_calls(trace: Iterable[Step]) -> dict[str, int]:
    """Return the number of calls by tool, the most frequent first."""
    return dict(Counter(call['tool'] for step in trace for call in step['calls']).most_common())


def _step(reply: Message, result_by_id: Mapping[str, str]) -> Step:
    calls: list[Call] = []
    for call in reply.get('tool_calls') or ():
        result = result_by_id.get(call['id'])
        calls.append(
            {
                'tool': call['function']['name'],
                'arguments': _parsed(call['function']['arguments']),
                'result': None if result is None else result[:MAX_RESULT_CHARS],
            }
        )
    return {'text': text_of(reply), 'calls': calls}


def _parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments
