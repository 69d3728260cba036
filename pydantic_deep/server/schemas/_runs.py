"""Turns and runs."""

from __future__ import annotations

from typing import Annotated, cast

from pydantic import AwareDatetime, BaseModel, Field

from pydantic_deep.server._state import ServerState
from pydantic_deep.server.access._ownership import AuthorizedRun, ServedVersion
from pydantic_deep.server.runs._server_run import ServedRunState, ServerRun
from pydantic_deep.server.runs._stored_runs import StoredRun
from pydantic_deep.streaming import ErrorEvent, output_text
from pydantic_deep.versions.recording._recorded_run import load_usage

from ._approvals import Answer, ApprovalShape, load_approvals
from ._fields import EXAMPLE_DIGEST, EXAMPLE_ID, EXAMPLE_MOMENT, Id, Name, Reason, example_config, moment
from ._usage import UsageShape, build_usage


class TurnSettings(BaseModel):
    """What of the model's settings a client may choose."""

    model_config = example_config({'temperature': 0}, extra='forbid', strict=True)

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """How much chance there is."""
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    """Of which part of the probability tokens are drawn."""
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """How long one answer of the model may be."""
    seed: int | None = None
    """Where chance begins, for providers that know it."""
    stop_sequences: Annotated[list[str], Field(max_length=16)] | None = None
    """What ends an answer."""
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    """How much new words are preferred."""
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    """How much repeated words are avoided."""
    parallel_tool_calls: bool | None = None
    """Whether one answer may have several calls."""


class _Turn(BaseModel):
    max_iterations: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """How often models may be asked at most, those of subagents included."""
    session_id: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """An id of your own: the stream, the audit record and tools see it."""


class NewBranch(_Turn):
    """A turn that begins a branch."""

    model_config = example_config({'prompt': 'Try it with the median.', 'branch': 'median'}, extra='forbid')

    prompt: Annotated[str, Field(min_length=1)]
    """What the user says."""
    branch: Name | None = None
    """A name for the branch that begins with this turn."""
    model_settings: TurnSettings | None = None
    """Settings of this turn."""


class NewTurn(NewBranch):
    """A turn of a conversation."""

    model_config = example_config({'prompt': 'Summarize /uploads/sales.csv.'}, extra='forbid')

    from_version: Id | None = None
    """The version to go on from; the head if left out. A turn from another than the head leaves the head where it is."""


class Resumption(_Turn):
    """Answers to what waits, and the turn goes on."""

    model_config = example_config(
        {'answers': {'call_1': {'decision': 'approve', 'digest': EXAMPLE_DIGEST}}}, extra='forbid'
    )

    answers: dict[str, Answer] = Field(default_factory=dict[str, Answer], max_length=10_000)
    """By the `pending_id` of each; empty to go on with what was answered in the inbox."""
    reason: Reason | None = None
    """Why, for all of them."""
    from_version: Id | None = None
    """The version that waits; the head if left out."""


class RunShape(BaseModel):
    """A run."""

    model_config = example_config(
        {
            'id': EXAMPLE_ID,
            'conversation_id': EXAMPLE_ID,
            'agent': 'analyst',
            'state': 'complete',
            'has_moved_on': False,
            'base_id': EXAMPLE_ID,
            'version_id': EXAMPLE_ID,
            'output': 'Sales grew by 4 %.',
            'error': None,
            'approvals': [],
            'usage': {'input_tokens': 1200, 'output_tokens': 80, 'requests': 2, 'tool_calls': 1},
            'session_id': None,
            'is_here': True,
            'attempts': 1,
            'started_at': EXAMPLE_MOMENT,
            'ended_at': EXAMPLE_MOMENT,
        }
    )

    id: str
    """Names it."""
    conversation_id: str
    """The conversation."""
    agent: str
    """The agent."""
    state: ServedRunState
    """What became of it. One without an end in the store is `suspended` until it is resumed or cancelled."""
    has_moved_on: bool
    """Whether it is suspended and its conversation has moved on, so that it resumes only when somebody asks for it."""
    base_id: str | None
    """The version that it went on from."""
    version_id: str | None
    """The version that it ended with; of one that works, its newest step where that is known."""
    output: str | None
    """Its answer as text, JSON if it is structured."""
    error: ErrorEvent | None
    """Why it failed."""
    approvals: list[ApprovalShape]
    """What it waits for, or has waited for."""
    usage: UsageShape
    """What it has used by itself."""
    session_id: str | None
    """The caller's own id, as long as the log is kept."""
    is_here: bool
    """Whether it works in this process, or its log is here still."""
    attempts: int
    """How often it was begun: once more after each crash."""
    started_at: AwareDatetime
    """When it began."""
    ended_at: AwareDatetime | None
    """When it ended."""


class RunList(BaseModel):
    """Runs."""

    items: list[RunShape]
    """Newest first."""


async def build_run(state: ServerState, own: AuthorizedRun) -> RunShape:
    """Build a run from this process, or from the store."""
    newest = None if own.stored is None or own.stored.version is None else own.stored.version.id
    version = None if newest is None else await own.agent.load(newest)
    if own.local is not None:
        has_moved_on = own.stored is not None and own.stored.has_moved_on
        return await _build_local_run(state, own.local, version, has_moved_on=has_moved_on)
    return await _build_stored_run(state, cast('StoredRun', own.stored), version)


async def _build_local_run(
    state: ServerState, run: ServerRun, version: ServedVersion | None, *, has_moved_on: bool
) -> RunShape:
    return RunShape(
        id=run.id,
        conversation_id=run.conversation_id,
        agent=run.agent_name,
        state=run.state,
        has_moved_on=has_moved_on,
        base_id=run.base_id,
        version_id=run.version_id if run.outcome else None if version is None else version.id,
        output=run.output,
        error=run.error,
        approvals=await load_approvals(state.store, version),
        usage=build_usage(run.usage),
        session_id=run.session_id,
        is_here=True,
        attempts=1,
        started_at=run.started_at,
        ended_at=run.ended_at,
    )


async def _build_stored_run(state: ServerState, run: StoredRun, version: ServedVersion | None) -> RunShape:
    return RunShape(
        id=run.id,
        conversation_id=run.last.conversation_id,
        agent=run.last.agent_name,
        state=run.state,
        has_moved_on=run.has_moved_on,
        base_id=run.base_id,
        version_id=None if version is None else version.id,
        output=output_text(version.output if version is not None and run.is_over else None),
        error=run.error,
        approvals=await load_approvals(state.store, version),
        usage=build_usage(load_usage(run.last.usage)),
        session_id=None,
        is_here=False,
        attempts=len(run.attempts),
        started_at=moment(run.attempts[0].started_at),
        ended_at=None if run.last.ended_at is None else moment(run.last.ended_at),
    )
