"""The optional fields of a turn."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic_ai.settings import ModelSettings
from typing_extensions import TypedDict

from ._connection import present


class TurnFields(TypedDict, total=False):
    """The optional keyword arguments of methods that start a turn."""

    branch: str
    """A name for the new branch."""
    model_settings: ModelSettings
    """Model settings for this turn, of those that the server accepts, such as `temperature` and `max_tokens`."""
    plan_mode: bool
    """Whether to switch plan mode on or off with this prompt, for an agent with `PlanMode`."""
    max_iterations: int
    """Maximum number of model requests, including those of subagents."""
    session_id: str
    """A session id of your own, available to the stream, the audit record and tools."""


def turn_body(prompt: str, fields: TurnFields, **others: object) -> Mapping[str, object]:
    """Return the body of a request that starts a turn."""
    return present({'prompt': prompt, **fields, **others})
