"""Results of the client's tools: the paused version that they resume.

A call has the id of its pending approval, so its result finds the version in any process, also after a restart. Without
an id, the dialogue that the client sends finds it. Results of calls that were already answered, and results with a new
prompt, continue on a branch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pydantic_ai.messages import ModelRequest

from pydantic_deep.approvals import Decision
from pydantic_deep.server.access._ownership import Access, ServedVersion
from pydantic_deep.server.http._errors import ServerError
from pydantic_deep.server.runs._server_run import ServerRun
from pydantic_deep.store import ApprovalAnsweredError, ApprovalRecord, VersionConflictError
from pydantic_deep.versions import ApprovalInbox, InboxItem

from ._client_tools import ClientResult
from ._dialogue import Dialogue
from ._dialogue_threads import find_version

_ALL = 10_000
"""An upper bound for the number of approvals of a version."""

NOT_TOGETHER = 'All decisions and results of a request must belong to one response.'
"""The message for answers to calls of different responses."""


@dataclass(frozen=True, kw_only=True)
class Resumption:
    """The turn that results continue."""

    version: ServedVersion
    """The paused version, or another one on a branch."""
    answers: Mapping[str, Decision]
    """The answers of the turn; empty if the messages of the version contain the results, and the turn has a prompt."""
    run: ServerRun | None = None
    """The run that already has these answers: the client has lost the response, and repeats the request."""


async def resume_with_answers(
    access: Access, agent_name: str, dialogue: Dialogue, *, session_id: str | None, decided: ServedVersion | None
) -> Resumption | None:
    """Return the turn that the results and decisions of a request continue; `None` if the results are of unknown calls.

    Args:
        access: The access of the caller.
        agent_name: The agent that the request names.
        dialogue: The parsed request, with a result or a decision.
        session_id: The client's own session id.
        decided: The version of the decisions; `None` if there are none.

    Raises:
        ServerError: A call of the client has no result or two, a result belongs to a call that requires an approval, or a
            decision to another response.
    """
    version = decided
    if dialogue.results:
        version = await _paused_version(access, agent_name, dialogue, session_id=session_id)
    if version is None:
        return None
    names = {tool.name for tool in await version.external_tools()}
    records = await access.state.store.approvals(status=None, version_id=version.id, limit=_ALL)
    answers = _decisions_on(records, dialogue.decisions)
    results: dict[str, ClientResult] = {}
    for result in dialogue.results:
        if result.id in answers:
            raise ServerError('invalid', f'The call {result.id} has two answers. Send one for each call.')
        record = next((each for each in records if each.id not in answers and _is_answer(result, each)), None)
        if record is None:
            return None
        if not is_client_call(record, names):
            raise ServerError(
                'invalid',
                f'The call {record.id} of {record.tool_name!r} needs a decision. Send it as the result of '
                '`approval_required`.',
            )
        answers[record.id] = result.decision
        results[record.pending_id] = result
    answered = [record for record in records if record.id in answers]
    missing = [each for each in records if each.status == 'pending' and each not in answered]
    ids = [each.id for each in missing if is_client_call(each, names)]
    if ids:
        raise ServerError(
            'invalid', f'These calls have no result: {", ".join(ids)}. Send a result for each call of the answer.'
        )
    if dialogue.prompt:
        return Resumption(version=await with_results(access, version, results), answers={})
    run = await _run_of_answers(access, answered, answers)
    if run is None and not dialogue.decisions and any(record.status != 'pending' for record in answered):
        version = await version.clone()
    return Resumption(version=version, answers={each.pending_id: answers[each.id] for each in answered}, run=run)


async def refuse_prompt_if_pending(access: Access, version: ServedVersion) -> None:
    """Refuse a prompt without the results and decisions that a version needs first.

    Raises:
        ServerError: Calls of the version are pending.
    """
    is_paused = version.state == 'awaiting_approval'
    store = access.state.store
    pending = await store.approvals(status='pending', version_id=version.id, limit=_ALL) if is_paused else ()
    if pending:
        calls = ', '.join(f'{record.id} of {record.tool_name!r}' for record in pending)
        raise ServerError(
            'conflict',
            f'The answer that the request continues has pending calls: {calls}. Send their results or decisions first, or '
            'continue an earlier answer.',
        )


def is_client_call(record: ApprovalRecord, names: set[str]) -> bool:
    """Return whether a pending call is one of the client's tools, which only the main agent has."""
    return record.tool_name in names and record.path == '[]'


async def _run_of_answers(
    access: Access, records: Sequence[ApprovalRecord], answers: Mapping[str, Decision]
) -> ServerRun | None:
    """Return the run that these answers, keyed by the ids of the approvals, already resumed."""
    ids = {record.resumed_by for record in records}
    given = {record.id: InboxItem.from_record(record).decision for record in records}
    run_id = ids.pop() if given == answers and len(ids) == 1 else None
    return None if run_id is None else await access.state.runs.follow(run_id)  # it may be another server's


async def _paused_version(
    access: Access, agent_name: str, dialogue: Dialogue, *, session_id: str | None
) -> ServedVersion | None:
    """Return the version whose pending calls the results answer."""
    id = dialogue.results[0].id
    if id is None:
        known = await find_version(access, agent_name, dialogue, session_id=session_id)
        return None if known is None else known.version
    try:
        version = (await access.approval(id)).version
    except ServerError:  # a call from another server, or of another owner
        return None
    return version if version.agent_name == agent_name else None


def _decisions_on(records: Sequence[ApprovalRecord], decisions: Mapping[str, Decision]) -> dict[str, Decision]:
    unknown = decisions.keys() - {record.id for record in records}
    if unknown:
        raise ServerError('invalid', NOT_TOGETHER)
    return dict(decisions)


def _is_answer(result: ClientResult, record: ApprovalRecord) -> bool:
    return record.tool_name == result.name if result.id is None else record.id == result.id


async def with_results(access: Access, version: ServedVersion, results: Mapping[str, ClientResult]) -> ServedVersion:
    """Return a child of a paused version with results in its messages, so that a prompt can follow. Their calls are not
    pending any more.

    Args:
        access: The access of the caller.
        version: The paused version.
        results: The results, keyed by the `pending_id` of their calls.

    Raises:
        ServerError: Too many runs are active, so that the turn would be refused after the head has moved.
    """
    await access.state.runs.check_capacity(access.caller.account)
    store = access.state.store
    conversation = await store.conversation(version.conversation_id)
    is_head = conversation is not None and conversation.head_id == version.id
    records = await store.approvals(status=None, version_id=version.id, limit=_ALL)
    by_pending = {record.pending_id: record for record in records}
    parts = [result.part(by_pending[id].tool_name, id) for id, result in results.items()]
    try:
        child = await version.with_messages([*await version.messages(), ModelRequest(parts=parts)], moves_head=is_head)
    except VersionConflictError as error:  # another request has continued the version meanwhile
        child = await access.version(error.yours)
    for id, result in results.items():
        with suppress(ApprovalAnsweredError):  # by an earlier branch
            await ApprovalInbox(store).answer(by_pending[id].id, result.decision, by=access.owner)
    return child
