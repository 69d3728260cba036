"""Values that all records share."""

from __future__ import annotations

import time
from typing import TypeAlias

Json: TypeAlias = str
"""A JSON document."""


def now() -> int:
    """Return the current time in microseconds since 1970, as records store it."""
    return time.time_ns() // 1000
