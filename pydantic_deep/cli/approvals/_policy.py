"""The modes of `--approvals` and the decisions they make about pending calls. The prompt is in `_prompter.py`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, TypeAlias

from pydantic_deep.approvals import (
    ApprovalRule,
    Approve,
    Decision,
    DecisionKind,
    Deny,
    Edit,
    InterruptOn,
    PendingApproval,
    Respond,
)
from pydantic_deep.cli.render._ids import short_id
from pydantic_deep.cli.render._next_command import next_command
from pydantic_deep.errors import DeepAgentError
from pydantic_deep.store import ApprovalRecord, Store, VersionFilter
from pydantic_deep.streaming import ApprovalAnswerEvent

GATED_TOOLS = ('write_file', 'edit_file', 'execute')
"""Tools that need approval: those that change files or run commands."""

WEB_TOOLS = ('web_search', 'web_fetch')
"""Tools of `--web`."""

DENIED_REASON = 'Nobody lets this call run: approvals are switched off. Go on without it.'
"""The tool result for calls denied by `--approvals=deny`."""

NO_TERMINAL_REASON = 'Nobody can be asked for approval here. Go on without this call, and say what you would have done.'
"""The tool result for calls denied because there is no terminal."""

NO_PERSON_REASON = 'Nobody can answer here. Decide yourself, and say what you assumed.'
"""The tool result for calls that `--approvals=allow` cannot approve."""

NO_TERMINAL_NOTICE = (
    'There is no terminal to ask at: calls that need an approval are denied. Use --approvals=allow to let them run, '
    'or --approvals=pause to answer them later.'
)
"""The notice about these denials, shown once per conversation."""

_DECISION_KINDS: Mapping[type[Decision], DecisionKind] = {
    Approve: 'approve',
    Edit: 'edit',
    Deny: 'deny',
    Respond: 'respond',
}


class NotPendingError(DeepAgentError):
    """A version has no pending approvals, was answered elsewhere, or there is no terminal for prompts."""


class ApprovalMode(StrEnum):
    """How to handle calls that need approval."""

    ask = 'ask'
    """Prompt at the terminal."""
    deny = 'deny'
    """Deny the call without a prompt."""
    pause = 'pause'
    """End the turn with pending approvals, to be resumed later."""
    allow = 'allow'
    """Run the call without a prompt."""


@dataclass(frozen=True, kw_only=True)
class CallAnswer:
    """The decision about one call, and who made it."""

    decision: Decision
    by: Literal['person', 'option']
    """Whether a person decided at the prompt, or the option `--approvals`."""


Decider: TypeAlias = Callable[[Sequence[PendingApproval]], Awaitable[Mapping[str, CallAnswer] | None]]
"""Decides all pending calls, by id; returns `None` to leave them pending. Raises `RunCancelled` to stop the turn."""


async def allow_all(pending: Sequence[PendingApproval]) -> Mapping[str, CallAnswer]:
    """Approve every call that can be approved, and deny the others, such as questions."""
    decisions: dict[str, Decision] = {
        call.id: Approve(digest=call.digest) if 'approve' in call.decisions else Deny(NO_PERSON_REASON)
        for call in pending
    }
    return {id: CallAnswer(decision=decision, by='option') for id, decision in decisions.items()}


async def deny_all(pending: Sequence[PendingApproval], reason: str = DENIED_REASON) -> Mapping[str, CallAnswer]:
    """Deny every call."""
    return {call.id: CallAnswer(decision=Deny(reason), by='option') for call in pending}


async def pause_all(pending: Sequence[PendingApproval]) -> None:
    """Leave every call pending."""


def interrupt_on(
    mode: ApprovalMode, *, runs_commands: bool, has_web: bool, rules: InterruptOn
) -> dict[str, bool | ApprovalRule]:
    """Return the argument `interrupt_on` of `create_deep_agent` for a mode.

    Args:
        mode: The mode.
        runs_commands: Whether the agent runs commands.
        has_web: Whether the agent has the tools for the web.
        rules: The rules of the configuration.
    """
    gated = dict.fromkeys(GATED_TOOLS, mode is not ApprovalMode.allow)
    absent = {*(() if runs_commands else ('execute',)), *(() if has_web else WEB_TOOLS)}
    return {name: rule for name, rule in {**gated, **rules}.items() if name not in absent}


def answer_event(id: str, answer: CallAnswer, *, answered_by: str | None = None) -> ApprovalAnswerEvent:
    """Return the event that reports an answer.

    Args:
        id: The id of the call.
        answer: The answer.
        answered_by: The person who answered the call elsewhere first, if any.
    """
    decision = answer.decision
    reason = decision.reason if isinstance(decision, Deny) else None
    args = dict(decision.args) if isinstance(decision, Edit) else None
    return ApprovalAnswerEvent(
        id=id, decision=_DECISION_KINDS[type(decision)], by=answer.by, reason=reason, args=args, answered_by=answered_by
    )


async def check_unanswered(store: Store, version_id: str, approvals: Sequence[ApprovalRecord]) -> None:
    """Check that no run has resumed a version.

    Args:
        store: The store of the version.
        version_id: The id of the version.
        approvals: All approvals of the version, answered ones included.

    Raises:
        NotPendingError: A run has resumed it. The message names the newest version of the run.
    """
    resumed = next((approval for approval in approvals if approval.resumed_by is not None), None)
    if resumed is None:
        return
    by = f' by {resumed.decided_by}' if resumed.decided_by else ''
    newest = await store.versions(VersionFilter(run_id=resumed.resumed_by), limit=1)
    command = next_command('show', short_id(newest[0].id)) if newest else next_command('log', '--steps')
    raise NotPendingError(
        f'The version {short_id(version_id)} was answered{by}, and a run has resumed it. Show its progress with: '
        f'{command}'
    )
