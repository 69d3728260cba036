"""Going on with a version that waits for a person, in whatever process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import TypeAlias

from pydantic_deep.approvals import PendingApproval
from pydantic_deep.cli._environment import Surroundings
from pydantic_deep.cli.approvals._policy import Answer, ApprovalMode, Decide, NotWaitingError, refuse_answered
from pydantic_deep.cli.approvals._prompter import Asker, Stage
from pydantic_deep.cli.history._revisions import DIRECTORY, Names, shown_id
from pydantic_deep.cli.history._turn_lineages import Turns, is_waiting
from pydantic_deep.cli.turn._conversation import open_conversation, settings_of
from pydantic_deep.cli.turn._failures import EXIT_CODES
from pydantic_deep.cli.turn._runner import Turn, resume_turn
from pydantic_deep.cli.turn._runtime import check_worker, open_worker
from pydantic_deep.cli.turn._turn_presenter import DecideOn, decide_by
from pydantic_deep.store import ApprovalRecord, Store, VersionFilter, VersionRecord

Present: TypeAlias = Callable[..., Awaitable[Turn]]
"""`present_to_person` or `present_to_program`."""


@dataclass(frozen=True, kw_only=True)
class Resumption:
    """What a person wants of a turn that waits."""

    approvals: ApprovalMode
    """What happens to calls that wait. Under `pause` those of the version are asked, and later ones wait again."""
    model: str | None
    """Another model than before."""
    max_tokens: int | None
    """Another budget than before, for what was used already and what comes."""
    max_cost: Decimal | None
    """Another one in US dollars, likewise."""

    async def run(
        self,
        record: VersionRecord,
        store: Store,
        surroundings: Surroundings,
        present: Present,
        *,
        notify: Callable[[str], None],
    ) -> int:
        """Ask what waits, go on, and return the exit code.

        Raises:
            NotWaitingError: There is nothing to answer, or nobody to ask.
            ForeignVersionError: Another program made the version.
            UnusableModelError: There is no model to work with.
            BackendError: Commands cannot be isolated, or the directory is gone.
        """
        approvals = await store.approvals(status=None, version_id=record.id, limit=10_000)
        await self._check(record, store, approvals, surroundings)
        chosen = {'model': self.model, 'max_tokens': self.max_tokens, 'max_cost': self.max_cost}
        settings = settings_of(record).model_copy(update={name: value for name, value in chosen.items() if value})
        worker = open_worker(surroundings, settings, approvals=self.approvals)
        await check_worker(worker)
        conversation = open_conversation(worker, settings, store)
        await conversation.go_on_with(record)
        task = await Turns(store=store).prompt(record) or ''
        turn = await present(
            worker,
            partial(resume_turn, conversation, task),
            decide_on=self._decide_on(surroundings, is_asked=_is_asked(approvals)),
        )
        if turn.result.status not in ('done', 'paused') and not turn.says_how:
            if turn.has_answered:
                notify('What was answered may have run. Go on from there with: pydantic-deep run --continue')
            else:
                notify(f'Nothing was answered. {shown_id(record.id)} waits on.')
        return EXIT_CODES[turn.result.status]

    async def _check(
        self, record: VersionRecord, store: Store, approvals: Sequence[ApprovalRecord], surroundings: Surroundings
    ) -> None:
        """Refuse to begin where nothing can be answered."""
        name = shown_id(record.id)
        if record.state != 'awaiting_approval':
            raise NotWaitingError(f'The version {name} waits for nothing: it is {record.state}.')
        await refuse_answered(store, record.id, approvals)
        if _is_asked(approvals) and self.approvals in (ApprovalMode.ask, ApprovalMode.pause):
            with surroundings.open_terminal() as terminal:
                if terminal is None:
                    raise NotWaitingError(
                        'There is no terminal to ask at. Resume at a terminal, with --approvals=allow or '
                        f'--approvals=deny, or answer with `pydantic-deep approvals answer`. {name} waits on.'
                    )

    def _decide_on(self, surroundings: Surroundings, *, is_asked: bool) -> DecideOn:
        asker = Asker(surroundings=surroundings)
        first = decide_by(ApprovalMode.ask if self.approvals is ApprovalMode.pause else self.approvals, asker)
        later = decide_by(self.approvals, asker)
        is_first = is_asked

        def decide_on(stage: Stage) -> Decide:
            async def decide(pending: Sequence[PendingApproval]) -> Mapping[str, Answer] | None:
                nonlocal is_first
                decide_now, is_first = (first if is_first else later), False
                return await decide_now(stage)(pending)

            return decide

        return decide_on


def _is_asked(approvals: Sequence[ApprovalRecord]) -> bool:
    """Return whether something has no answer yet."""
    return any(each.status == 'pending' for each in approvals)


async def find_waiting(names: Names) -> VersionRecord:
    """Return the newest version of a directory that waits for a person.

    Raises:
        NotWaitingError: There is none.
    """
    waiting = names.walk(VersionFilter(metadata={DIRECTORY: names.directory}, states=['awaiting_approval']))
    async for record in waiting:
        if await is_waiting(names.store, record):
            return record
    raise NotWaitingError(f'Nothing that ran in {names.directory} waits for an approval.')
