"""Turns and runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, cast

from pydantic import BaseModel, Field

from pydantic_deep._examples import EXAMPLE_DIGEST, example_config
from pydantic_deep._messages.loaded_skills import typed_prompt
from pydantic_deep._messages.usage_json import load_usage
from pydantic_deep.server._state import ServerState
from pydantic_deep.server.access._ownership import AuthorizedRun
from pydantic_deep.server.runs._server_run import queued_state
from pydantic_deep.server.runs._stored_runs import StoredRun
from pydantic_deep.store import QueuedRunRecord, utc_datetime
from pydantic_deep.views import Run, StoredApproval, TurnLineages, Usage, prompt_text, stored_output_text

from ._approvals import Answer
from ._fields import Id, Name, Reason

_LATE_SECONDS = 10
"""The age at which a queued run has a `problem`: an idle worker begins it within a second."""


class TurnSettings(BaseModel):
    """The model settings that clients may choose."""

    model_config = example_config({'temperature': 0}, extra='forbid', strict=True)

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """Sampling temperature: higher values give more random output."""
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    """Nucleus sampling: tokens are drawn from the most probable ones up to this total probability."""
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """Maximum number of tokens in a model response."""
    seed: int | None = None
    """Seed for sampling, for providers that support it."""
    stop_sequences: Annotated[list[str], Field(max_length=16)] | None = None
    """Sequences at which the model stops generating."""
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    """Penalty for tokens that already occurred; positive values favor new topics."""
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    """Penalty for tokens by how often they occurred; positive values reduce repetition."""
    parallel_tool_calls: bool | None = None
    """Whether the model may call several tools in one response."""


class _Turn(BaseModel):
    max_iterations: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Maximum number of model requests, including those of subagents."""
    session_id: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """A session id of your own, available to the stream, the audit record and tools."""


class NewBranch(_Turn):
    """A turn that starts a new branch."""

    model_config = example_config({'prompt': 'Try it with the median.', 'branch': 'median'}, extra='forbid')

    prompt: Annotated[str, Field(min_length=1)]
    """The prompt of the user, not empty."""
    branch: Name | None = None
    """A name for the new branch."""
    model_settings: TurnSettings | None = None
    """Model settings for this turn."""
    plan_mode: bool | None = None
    """Whether to switch plan mode on or off with this prompt, for an agent with `PlanMode`. Null leaves it as it is."""


class NewTurn(NewBranch):
    """A turn of a conversation."""

    model_config = example_config({'prompt': 'Summarize /uploads/sales.csv.'}, extra='forbid')

    from_version: Id | None = None
    """The version to start from, by default the head. A turn from another version does not move the head."""


class Resumption(_Turn):
    """Answers to pending approvals, with which the turn resumes."""

    model_config = example_config(
        {'answers': {'call_1': {'decision': 'approve', 'digest': EXAMPLE_DIGEST}}}, extra='forbid'
    )

    answers: dict[str, Answer] = Field(default_factory=dict[str, Answer], max_length=10_000)
    """The answers, keyed by `pending_id`. Empty to resume with answers that were given one by one."""
    reason: Reason | None = None
    """A reason that applies to all answers."""
    from_version: Id | None = None
    """The pending version, by default the head."""


class RunList(BaseModel):
    """A list of runs."""

    items: list[Run]
    """The runs, newest first."""


async def build_run(state: ServerState, own: AuthorizedRun, lineages: TurnLineages | None = None) -> Run:
    """Build a run from the state of this process, or from the store.

    Args:
        state: The state of the server.
        own: The run.
        lineages: The versions that are already loaded, which are cached there.
    """
    local, stored, queued = own.local, own.stored, own.queued
    if local is not None and local.outcome is None and own.has_ended:
        local = None  # its task or its mirror has not noticed the end yet
    version = None if stored is None else stored.version
    lineages = lineages or TurnLineages(store=state.store)
    same: dict[str, object] = {  # in every process
        'prompt': await _prompt(own, lineages),
        'node': None if queued is None else queued.node,
        'heartbeat_at': None if queued is None or queued.heartbeat_at is None else utc_datetime(queued.heartbeat_at),
        'problem': None if queued is None else _problem(queued),
        'approvals': await _approvals(state, own),
    }
    if stored is None:
        same['attempts'] = 1 if queued is None else 0
    else:
        same |= {'attempts': len(stored.attempts), 'started_at': utc_datetime(stored.attempts[0].started_at)}
    ended_at = stored.last.ended_at if stored is not None else None if queued is None else queued.ended_at
    if ended_at is not None and (local is None or local.outcome):
        same['ended_at'] = utc_datetime(ended_at)
    if local is not None:
        return Run.of(
            local,
            state=local.state if queued is None or queued.state == 'ended' or local.outcome else queued.state,
            agent=local.agent_name,
            has_moved_on=stored is not None and stored.has_moved_on,
            version_id=local.version_id if local.outcome else version and version.id,
            is_here=queued is None,
            **same,
        )
    same.setdefault('ended_at', None)
    if stored is None:
        return _queued_run(cast('QueuedRunRecord', queued), same)
    return Run.of(
        stored,
        conversation_id=stored.last.conversation_id,
        state=stored.state if queued is None or queued.state == 'ended' or own.has_ended else queued.state,
        agent=stored.last.agent_name,
        version_id=version and version.id,
        output=None if version is None or not stored.is_over else stored_output_text(version),
        usage=await _usage(stored, lineages),
        session_id=None if own.local is None else own.local.session_id,
        is_here=own.local is not None and queued is None,
        **same,
    )


async def _approvals(state: ServerState, own: AuthorizedRun) -> list[StoredApproval]:
    version = None if own.stored is None else own.stored.version
    if version is None or version.state != 'awaiting_approval':
        return []
    return await state.views.approvals_of(await own.agent.load(version.id))


async def _prompt(own: AuthorizedRun, lineages: TurnLineages) -> str | None:
    """Return the prompt of a run as it was typed. Until a version has it, it is in the record of the run or of its turn."""
    stored, queued = own.stored, own.queued
    if stored is not None and stored.version is not None:
        lineages.cache([stored.version])
        return await lineages.prompt(stored.version)
    record = queued if stored is None else stored.last
    return None if record is None or record.prompt is None else typed_prompt(prompt_text(json.loads(record.prompt)))


async def _usage(stored: StoredRun, lineages: TurnLineages) -> Usage:
    """Return the usage of a run as its events have it: of all attempts, with its subagents."""
    base = None if stored.base_id is None else await lineages.version(stored.base_id)
    if base is None or stored.version is None:
        return Usage.model_validate_json(stored.last.usage)
    return Usage.model_validate(load_usage(stored.version.usage) - load_usage(base.usage))


def _problem(queued: QueuedRunRecord) -> str | None:
    """Return why a run does not begin or continue, in one line."""
    if queued.problem:
        return queued.problem.partition('\n')[0]  # the rest is not for clients
    since = utc_datetime(queued.heartbeat_at or queued.submitted_at)
    can_begin = queued.state == 'queued' and queued.base_id is not None  # otherwise it may wait for an earlier turn
    if not can_begin or (datetime.now(UTC) - since).total_seconds() < _LATE_SECONDS:
        return None
    return (
        f'No worker has begun this run yet: those that have the agent {queued.agent_name!r} are busy, or none has it.'
    )


def _queued_run(queued: QueuedRunRecord, same: Mapping[str, object]) -> Run:
    """Build a run that has not begun."""
    return Run.of(
        queued,
        id=queued.run_id,
        agent=queued.agent_name,
        state=queued_state(queued),
        has_moved_on=False,
        version_id=None,
        output=None,
        error=None,
        usage=Usage(),
        session_id=None,
        is_here=False,
        started_at=utc_datetime(queued.started_at or queued.submitted_at),
        **same,
    )
