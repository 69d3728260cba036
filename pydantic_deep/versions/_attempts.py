"""What was done of a run whose process died, over all attempts at it: its calls, its answers, and what it left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolReturnPart

from pydantic_deep._replaced import is_summary
from pydantic_deep.store import CallRecord, RunRecord, Store, VersionFilter

from ._deps_state import fork_of
from ._ledger import deps_of, result_of
from ._messages import decode_messages
from ._recording import CallKey
from ._replayed import RecordedResponse, Replayed
from ._rewritten import Summarized, earlier_records, summaries_since

_BASE = ''
"""Stands for the response that a run goes on from."""


@dataclass(frozen=True, kw_only=True)
class LeftFiles:
    """The files after the last call that ended, of those that no version has."""

    tree: str
    """The digest of the tree."""
    at: int
    """When the call ended."""


async def attempts_of(store: Store, run: RunRecord) -> list[RunRecord]:
    """Return a run and those of dead processes that it goes on with, oldest first."""
    found = [run]
    while (attempt_of := found[-1].attempt_of) and (before := await store.run(attempt_of)) is not None:
        found.append(before)
    return found[::-1]


async def settled_calls(store: Store, attempts: Sequence[RunRecord]) -> dict[CallKey, CallRecord]:
    """Return the calls that attempts have begun, each as what is known of it best.

    That a call has ended counts more than that it was started; of two that were started the newer counts, because it
    knows what became of a delegation.
    """
    found: dict[CallKey, CallRecord] = {}
    for attempt in attempts:
        _settle(found, await store.calls([attempt.id]))
    return found


async def load_attempts(store: Store, run: RunRecord) -> tuple[Replayed, dict[CallKey, CallRecord]]:
    """Return what a run and those that it went on with were answered, and the calls that they have begun.

    A newer attempt begins by telling again what the older ones had; where it died before the end of that, the older
    ones know the rest.
    """
    responses: list[RecordedResponse] = []
    summaries: list[ModelMessage] = []
    overflowed: frozenset[int] = frozenset()
    settled: dict[CallKey, CallRecord] = {}
    for attempt in await attempts_of(store, run):
        newer, calls, made = await _load(store, attempt)
        summaries = [*(each.message for each in made), *summaries[len(made) :]]
        overflowed |= _overflows(made, newer)
        both = [_joined(old, new) for old, new in zip(responses, newer, strict=False)]
        responses = [*both, *responses[len(both) :], *newer[len(both) :]]
        _settle(settled, calls)
    replayed = Replayed(run_id=run.id, responses=responses, summaries=summaries, overflowed_after=overflowed)
    return replayed, settled


async def load_replayed(store: Store, run: RunRecord) -> tuple[Replayed, dict[str, CallRecord]]:
    """Return the responses that a run had, and by their ids the calls of the response that it went on from."""
    responses, calls, made = await _load(store, run)
    own = {response.id for response in responses}
    before = {call.tool_call_id: call for call in calls if call.response_id not in own}
    summaries, overflowed = [each.message for each in made], _overflows(made, responses)
    return Replayed(run_id=run.id, responses=responses, summaries=summaries, overflowed_after=overflowed), before


def _overflows(made: Sequence[Summarized], responses: Sequence[RecordedResponse]) -> frozenset[int]:
    """Return after how many of its responses a run summarized because a request was refused as too long."""
    known: set[str] = set()
    found: set[int] = set()
    for summary in made:
        known |= set(summary.before)
        if summary.is_overflow:
            found.add(sum(response.id in known for response in responses))
    return frozenset(found)


async def _load(store: Store, run: RunRecord) -> tuple[list[RecordedResponse], list[CallRecord], list[Summarized]]:
    """Return the responses that a run had, all its calls, also those of the response that it went on from, and the
    summaries that it made: what they replaced of its own is told again too.
    """

    async def read(digest: str) -> bytes:
        return (await store.asset(digest)).data

    versions = await store.versions(VersionFilter(run_id=run.id), limit=1)
    if not versions:
        return [], await store.calls([run.id]), []
    newest = versions[0]
    records = await store.messages(newest.branch_id, newest.message_count)
    summaries = await summaries_since(store, newest, await store.version(run.base_id or ''))
    if summaries:
        records = [*await earlier_records(store, newest), *records]
    messages = await decode_messages(records, read)
    # By the run that they name: it may also have put together what was there, under other ids and in fewer messages.
    own = {
        record.id
        for record, message in zip(records, messages, strict=True)
        if isinstance(message, ModelResponse) and message.run_id == run.id
    }
    returned: dict[tuple[str, str], ToolReturnPart] = {}  # ids of calls repeat from response to response
    asked_by = _BASE
    for record, message in zip(records, messages, strict=True):
        if isinstance(message, ModelRequest):
            parts = [part for part in message.parts if isinstance(part, ToolReturnPart)]
            returned |= {(asked_by, part.tool_call_id): part for part in parts}
        elif not any(map(is_summary, message.parts)):  # which may stand between a call and its result here
            asked_by = record.id if record.id in own else _BASE
    calls = [
        _with_result(call, returned.get((call.response_id if call.response_id in own else _BASE, call.tool_call_id)))
        for call in await store.calls([run.id])
    ]
    responses = [
        RecordedResponse(
            id=record.id,
            response=message,
            calls={call.tool_call_id: call for call in calls if call.response_id == record.id},
        )
        for record, message in zip(records, messages, strict=True)
        if isinstance(message, ModelResponse) and record.id in own
    ]
    return responses, calls, summaries


async def left_deps(store: Store, attempts: Sequence[RunRecord], response_id: str | None) -> str | None:
    """Return the digest of the state of the deps that the calls of a response left; `None` if none changed it."""
    found: list[tuple[int, str]] = []
    for attempt in attempts:
        for call in await store.calls([attempt.id]):
            digest = deps_of(call.result) if call.response_id == response_id else None
            if digest is not None and call.ended_at is not None:
                found.append((call.ended_at, digest))
    return max(found, default=(0, None))[1]


async def last_deps(store: Store, attempts: Sequence[RunRecord]) -> str | None:
    """Return the digest of the last state of the deps of a run: after a step, or a call since; `None` if it has none.

    An attempt begins with the state that the one before it left.
    """
    for attempt in reversed(attempts):
        found = await _states(store, attempt)
        if found:
            return max(found)[1]
    return None


async def last_fork(store: Store, attempts: Sequence[RunRecord]) -> str | None:
    """Return the digest of the state of deps that has the files of a run's fork as they were last; `None` if none has.

    Runs below it may have worked in the same fork, and know it better. It is that of the conversation.
    """
    for attempt in reversed(attempts):
        runs = [attempt, *await _runs_below(store, attempt)]
        for _, digest in sorted([state for run in runs for state in await _states(store, run)], reverse=True):
            if await fork_of(store, digest) == attempt.conversation_id:
                return digest
    return None


async def _states(store: Store, run: RunRecord) -> list[tuple[int, str]]:
    """Return when a run has left which states of its deps: after its last step, and after calls."""
    newest = await store.versions(VersionFilter(run_id=run.id), limit=1)
    states = [(version.created_at, version.deps) for version in newest]
    states += [(call.ended_at or 0, deps_of(call.result)) for call in await store.calls([run.id])]
    return [(at, digest) for at, digest in states if digest is not None]


async def _runs_below(store: Store, run: RunRecord) -> list[RunRecord]:
    """Return all runs that a run has delegated to, at any depth."""
    found: list[RunRecord] = []
    for child in await store.runs(parent_run_id=run.id):
        found += [child, *await _runs_below(store, child)]
    return found


async def left_files(store: Store, attempts: Sequence[RunRecord], response_id: str | None) -> LeftFiles | None:
    """Return the files that the calls of a response left, those of subagents included; `None` if none changed them.

    Args:
        store: The store.
        attempts: The run, and those that it went on with.
        response_id: The last message that asked for calls, of the version that is gone on from.
    """
    found: list[LeftFiles] = []
    for attempt in attempts:
        calls = [call for call in await store.calls([attempt.id]) if call.response_id == response_id]
        links = await store.delegations(parent_run_id=attempt.id)
        for link in [link for link in links if link.response_id == response_id]:
            for run in await store.runs(conversation_id=link.child_conversation_id, parent_run_id=attempt.id):
                runs = [run, *await _runs_below(store, run)]
                calls += await store.calls([each.id for each in runs])
        found += [
            LeftFiles(tree=call.tree, at=call.ended_at)
            for call in calls
            if call.tree is not None and call.ended_at is not None
        ]
    return max(found, key=lambda left: left.at, default=None)


def _joined(old: RecordedResponse, new: RecordedResponse) -> RecordedResponse:
    """Return a response that two attempts had, with what is known best of each call."""
    calls: Mapping[str, CallRecord] = {
        **old.calls,
        **{id: _better(old.calls.get(id), call) for id, call in new.calls.items()},
    }
    return RecordedResponse(id=new.id, response=new.response, calls=calls)


def _settle(found: dict[CallKey, CallRecord], calls: Sequence[CallRecord]) -> None:
    """Add the calls of a newer attempt."""
    for call in calls:
        key = (call.response_id, call.tool_call_id)
        found[key] = _better(found.get(key), call)


def _better(old: CallRecord | None, new: CallRecord) -> CallRecord:
    return old if old is not None and old.status != 'started' and new.status == 'started' else new


def _with_result(call: CallRecord, part: ToolReturnPart | None) -> CallRecord:
    """Return a call with its result, which the ledger forgets once a message has it."""
    is_ended = call.status in ('done', 'failed')
    return call._replace(result=result_of(part)) if is_ended and call.result is None and part is not None else call
