"""`TurnOptions`: the input and options of a turn."""

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
    """The input of a turn, a prompt or answers to pending approvals, and the options of its run.

    `AgentVersion.run` and `AgentVersion.stream` take this object. `advance` and `resume` take the same as keywords.
    """

    prompt: Prompt | None = None
    """The user prompt; `None` for a turn that resumes with answers to pending approvals."""
    answers: Mapping[str, Decision] = field(default_factory=dict[str, Decision])
    """Answers, keyed by the `id` of each of `AgentVersion.pending`. Without any, the run uses the answers in the inbox.
    """
    by: str | None = None
    """The person who answers."""
    reason: str | None = None
    """The reason for the answers."""
    deps: object = None
    """The deps of the run, instead of new ones. Todos, uploads and files come from the version."""
    model: Model | str | None = None
    """The model of this turn, instead of that of the version or agent."""
    model_settings: ModelSettings = field(default_factory=ModelSettings)
    """Model settings of this turn, which override those of the version."""
    branch: str | None = None
    """The name of a branch that begins with this turn."""
    usage_limits: UsageLimits | None = None
    """The usage limits of the conversation, over all of its turns."""
    cancellation_token: CancellationToken | None = None
    """Stops the run when it is cancelled."""
    run_id: str | None = None
    """The id of the run, an unused UUIDv7 from `new_id` of the store; `None` to create one."""
    moves_head: bool = False
    """Whether to move the head of the conversation to the new version, if it is at the version that the turn starts
    from.
    """
