"""Requests of other processes to cancel a run."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo

from pydantic_deep.cli.turn import _cancellation_requests
from pydantic_deep.store import RunQueue, open_store
from pydantic_deep.testing import ScriptedModel
from tests.cli.acp.conftest import Connect, Stalled, connect

__all__ = ('connect',)


async def test_another_process_cancels_a_run(
    connect: Connect, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request in the store, as a server of it writes one, ends the turn like a cancellation here."""
    monkeypatch.setattr(_cancellation_requests, 'POLL_SECONDS', 0.01)
    wait = Stalled()
    async with (
        connect(ScriptedModel(wait, 'Next.')) as editor,
        open_store(f'sqlite:///{tmp_path / "agents.db"}') as store,
    ):
        session = await editor.open(work)

        async def cancel() -> None:
            await wait.asked.wait()
            [run] = await store.runs(states=['running'])
            await store.queue.request_cancel(run.id)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancel)
            assert (await editor.prompt(session, 'Go.')).stop_reason == 'cancelled'
        [run] = await store.runs()
        assert run.state == 'interrupted'
        assert (await editor.prompt(session, 'Go on.')).stop_reason == 'end_turn'


@pytest.mark.parametrize('is_persistent', [True, False])
async def test_store_is_asked_only_if_others_can_open_it(
    connect: Connect, work: Path, monkeypatch: pytest.MonkeyPatch, is_persistent: bool
) -> None:
    """A store in memory is never asked, and no store is asked between two turns."""
    asked = anyio.Event()

    async def cancelled(queue: RunQueue) -> list[str]:
        asked.set()
        return []

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> str:
        if is_persistent:
            await asked.wait()
        return 'Done.'

    monkeypatch.setattr(_cancellation_requests, 'POLL_SECONDS', 0)
    monkeypatch.setattr(RunQueue, 'cancelled', cancelled)  # counts the queries
    async with connect(ScriptedModel(respond), is_persistent=is_persistent) as editor:
        session = await editor.open(work)
        assert not asked.is_set()
        await editor.prompt(session, 'Go.')
    assert asked.is_set() is is_persistent
