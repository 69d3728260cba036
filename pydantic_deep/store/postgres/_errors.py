"""Translation of `asyncpg` and connection errors to store errors, by class."""

from __future__ import annotations

import ssl
from typing import Final

import asyncpg

from pydantic_deep.store.errors import StoreUnavailableError, UnknownCommitError

LOST: Final = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.DatabaseDroppedError,
    asyncpg.IdleSessionTimeoutError,
    asyncpg.IdleInTransactionSessionTimeoutError,
)
"""Errors after which a connection is closed, or was never opened."""

RETRYABLE: Final = (asyncpg.TransactionRollbackError, asyncpg.InvalidCachedStatementError)
"""The transaction conflicted with another one, or a table has changed: run it again."""

_Classes = tuple[type[Exception], ...]

_ADVICE: Final[tuple[tuple[_Classes, str], ...]] = (
    (
        (asyncpg.InvalidAuthorizationSpecificationError,),
        'Check the role and its password in the URL, in `PGPASSWORD` or in the password file.',
    ),
    ((asyncpg.InvalidCatalogNameError, asyncpg.DatabaseDroppedError), 'Create it with `createdb`, or use another.'),
    ((asyncpg.InsufficientPrivilegeError,), 'Let the role create tables in the schema, and read and write them.'),
    ((asyncpg.DiskFullError,), 'Make room on the disk of the server; later commits will then succeed.'),
    (
        (asyncpg.ReadOnlySQLTransactionError,),
        'The server is a standby, or the role may only read. Connect to the primary, or add `?target_session_attrs=primary`.',
    ),
    (
        (asyncpg.TooManyConnectionsError,),
        'A store has up to 9 connections: raise `max_connections`, or open fewer stores.',
    ),
    ((asyncpg.DataCorruptedError, asyncpg.IndexCorruptedError), 'Its files are damaged: restore them from a backup.'),
    ((asyncpg.CannotConnectNowError,), 'Try again when it has started.'),
    ((ssl.SSLError,), 'Check `sslmode`, `sslrootcert`, `sslcert` and `sslkey` of the URL.'),
    (
        (FileNotFoundError, PermissionError),
        'Make sure that it is running, and that files in `sslrootcert`, `sslcert` and `sslkey` of the URL can be read.',
    ),
    (LOST, 'Make sure that it is running and reachable. The next operation connects again.'),
)
_OTHER: Final = 'See the log of the server.'


def translate_error(error: Exception, url: str, waited_seconds: float = 0) -> StoreUnavailableError:
    """Return the `StoreUnavailableError` for an error of the driver, which becomes its cause.

    Args:
        error: The error that the driver raised.
        url: The URL of the store, without the password.
        waited_seconds: How long the server was waited for.
    """
    advice = next((text for classes, text in _ADVICE if isinstance(error, classes)), _OTHER)
    waited = f' This did not change within {waited_seconds:g} seconds.' if waited_seconds else ''
    new = StoreUnavailableError(f'The store {url!r} cannot be used: {error_text(error)}.{waited} {advice}')
    new.__cause__ = error
    return new


def unknown_commit(error: Exception, url: str, reason: str) -> UnknownCommitError:
    """Return the error for a commit without an acknowledgement.

    Args:
        error: The error of the connection, which becomes its cause.
        url: The URL of the store, without the password.
        reason: Why the server was not able to tell whether it was applied, as a sentence.
    """
    new = UnknownCommitError(
        f'The connection to {url!r} was lost during a commit, so it is unknown whether the commit was applied: '
        f'{error_text(error)}. {reason} Check whether its version exists, or commit again with the same ids, which is '
        'refused if it does.'
    )
    new.__cause__ = error
    return new


def error_text(error: Exception) -> str:
    """Return the message of an error without its full stop, or its class name if the message is empty."""
    return str(error).rstrip('. ') or type(error).__name__
