"""Waiting for runs: those without a log in this process, those without news, and the advice in a result."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from inline_snapshot import snapshot
from mcp import Client

from pydantic_deep.server import ServerSettings
from pydantic_deep.server.mcp import _runs
from pydantic_deep.server.mcp._runs import run_result
from pydantic_deep.server.mcp._server import create_mcp_server
from pydantic_deep.server.routes._turns import read_run
from pydantic_deep.views import Run
from tests.server.conftest import Gate, Serve, Served
from tests.server.mcp.conftest import access_of, result_of

pytestmark = pytest.mark.anyio


async def test_run_without_a_log_here_is_read_from_the_store_until_it_ends(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of another process has no log here: the store is read again while it is running."""
    done = result_of(await client.call_tool('run', {'prompt': 'Hi', 'agent': 'writer'}))
    served.state.runs.clear_logs()
    build, states = _runs.build_run, ['running', 'queued']

    async def build_later(*arguments: Any) -> Run:
        run = await build(*arguments)
        return run.model_copy(update={'state': states.pop()}) if states else run

    monkeypatch.setattr(_runs, 'build_run', build_later)
    monkeypatch.setattr(_runs, 'POLL_SECONDS', 0)
    assert result_of(await client.call_tool('get_run', {'run': done['run']})) == done
    assert states == []


async def test_progress_without_news_keeps_the_call_alive(serve: Serve, gate: Gate) -> None:
    """While a run is silent, progress increases in the interval of `keepalive_seconds`."""
    received: list[float] = []
    twice = anyio.Event()

    async def note(progress: float, total: float | None, message: str | None) -> None:
        received.append(progress)
        if len(received) == 3:
            twice.set()

    async def open_gate() -> None:
        await twice.wait()
        gate.opened.set()

    async with serve(settings=ServerSettings(keepalive_seconds=0.01)) as served:
        server = create_mcp_server(await access_of(served))
        async with Client(server, mode='legacy') as client, anyio.create_task_group() as group:
            group.start_soon(open_gate)
            await client.call_tool('run', {'prompt': 'hold', 'agent': 'writer'}, progress_callback=note)
    assert received[:3] == [1, 2, 3]


async def test_suspended_run_names_the_tools_that_continue_or_end_it(served: Served, client: Client) -> None:
    """A run without an end in the store is returned with the two ways to go on."""
    done = result_of(await client.call_tool('run', {'prompt': 'Hi', 'agent': 'writer'}))
    access = await access_of(served)
    run = (await read_run(done['run'], access)).model_copy(update={'state': 'suspended'})
    assert run_result(access, run).next == snapshot(
        'The run has no end in the store. Continue it with `resume_run`, or end it with `cancel_run`.'
    )
