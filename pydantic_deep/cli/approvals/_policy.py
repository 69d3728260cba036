"""The modes of `--approvals` and the decisions they make about pending calls. The prompt is in `_prompter.py`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, TypeAlias

from pydantic_deep.approvals import Approve, Decision, DecisionKind, Deny, Edit, PendingApproval, Respond
from pydantic_deep.cli.render._ids import short_id
from pydantic_deep.errors import DeepAgentError
from pydantic_deep.store import ApprovalRecord, Store, VersionFilter
from pydantic_deep.streaming import ApprovalAnswerEvent

GATED_TOOLS = ('write_file', 'edit_file', 'execute')
"""What asks: the tools that change something."""

DENIED_REASON = 'Nobody lets this call run: approvals are switched off. Go on without it.'
"""What the model is told under `--approvals=deny`."""

NO_TERMINAL_REASON = 'Nobody can be asked for approval here. Go on without this call, and say what you would have done.'
"""What the model is told where there is no terminal."""

NO_TERMINAL_NOTICE = (
    'There is no terminal to ask at: calls that need an approval are denied. Use --approvals=allow to let them run, '
    'or --approvals=pause to answer them later.'
)
"""What the person is told then, once."""

_DECISION_KINDS: Mapping[type[Decision], DecisionKind] = {
    Approve: 'approve',
    Edit: 'edit',
    Deny: 'deny',
    Respond: 'respond',
}


class NotPendingError(DeepAgentError):
    """A version has no pending approvals, was answered elsewhere, or there is no terminal to ask at."""


class ApprovalMode(StrEnum):
    """What happens to a call that needs an approval."""

    ask = 'ask'
    """A person is asked at the terminal."""
    deny = 'deny'
    """It is denied."""
    pause = 'pause'
    """The turn ends, to be resumed from a file."""
    allow = 'allow'
    """It runs."""


class ChatApprovalMode(StrEnum):
    """The same for a chat, which ends when the person leaves and cannot be resumed."""

    ask = 'ask'
    deny = 'deny'
    allow = 'allow'


@dataclass(frozen=True, kw_only=True)
class CallAnswer:
    """The decision about one call, and who made it."""

    decision: Decision
    by: Literal['person', 'option']
    """Whose decision it is."""


Decider: TypeAlias = Callable[[Sequence[PendingApproval]], Awaitable[Mapping[str, CallAnswer] | None]]
"""Decides all pending calls, by id; returns `None` to leave them pending. Raises `RunCancelled` to stop the turn."""


async def allow_all(pending: Sequence[PendingApproval]) -> Mapping[str, CallAnswer]:
    """Let every call run."""
    return {call.id: CallAnswer(decision=Approve(digest=call.digest), by='option') for call in pending}


async def deny_all(pending: Sequence[PendingApproval], reason: str = DENIED_REASON) -> Mapping[str, CallAnswer]:
    """Deny every call."""
    return {call.id: CallAnswer(decision=Deny(reason), by='option') for call in pending}


async def pause_all(pending: Sequence[PendingApproval]) -> None:
    """Let every call wait."""


def interrupt_on(mode: ApprovalMode, *, runs_commands: bool) -> dict[str, bool]:
    """Return what `create_deep_agent(interrupt_on=…)` takes."""
    tools = GATED_TOOLS if runs_commands else GATED_TOOLS[:2]
    return dict.fromkeys(tools, mode is not ApprovalMode.allow)


def answer_event(id: str, answer: CallAnswer, *, answered_by: str | None = None) -> ApprovalAnswerEvent:
    """Return the event that reports an answer.

    Args:
        id: The id of the call.
        answer: The answer.
        answered_by: Who answered the call elsewhere first, if somebody did.
    """
    decision = answer.decision
    reason = decision.reason if isinstance(decision, Deny) else None
    args = dict(decision.args) if isinstance(decision, Edit) else None
    return ApprovalAnswerEvent(
        id=id, decision=_DECISION_KINDS[type(decision)], by=answer.by, reason=reason, args=args, answered_by=answered_by
    )


async def check_unanswered(store: Store, version_id: str, approvals: Sequence[ApprovalRecord]) -> None:
    """Check that no run has resumed with the answers of a version yet.

    Args:
        store: Where it is.
        version_id: The version.
        approvals: Its approvals, all of them.

    Raises:
        NotPendingError: A run has. The message names its newest version.
    """
    done = next((each for each in approvals if each.resumed_by is not None), None)
    if done is None:
        return
    by = f' by {done.decided_by}' if done.decided_by else ''
    made = await store.versions(VersionFilter(run_id=done.resumed_by), limit=1)
    how = f'pydantic-deep show {short_id(made[0].id)}' if made else 'pydantic-deep log --steps'
    raise NotPendingError(
        f'The version {short_id(version_id)} was answered{by}, and a run has resumed it. Show its progress with: {how}'
    )
