"""Values that all records share."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TypeAlias

Json: TypeAlias = str
"""A JSON document as text."""


def now() -> int:
    """Return the current time in microseconds since 1970, as records store it."""
    return time.time_ns() // 1000


def utc_datetime(microseconds: int) -> datetime:
    """Return a time of a record as a datetime in UTC."""
    return datetime.fromtimestamp(microseconds / 1e6, UTC)
