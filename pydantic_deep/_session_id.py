"""The session id: an id that the caller chooses. A run passes it on to its tools and subagents."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from ._checks import check_names

_SESSION_ID: ContextVar[str | None] = ContextVar('pydantic_deep_session_id', default=None)


def current_session_id() -> str | None:
    """Return the session id of the current run, also in tools and subagents; `None` if the caller passed none."""
    return _SESSION_ID.get()


@contextmanager
def session_scope(session_id: str | None) -> Generator[None]:
    """Set the session id for runs that start in this block. `None` keeps the current one.

    A task that is created in the block keeps the session id after the block has ended.

    Raises:
        ValidationError: The session id is blank, not a string, not valid Unicode, or has a NUL.
    """
    check_names(session_id=session_id)
    if session_id is None:
        yield
        return
    token = _SESSION_ID.set(session_id)
    try:
        yield
    finally:
        _SESSION_ID.reset(token)
