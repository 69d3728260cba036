"""Choosing the store of the command line, and opening it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from pydantic_deep.cli._environment import Environment
from pydantic_deep.errors import DeepAgentError
from pydantic_deep.store import Store, StoreError, StoreFormatError, open_store

STORE_VARIABLE = 'PYDANTIC_DEEP_STORE'
"""Names the store where `--store` does not."""

NO_STORE = 'memory:'
"""The store of `--no-store`: it lives as long as the process."""

_SQLITE = 'sqlite:///'


class UnusableStoreError(DeepAgentError):
    """There is no store at a URL, or what it needs is not installed."""


def choose_store(named: str | None, environment: Environment) -> str:
    """Return the URL of the store: what was named, what the environment names, or the person's own."""
    return named or environment.variables.get(STORE_VARIABLE) or default_store(environment)


def default_store(environment: Environment) -> str:
    """Return the URL of the person's own store."""
    return f'{_SQLITE}{environment.state_directory.absolute() / "agents.db"}'


def store_label(url: str, environment: Environment) -> str:
    """Return a store's label for people: the path of a file, with `~` for the home directory, or else the URL."""
    if not url.startswith(_SQLITE):
        return url
    path = url.removeprefix(_SQLITE)
    home = environment.variables.get('HOME') or str(Path.home())
    return f'~{path.removeprefix(home)}' if path.startswith(f'{home}/') else path


def _is_missing(url: str) -> bool:
    """Return whether a URL names a file that is not there."""
    return url.startswith(_SQLITE) and not Path(url.removeprefix(_SQLITE)).exists()


def require_store(url: str, environment: Environment) -> None:
    """Raise `UnusableStoreError` if a URL names a file that is not there."""
    if _is_missing(url):
        raise UnusableStoreError(
            f'There is no store {store_label(url, environment)} yet. `pydantic-deep run` and `chat` make one; --store '
            f'or {STORE_VARIABLE} names another.'
        )


def prepare_directory(url: str, environment: Environment) -> None:
    """Make the directory of the person's own store, if that is named, for this user alone."""
    if url == default_store(environment):
        environment.state_directory.mkdir(mode=0o700, parents=True, exist_ok=True)


async def _open_current(stack: AsyncExitStack, url: str, *, read_only: bool) -> Store:
    """Open a store; one with older tables is brought up to date, also to be read."""
    if read_only:
        with suppress(StoreFormatError):
            return await stack.enter_async_context(open_store(url, read_only=True))
    return await stack.enter_async_context(open_store(url))


@asynccontextmanager
async def open_chosen_store(
    url: str, environment: Environment, *, must_exist: bool = False, read_only: bool = False
) -> AsyncGenerator[Store]:
    """Open a store. The directory of the default store is created if it is missing, accessible to this user only.

    Args:
        url: Where it is.
        environment: Locates the default store.
        must_exist: Whether a missing file is an error. Otherwise a new store is created.
        read_only: Whether it is only read.

    Raises:
        UnusableStoreError: There is none, or it cannot be opened.
    """
    if must_exist:
        require_store(url, environment)
    async with AsyncExitStack() as stack:
        try:
            prepare_directory(url, environment)
            store = await _open_current(stack, url, read_only=read_only)
        except (ImportError, OSError, StoreError, ValueError) as error:
            raise UnusableStoreError(f'The store cannot be opened: {error}') from error
        yield store
