"""The time of a replay: capabilities with data outside of versions read it as it was when the run began."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime

_REPLAY_TIME: ContextVar[datetime | None] = ContextVar('pydantic_deep_replay_time', default=None)


def current_replay_time() -> datetime | None:
    """Return when the recorded run began, during its replay; `None` in other runs."""
    return _REPLAY_TIME.get()


@contextmanager
def replay_scope(started_at: int) -> Generator[None]:
    """Set the time for a replay in this block.

    Args:
        started_at: When the recorded run began, in microseconds since 1970.
    """
    token = _REPLAY_TIME.set(datetime.fromtimestamp(started_at / 1e6, UTC))
    try:
        yield
    finally:
        _REPLAY_TIME.reset(token)
