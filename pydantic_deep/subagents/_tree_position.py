"""Position in the subagent tree, and the state of a suspended subagent: models, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from math import inf
from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError, field_validator
from pydantic_ai.usage import RunUsage

METADATA_KEY = 'pydantic_deep'
"""The key of a run's `metadata` that holds its position."""


class TreePosition(BaseModel):
    """Position of a run in the subagent tree.

    It is in the `metadata` of every run of a subagent, under `METADATA_KEY`, and nowhere else; a run without it is the
    top. How far the tree may grow from there is in deps where they have `max_depth`, else here.
    """

    model_config = ConfigDict(frozen=True)

    path: tuple[str, ...] = ()
    """The names of the subagents that lead to it, its own last."""
    max_depth: int | None = None
    """How many levels may be below it; `None` for as many as are declared."""


_TOP = TreePosition()


def position_of(metadata: Mapping[str, Any] | None) -> TreePosition:
    """Return the position of the run that has this metadata."""
    value = (metadata or {}).get(METADATA_KEY)
    if value is None:
        return _TOP
    try:
        return TreePosition.model_validate(value)
    except ValidationError:
        return _TOP  # somebody else's metadata under our key


class PausedChild(BaseModel):
    """State of a suspended subagent, besides its messages."""

    usage: RunUsage
    """What it has used, with all that is below it."""
    parent_conversation_id: str | None = None
    """The conversation of the response that called it."""
    pause_number: int = 0
    """Which of its pauses this is; see `_answer_freshness`."""
    is_streamed: bool = False
    """Whether it was run for a stream."""
    model_settings: dict[str, JsonValue] = {}
    """The settings that it had from its parent, as far as JSON holds them; extra headers and bodies are not kept."""
    todos: JsonValue = None
    """Its todos."""
    overlay: JsonValue = None
    """The files of its fork; `None` if it has none."""
    working_dir: str | None = None
    """The working directory of its fork."""

    @field_validator('usage')
    @classmethod
    def _is_usage(cls, usage: RunUsage) -> RunUsage:
        """Refuse use below zero, which would be a budget without end."""
        counts = {**vars(usage), **usage.details}
        if any(isinstance(count, int | float | Decimal) and not 0 <= count < inf for count in counts.values()):
            raise ValueError('the usage is below zero, or no number')
        return usage

    @field_validator('model_settings')
    @classmethod
    def _without_secrets(cls, settings: dict[str, JsonValue]) -> dict[str, JsonValue]:
        """Leave out what goes into a request as it stands: headers may hold keys, and whoever may write where a pause
        is kept must not write a request.
        """
        return {name: value for name, value in settings.items() if name not in ('extra_headers', 'extra_body')}
