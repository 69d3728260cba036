"""A clock that only tests advance."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pydantic_deep._checks import check_object, check_seconds

START = datetime(2026, 1, 1, tzinfo=UTC)
"""The default start time of a fake clock."""


class FakeClock:
    """A clock for tests: `now` returns dates, `monotonic` durations. Both change only explicitly.

    Both are plain methods, so `clock.monotonic` and `clock.now` can be passed as `Callable[[], float]` or `Callable[[],
    datetime]`.
    """

    def __init__(self, start: datetime = START) -> None:
        """Set the clock.

        Args:
            start: The initial `now()`, with a time zone.
        """
        self._now = _aware(start)
        self._elapsed_seconds = 0.0

    def now(self) -> datetime:
        """Return the current date and time, in UTC."""
        return self._now

    def monotonic(self) -> float:
        """Return the elapsed time in seconds, starting at 0."""
        return self._elapsed_seconds

    def advance(self, seconds: float) -> None:
        """Advance the time.

        Raises:
            ValidationError: `seconds` is negative or not a number. To set a clock back, use `set_now`.
        """
        check_seconds('seconds', seconds)
        self._elapsed_seconds += seconds
        self._now += timedelta(seconds=seconds)

    def set_now(self, now: datetime) -> None:
        """Set the date and time, forward or back, like a system clock adjustment. `monotonic` is not affected."""
        self._now = _aware(now)


def _aware(moment: datetime) -> datetime:
    """Return the time in UTC."""
    check_object('now', moment, datetime, 'For example, `datetime(2026, 1, 1, tzinfo=UTC)`.')
    if moment.tzinfo is None:
        raise ValueError(f'{moment.isoformat()} has no time zone. Pass one, such as `tzinfo=UTC`.')
    return moment.astimezone(UTC)
