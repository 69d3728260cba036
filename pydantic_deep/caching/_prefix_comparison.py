"""Compare a request with the previous one, and find the reason if it does not start with it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from operator import eq
from typing import Final, TypeVar, cast

from pydantic import JsonValue
from pydantic_ai.messages import CompactionPart, ModelMessage, ModelRequest, ModelResponse
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings

from pydantic_deep._requests.canonical_request import JsonObject, canonical_message, canonical_request

from ._events import Reason

UNPROMPTED: Final = frozenset(
    (
        *('max_tokens', 'temperature', 'top_p', 'top_k', 'seed', 'presence_penalty', 'frequency_penalty'),
        *('logit_bias', 'stop_sequences', 'service_tier', 'openai_service_tier', 'anthropic_service_tier'),
        *('openai_user', 'openai_store', 'openai_logprobs', 'openai_top_logprobs', 'anthropic_metadata'),
    )
)
"""Settings that no provider includes in the prompt. All others, such as `thinking` and `tool_choice`, affect the cache:
https://platform.claude.com/docs/en/build-with-claude/prompt-caching#what-invalidates-the-cache
"""

_TOOL_OPTIONS: Final = ('output_tools', 'native_tools')
"""Options of a canonical request that contain tools, too."""

T = TypeVar('T')


@dataclass(frozen=True, kw_only=True)
class Sent:
    """The parts of a request that the next one must start with. Parts that a history does not contain are `None`."""

    messages: list[ModelMessage]
    instructions: str | None
    model: str | None = None
    settings: ModelSettings | None = None
    parameters: ModelRequestParameters | None = None


def find_break(before: Sent, after: Sent) -> tuple[Reason, str] | None:
    """Return the reason and the details if a request does not start with the previous one; `None` if it does."""
    if before.model is not None and before.model != after.model:
        return 'model', f'{before.model}, then {after.model}'
    return (
        _compare_heads(before, after)
        or _compare_instructions(before.instructions, after.instructions)
        or _compare_messages(before.messages, after.messages)
    )


def sent_before(history: Sequence[ModelMessage]) -> Sent | None:
    """Return the last request in a history; `None` if there is none.

    A history contains the messages and instructions of a request, but not its other parts.
    """
    for index in range(len(history) - 1, 0, -1):
        if isinstance(history[index], ModelResponse):
            messages = list(history[:index])
            return Sent(messages=messages, instructions=instructions_of(messages))
    return None


def instructions_of(messages: Sequence[ModelMessage]) -> str | None:
    """Return the instructions of a request; `None` if its messages contain none."""
    last = messages[-1] if messages else None
    return last.instructions if isinstance(last, ModelRequest) else None


def _compare_heads(before: Sent, after: Sent) -> tuple[Reason, str] | None:
    """Compare all parts except messages and instructions. Unchanged parts are detected cheaply."""
    if before.parameters is None or after.parameters is None:
        return None
    if before.parameters == after.parameters and before.settings == after.settings:
        return None
    old, new = (
        canonical_request((), request.settings, request.parameters) for request in (before, after) if request.parameters
    )
    for name in _TOOL_OPTIONS:
        tools, others = (
            cast('list[JsonValue]', old.options.get(name, [])),
            cast('list[JsonValue]', new.options.get(name, [])),
        )
        if tools != others:
            return 'tools', _describe_tools(tools, others)
    if old.tools != new.tools:
        return 'tools', _describe_tools(cast('list[JsonValue]', old.tools), cast('list[JsonValue]', new.tools))
    shaping, others = _prompting(old.options), _prompting(new.options)
    if shaping == others:
        return None
    names = sorted(key for key in {*shaping, *others} if shaping.get(key) != others.get(key))
    return 'settings', f'changed: {", ".join(names)}'


def _describe_tools(before: Sequence[JsonValue], after: Sequence[JsonValue]) -> str:
    old, new = ({_name_of(tool): tool for tool in tools} for tools in (before, after))
    gone, added = [name for name in old if name not in new], [name for name in new if name not in old]
    changed = [name for name in old if name in new and old[name] != new[name]]
    changes = [('added', added), ('gone', gone), ('changed', changed)]
    return '; '.join(f'{word}: {", ".join(names)}' for word, names in changes if names) or 'in another order'


def _name_of(tool: JsonValue) -> str:
    """Return the name of a tool. Provider-side tools only have a kind."""
    fields = cast('JsonObject', tool)
    return str(fields['name'] if 'name' in fields else fields['kind'])


def _prompting(options: JsonObject) -> JsonObject:
    """Return the options and settings that affect the prompt."""
    settings = cast('JsonObject', options.get('settings', {}))
    rest = {key: value for key, value in options.items() if key not in ('settings', *_TOOL_OPTIONS)}
    return rest | {key: value for key, value in settings.items() if key not in UNPROMPTED}


def _compare_instructions(before: str | None, after: str | None) -> tuple[Reason, str] | None:
    if before is None or before == after:
        return None
    same = _count_same(before, after or '', eq)
    return 'instructions', f'{same:,} of {len(before):,} characters are as before'


def _compare_messages(before: list[ModelMessage], after: list[ModelMessage]) -> tuple[Reason, str] | None:
    begin, added = after[: len(before)], after[len(before) :]
    if begin != before:  # identical message objects compare without a look at their content
        same = _count_same(before, begin, _is_same)
        if same < len(before):
            return _explain(before, after, same)
    if any(map(_has_summary, added)):
        return 'summarized', 'by the provider, which is sent nothing from before it'
    return None


def _explain(before: list[ModelMessage], after: list[ModelMessage], same: int) -> tuple[Reason, str]:
    """Return the reason why two histories with a common prefix of this length differ."""
    for index, (old, new) in enumerate(zip(before[: same + 1], after, strict=False)):
        if _has_summary(new) and new != old:  # a summary may repeat an earlier one and replace more messages
            return 'summarized', f'message {index + 1} of {len(before)} is replaced by a summary'
    return 'history', f'message {same + 1} of {len(before)} {"changed" if same < len(after) else "is gone"}'


def _has_summary(message: ModelMessage) -> bool:
    return any(isinstance(part, CompactionPart) for part in message.parts)


def _is_same(before: ModelMessage, after: ModelMessage) -> bool:
    return before is after or canonical_message(before) == canonical_message(after)


def _count_same(before: Sequence[T], after: Sequence[T], is_same: Callable[[T, T], bool]) -> int:
    """Return the length of the common prefix of two sequences."""
    return sum(1 for _ in takewhile(bool, map(is_same, before, after)))
