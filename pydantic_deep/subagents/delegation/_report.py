"""Render the report of a failed subagent: the reason, and its work so far. Pure, with bounded length."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart

from pydantic_deep._messages.half_characters import join_halves

_MAX_TEXT_CHARS = 2_000
"""Maximum length of its last text and of the reason in characters, about 500 tokens each."""

_MAX_CALLS = 20
"""Maximum number of tool calls, most recent ones first."""

_MAX_ARGS_CHARS = 200
"""Maximum length of the arguments of a call, in characters."""

_MAX_FILES = 50
"""Maximum number of changed files to list."""


def render_failure(name: str, reason: str, messages: Sequence[ModelMessage], discarded: Sequence[str]) -> str:
    """Return the message to the parent's model about a failed subagent.

    Args:
        name: The name of the subagent.
        reason: A sentence that continues its name.
        messages: The history of the subagent so far.
        discarded: Discarded file changes of a fork: all, or those that a failed merge did not apply.
    """
    paragraphs = [f'The subagent {name!r} {_shorten(reason, _MAX_TEXT_CHARS)}', *_done(messages)]
    if discarded:
        shown = ', '.join(discarded[:_MAX_FILES])
        more = f' and {len(discarded) - _MAX_FILES} more' if len(discarded) > _MAX_FILES else ''
        paragraphs.append(f'Its files were a fork. Discarded are its changes to {shown}{more}')
    return '\n'.join(paragraphs)


def describe_error(error: BaseException) -> str:
    """Return the class name and the message of an exception, with invalid characters escaped."""
    described = f'{type(error).__name__}: {error}'.removesuffix(': ')
    return join_halves(described)  # half of a surrogate pair would break the next request


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
