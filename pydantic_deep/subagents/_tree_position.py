"""Position in the subagent tree, and the state of a suspended subagent, as models."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from math import inf
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError, field_validator
from pydantic_ai.usage import RunUsage

METADATA_KEY = 'pydantic_deep'
"""The key of the position in a run's `metadata`."""


class TreePosition(BaseModel):
    """Position of a run in the subagent tree.

    It is stored in the `metadata` of each run of a subagent, under `METADATA_KEY`. A run without it is at the top. The
    maximum depth below a run is `deps.max_depth` if deps have it, otherwise stored here.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)

    path: tuple[str, ...] = ()
    """The names of the subagents that lead to the run, its own last."""
    max_depth: int | None = None
    """Maximum number of levels below the run; `None` allows all declared ones."""


_TOP = TreePosition()


def position_of(metadata: Mapping[str, Any] | None) -> TreePosition:
    """Return the position of a run with this metadata."""
    value = (metadata or {}).get(METADATA_KEY)
    if value is None:
        return _TOP
    try:
        return TreePosition.model_validate(value)
    except ValidationError:
        return _TOP  # third-party metadata under our key


class PausedChild(BaseModel):
    """State of a suspended subagent, besides its messages."""

    usage: RunUsage
    """The usage of the subagent, including nested ones."""
    parent_conversation_id: str | None = None
    """The conversation id of the response with its `task` call."""
    pause_number: int = 0
    """The number of this pause, for `_answer_freshness`."""
    is_streamed: bool = False
    """Whether the subagent was run with a stream."""
    model_settings: dict[str, JsonValue] = {}
    """The settings from its parent that JSON can represent, without extra headers and bodies."""
    todos: JsonValue = None
    """The todos of the subagent as JSON."""
    overlay: JsonValue = None
    """The file changes of its fork; `None` without a fork."""
    working_dir: str | None = None
    """The working directory of its fork."""

    @field_validator('usage')
    @classmethod
    def _is_usage(cls, usage: RunUsage) -> RunUsage:
        """Refuse negative usage, which would make budgets unlimited."""
        counts = {**vars(usage), **usage.details}
        if any(isinstance(count, int | float | Decimal) and not 0 <= count < inf for count in counts.values()):
            raise ValueError('the usage is below zero, or no number')
        return usage

    @field_validator('model_settings')
    @classmethod
    def _without_secrets(cls, settings: dict[str, JsonValue]) -> dict[str, JsonValue]:
        """Remove settings that are copied into requests: headers may contain keys, and whoever can write to the storage
        of a pause must not be able to modify requests.
        """
        return {name: value for name, value in settings.items() if name not in ('extra_headers', 'extra_body')}
