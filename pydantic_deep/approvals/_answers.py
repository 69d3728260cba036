"""Convert a person's decisions into `DeferredToolResults` for the agent and its subagents. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from pydantic import JsonValue
from pydantic_ai import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import ToolCallPart, ToolReturn
from pydantic_core import from_json

from pydantic_deep._checks import check_object
from pydantic_deep._messages.call_ids import nested_call_id
from pydantic_deep._messages.deferred_metadata import (
    KEY,
    Answered,
    Approved,
    CallRequest,
    DecisionKind,
    DelegationAnswers,
    DelegationRequest,
    Edited,
    Responded,
    StillPending,
    dump,
)
from pydantic_deep._messages.form_fields import read_answer

from ._errors import (
    ApprovalChangedError,
    InvalidDecisionError,
    NothingPendingError,
    UnansweredApprovalError,
    UnknownApprovalError,
)
from ._listing import digest_of, pending_approvals, request_of
from ._model_notes import ANSWERED
from ._types import Approve, Decision, Deny, Edit, PendingApproval, Respond

_KINDS: dict[type[Decision], DecisionKind] = {Approve: 'approve', Edit: 'edit', Deny: 'deny', Respond: 'respond'}

_MAX_NAMED = 10
"""Maximum number of pending calls that an error message lists."""


NOTHING_TO_RUN: dict[str, Any] = {KEY: 'This call is not to run. The agent needs `Approvals`.'}
"""Arguments for a call that must not run: pydantic-ai can carry our metadata only with an approval.

`Approvals` recognizes such a call by its metadata. Without `Approvals`, validation fails, as no tool takes these
arguments.
"""


def answer_approvals(output: object, decisions: Mapping[str, Decision]) -> DeferredToolResults:
    """Return the `deferred_tool_results` with which `agent.run` resumes after these decisions.

    Calls without a decision stay pending: the next run ends with them again, and they do not run meanwhile.

    Args:
        output: The output of a run, or `conversation.deferred_tool_requests`.
        decisions: Decisions, keyed by the `id` of each `PendingApproval`.

    Raises:
        NothingPendingError: `output` has no pending calls.
        UnknownApprovalError: No pending call has this id.
        InvalidDecisionError: The call does not accept this decision, or its content is not valid JSON.
        ApprovalChangedError: The digest of the decision belongs to a different call than the pending one.
        UnansweredApprovalError: A call without a decision cannot stay pending: it belongs to an external tool, or to an
            agent without `Approvals`.
        MalformedApprovalError: The metadata of a pending call has an unknown format.
    """
    return _results(check_decisions(output, decisions), decisions, ids=())


def check_decisions(output: object, decisions: Mapping[str, Decision]) -> DeferredToolRequests:
    """Check decisions before they are stored, and return the pending calls. Other calls may be decided later.

    Args:
        output: As for `answer_approvals`.
        decisions: As for `answer_approvals`.

    Raises:
        NothingPendingError: `output` has no pending calls.
        UnknownApprovalError: No pending call has this id.
        InvalidDecisionError: The call does not accept this decision, or its content is not valid JSON.
        ApprovalChangedError: The digest of the decision belongs to a different call than the pending one.
        MalformedApprovalError: The metadata of a pending call has an unknown format.
    """
    pending = {approval.id: approval for approval in pending_approvals(output)}
    if not isinstance(output, DeferredToolRequests) or not pending:
        raise NothingPendingError(
            f'Nothing is pending in this {type(output).__name__}. Pass the `DeferredToolRequests` that a run returned.'
        )
    check_object('answers', decisions, Mapping, 'Pass the answers by the ids of the calls: `{id: Approve()}`.')
    for id, decision in decisions.items():
        _check(id, decision, pending)
    return output


def _check(id: str, decision: object, pending: Mapping[str, PendingApproval]) -> None:
    """Raise if a decision does not match a pending call."""
    if id not in pending:
        named = ', '.join(map(repr, list(pending)[:_MAX_NAMED]))
        more = f' and {len(pending) - _MAX_NAMED} more' if len(pending) > _MAX_NAMED else ''
        raise UnknownApprovalError(id, f'No pending call has the id {id!r}. Pending: {named}{more}.')
    if not isinstance(decision, (Approve, Edit, Deny, Respond)):
        raise InvalidDecisionError(
            id,
            f'The answer to {id!r} is {decision!r}, which is not a decision. '
            'Answer with `Approve()`, `Edit(args)`, `Deny(reason)` or `Respond(content)`.',
        )
    if decision.digest is not None and decision.digest != pending[id].digest:
        raise ApprovalChangedError(id, shown=decision.digest, digest=pending[id].digest)
    kind = next(kind for decision_type, kind in _KINDS.items() if isinstance(decision, decision_type))
    if kind not in pending[id].decisions:
        allowed = ', '.join(pending[id].decisions)
        raise InvalidDecisionError(
            id, f'The call {id!r} of {pending[id].tool!r} cannot be answered by {kind}. It takes: {allowed}.'
        )
    _check_content(id, decision)
    preview = pending[id].preview
    if isinstance(decision, Respond) and preview is not None and preview.has_form:
        try:
            read_answer(preview.fields, decision.content)
        except ValueError as error:
            raise InvalidDecisionError(id, f'The answer to {id!r} is not valid. {error}') from error


def _check_content(id: str, decision: Decision) -> None:
    """Raise if the content of a decision does not survive a JSON round trip."""
    try:
        match decision:
            case Edit():
                if not isinstance(cast('object', decision.args), Mapping):
                    raise TypeError(
                        f'{type(decision.args).__name__} is not an object. Pass all arguments in a dictionary'
                    )
                _check_json(dict(decision.args))
            case Respond():
                _check_json(decision.content)
            case Deny():
                _check_text(decision.reason)
            case _:
                pass
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidDecisionError(id, f'The answer to {id!r} is not valid JSON: {error}') from error


def _check_json(value: JsonValue) -> None:
    """Raise if a value does not survive a JSON round trip, including values that are nested too deeply to parse."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False)
    if from_json(text.encode()) != value:
        raise ValueError(f'{repr(value)[:200]} is serialized as {text[:200]}')


def _check_text(value: object) -> None:
    if not isinstance(value, str):
        raise TypeError(f'{repr(value)[:200]} is not a string')
    _check_json(value)


def _results(
    requests: DeferredToolRequests, decisions: Mapping[str, Decision], *, ids: tuple[str, ...]
) -> DeferredToolResults:
    """Return the results for the calls of one agent and, in the metadata, for those of its subagents."""
    results = DeferredToolResults()
    missing: list[str] = []
    for call in requests.approvals:
        request = request_of(requests, call)
        metadata = requests.metadata.get(call.tool_call_id, {})
        at = (*ids, call.tool_call_id)
        decision = decisions.get(nested_call_id(*at))
        if isinstance(request, DelegationRequest):
            answer = _delegation(request, metadata, decisions, ids=at)
            results.approvals[call.tool_call_id] = ToolApproved(override_args=request.edited)
            results.metadata[call.tool_call_id] = dump(answer)
        elif decision is not None:
            _answer(results, call, request, metadata, decision)
        elif request is not None:
            results.approvals[call.tool_call_id] = ToolApproved(override_args=NOTHING_TO_RUN)
            results.metadata[call.tool_call_id] = dump(StillPending(request=metadata))
        else:
            missing.append(nested_call_id(*at))
    for call in requests.calls:
        decision = decisions.get(nested_call_id(*ids, call.tool_call_id))
        if isinstance(decision, Respond):
            results.calls[call.tool_call_id] = ToolReturn[Any](decision.content, metadata=ANSWERED)
        elif isinstance(decision, Deny):
            results.calls[call.tool_call_id] = ToolFailed(decision.reason)
        else:
            missing.append(nested_call_id(*ids, call.tool_call_id))
    if missing:
        raise UnansweredApprovalError(
            tuple(missing),
            f'These calls cannot stay pending without an answer: {", ".join(map(repr, missing))}. Answer all of them, or add '
            '`Approvals` to the agent; calls of external tools always need an answer.',
        )
    return results


def _delegation(
    request: DelegationRequest, metadata: dict[str, Any], decisions: Mapping[str, Decision], *, ids: tuple[str, ...]
) -> StillPending | DelegationAnswers:
    """Return the answers for the calls of a subagent, or `StillPending` if there are none."""
    prefix = f'{nested_call_id(*ids)}/'
    if not any(id.startswith(prefix) for id in decisions):
        return StillPending(request=metadata)
    return DelegationAnswers(request=request, results=_results(request.requests, decisions, ids=ids))


def _answer(
    results: DeferredToolResults,
    call: ToolCallPart,
    request: CallRequest | None,
    metadata: dict[str, Any],
    decision: Decision,
) -> None:
    """Add the result of one answered call."""
    id = call.tool_call_id
    edited = request.edited if request is not None else None
    match decision:
        case Deny() | Respond() if request is not None and request.has_begun:
            content = decision.content if isinstance(decision, Respond) else None
            answer = Answered(request=metadata, content=content, is_declined=isinstance(decision, Deny))
            results.approvals[id] = ToolApproved(override_args=edited)
            results.metadata[id] = dump(answer)
        case Approve() if edited is not None:
            _edit(results, call, metadata, edited)
        case Approve():
            results.approvals[id] = ToolApproved()
            results.metadata[id] = dump(Approved(request=metadata, shown=digest_of(call)))
        case Edit():
            _edit(results, call, metadata, dict(decision.args))
        case Deny():
            results.approvals[id] = ToolDenied(decision.reason)
        case _:
            results.approvals[id] = ToolApproved(override_args=NOTHING_TO_RUN)
            results.metadata[id] = dump(Responded(content=decision.content))


def _edit(
    results: DeferredToolResults, call: ToolCallPart, metadata: dict[str, Any], args: dict[str, JsonValue]
) -> None:
    """Add the result of a call that runs with edited arguments."""
    results.approvals[call.tool_call_id] = ToolApproved(override_args=args)
    edited = Edited(request=metadata, args=args, shown=digest_of(replace(call, args=args)))
    results.metadata[call.tool_call_id] = dump(edited)
