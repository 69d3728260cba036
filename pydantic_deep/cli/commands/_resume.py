"""Resuming a version with pending approvals, from any process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TypeAlias

from pydantic_deep.approvals import PendingApproval
from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.approvals._policy import ApprovalMode, CallAnswer, Decider, NotPendingError
from pydantic_deep.cli.approvals._prompter import ApprovalPrompter, PromptScreen
from pydantic_deep.cli.configuration._effective import load_extras
from pydantic_deep.cli.history._pending import can_finish, check_pending
from pydantic_deep.cli.render._ids import short_id
from pydantic_deep.cli.turn._conversation import open_conversation, settings_of
from pydantic_deep.cli.turn._failures import EXIT_CODES
from pydantic_deep.cli.turn._memory import with_memory
from pydantic_deep.cli.turn._runner import TurnReport, recover_turn, resume_turn
from pydantic_deep.cli.turn._runtime import check_runtime, create_runtime
from pydantic_deep.cli.turn._turn_presenter import DeciderFactory, decider_for
from pydantic_deep.store import ApprovalRecord, Store, VersionRecord
from pydantic_deep.versions import suspended_runs
from pydantic_deep.views import TurnLineages

Presenter: TypeAlias = Callable[..., Awaitable[TurnReport]]
"""Runs and presents a turn: `present_as_text` or `present_as_json`."""


@dataclass(frozen=True, kw_only=True)
class Resumption:
    """The options of `resume`."""

    approvals: ApprovalMode
    """How to handle pending calls. `pause` asks about those of the version, and pauses again for later ones."""
    agent: str | None = None
    """The user's agent that the turn ran with, if any."""
    model: str | None
    """The model to use instead of the original one."""
    max_tokens: int | None
    """Token budget of the whole turn, including tokens already used. Default: the original budget."""
    max_cost: Decimal | None
    """Cost budget of the whole turn in US dollars, including the cost so far. Default: the original budget."""
    mcp_config: Sequence[Path] = ()
    """Files with MCP servers."""
    no_project_config: bool = False
    """Whether to ignore the configuration files of the project."""

    async def run(
        self,
        record: VersionRecord,
        store: Store,
        environment: Environment,
        present: Presenter,
        *,
        notify: Callable[[str], None],
    ) -> int:
        """Ask about pending approvals, resume the turn, and return the exit code.

        Raises:
            NotPendingError: Nothing is pending, or there is no terminal for prompts.
            ForeignVersionError: Another program created the version.
            UnusableModelError: The model cannot be used.
            ConfigurationError: A configuration file is invalid or not trusted.
            BackendError: Commands cannot be isolated, or the directory does not exist.
        """
        suspended = await suspended_runs(store, conversation_id=record.conversation_id)
        is_suspended = any(can_finish(run, record) for run in suspended)
        has_pending = not is_suspended and _has_pending(await check_pending(store, record))
        if has_pending or (is_suspended and self.approvals is ApprovalMode.ask):
            self._check_terminal(record, environment, 'still pending' if has_pending else 'unchanged')
        chosen = {'model': self.model, 'max_tokens': self.max_tokens, 'max_cost': self.max_cost}
        settings = settings_of(record).model_copy(update={name: value for name, value in chosen.items() if value})
        extras = await load_extras(environment, settings, self.mcp_config, no_project_config=self.no_project_config)
        runtime = create_runtime(environment, settings, approvals=self.approvals, own_agent=self.agent, extras=extras)
        await check_runtime(runtime)
        runtime = await with_memory(runtime, settings, store)
        conversation = open_conversation(runtime, settings, store)
        run = await conversation.select_suspended(record) if is_suspended else None
        if run is None:
            await check_pending(store, record)  # of a suspended run, its agent has another name
            await conversation.resume_from(record)
        task = await TurnLineages(store=store).prompt(record) or ''
        turn = await present(
            runtime,
            partial(resume_turn, conversation, task) if run is None else partial(recover_turn, conversation, run.id),
            make_decider=self._make_decider(environment, has_pending=has_pending),
        )
        if (
            turn.exit_code not in (EXIT_CODES['complete'], EXIT_CODES['awaiting_approval'])
            and not turn.has_next_command
        ):
            if run is not None or turn.has_answered:
                notify('Answered calls may have run. Continue with: pydantic-deep run --continue TASK')
            else:
                notify(f'No answers given; {short_id(record.id)} is still pending.')
        return turn.exit_code

    def _check_terminal(self, record: VersionRecord, environment: Environment, state: str) -> None:
        """Raise `NotPendingError` if a person has to be asked and there is no terminal."""
        if self.approvals not in (ApprovalMode.ask, ApprovalMode.pause):
            return
        with environment.open_terminal() as terminal:
            if terminal is None:
                raise NotPendingError(
                    'There is no terminal to ask at. Resume at a terminal, with --approvals=allow or '
                    '--approvals=deny, or answer with `pydantic-deep approvals answer`. '
                    f'{short_id(record.id)} is {state}.'
                )

    def _make_decider(self, environment: Environment, *, has_pending: bool) -> DeciderFactory:
        prompter = ApprovalPrompter(environment=environment)
        first = decider_for(ApprovalMode.ask if self.approvals is ApprovalMode.pause else self.approvals, prompter)
        later = decider_for(self.approvals, prompter)
        is_first = has_pending

        def make_decider(screen: PromptScreen) -> Decider:
            async def decide(pending: Sequence[PendingApproval]) -> Mapping[str, CallAnswer] | None:
                nonlocal is_first
                decide_now, is_first = (first if is_first else later), False
                return await decide_now(screen)(pending)

            return decide

        return make_decider


def _has_pending(approvals: Sequence[ApprovalRecord]) -> bool:
    """Return whether an approval has no answer yet."""
    return any(approval.status == 'pending' for approval in approvals)
