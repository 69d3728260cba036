"""Records that are written although their run is cancelled or its repository hangs."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from pydantic_deep.audit import Audit
from pydantic_deep.testing import ScriptedModel, call

from .conftest import AuditRows, MakeAgent

pytestmark = pytest.mark.anyio


async def test_cancelled_scope_is_recorded_as_interrupted(audited: MakeAgent, rows: AuditRows) -> None:
    """C26: the record of a disconnect is written in a task that is cancelled: a server's scope."""
    with anyio.CancelScope() as scope:

        async def work() -> str:
            scope.cancel()
            await anyio.lowlevel.checkpoint()
            raise AssertionError

        # anyio keeps the event loop busy while a cancelled scope exits, which slows down threads.
        audit = Audit(rows, write_seconds=300)
        await audited(ScriptedModel(call('work')), work=work, audit=audit).run('Go')

    assert (await rows.one()).status == 'interrupted'


async def test_run_cancelled_again_during_the_write_is_recorded(audited: MakeAgent, rows: AuditRows) -> None:
    started = asyncio.Event()
    rows.waits.add('interrupted')

    async def work() -> str:
        started.set()
        await asyncio.Event().wait()
        raise AssertionError

    task = asyncio.ensure_future(audited(ScriptedModel(call('work')), work=work).run('Go'))
    await started.wait()
    task.cancel()
    await rows.writing.wait()
    task.cancel()
    rows.go.set()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert (await rows.one()).status == 'interrupted'


async def test_run_cancelled_before_it_starts_is_recorded(audited: MakeAgent, rows: AuditRows) -> None:
    rows.waits.add('running')
    task = asyncio.ensure_future(audited(ScriptedModel('never')).run('Go'))
    await rows.writing.wait()
    task.cancel()
    rows.go.set()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert rows.writes == ['running', 'interrupted']
    assert (await rows.one()).usage.requests == 0


async def test_late_record_is_written_after_its_run(
    audited: MakeAgent, rows: AuditRows, caplog: pytest.LogCaptureFixture
) -> None:
    """On a busy machine, a write of the end takes longer than the run waits for it, and is not lost."""
    rows.waits.add('success')
    await audited(ScriptedModel('ok'), audit=Audit(rows, write_seconds=0.01)).run('Go')
    assert (await rows.one()).status == 'running'
    rows.go.set()
    await anyio.wait_all_tasks_blocked()

    assert (await rows.one()).status == 'success'
    assert caplog.text.count('(success) could not be written') == 1


async def test_late_first_record_does_not_replace_the_last(audited: MakeAgent, rows: AuditRows) -> None:
    rows.waits.add('running')
    await audited(ScriptedModel('ok'), audit=Audit(rows, write_seconds=0.01)).run('Go')
    rows.go.set()
    await anyio.wait_all_tasks_blocked()

    assert rows.writes == ['running', 'success']
    assert (await rows.one()).status == 'success'


async def test_late_first_record_of_a_cancelled_run_does_not_replace_the_last(
    audited: MakeAgent, rows: AuditRows
) -> None:
    rows.waits.add('running')
    audit = Audit(rows, write_seconds=0.05)
    task = asyncio.ensure_future(audited(ScriptedModel('never'), audit=audit).run('Go'))
    await rows.writing.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    rows.go.set()
    await anyio.wait_all_tasks_blocked()

    assert (await rows.one()).status == 'interrupted'


async def test_late_write_that_fails_is_logged_with_its_error(
    audited: MakeAgent, rows: AuditRows, caplog: pytest.LogCaptureFixture
) -> None:
    rows.waits.add('success')
    rows.fails_at_last = True
    await audited(ScriptedModel('ok'), audit=Audit(rows, write_seconds=0.01)).run('Go')
    rows.go.set()
    await anyio.wait_all_tasks_blocked()

    assert [record.message.split(': ')[1] for record in caplog.records] == ['TimeoutError', 'OSError']


async def test_hanging_write_is_given_up(audited: MakeAgent, rows: AuditRows, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes that hang do not accumulate."""
    monkeypatch.setattr('pydantic_deep.audit._settle.LATEST_SECONDS', 0.01)
    rows.hangs.add('success')
    before = asyncio.all_tasks()
    await audited(ScriptedModel('ok'), audit=Audit(rows, write_seconds=0.01)).run('Go')
    (late,) = asyncio.all_tasks() - before
    await asyncio.wait([late])

    assert late.cancelled()


@pytest.mark.parametrize('status', ['running', 'success'])
async def test_hanging_repository_does_not_end_the_run(
    audited: MakeAgent, rows: AuditRows, caplog: pytest.LogCaptureFixture, status: str
) -> None:
    rows.hangs.add(status)
    result = await audited(ScriptedModel('ok'), audit=Audit(rows, write_seconds=0.01)).run('Go')

    assert result.output == 'ok'
    assert 'the write has not completed in 0.01 seconds' in caplog.text


async def test_write_that_cancels_itself_is_logged(
    audited: MakeAgent, rows: AuditRows, caplog: pytest.LogCaptureFixture
) -> None:
    rows.gives_up.add('success')

    assert (await audited(ScriptedModel('ok')).run('Go')).output == 'ok'
    assert '(running) could not be written' not in caplog.text
    assert '(success) could not be written' in caplog.text
