"""`TurnOptions`: everything that a turn is started with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic_ai import CancellationToken
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import UsageLimits

from pydantic_deep.approvals import Decision

from .recording._prompts import Prompt


@dataclass(frozen=True, kw_only=True)
class TurnOptions:
    """What a turn is started with: a prompt, or answers to pending approvals, and the options of its run.

    `AgentVersion.run` and `AgentVersion.stream` take it whole. `advance` and `resume` take the same as keywords.
    """

    prompt: Prompt | None = None
    """What the user says; `None` for a turn that resumes with the answers to pending approvals."""
    answers: Mapping[str, Decision] = field(default_factory=dict[str, Decision])
    """Answers by the `id` of each of `AgentVersion.pending`; without any, those of the inbox count."""
    by: str | None = None
    """The person who answers."""
    reason: str | None = None
    """The reason for the answers."""
    deps: object = None
    """The deps of the run instead of fresh ones. Todos, uploads and files are those of the version."""
    model: Model | str | None = None
    """The model of this turn, instead of that of the version or of the agent."""
    model_settings: ModelSettings = field(default_factory=ModelSettings)
    """Model settings of this turn; they win over those of the version."""
    branch: str | None = None
    """A name for a branch that begins with this turn."""
    usage_limits: UsageLimits | None = None
    """What the conversation may use, all of its turns together."""
    cancellation_token: CancellationToken | None = None
    """Stops the run when it is cancelled."""
    run_id: str | None = None
    """The id of the run, a UUIDv7 of `new_id` of the store that was not used before; `None` for a new one."""
    moves_head: bool = False
    """Whether the head of the conversation moves along, if it is at the version that the turn starts from."""
