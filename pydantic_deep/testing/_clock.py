"""A clock that stands still until a test moves it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 1, tzinfo=UTC)
"""When a fake clock begins unless told otherwise."""


class FakeClock:
    """A clock for tests: `now` for dates, `monotonic` for durations, and both move only when told.

    Both are plain methods, so that what takes a `Callable[[], float]` or a `Callable[[], datetime]` takes
    `clock.monotonic` or `clock.now`.
    """

    def __init__(self, start: datetime = START) -> None:
        """Set the clock.

        Args:
            start: The first `now()`; it must know its time zone.
        """
        self._now = _aware(start)
        self._elapsed_seconds = 0.0

    def now(self) -> datetime:
        """Return the date and time, in UTC."""
        return self._now

    def monotonic(self) -> float:
        """Return seconds that never go back, from 0."""
        return self._elapsed_seconds

    def advance(self, seconds: float) -> None:
        """Let time pass.

        Raises:
            ValueError: The time is negative; `set_now` is for clocks that are put back.
        """
        if seconds < 0:
            raise ValueError(f'Time cannot pass by {seconds} seconds. To put the clock back, use `set_now`.')
        self._elapsed_seconds += seconds
        self._now += timedelta(seconds=seconds)

    def set_now(self, now: datetime) -> None:
        """Put the date and time, also back, as a person or a time server does; `monotonic` does not notice."""
        self._now = _aware(now)


def _aware(moment: datetime) -> datetime:
    """Return the moment in UTC."""
    if moment.tzinfo is None:
        raise ValueError(f'{moment.isoformat()} has no time zone. Pass one, such as `tzinfo=UTC`.')
    return moment.astimezone(UTC)
