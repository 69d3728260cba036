"""`WorkerEvent`: what a worker reports about its runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from pydantic_deep.store import RunState

WorkerEventKind: TypeAlias = Literal['began', 'resumed', 'taken_over', 'ended', 'given_back']
"""`resumed`: another worker, or an earlier attempt here, gave it back. `taken_over`: its process crashed. `ended`: it is
over, or paused for approvals. `given_back`: it is queued again.
"""


@dataclass(frozen=True, kw_only=True)
class WorkerEvent:
    """A change of a run that a worker executes."""

    kind: WorkerEventKind
    """What happened."""
    run_id: str
    """The run."""
    agent_name: str
    """Its agent."""
    conversation_id: str
    """Its conversation."""
    state: RunState
    """Its state now; `failed` if it could not begin, `interrupted` if it was cancelled before."""
