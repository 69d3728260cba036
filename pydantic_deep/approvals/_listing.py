"""What waits, as one flat list: the tree of calls and delegations in the metadata of `DeferredToolRequests`. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any, cast

from pydantic_ai import AgentRunResult, DeferredToolRequests
from pydantic_ai.conversation import Conversation
from pydantic_ai.messages import ToolCallPart

from pydantic_deep._messages.deferred_metadata import CallRequest, DecisionKind, DelegationRequest, parse_request

from ._errors import MalformedApprovalError
from ._types import PendingApproval

MAX_DEPTH = 32
"""How deep delegations may be nested in what waits. Agents have one to three; JSON of this depth is still read."""

EXTERNAL_DECISIONS: tuple[DecisionKind, ...] = ('deny', 'respond')
"""What may be answered to a call that is not run here: its result, or that it failed."""

UNGATED_DECISIONS: tuple[DecisionKind, ...] = ('approve', 'edit', 'deny')
"""What may be answered to a call of an agent without `Approvals`, where nobody would deliver a response."""


def pending_approvals(output: object) -> list[PendingApproval]:
    """Return all calls that wait for a person, of the agent and of its subagents, in the order of the calls.

    Calls of external tools are among them: they take `Respond` with the result, and `Deny`.

    Args:
        output: What a run returned, or `conversation.deferred_tool_requests`. Nothing waits in anything that is no
            `DeferredToolRequests`.

    Raises:
        TypeError: It is a result or a conversation, in which something may wait, and not the output of it.
        MalformedApprovalError: Something pending is not what this release writes.
    """
    if isinstance(output, (AgentRunResult, Conversation)):
        wanted = 'output' if isinstance(output, AgentRunResult) else 'deferred_tool_requests'
        raise TypeError(f'`output` is {type(cast("object", output)).__name__}. Pass its `.{wanted}`.')
    return list(_flatten(output, ids=(), names=())) if isinstance(output, DeferredToolRequests) else []


def request_of(requests: DeferredToolRequests, call: ToolCallPart) -> CallRequest | DelegationRequest | None:
    """Return what a pending call carries; `None` if nothing of ours.

    Raises:
        MalformedApprovalError: It is not what this release writes.
    """
    try:
        return parse_request(requests.metadata.get(call.tool_call_id))
    except ValueError as error:
        raise MalformedApprovalError(
            f'The pending call {call.tool_call_id[:200]!r} of {call.tool_name[:200]!r} cannot be read: {error}'
        ) from error


def arguments_of(call: ToolCallPart, request: CallRequest | None) -> dict[str, Any]:
    """Return the arguments that a pending call would run with."""
    return request.edited if request is not None and request.edited is not None else call.args_as_dict()


def digest_of(call: ToolCallPart) -> str:
    """Return what tells a call from one of another tool or with other arguments."""
    canonical = json.dumps([call.tool_name, call.args_as_dict()], sort_keys=True, default=repr)
    return hashlib.sha256(canonical.encode()).hexdigest()


def check_depth(ids: tuple[str, ...]) -> None:
    """Refuse what is nested deeper than any agent nests.

    Raises:
        MalformedApprovalError: It is.
    """
    if len(ids) > MAX_DEPTH:
        raise MalformedApprovalError(f'Delegations are nested more than {MAX_DEPTH} deep in what is pending.')


def check_unique(requests: DeferredToolRequests) -> None:
    """Refuse two pending calls of one agent with the same id: an answer would be for both.

    Raises:
        MalformedApprovalError: There are such.
    """
    seen: set[str] = set()
    for call in (*requests.approvals, *requests.calls):
        if call.tool_call_id in seen:
            raise MalformedApprovalError(f'Two pending calls have the id {call.tool_call_id[:200]!r}.')
        seen.add(call.tool_call_id)


def id_of(ids: tuple[str, ...]) -> str:
    """Return the name of a call in the tree, from the ids of the calls that lead to it and its own.

    A slash in an id cannot be taken for one between two: it is written `%2F`, and a percent sign `%25`.
    """
    return '/'.join(part.replace('%', '%25').replace('/', '%2F') for part in ids)


def _flatten(
    requests: DeferredToolRequests, *, ids: tuple[str, ...], names: tuple[str, ...]
) -> Iterator[PendingApproval]:
    check_depth(ids)
    check_unique(requests)
    for call in requests.approvals:
        request = request_of(requests, call)
        if isinstance(request, DelegationRequest):
            yield from _flatten(request.requests, ids=(*ids, call.tool_call_id), names=(*names, request.subagent))
        else:
            yield _pending(call, ids, names, request=request or CallRequest(decisions=UNGATED_DECISIONS))
    for call in requests.calls:
        yield _pending(call, ids, names, request=CallRequest(decisions=EXTERNAL_DECISIONS))


def _pending(
    call: ToolCallPart,
    ids: tuple[str, ...],
    names: tuple[str, ...],
    *,
    request: CallRequest,
) -> PendingApproval:
    return PendingApproval(
        id=id_of((*ids, call.tool_call_id)),
        path=names,
        tool=call.tool_name,
        arguments=arguments_of(call, request),
        tool_call_id=call.tool_call_id,
        preview=request.preview,
        decisions=request.decisions,
    )
