"""Going on with a turn that waits in a file, in whatever process; and how a turn comes into one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

from pydantic_ai import Conversation

from pydantic_deep.approvals import PendingApproval

from ._approvals import Answer, ApprovalMode, Decide
from ._ask import Asker, Stage
from ._failures import EXIT_CODES
from ._paused import Claim, PausedTurn, UnusablePauseError
from ._present import DecideOn, decide_by
from ._run import Keep, Turn, Worker, resume_turn
from ._surroundings import Surroundings
from ._worker import Settings, check_worker, open_worker

Present: TypeAlias = Callable[..., Awaitable[Turn]]
"""`present_to_person` or `present_to_program`."""


def keep_in(surroundings: Surroundings, settings: Settings, worker: Worker, task: str) -> Keep:
    """Return what keeps a turn that waits, in a file below the state directory."""

    def keep(conversation: Conversation) -> str:
        deps = worker.deps.to_json()
        turn = PausedTurn(task=task, settings=settings.absolute(), conversation=conversation, deps=deps)
        return str(turn.write(surroundings.state_directory / 'paused'))

    return keep


@dataclass(frozen=True, kw_only=True)
class Resumption:
    """What a person wants of a turn that waits."""

    path: Path
    """The file."""
    approvals: ApprovalMode
    """What happens to calls that wait. Under `pause` those in the file are asked, and later ones wait again."""
    model: str | None
    """Another model than before."""
    max_tokens: int | None
    """Another budget than before, for what was used already and what comes."""

    async def run(self, surroundings: Surroundings, present: Present, *, notify: Callable[[str], None]) -> int:
        """Ask what waits, go on, and return the exit code.

        Raises:
            UnusablePauseError: The file cannot be resumed; it is as it was.
            UnusableModelError: There is no model to work with; likewise.
            BackendError: Commands cannot be isolated, or the directory is gone; likewise.
        """
        claim = Claim.take(self.path)
        try:
            return await self._run_claimed(claim, surroundings, present, notify)
        finally:
            claim.release()

    async def _run_claimed(
        self, claim: Claim, surroundings: Surroundings, present: Present, notify: Callable[[str], None]
    ) -> int:
        paused = PausedTurn.parse(claim.held.read_bytes(), str(self.path))
        self._check_terminal(surroundings)
        chosen = {'model': self.model, 'max_tokens': self.max_tokens}
        settings = paused.settings.model_copy(update={name: value for name, value in chosen.items() if value})
        worker = open_worker(surroundings, settings, approvals=self.approvals, deps=paused.load_deps())
        await check_worker(worker)
        turn = await present(
            worker,
            partial(resume_turn, worker, paused.task, conversation=paused.conversation),
            decide_on=self._decide_on(claim, surroundings),
            keep=keep_in(surroundings, settings, worker, paused.task),
        )
        if turn.result.status in ('done', 'paused'):
            claim.finish()
        elif claim.has_begun:
            notify(f'What was answered may have run. The turn as it was before is in {claim.held}')
        else:
            notify(f'Nothing was answered. {self.path} waits on.')
        return EXIT_CODES[turn.result.status]

    def _check_terminal(self, surroundings: Surroundings) -> None:
        if self.approvals in (ApprovalMode.ask, ApprovalMode.pause):
            with surroundings.open_terminal() as terminal:
                if terminal is None:
                    raise UnusablePauseError(
                        'There is no terminal to ask at. Resume at a terminal, or with --approvals=allow or '
                        f'--approvals=deny. {self.path} waits on.'
                    )

    def _decide_on(self, claim: Claim, surroundings: Surroundings) -> DecideOn:
        asker = Asker(surroundings=surroundings)
        first = decide_by(ApprovalMode.ask if self.approvals is ApprovalMode.pause else self.approvals, asker)
        later = decide_by(self.approvals, asker)

        def decide_on(stage: Stage) -> Decide:
            async def decide(pending: Sequence[PendingApproval]) -> Mapping[str, Answer] | None:
                if claim.has_begun:
                    return await later(stage)(pending)
                answers = await first(stage)(pending)
                claim.begin()
                return answers

            return decide

        return decide_on
