"""`OutageLog`: logs that something is unavailable, without a line for each attempt to reach it."""

from __future__ import annotations

import logging
from typing import Final

import anyio

_LOGGER = logging.getLogger('pydantic_deep')

REPORT_SECONDS: Final = 60.0
"""Interval at which an outage is logged."""


class OutageLog:
    """Logs an outage when it begins and once a minute, and its end.

    Args:
        who: Who waits, such as `The worker`.
        what: What they wait for, such as `store`.
    """

    def __init__(self, who: str, what: str) -> None:
        self._who = who
        self._what = what
        self._next_report: float | None = None

    def note_failure(self, reason: object) -> None:
        """Note an attempt that failed."""
        now = anyio.current_time()
        if self._next_report is None or now >= self._next_report:
            _LOGGER.warning('%s waits for its %s: %s', self._who, self._what, reason)
            self._next_report = now + REPORT_SECONDS

    def note_success(self) -> None:
        """Note an attempt that succeeded."""
        if self._next_report is not None:
            _LOGGER.warning('%s has its %s again.', self._who, self._what)
            self._next_report = None
