"""Presenting a turn: as progress and an answer for people, or as JSON events for programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from typing import Protocol, TypeAlias

import typer
from pydantic_ai import CancellationToken
from pydantic_core import to_jsonable_python
from rich.console import Console

from pydantic_deep.cli._schemas import TaskResult
from pydantic_deep.cli.approvals._policy import ApprovalMode, Decider, allow_all, deny_all, pause_all
from pydantic_deep.cli.approvals._prompter import ApprovalPrompter, PromptScreen
from pydantic_deep.cli.terminal._interrupts import Interrupts, stop_on_interrupt
from pydantic_deep.cli.terminal._progress import ProgressDisplay, print_answer
from pydantic_deep.cli.terminal._terminal import write_output
from pydantic_deep.streaming import STREAM_EVENTS, StreamEvent, groups_of, selected_groups

from ._agent_start import started_agent
from ._runner import TurnObserver, TurnReport
from ._runtime import AgentRuntime

_SELECTED = selected_groups(tool_results=True, function_calls=True, thinking=False)
"""The groups of events that are printed: all but pieces of tool calls and thoughts."""


class OutputFormat(StrEnum):
    """How to print a turn."""

    text = 'text'
    """Progress and the answer, for people."""
    json = 'json'
    """One JSON document at the end."""
    stream_json = 'stream-json'
    """Events, one JSON object a line."""


class Work(Protocol):
    """`run_turn` or `resume_turn` with all arguments except the token and the observer."""

    async def __call__(self, *, stop: CancellationToken, observer: TurnObserver) -> TurnReport:
        """Run the turn."""
        ...


DeciderFactory: TypeAlias = Callable[[PromptScreen], Decider]
"""Creates the decider, given the screen for its prompts."""


async def present_as_text(runtime: AgentRuntime, work: Work, *, make_decider: DeciderFactory) -> TurnReport:
    """Run a turn with progress on standard error and the answer on standard output."""
    progress = ProgressDisplay(
        Console(stderr=True), clock=runtime.clock, shows_answer=False, heading=runtime.heading, theme=runtime.theme
    )
    async with started_agent(runtime, progress.notify):
        turn = await show_progress(progress, work, make_decider=make_decider)
    if turn.end.output is not None:
        print_answer(turn.end.output, theme=runtime.theme)
    return turn


async def present_as_json(runtime: AgentRuntime, work: Work, *, make_decider: DeciderFactory) -> TurnReport:
    """Run a turn with its events as lines of JSON on standard output, each printed immediately."""
    async with started_agent(runtime, partial(typer.echo, err=True)):  # first, as its start takes no token
        with stop_on_interrupt() as interrupts:
            screen = PromptScreen(suspended=interrupts.suspended, notify=partial(typer.echo, err=True))
            return await work(
                stop=interrupts.stop, observer=TurnObserver(show=print_event, decide=make_decider(screen))
            )


async def present_as_document(runtime: AgentRuntime, work: Work, *, make_decider: DeciderFactory) -> TurnReport:
    """Run a turn, and print its result as one JSON document on standard output."""
    async with started_agent(runtime, partial(typer.echo, err=True)):
        with stop_on_interrupt() as interrupts:
            screen = PromptScreen(suspended=interrupts.suspended, notify=partial(typer.echo, err=True))
            observer = TurnObserver(show=lambda event: None, decide=make_decider(screen))
            turn = await work(stop=interrupts.stop, observer=observer)
    print_result(TaskResult(error=turn.error, end=turn.end))
    return turn


async def show_progress(progress: ProgressDisplay, work: Work, *, make_decider: DeciderFactory) -> TurnReport:
    """Run a turn with a live progress display, which is suspended during prompts."""
    with stop_on_interrupt() as interrupts, progress:
        screen = PromptScreen(suspended=partial(_suspended, progress, interrupts), notify=progress.notify)
        observer = TurnObserver(show=progress.show, decide=make_decider(screen))
        return await work(stop=interrupts.stop, observer=observer)


def decider_for(mode: ApprovalMode, prompter: ApprovalPrompter) -> DeciderFactory:
    """Return the decider factory for a mode of `--approvals`."""
    make_decider: dict[ApprovalMode, DeciderFactory] = {
        ApprovalMode.ask: lambda screen: partial(prompter.decide, screen=screen),
        ApprovalMode.deny: lambda screen: deny_all,
        ApprovalMode.pause: lambda screen: pause_all,
        ApprovalMode.allow: lambda screen: allow_all,
    }
    return make_decider[mode]


@contextmanager
def _suspended(progress: ProgressDisplay, interrupts: Interrupts) -> Generator[None]:
    with progress.suspended(), interrupts.suspended():
        yield


def print_event(event: StreamEvent) -> None:
    """Print an event on a line of its own, unless it is a piece of a tool call or a thought."""
    if not groups_of(event) & ~_SELECTED:
        write_output(f'{render_json(event)}\n')


def print_result(result: TaskResult) -> None:
    """Print the result of a turn as one JSON document, in ASCII, for the reason of `render_json`."""
    write_output(f'{json.dumps(to_jsonable_python(result), indent=2)}\n')


def render_json(event: StreamEvent) -> str:
    """Return the event as one line of JSON, in ASCII, so that no text in it controls a terminal or fails to encode."""
    return json.dumps(STREAM_EVENTS.dump_python(event, mode='json'))
