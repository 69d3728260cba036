"""`open_dispatcher`: opens a dispatcher by its URL."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from ._protocol import Dispatcher

_FORMS: Final = (
    'Write "postgresql://user@host/database" for a queue in PostgreSQL, or "temporal://host:port/namespace" for '
    'Temporal.'
)


def check_dispatcher_url(url: str) -> str:
    """Return a URL that `open_dispatcher` accepts, without connecting.

    Raises:
        ValueError: The URL has none of the forms of `open_dispatcher`.
    """
    scheme, separator, _ = url.partition('://')
    if not separator or scheme not in ('postgresql', 'postgres', 'temporal'):
        shown = f'{scheme}{separator}…' if separator else 'that URL'
        raise ValueError(f'There is no dispatcher at {shown}. {_FORMS}')
    return url


@asynccontextmanager
async def open_dispatcher(url: str) -> AsyncGenerator[Dispatcher]:
    """Open the dispatcher at `url`, and close it on exit.

    Args:
        url: `postgresql://…`, as for `open_store`, or `temporal://host:port/namespace`.

    Raises:
        ValueError: The URL has none of these forms.
        DispatcherUnavailableError: The engine cannot be reached.
        ImportError: The engine's library is not installed.
    """
    dispatcher = await _open(url)
    try:
        yield dispatcher
    finally:
        await dispatcher.aclose()


async def _open(url: str) -> Dispatcher:
    if check_dispatcher_url(url).startswith('temporal:'):
        from .temporal import TemporalDispatcher

        return await TemporalDispatcher.open(url)
    from .postgres import PostgresDispatcher

    return await PostgresDispatcher.open(url)
