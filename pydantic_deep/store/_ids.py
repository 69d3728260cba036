"""Ids that sort by creation time: UUIDv7 (RFC 9562, section 5.7)."""

from __future__ import annotations

import secrets
import threading
import time

_LOCK = threading.Lock()
_last = 0


def new_id() -> str:
    """Return a new UUIDv7. The ids of one process increase, even if its clock is set back.

    The first 48 bits are milliseconds since 1970, the next 12 a fraction of a millisecond, and 62 are random.
    """
    global _last
    with _LOCK:
        _last = max(_last + 1, time.time_ns() * 4096 // 1_000_000)
        ticks = _last
    value = (ticks >> 12) << 80 | 0x7 << 76 | (ticks & 0xFFF) << 64 | 0b10 << 62 | secrets.randbits(62)
    digits = f'{value:032x}'
    return f'{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}'
