"""An outage is logged when it begins, once a minute, and when it ends."""

from __future__ import annotations

import pytest

from pydantic_deep._logs import outage_log
from pydantic_deep._logs.outage_log import OutageLog

pytestmark = pytest.mark.anyio


async def test_outage_is_logged_once_a_minute_and_so_is_its_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 1.0
    monkeypatch.setattr(outage_log.anyio, 'current_time', lambda: now)
    outage = OutageLog('The worker', 'store')
    outage.note_success()
    for now in (1.0, 2.0, 60.0, 61.0, 62.0):
        outage.note_failure(f'It is down at {now}.')
    outage.note_success()
    outage.note_success()
    now = 63.0
    outage.note_failure('Again.')
    assert caplog.messages == [
        'The worker waits for its store: It is down at 1.0.',
        'The worker waits for its store: It is down at 61.0.',
        'The worker has its store again.',
        'The worker waits for its store: Again.',
    ]
