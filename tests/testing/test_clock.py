"""A clock that advances only on request."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from pydantic_deep.errors import ValidationError
from pydantic_deep.testing import FakeClock

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def test_clock_does_not_move_by_itself() -> None:
    clock = FakeClock(NOON)
    assert (clock.now(), clock.now(), clock.monotonic(), clock.monotonic()) == (NOON, NOON, 0.0, 0.0)


def test_advance_moves_both_clocks() -> None:
    clock = FakeClock(NOON)
    clock.advance(1.5)
    clock.advance(0)
    assert (clock.now(), clock.monotonic()) == (NOON + timedelta(seconds=1.5), 1.5)


@pytest.mark.parametrize('seconds', [-1, math.nan, math.inf, '1', None, True])
def test_advance_refuses_other_seconds(seconds: Any) -> None:
    clock = FakeClock(NOON)
    with pytest.raises(ValidationError, match=r'seconds: it is .*, and must be a number from 0'):
        clock.advance(seconds)
    assert clock.now() == NOON


@pytest.mark.parametrize('now', ['2026-05-01', 0, None])
def test_other_times_are_refused(now: Any) -> None:
    with pytest.raises(ValidationError, match='now: it is of type'):
        FakeClock(now)


def test_set_now_does_not_change_durations() -> None:
    clock = FakeClock(NOON)
    clock.advance(60)
    clock.set_now(NOON - timedelta(hours=1))
    assert (clock.now(), clock.monotonic()) == (NOON - timedelta(hours=1), 60.0)


def test_now_is_in_utc() -> None:
    clock = FakeClock(NOON.astimezone(timezone(timedelta(hours=2))))
    assert clock.now().tzinfo is UTC
    assert clock.now() == NOON


def test_naive_datetime_is_refused() -> None:
    with pytest.raises(ValueError, match='has no time zone'):
        FakeClock(datetime(2026, 5, 1))
