"""List pending calls of an agent and its subagents, from the metadata of `DeferredToolRequests`. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any, cast

from pydantic_ai import AgentRunResult, DeferredToolRequests
from pydantic_ai.conversation import Conversation
from pydantic_ai.messages import ToolCallPart

from pydantic_deep._messages.call_ids import nested_call_id
from pydantic_deep._messages.deferred_metadata import CallRequest, DecisionKind, DelegationRequest, parse_request

from ._errors import MalformedApprovalError
from ._types import PendingApproval

MAX_DEPTH = 32
"""Maximum depth of nested delegations in pending calls. Agents use one to three levels; JSON of this depth still
parses.
"""

EXTERNAL_DECISIONS: tuple[DecisionKind, ...] = ('deny', 'respond')
"""Decisions for a call that runs elsewhere: its result, or a failure."""

UNGATED_DECISIONS: tuple[DecisionKind, ...] = ('approve', 'edit', 'deny')
"""Decisions for a call of an agent without `Approvals`, which could not return a response."""


def pending_approvals(output: object) -> list[PendingApproval]:
    """Return all pending calls of the agent and its subagents, in the order of the calls.

    The list includes calls of external tools. These accept `Respond`, with the result, and `Deny`.

    Args:
        output: The output of a run, or `conversation.deferred_tool_requests`. Values other than `DeferredToolRequests`
            have no pending calls.

    Raises:
        TypeError: `output` is a run result or a conversation. Pass its output instead.
        MalformedApprovalError: The metadata of a pending call has an unknown format.
    """
    if isinstance(output, (AgentRunResult, Conversation)):
        wanted = 'output' if isinstance(output, AgentRunResult) else 'deferred_tool_requests'
        raise TypeError(f'`output` is {type(cast("object", output)).__name__}. Pass its `.{wanted}`.')
    return list(_flatten(output, ids=(), names=())) if isinstance(output, DeferredToolRequests) else []


def request_of(requests: DeferredToolRequests, call: ToolCallPart) -> CallRequest | DelegationRequest | None:
    """Return the approval request in the metadata of a pending call; `None` if it has none.

    Raises:
        MalformedApprovalError: The metadata has an unknown format.
    """
    try:
        return parse_request(requests.metadata.get(call.tool_call_id))
    except ValueError as error:
        raise MalformedApprovalError(
            f'The pending call {call.tool_call_id[:200]!r} of {call.tool_name[:200]!r} cannot be read: {error}'
        ) from error


def arguments_of(call: ToolCallPart, request: CallRequest | None) -> dict[str, Any]:
    """Return the arguments with which a pending call would run."""
    return request.edited if request is not None and request.edited is not None else call.args_as_dict()


def digest_of(call: ToolCallPart) -> str:
    """Return a digest of the tool name and the arguments of a call."""
    canonical = json.dumps([call.tool_name, call.args_as_dict()], sort_keys=True, default=repr)
    return hashlib.sha256(canonical.encode()).hexdigest()


def check_depth(ids: tuple[str, ...]) -> None:
    """Raise if delegations are nested too deeply.

    Raises:
        MalformedApprovalError: The depth exceeds `MAX_DEPTH`.
    """
    if len(ids) > MAX_DEPTH:
        raise MalformedApprovalError(f'The pending calls are nested more than {MAX_DEPTH} delegations deep.')


def check_unique(requests: DeferredToolRequests) -> None:
    """Raise if two pending calls of one agent have the same id: an answer would apply to both.

    Raises:
        MalformedApprovalError: An id occurs twice.
    """
    seen: set[str] = set()
    for call in (*requests.approvals, *requests.calls):
        if call.tool_call_id in seen:
            raise MalformedApprovalError(f'Two pending calls have the id {call.tool_call_id[:200]!r}.')
        seen.add(call.tool_call_id)


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
        id=nested_call_id(*ids, call.tool_call_id),
        path=names,
        tool=call.tool_name,
        arguments=arguments_of(call, request),
        tool_call_id=call.tool_call_id,
        preview=request.preview,
        decisions=request.decisions,
    )
