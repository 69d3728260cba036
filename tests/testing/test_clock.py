"""The clock that stands still."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from pydantic_deep.testing import FakeClock

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def test_it_stands_still() -> None:
    clock = FakeClock(NOON)
    assert (clock.now(), clock.now(), clock.monotonic(), clock.monotonic()) == (NOON, NOON, 0.0, 0.0)


def test_time_passes_when_told() -> None:
    clock = FakeClock(NOON)
    clock.advance(1.5)
    clock.advance(0)
    assert (clock.now(), clock.monotonic()) == (NOON + timedelta(seconds=1.5), 1.5)


def test_time_does_not_pass_backwards() -> None:
    clock = FakeClock(NOON)
    with pytest.raises(ValueError, match='use `set_now`'):
        clock.advance(-1)


def test_the_date_can_be_put_back_and_durations_do_not_notice() -> None:
    clock = FakeClock(NOON)
    clock.advance(60)
    clock.set_now(NOON - timedelta(hours=1))
    assert (clock.now(), clock.monotonic()) == (NOON - timedelta(hours=1), 60.0)


def test_now_is_in_utc() -> None:
    clock = FakeClock(NOON.astimezone(timezone(timedelta(hours=2))))
    assert clock.now().tzinfo is UTC
    assert clock.now() == NOON


def test_a_date_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match='has no time zone'):
        FakeClock(datetime(2026, 5, 1))
