"""The dispatcher of the settings, for servers and workers."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

from pydantic_deep.dispatch import Dispatcher, open_dispatcher

from ._settings import InvalidSettingsError, ServerSettings


@asynccontextmanager
async def open_configured_dispatcher(settings: ServerSettings) -> AsyncGenerator[Dispatcher | None]:
    """Open the dispatcher of the settings, and close it on exit; `None` if they have none.

    Raises:
        InvalidSettingsError: There is no dispatcher at the URL, or its library is not installed.
        DispatcherUnavailableError: The dispatcher cannot be reached.
    """
    async with AsyncExitStack() as stack:
        dispatcher: Dispatcher | None = None
        if settings.dispatcher is not None:
            try:
                dispatcher = await stack.enter_async_context(open_dispatcher(settings.dispatcher))
            except (ValueError, ImportError) as error:
                raise InvalidSettingsError(f'dispatcher: {error}') from None
        yield dispatcher
