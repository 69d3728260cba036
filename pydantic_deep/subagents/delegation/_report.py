"""What is told of a subagent that did not end well: why, and what it had done. Bounded and pure."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart

_MAX_TEXT_CHARS = 2_000
"""How much of its last text, and of a reason, is shown: some 500 tokens each."""

_MAX_CALLS = 20
"""How many of its last tool calls are shown."""

_MAX_ARGS_CHARS = 200
"""How much of the arguments of each."""

_MAX_FILES = 50
"""How many of the files that it had changed are named."""


def render_failure(name: str, reason: str, messages: Sequence[ModelMessage], discarded: Sequence[str]) -> str:
    """Return what the parent's model is told of a subagent that failed.

    Args:
        name: Its name.
        reason: A sentence that goes on from its name.
        messages: Its history as far as it came.
        discarded: Files that it had changed in a fork and that are not kept: all, or what a merge that failed has left.
    """
    paragraphs = [f'The subagent {name!r} {_shorten(reason, _MAX_TEXT_CHARS)}', *_done(messages)]
    if discarded:
        shown = ', '.join(discarded[:_MAX_FILES])
        more = f' and {len(discarded) - _MAX_FILES} more' if len(discarded) > _MAX_FILES else ''
        paragraphs.append(f'Its files were a fork. Discarded are its changes to {shown}{more}')
    return '\n'.join(paragraphs)


def describe_error(error: BaseException) -> str:
    """Return the name of an exception and its message, printable."""
    described = f'{type(error).__name__}: {error}'.removesuffix(': ')
    return described.encode(errors='backslashreplace').decode()  # half a character would break the next request


def _done(messages: Sequence[ModelMessage]) -> list[str]:
    outcomes = {
        part.tool_call_id: part.outcome
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    }
    answers = [part for message in messages if isinstance(message, ModelResponse) for part in message.parts]
    calls = [part for part in answers if isinstance(part, ToolCallPart)]
    texts = [part.content for part in answers if isinstance(part, TextPart) and part.content.strip()]
    if not calls and not texts:
        return ['It had done nothing.']
    done: list[str] = []
    if calls:
        left_out = len(calls) - _MAX_CALLS
        more = f' the last {_MAX_CALLS} of {len(calls)}' if left_out > 0 else ''
        done.append(f'Its tool calls{more}:')
        done += [_line(call, outcomes.get(call.tool_call_id, 'no result')) for call in calls[-_MAX_CALLS:]]
    if texts:
        done.append(f'Its last words: {_shorten(texts[-1], _MAX_TEXT_CHARS)}')
    return done


def _line(call: ToolCallPart, outcome: str) -> str:
    return f'- {call.tool_name}({_shorten(call.args_as_json_str(), _MAX_ARGS_CHARS)}): {outcome}'


def _shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else f'{text[:limit]}… [{len(text) - limit:,} characters left out]'
