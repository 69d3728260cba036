"""The usage of a conversation, stored in the metadata of its responses. Models do not receive metadata.

With this stamp, the next turn knows the usage without a store, on every branch and after summarization. It also covers
usage that responses do not contain: time, and the usage of subagents. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from pydantic import BaseModel, ValidationError
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolReturnPart
from pydantic_ai.usage import RunUsage

from pydantic_deep._messages.summary_metadata import carried_state, usage_of
from pydantic_deep._messages.usage_json import usage_adapter

from ._account import added, amounts_of
from ._types import Amounts

KEY: Final = 'pydantic_deep_budgets'
"""Our key in the metadata of a response."""


class Stamp(BaseModel):
    """The stored values."""

    used: Amounts
    """The usage of the conversation up to this response."""
    warned: Amounts
    """The limits that the model was warned about. A limit that was raised since is warned about again."""


@dataclass(frozen=True, kw_only=True)
class Before:
    """The usage that a history contains."""

    used: Amounts
    """The usage of the conversation."""
    warned: Amounts
    """The limits that the model was warned about."""
    unstamped: Sequence[ModelResponse]
    """Responses after the last stamp, counted by their own usage."""


def stamped(response: ModelResponse, stamp: Stamp) -> ModelResponse:
    """Return the response with a stamp in its metadata."""
    return replace(response, metadata={**(response.metadata or {}), KEY: stamp.model_dump(mode='json')})


def read_before(messages: Sequence[ModelMessage], id: str = 'budgets') -> Before:
    """Return the usage of the conversation of a history: its last stamp plus the usage after it.

    Args:
        messages: The history.
        id: The capability id under which a summary stores the stamp of the messages that it replaced.
    """
    index, stamp = _last_stamp(messages, id)
    rest = messages[index + 1 :]
    return Before(
        used=added(stamp.used, amounts_of(usage_of(rest)), *map(amounts_of, _delegations(rest))),
        warned=stamp.warned,
        unstamped=[message for message in rest if isinstance(message, ModelResponse)],
    )


def _last_stamp(messages: Sequence[ModelMessage], id: str) -> tuple[int, Stamp]:
    """Return the last stamp and its message index; an empty stamp and -1 if there is none."""
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if isinstance(message, ModelResponse):
            value = (message.metadata or {}).get(KEY)
        else:
            value = carried_state([message], id)
        if value is not None:
            try:
                return index, Stamp.model_validate(value)
            except ValidationError:  # histories come from anywhere; ignore invalid stamps
                continue
    return -1, Stamp(used={}, warned={})


def _delegations(messages: Sequence[ModelMessage]) -> list[RunUsage]:
    """Return the usage of the subagents that have results in these messages."""
    usages: list[RunUsage] = []
    for message in messages:
        for part in message.parts:
            metadata: object = part.metadata if isinstance(part, ToolReturnPart) else None
            if isinstance(metadata, dict) and 'sub_agent_thread_id' in metadata:
                try:
                    usages.append(usage_adapter().validate_python(cast('dict[str, Any]', metadata).get('usage')))
                except ValidationError:  # same as above
                    continue
    return usages
