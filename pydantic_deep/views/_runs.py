"""Runs, live or stored."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

from pydantic import AwareDatetime, ConfigDict

from pydantic_deep._examples import EXAMPLE_ID, EXAMPLE_MOMENT, example_config
from pydantic_deep.streaming import ErrorEvent, RunStatus

from ._approvals import StoredApproval
from ._base import View
from ._usage import Usage

RunState: TypeAlias = RunStatus | Literal['queued', 'running']
"""The state of a run. `queued`: no worker has begun it. A run without an end in the store is `suspended` until it is resumed or cancelled."""


class Run(View):
    """A run with all its attempts: the first one, and another after each crash."""

    model_config: ClassVar[ConfigDict] = example_config(
        {
            'id': EXAMPLE_ID,
            'conversation_id': EXAMPLE_ID,
            'agent': 'analyst',
            'state': 'complete',
            'prompt': 'Summarize /uploads/sales.csv.',
            'has_moved_on': False,
            'base_id': EXAMPLE_ID,
            'version_id': EXAMPLE_ID,
            'output': 'Sales grew by 4 %.',
            'error': None,
            'approvals': [],
            'usage': {'input_tokens': 1200, 'output_tokens': 80, 'requests': 2, 'tool_calls': 1},
            'session_id': None,
            'is_here': True,
            'node': None,
            'heartbeat_at': None,
            'problem': None,
            'attempts': 1,
            'started_at': EXAMPLE_MOMENT,
            'ended_at': EXAMPLE_MOMENT,
        }
    )

    id: str
    """The id of the run."""
    conversation_id: str
    """The id of the conversation that the run belongs to."""
    agent: str
    """The name of the agent."""
    state: RunState
    """The state of the newest attempt, or `suspended`."""
    prompt: str | None = None
    """The prompt of its turn, as the user typed it. Null for a run that resumes a turn, until its first step is stored."""
    has_moved_on: bool
    """Whether the run is suspended and its conversation has moved on: a later turn began, or the head is elsewhere. Such
    a run resumes only on request."""
    base_id: str | None
    """The version that the run started from."""
    version_id: str | None
    """The version that the run ended with; for a running run, its newest step if known."""
    output: str | None
    """The output as text, or as JSON if it is structured."""
    error: ErrorEvent | None
    """The failure that ended the run."""
    approvals: list[StoredApproval]
    """The approvals of its version, pending and answered."""
    usage: Usage
    """The usage of this run and its subagents, without the conversation before it."""
    session_id: str | None
    """The session id that the caller passed; available while the log of the run is cached."""
    is_here: bool
    """Whether the run is running in this process, or its log is cached there."""
    node: str | None = None
    """The process that executes the run, such as `host:1234`, if it was queued for workers."""
    heartbeat_at: AwareDatetime | None = None
    """When that process last reported."""
    problem: str | None = None
    """Why a queued run does not begin or continue yet, or ended before it began."""
    attempts: int
    """The number of attempts."""
    started_at: AwareDatetime
    """When the first attempt started."""
    ended_at: AwareDatetime | None
    """When the run ended; null if it has no end."""
