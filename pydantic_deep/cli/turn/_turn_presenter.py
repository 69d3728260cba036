"""One turn before somebody: as lines for a person, or as events for a program."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Protocol, TypeAlias

import typer
from pydantic_ai import CancellationToken
from rich.console import Console

from pydantic_deep.cli._events import render_json
from pydantic_deep.cli.approvals._policy import ApprovalMode, Decide, allow_all, deny_all, pause_all
from pydantic_deep.cli.approvals._prompter import Asker, Stage
from pydantic_deep.cli.terminal._answer_output import print_answer
from pydantic_deep.cli.terminal._interrupts import Interrupts, stop_on_interrupt
from pydantic_deep.cli.terminal._progress import Progress

from ._runner import Show, Turn, Watcher
from ._runtime import Worker


class Work(Protocol):
    """A turn that is ready to begin: `run_turn` or `resume_turn` with all but who looks on."""

    async def __call__(self, *, stop: CancellationToken, watcher: Watcher) -> Turn:
        """Do it."""
        ...


DecideOn: TypeAlias = Callable[[Stage], Decide]
"""Makes who decides, once it is known where questions are asked."""


async def present_to_person(worker: Worker, work: Work, *, decide_on: DecideOn) -> Turn:
    """Do a turn with progress on standard error and the answer on standard output."""
    progress = Progress(Console(stderr=True), clock=worker.clock, keeps_answer=False)
    async with worker.agent:
        turn = await show_progress(progress, work, decide_on=decide_on)
    if turn.result.output is not None:
        print_answer(turn.result.output)
    return turn


async def present_to_program(worker: Worker, work: Work, *, decide_on: DecideOn) -> Turn:
    """Do a turn with one JSON object a line on standard output, each as soon as it is known."""
    show: Show = lambda event: print(render_json(event), flush=True)  # noqa: E731, T201
    with stop_on_interrupt() as interrupts:
        stage = Stage(suspended=interrupts.given_away, notify=partial(typer.echo, err=True))
        async with worker.agent:
            return await work(stop=interrupts.stop, watcher=Watcher(show=show, decide=decide_on(stage)))


async def show_progress(progress: Progress, work: Work, *, decide_on: DecideOn) -> Turn:
    """Do a turn with progress on the screen; questions take its place as long as they are asked."""
    with stop_on_interrupt() as interrupts, progress:
        stage = Stage(suspended=partial(_suspended, progress, interrupts), notify=progress.notify)
        watcher = Watcher(show=progress.show, decide=decide_on(stage))
        return await work(stop=interrupts.stop, watcher=watcher)


def decide_by(mode: ApprovalMode, asker: Asker) -> DecideOn:
    """Return who decides under `--approvals`."""
    decide_on: dict[ApprovalMode, DecideOn] = {
        ApprovalMode.ask: lambda stage: partial(asker.decide, stage=stage),
        ApprovalMode.deny: lambda stage: deny_all,
        ApprovalMode.pause: lambda stage: pause_all,
        ApprovalMode.allow: lambda stage: allow_all,
    }
    return decide_on[mode]


@contextmanager
def _suspended(progress: Progress, interrupts: Interrupts) -> Generator[None]:
    with progress.suspended(), interrupts.given_away():
        yield
