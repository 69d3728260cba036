"""Choosing the store of the command line, and opening it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.render._terminal_text import describe_error
from pydantic_deep.errors import DeepAgentError
from pydantic_deep.store import Store, StoreError, StoreFormatError, open_store

STORE_VARIABLE = 'PYDANTIC_DEEP_STORE'
"""The environment variable that names the store if `--store` is not set."""

BLOBS_VARIABLE = 'PYDANTIC_DEEP_BLOBS'
"""The environment variable with the URL of the object storage of the store."""

NO_STORE = 'memory:'
"""The store of `--no-store`, which is lost at exit."""

_SQLITE = 'sqlite:///'


class UnusableStoreError(DeepAgentError):
    """The store at a URL does not exist or cannot be opened."""


def choose_store(named: str | None, environment: Environment) -> str:
    """Return the URL of the store: of the option, of the environment, or the user's default store."""
    return named or environment.variables.get(STORE_VARIABLE) or default_store(environment)


def default_store(environment: Environment) -> str:
    """Return the URL of the user's default store."""
    return f'{_SQLITE}{environment.state_directory.absolute() / "agents.db"}'


def store_label(url: str, environment: Environment) -> str:
    """Return a label for a store: the path of a file, with `~` for the home directory, or else the URL."""
    if not url.startswith(_SQLITE):
        return url
    path = url.removeprefix(_SQLITE)
    home = environment.variables.get('HOME') or str(Path.home())
    return f'~{path.removeprefix(home)}' if path.startswith(f'{home}/') else path


def require_store(url: str, environment: Environment) -> None:
    """Raise `UnusableStoreError` if a URL names a file that does not exist."""
    if url.startswith(_SQLITE) and not Path(url.removeprefix(_SQLITE)).exists():
        raise UnusableStoreError(
            f'There is no store {store_label(url, environment)} yet. `pydantic-deep run`, `chat` and `serve` create it; '
            f'--store or {STORE_VARIABLE} selects another.'
        )


def prepare_directory(url: str, environment: Environment) -> None:
    """Create the directory of the default store, accessible to this user only. Ignore other stores."""
    if url == default_store(environment):
        environment.state_directory.mkdir(mode=0o700, parents=True, exist_ok=True)


async def _open_current(
    stack: AsyncExitStack, url: str, *, read_only: bool, blobs: str | None, wait_seconds: float
) -> Store:
    """Open a store. Older tables are migrated, even if the store is only read."""
    if read_only:
        with suppress(StoreFormatError):
            return await stack.enter_async_context(
                open_store(url, read_only=True, blobs=blobs, wait_seconds=wait_seconds)
            )
    return await stack.enter_async_context(open_store(url, blobs=blobs, wait_seconds=wait_seconds))


@asynccontextmanager
async def open_chosen_store(
    url: str,
    environment: Environment,
    *,
    must_exist: bool = False,
    read_only: bool = False,
    blobs: str | None = None,
    wait_seconds: float = 30,
) -> AsyncGenerator[Store]:
    """Open a store. The directory of the default store is created if it is missing, accessible to this user only.

    Args:
        url: The URL of the store.
        environment: Locates the default store.
        must_exist: Whether a missing file is an error. Otherwise a new store is created.
        read_only: Whether to open it for reading only.
        blobs: The URL of its object storage; by default that of the environment. `NO_STORE` has none.
        wait_seconds: How long operations wait for a PostgreSQL server that is restarted or unreachable.

    Raises:
        UnusableStoreError: The store does not exist or cannot be opened.
    """
    if must_exist:
        require_store(url, environment)
    async with AsyncExitStack() as stack:
        try:
            prepare_directory(url, environment)
            chosen = None if url == NO_STORE else blobs or environment.variables.get(BLOBS_VARIABLE)
            store = await _open_current(
                stack, url, read_only=read_only, blobs=chosen or None, wait_seconds=wait_seconds
            )
        except (ImportError, OSError, StoreError, ValueError) as error:
            raise UnusableStoreError(f'The store cannot be opened: {describe_error(error)}') from error
        yield store
