"""Runs whose process died are gone on with: what is done stays done, what is safe runs again, the rest is asked about."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, cast

from pydantic_ai import DeferredToolResults, UserError
from pydantic_ai.settings import ModelSettings

from pydantic_deep.approvals import answer_approvals
from pydantic_deep.store import CallRecord, RunRecord, VersionFilter, VersionRecord

from ._answers import answers_of
from ._pause import decode_pause
from ._recording import CallKey
from ._turn import TurnRequest, decode_prompt

if TYPE_CHECKING:
    from ._version import AgentVersion
    from ._versioned_agent import VersionedAgent

_LOGGER = logging.getLogger('pydantic_deep')


async def recover(agent: VersionedAgent[Any, Any]) -> list[AgentVersion[Any, Any]]:
    """Go on with the runs of an agent whose process died."""
    orphans = await agent.store.orphans()
    versions: list[AgentVersion[Any, Any]] = []
    for run in orphans:
        is_ours = run.parent_run_id is None and run.agent_name == agent.name
        if run.parent_run_id is not None:
            await agent.store.take_over(run.id)  # the run that delegated to it begins it again
        elif is_ours and await agent.store.take_over(run.id):
            version = await _recover_run(agent, run)
            if version is not None:
                versions.append(version)
    return versions


async def _recover_run(agent: VersionedAgent[Any, Any], run: RunRecord) -> AgentVersion[Any, Any] | None:
    newest = await agent.store.versions(VersionFilter(run_id=run.id), limit=1)
    base_id = newest[0].id if newest else run.base_id
    if base_id is None:
        return None
    base = await agent.store.version(base_id)
    options: dict[str, Any] = json.loads(run.options)
    request = TurnRequest(
        base=base,
        prompt=None if run.prompt is None else decode_prompt(run.prompt),
        results=await _results(agent, run, base) if options.get('resumes') and not newest else None,
        model=options.get('model'),
        model_settings=cast('ModelSettings', options.get('model_settings') or {}),
        branch=None if newest else options.get('branch'),
        attempt_of=run.id,
        settled=await _settled(agent, run),
        can_pause=True,
    )
    try:
        return await agent.run_turn(request)
    except UserError:
        raise
    except Exception:  # the code of tools and models is the user's; the version says what came of it
        _LOGGER.warning('The run %s was recovered and failed again', run.id, exc_info=True)
        return None


async def _results(agent: VersionedAgent[Any, Any], run: RunRecord, base: VersionRecord) -> DeferredToolResults | None:
    """Return the answers that a run acted on."""
    if base.pending is None:
        return None
    approvals = await agent.store.approvals(status=None, version_id=base.id, limit=10_000)
    if not any(each.resumed_by == run.id for each in approvals):
        approvals = await agent.store.claim_approvals(base.id, run.id)
    return answer_approvals(decode_pause(await agent.read_asset(base.pending)), answers_of(approvals))


async def _settled(agent: VersionedAgent[Any, Any], run: RunRecord) -> dict[CallKey, CallRecord]:
    """Return what a run, and those that it went on with, has begun."""
    run_ids = [run.id]
    attempt = run.attempt_of
    while attempt is not None:
        run_ids.append(attempt)
        before = await agent.store.run(attempt)
        attempt = None if before is None else before.attempt_of
    found: dict[CallKey, CallRecord] = {}
    for call in await agent.store.calls(run_ids):
        key = (call.response_id, call.tool_call_id)
        if key not in found or call.status != 'started':
            found[key] = call
    return found
