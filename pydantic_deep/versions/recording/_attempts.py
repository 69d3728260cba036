"""The stored work of a crashed run over all attempts at it: calls, responses, files and deps."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal, cast

from pydantic import JsonValue
from pydantic_ai.messages import ModelRequest, ModelResponse, ToolReturnPart
from pydantic_ai.usage import RequestUsage, RunUsage

from pydantic_deep._messages.summary_metadata import is_summary
from pydantic_deep._messages.usage_json import dump_usage
from pydantic_deep.store import CallRecord, RequestRecord, RunEnd, RunRecord, Store, VersionFilter, VersionRecord
from pydantic_deep.versions._messages import decode_bodies, decode_messages
from pydantic_deep.versions.files._open_files import CrashRemnants
from pydantic_deep.versions.recording._deps_state import fork_of
from pydantic_deep.versions.recording._ledger import deps_of, result_of
from pydantic_deep.versions.recording._presummary_history import Summarized, all_records, summaries_since

from ._recovery_script import RecordedResponse, RecoveryScript

CallKey = tuple[str, str]
"""The key of a tool call within a run and those that it resumes: the id of the message with the call, and its own id.
"""

_BASE = ''
"""Stands for the response that a run begins from."""

_ALL = 1_000_000
"""A limit above the number of runs below any run."""


@dataclass(frozen=True, kw_only=True)
class CrashedRun:
    """A crashed run that another run resumes, with all attempts at it; empty for a run that resumes none."""

    attempts: Sequence[RunRecord] = ()
    """The crashed run, after those that it resumed itself, oldest first."""
    settled: Mapping[CallKey, CallRecord] = field(default_factory=dict[CallKey, CallRecord])
    """The ledger entries of calls that the attempts have begun, keyed by call."""
    lost: RunUsage = field(default_factory=RunUsage)
    """The usage of the attempts that is neither part of the usage of the base nor recorded again by this run."""
    earlier: RunUsage = field(default_factory=RunUsage)
    """The usage of the attempts up to the base, including `lost`."""


async def attempts_of(store: Store, run: RunRecord) -> list[RunRecord]:
    """Return a run after the crashed runs that it resumes, oldest first."""
    attempts = [run]
    while (attempt_of := attempts[-1].attempt_of) and (before := await store.run(attempt_of)) is not None:
        attempts.append(before)
    return attempts[::-1]


async def settled_calls(store: Store, attempts: Sequence[RunRecord]) -> dict[CallKey, CallRecord]:
    """Return the ledger entries of attempts: one per call, under the attempt that had the response with the call."""
    return {(call.response_id, call.tool_call_id): call for call in await _calls(store, attempts)}


async def calls_before_pause(
    store: Store, attempts: Sequence[RunRecord], response_id: str, tool_call_id: str
) -> list[CallRecord]:
    """Return earlier ledger entries of a call that a crashed process had started, from before its approval was
    requested.

    `attempts` are the run that makes the call after approval, and those that it resumes. Each began from a pause.
    """
    calls: list[CallRecord] = []
    base = await store.version(attempts[0].base_id or '')
    while base.kind == 'pause' and (run := await store.run(base.run_id or '')) is not None:
        attempts = await attempts_of(store, run)
        calls += [
            call
            for call in await _calls(store, attempts)
            if (call.response_id, call.tool_call_id, call.status) == (response_id, tool_call_id, 'started')
        ]
        base = await store.version(attempts[0].base_id or '')
    return calls


async def newest_version(store: Store, attempts: Sequence[RunRecord]) -> VersionRecord | None:
    """Return the last version of attempts; `None` if they have none."""
    for attempt in reversed(attempts):
        newest = await store.versions(VersionFilter(run_id=attempt.id), limit=1)
        if newest:
            return newest[0]
    return None


async def load_script(store: Store, attempts: Sequence[RunRecord]) -> RecoveryScript:
    """Return the responses that attempts had, each with its calls.

    Each attempt begins from the last version of the one before, as `attempts_of` returns them.
    """
    calls = await _calls(store, attempts)
    newest = await newest_version(store, attempts)
    if newest is None:
        return RecoveryScript()
    made = await summaries_since(store, newest, await store.version(attempts[0].base_id or ''))
    records = await all_records(store, newest)  # including replaced messages, which are used again too
    messages = await decode_messages(records, store.read_asset)
    # By their run id: the run may also have merged earlier messages, which then have other ids.
    run_ids = {attempt.id for attempt in attempts}
    run_id_by_response = {
        record.id: message.run_id or ''
        for record, message in zip(records, messages, strict=True)
        if isinstance(message, ModelResponse) and message.run_id in run_ids
    }
    returned: dict[tuple[str, str], ToolReturnPart] = {}  # ids of calls repeat from response to response
    asked, begun_from = _BASE, None
    for record, message in zip(records, messages, strict=True):
        if isinstance(message, ModelRequest):
            parts = [part for part in message.parts if isinstance(part, ToolReturnPart)]
            # The first result: a capability may have replaced it by a shorter one later.
            returned = {(asked, part.tool_call_id): part for part in parts} | returned
        elif not any(map(is_summary, message.parts)):  # a summary may come between a call and its result
            asked = record.id if record.id in run_id_by_response else _BASE
            begun_from = (record.id, message) if asked == _BASE else begun_from
    calls = [
        _with_result(
            call,
            returned.get((call.response_id if call.response_id in run_id_by_response else _BASE, call.tool_call_id)),
        )
        for call in calls
    ]
    calls_by_response: dict[str, dict[str, CallRecord]] = {}
    for call in calls:
        calls_by_response.setdefault(call.response_id, {})[call.tool_call_id] = call

    def recorded(id: str, response: ModelResponse, run_id: str) -> RecordedResponse:
        return RecordedResponse(id=id, run_id=run_id, response=response, calls=calls_by_response.get(id, {}))

    originals = await _originals(store, attempts)
    responses = [
        recorded(record.id, originals.get(record.id, message), run_id_by_response[record.id])
        for record, message in zip(records, messages, strict=True)
        if isinstance(message, ModelResponse) and record.id in run_id_by_response
    ]
    return RecoveryScript(
        responses=responses,
        begun_from=None if begun_from is None else recorded(*begun_from, attempts[0].id),
        summaries=[summary.message for summary in made],
        overflowed_after=_overflows(made, responses),
    )


async def _originals(store: Store, attempts: Sequence[RunRecord]) -> dict[str, ModelResponse]:
    """Return the original model responses that capabilities have changed, keyed by the id of the changed message."""
    originals: dict[str, ModelResponse] = {}
    for request in [request for attempt in attempts for request in await store.requests(attempt.id)]:
        if request.message_digests is None:
            continue
        sent: dict[str, JsonValue] = json.loads(await store.read_asset(request.message_digests))
        if 'response' in sent:
            (message,) = await decode_bodies([json.dumps(sent['response']).encode()], store.read_asset)
            originals[request.response_id] = cast('ModelResponse', message)
    return originals


def _overflows(made: Sequence[Summarized], responses: Sequence[RecordedResponse]) -> frozenset[int]:
    """Return the numbers of responses after which a run summarized because a request was refused as too long."""
    known: set[str] = set()
    counts: set[int] = set()
    for summary in made:
        known |= set(summary.before)
        if summary.is_overflow:
            counts.add(sum(response.id in known for response in responses))
    return frozenset(counts)


async def left_deps(store: Store, attempts: Sequence[RunRecord], response_id: str | None) -> str | None:
    """Return the digest of the deps state that the calls of a response left; `None` if none changed it."""
    states: list[tuple[int, str]] = []
    for call in await _calls(store, attempts):
        digest = deps_of(call.result) if call.response_id == response_id else None
        if digest is not None and call.ended_at is not None:
            states.append((call.ended_at, digest))
    return max(states, default=(0, None))[1]


async def last_deps(store: Store, attempts: Sequence[RunRecord]) -> str | None:
    """Return the digest of the last deps state of a run, from a step or a later call; `None` if it has none.

    An attempt begins with the state that the previous one left.
    """
    for attempt in reversed(attempts):
        states = await _states(store, attempt)
        if states:
            return max(states)[1]
    return None


async def last_fork(store: Store, attempts: Sequence[RunRecord]) -> str | None:
    """Return the digest of the deps state with the newest files of a run's fork; `None` if there is none.

    The fork belongs to the conversation of the run. Runs below it may work in the same fork and have a newer state.
    """
    for attempt in reversed(attempts):
        runs = [attempt, *await _runs_below(store, attempt)]
        for _, digest in sorted([state for run in runs for state in await _states(store, run)], reverse=True):
            if await fork_of(store, digest) == attempt.conversation_id:
                return digest
    return None


async def _states(store: Store, run: RunRecord) -> list[tuple[int, str]]:
    """Return the deps states of a run, each with its time: after its last step, and after calls."""
    newest = await store.versions(VersionFilter(run_id=run.id), limit=1)
    states = [(version.created_at, version.deps) for version in newest]
    states += [(call.ended_at or 0, deps_of(call.result)) for call in await store.calls([run.id])]
    return [(at, digest) for at, digest in states if digest is not None]


async def _runs_below(store: Store, run: RunRecord) -> list[RunRecord]:
    """Return all descendants of a run."""
    descendants: list[RunRecord] = []
    for child in await store.runs(parent_run_id=run.id, limit=_ALL):
        descendants += [child, *await _runs_below(store, child)]
    return descendants


async def crash_remnants(store: Store, attempts: Sequence[RunRecord], response_id: str | None) -> CrashRemnants | None:
    """Return the files that the calls of a response and their subagents left; `None` if none changed them."""
    runs = await runs_called(store, attempts, response_id)
    calls = [call for call in await _calls(store, attempts) if call.response_id == response_id]
    calls += await store.calls([run.id for run in runs])
    remnants = [
        CrashRemnants(tree=call.tree, at=call.ended_at)
        for call in calls
        if call.tree is not None and call.ended_at is not None
    ]
    return max(remnants, key=lambda left: left.at, default=None)


async def runs_called(
    store: Store, attempts: Sequence[RunRecord], response_id: str | None, tool_call_id: str | None = None
) -> list[RunRecord]:
    """Return the runs of subagents that calls of a response have started, or only one of its calls, at any depth."""
    run_ids = {attempt.id for attempt in attempts}
    run_by_id: dict[str, RunRecord] = {}
    for link in [link for run_id in run_ids for link in await store.delegations(parent_run_id=run_id)]:
        if link.response_id == response_id and tool_call_id in (None, link.tool_call_id):
            runs = await store.runs(conversation_id=link.child_conversation_id, limit=_ALL)
            for run in [run for run in runs if run.parent_run_id in run_ids]:
                run_by_id |= {descendant.id: descendant for descendant in [run, *await _runs_below(store, run)]}
    return list(run_by_id.values())


async def usage_of_call(
    store: Store, attempts: Sequence[RunRecord], response_id: str, tool_call_id: str
) -> tuple[RunUsage, RunUsage]:
    """Return the usage of a delegation in a run and those that it resumes, and its usage before that, up to a pause."""
    called = await runs_called(store, attempts, response_id, tool_call_id)
    known = {run.id for run in called}
    before: set[str] = set()
    for conversation_id in {
        run.conversation_id for run in called if run.parent_run_id in {attempt.id for attempt in attempts}
    }:
        for run in await store.runs(conversation_id=conversation_id, limit=_ALL):
            before |= {run.id, *(descendant.id for descendant in await _runs_below(store, run))}
    return await usage_of_runs(store, list(known)), await usage_of_runs(store, list(before - known))


async def usage_of_runs(store: Store, run_ids: Sequence[str]) -> RunUsage:
    """Return the stored usage of runs without their subagents: requests and finished calls."""
    used = await usage_of_requests(store, run_ids)
    used.tool_calls = sum(call.status == 'done' for call in await store.calls(run_ids))
    return used


async def usage_of_requests(
    store: Store, run_ids: Sequence[str], *, without: Collection[str] = (), since: int = 0
) -> RunUsage:
    """Return the usage of the requests of runs, from a time in microseconds since 1970.

    Requests of the responses `without` are excluded.
    """
    used = RunUsage()
    for run_id in run_ids:
        for request in await store.requests(run_id):
            if request.response_id not in without and request.started_at >= since:
                used.requests += request.kind != 'failed'
                used.incr(_usage_of_request(request))
    return used


async def end_of_attempt(
    store: Store, run_id: str, state: Literal['interrupted', 'failed'] = 'interrupted', error: str | None = None
) -> RunEnd:
    """Return the end of a crashed run, with its usage."""
    used = await usage_of_runs(store, [run_id])
    cost = None if used.cost is None else str(used.cost)
    return RunEnd(run_id=run_id, state=state, usage=dump_usage(used), cost=cost, error=error)


def _usage_of_request(request: RequestRecord) -> RequestUsage:
    return RequestUsage(
        input_tokens=request.input_tokens,
        output_tokens=request.output_tokens,
        cache_read_tokens=request.cache_read_tokens,
        cache_write_tokens=request.cache_write_tokens,
        cost=None if request.cost is None else Decimal(request.cost),
    )


async def _calls(store: Store, attempts: Sequence[RunRecord]) -> list[CallRecord]:
    return [call for attempt in attempts for call in await store.calls([attempt.id])]


def _with_result(call: CallRecord, part: ToolReturnPart | None) -> CallRecord:
    """Return a call with its result, which is removed from the ledger once a message has it."""
    is_ended = call.status in ('done', 'failed')
    return call._replace(result=result_of(part)) if is_ended and call.result is None and part is not None else call
