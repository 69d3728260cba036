"""What a conversation has used, written into the metadata of its responses: models are sent nothing of it.

So it is known in the next turn without a store, at whichever version the conversation goes on, also where summaries
have replaced messages; and with it is what no response tells: time, and what subagents have used. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, cast

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolReturnPart
from pydantic_ai.usage import RunUsage

from pydantic_deep._messages.summary_metadata import carried_state, usage_of

from ._account import added, amounts_of
from ._types import Amounts

KEY: Final = 'pydantic_deep_budgets'
"""The key of ours in the metadata of a response."""


class Stamp(BaseModel):
    """What is written."""

    used: Amounts
    """What the conversation had used when the response was there."""
    warned: Amounts
    """The limits of whose end the model was told; one that was raised since is told of again."""


@dataclass(frozen=True, kw_only=True)
class Before:
    """What a history tells."""

    used: Amounts
    """What the conversation has used."""
    warned: Amounts
    """The limits of whose end the model was told."""
    unstamped: Sequence[ModelResponse]
    """The responses that were counted from their usage alone."""


def stamped(response: ModelResponse, stamp: Stamp) -> ModelResponse:
    """Return the response with what the conversation has used."""
    return replace(response, metadata={**(response.metadata or {}), KEY: stamp.model_dump(mode='json')})


def read_before(messages: Sequence[ModelMessage], id: str = 'budgets') -> Before:
    """Return what the conversation of a history has used: by its last stamp, and by what came after it.

    Args:
        messages: The history.
        id: Under which a summary has the stamp of what it stands for.
    """
    index, stamp = _last_stamp(messages, id)
    rest = messages[index + 1 :]
    return Before(
        used=added(stamp.used, amounts_of(usage_of(rest)), *map(amounts_of, _delegations(rest))),
        warned=stamp.warned,
        unstamped=[message for message in rest if isinstance(message, ModelResponse)],
    )


def _last_stamp(messages: Sequence[ModelMessage], id: str) -> tuple[int, Stamp]:
    """Return the last stamp and where it stands; an empty one, before the first message, where there is none."""
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if isinstance(message, ModelResponse):
            found = (message.metadata or {}).get(KEY)
        else:
            found = carried_state([message], id)
        if found is not None:
            try:
                return index, Stamp.model_validate(found)
            except ValidationError:  # a history may come from anywhere; what is not ours tells nothing
                continue
    return -1, Stamp(used={}, warned={})


def _delegations(messages: Sequence[ModelMessage]) -> list[RunUsage]:
    """Return what subagents have used whose results are there."""
    found: list[RunUsage] = []
    for message in messages:
        for part in message.parts:
            metadata: object = part.metadata if isinstance(part, ToolReturnPart) else None
            if isinstance(metadata, dict) and 'sub_agent_thread_id' in metadata:
                try:
                    found.append(_usage_adapter().validate_python(cast('dict[str, Any]', metadata).get('usage')))
                except ValidationError:  # as above
                    continue
    return found


@cache
def _usage_adapter() -> TypeAdapter[RunUsage]:
    return TypeAdapter(RunUsage)
