"""Owner locks of open stores: dead processes are detected at once."""

# ruff: noqa: ASYNC220 - a process is started once, and talked to in a thread

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from pydantic_deep.store import SqlStore
from pydantic_deep.store.sqlite._owner_lock import OwnerLock

pytestmark = pytest.mark.anyio


@pytest.mark.slow
async def test_runs_of_a_killed_process_are_orphans_immediately(tmp_path: Path, store: SqlStore) -> None:
    program = (
        'import asyncio, sys\n'
        'from pydantic_deep.store import *\n'
        'from pydantic_deep.store._samples import sample_run\n'
        'async def main():\n'
        '    async with open_store(sys.argv[1]) as store:\n'
        '        run = sample_run("c")\n'
        '        await store.commit(Commit(runs=[run]))\n'
        '        print(run.id, flush=True)\n'
        '        await asyncio.sleep(600)\n'
        'asyncio.run(main())\n'
    )
    with subprocess.Popen([sys.executable, '-c', program, store.url], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        run_id = (await asyncio.to_thread(child.stdout.readline)).strip()
        assert await store.orphans() == []
        child.kill()
        child.wait()
    assert [run.id for run in await store.orphans()] == [run_id]
    assert await store.claim_run(run_id) is True


def test_owner_files_of_dead_processes_are_removed(tmp_path: Path) -> None:
    living = OwnerLock(tmp_path / 'owners')
    (tmp_path / 'owners' / 'dead').touch()
    other = OwnerLock(tmp_path / 'owners')
    assert {path.name for path in (tmp_path / 'owners').iterdir()} == {living.owner, other.owner}
    assert other.living([living.owner, other.owner, 'dead', '../x/y', 'a\0']) == {living.owner, other.owner}
    living.release()
    assert other.living([living.owner]) == set()
    other.release()


@pytest.mark.parametrize('is_replaced', [False, True])
def test_owner_lock_is_retaken_if_its_file_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_replaced: bool
) -> None:
    """A lock on a file that another process has removed, and perhaps created again, does not count."""
    import fcntl

    original = fcntl.flock
    swept: list[bool] = []

    def sweep_first(descriptor: int, operation: int) -> None:
        original(descriptor, operation)
        if operation == fcntl.LOCK_EX and not swept:
            swept.append(True)
            for path in (tmp_path / 'owners').iterdir():
                path.unlink()
                if is_replaced:
                    path.touch()

    monkeypatch.setattr(fcntl, 'flock', sweep_first)
    lock = OwnerLock(tmp_path / 'owners')
    assert (tmp_path / 'owners' / lock.owner).exists()
    (tmp_path / 'owners' / lock.owner).unlink()
    lock.release()
