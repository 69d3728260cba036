"""Tasks from runs: the id of a task whose beginning was deleted, and the package without its extra."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import pydantic_deep.server.a2a
from pydantic_deep.server._turn_task import find_first_run, load_task
from tests.server.a2a.conftest import UNKNOWN, Connect, decision, pending_in, send
from tests.server.conftest import Served

pytestmark = pytest.mark.anyio


async def test_task_without_its_first_version_begins_with_its_oldest_run(connect: Connect, served: Served) -> None:
    """If the version that a run resumed was deleted, the run is a task of its own."""
    async with connect('asker') as client:
        paused = await send(client, '/a.txt=a')
        [shown] = pending_in(paused)
        done = await send(client, decision(shown, 'approve'), task_id=paused.id)
    fields = dict(done.metadata)
    assert await find_first_run(served.state, str(fields['run'])) == paused.id
    version = await served.store.version(str(fields['version']))
    assert version.run_id == fields['run']
    await served.store.delete(shown['version'])
    assert await find_first_run(served.state, str(fields['run'])) == fields['run']
    assert await find_first_run(served.state, UNKNOWN) == UNKNOWN


async def test_task_is_at_the_run_that_another_server_has_queued(
    connect: Connect, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until a worker begins the run that resumes a turn, only the queue knows it; `test_workers` has real workers."""
    async with connect('asker') as client:
        paused, other = await send(client, '/a.txt=a'), await send(client, 'Hi')

    async def listed(**conditions: Any) -> list[Any]:
        assert conditions == {'conversation_id': paused.context_id}
        return [
            SimpleNamespace(run_id=UNKNOWN, base_id=UNKNOWN),
            SimpleNamespace(run_id=other.id, base_id=str(dict(paused.metadata)['version'])),
        ]

    monkeypatch.setattr(served.state.store.queue, 'list', listed)
    access = await served.access(await served.key())
    access = replace(access, state=replace(access.state, hands_over=True))
    task = await load_task(access, paused.id, agent='asker')
    assert (task.id, task.run.id) == (paused.id, other.id)


def test_package_without_the_extra_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, 'a2a.server.routes', None)
    with pytest.raises(ModuleNotFoundError, match=r"Install the extra: `pip install 'versioned-deep-agents\[a2a\]'`"):
        importlib.reload(pydantic_deep.server.a2a)
