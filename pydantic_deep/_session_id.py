"""The caller's own id of what it does: it goes along with a run into its tools and its subagents."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from ._checks import check_names

_SESSION_ID: ContextVar[str | None] = ContextVar('pydantic_deep_session_id', default=None)


def current_session_id() -> str | None:
    """Return the `session_id` of the run that this code runs in, at any depth; `None` if none was given."""
    return _SESSION_ID.get()


@contextmanager
def session_scope(session_id: str | None) -> Generator[None]:
    """Give a `session_id` to what begins in this block; with `None`, leave the one that holds.

    A task takes it along when it is created, and keeps it when the block has ended.

    Raises:
        ValidationError: It is blank, no text or no Unicode, or has a NUL.
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
