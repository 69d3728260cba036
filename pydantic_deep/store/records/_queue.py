"""Queued runs, and the events of a run that other processes read while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from ._basics import Json

QueueState: TypeAlias = Literal['queued', 'running', 'ended']
"""State of a queued run. `running`: a worker has claimed it; the worker may have crashed since. `ended`: its run has an
end in the store, or it was cancelled or refused before it began.
"""


class QueuedRunRecord(NamedTuple):
    """A turn that a worker runs: its input, where it runs, and since when."""

    run_id: str
    """A UUIDv7: the id of the run, whose record exists once it has begun."""
    conversation_id: str
    """The conversation that the turn continues."""
    base_id: str | None
    """The version that the turn starts from; `None` for the head at that time, after earlier turns of the queue."""
    agent_name: str
    """The agent of the turn."""
    account: str | None
    """The owner of the conversation, as the application names it; `None` if it has none."""
    key_id: str | None
    """The key whose limit counts the run."""
    priority: int
    """Runs with a higher number begin first."""
    prompt: bytes | None
    """The user's prompt as JSON; `None` for a turn that resumes with the answers to pending approvals."""
    options: Json
    """A JSON object with the other options of the turn."""
    submitted_at: int
    """When the run was submitted."""
    state: QueueState = 'queued'
    """Whether the run is queued, claimed, or over."""
    worker: str | None = None
    """The open store of the worker that has claimed the run; `None` while it is queued or after it has ended."""
    node: str | None = None
    """The name of that worker, for people, such as `host:1234`."""
    epoch: int = 0
    """The number of claims. Each has a log of events of its own."""
    position: int = 0
    """The number of events in the log of this epoch."""
    problem: str | None = None
    """Why the run ended before it began, or does not continue yet. Clients may read the first line, and the others have the
    message of an unexpected error.
    """
    started_at: int | None = None
    """When a worker first claimed it."""
    heartbeat_at: int | None = None
    """When its worker last reported. For people only: whether a worker is alive is determined by its lock."""
    cancelled_at: int | None = None
    """When somebody requested to cancel it."""
    ended_at: int | None = None
    """When it ended."""


class RunProgress(NamedTuple):
    """How far a queued run is."""

    run_id: str
    """The run."""
    state: QueueState
    """Whether it is queued, claimed, or over."""
    epoch: int
    """The number of claims."""
    position: int
    """The number of events in the log of this epoch."""


class LoggedEntries(NamedTuple):
    """A part of the log of a run, with at least one entry."""

    first: int
    """The number of the first entry, counted from 1 within the epoch."""
    entries: Sequence[bytes]
    """Encoded events, in order."""
