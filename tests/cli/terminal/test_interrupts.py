"""Ctrl-C stops a turn, not the program."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from io import StringIO

import anyio
import anyio.lowlevel
import pytest
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo
from typer.testing import Result

from pydantic_deep.cli.terminal._interrupts import SHOW_CURSOR, stop_on_interrupt
from pydantic_deep.testing import ScriptedModel

pytestmark = pytest.mark.anyio

Invoke = Callable[..., Result]


class Screen(StringIO):
    """A stream that reports to be a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize('stream', [StringIO, Screen])
async def test_ctrl_c_stops_the_turn_and_restores_the_cursor(
    monkeypatch: pytest.MonkeyPatch, stream: type[StringIO]
) -> None:
    monkeypatch.setattr(sys, 'stderr', shown := stream())
    with stop_on_interrupt() as interrupts:
        signal.raise_signal(signal.SIGINT)
        while not interrupts.stop.cancelled:
            await anyio.lowlevel.checkpoint()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL  # a second Ctrl-C kills the process
    assert shown.getvalue() == (SHOW_CURSOR if shown.isatty() else '')
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_interrupted_run_exits_with_130(invoke: Invoke) -> None:
    async def interrupt(messages: list[ModelMessage], info: AgentInfo) -> str:
        signal.raise_signal(signal.SIGINT)
        await anyio.sleep_forever()
        return 'never'

    result = invoke('run', 'Go', model=ScriptedModel(interrupt))
    assert (result.exit_code, result.stdout) == (130, '')
    assert result.stderr.endswith('Interrupted. Completed work is not undone.\n')


async def test_interrupt_just_before_a_prompt_does_not_stop_the_turn() -> None:
    """The signal handler schedules a callback in the event loop. A prompt or the end of the turn can come before it."""
    with stop_on_interrupt() as interrupts:
        signal.raise_signal(signal.SIGINT)
        with interrupts.suspended():
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
        assert not interrupts.stop.cancelled
        signal.raise_signal(signal.SIGINT)
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        assert interrupts.stop.cancelled
