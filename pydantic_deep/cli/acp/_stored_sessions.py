"""The sessions of a store: a conversation, or a fork of one, whose versions have the id of the session."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

from acp.schema import ListSessionsResponse, SessionInfo

from pydantic_deep.cli._metadata import DIRECTORY, SESSION, conversation_title
from pydantic_deep.errors import DeepAgentError
from pydantic_deep.store import Store, VersionFilter, VersionRecord, utc_datetime

MAX_SESSIONS: Final = 100
"""Maximum number of sessions that `session/list` returns at once. The cursor of the response leads to older ones."""


class InvalidSessionError(DeepAgentError, ValueError):
    """A session cannot be opened as the editor asks."""


class SessionNotFoundError(DeepAgentError, LookupError):
    """There is no session of this id."""

    def __init__(self, id: str) -> None:
        super().__init__(f'There is no session {id!r}. List the sessions, or create one.')


async def list_stored(store: Store, directory: Path | None, cursor: str | None) -> ListSessionsResponse:
    """Return the sessions of a directory, or of all directories, those that were used last first.

    Raises:
        InvalidSessionError: The cursor is not one of a response.
    """
    filter = VersionFilter(
        metadata_keys=(DIRECTORY,), metadata=None if directory is None else {DIRECTORY: str(directory)}
    )
    page = await store.newest_by_metadata(SESSION, filter, limit=MAX_SESSIONS, before=_number(cursor))
    return ListSessionsResponse(
        sessions=[_session_info(record) for record in page if record.kind != 'root'],  # a root is no turn
        next_cursor=str(page[-1].number) if len(page) == MAX_SESSIONS else None,
    )


def _session_info(newest: VersionRecord) -> SessionInfo:
    """Return the session whose newest version this is."""
    metadata = metadata_of(newest)
    return SessionInfo(
        session_id=session_of(newest),
        cwd=str(metadata[DIRECTORY]),
        title=conversation_title(newest),
        updated_at=utc_datetime(newest.created_at).isoformat(),
    )


async def find_newest(store: Store, id: str) -> VersionRecord | None:
    """Return the newest version of a session; `None` if there is no such session."""
    newest = await store.versions(VersionFilter(metadata={SESSION: id}), limit=1)
    if newest:
        return newest[0]
    stored = await store.conversation(id)
    return None if stored is None or stored.head_id is None else await store.version(stored.head_id)


def directory_of(cwd: str) -> Path:
    """Return the real path of a working directory.

    Raises:
        InvalidSessionError: It is not absolute, or no directory.
    """
    path = Path(cwd)
    if not path.is_absolute() or not os.path.isdir(path):  # noqa: PTH112 - `is_dir` may raise errors before Python 3.14
        raise InvalidSessionError(f'The working directory {cwd!r} is no absolute path of a directory. Pass one.')
    return path.resolve()


def _number(cursor: str | None) -> int | None:
    """Return the number of a version at which a page of sessions begins.

    Raises:
        InvalidSessionError: The cursor is not one of a response.
    """
    if cursor is None:
        return None
    if cursor.isascii() and cursor.isdecimal() and len(cursor) < 19:
        return int(cursor)
    raise InvalidSessionError(f'The cursor {cursor!r} is none of `session/list`. Pass `nextCursor` of a response.')


def metadata_of(record: VersionRecord) -> dict[str, object]:
    """Return the metadata of a version."""
    return json.loads(record.metadata)


def session_of(record: VersionRecord) -> str:
    """Return the session of a version. A conversation of `run` or `chat` is a session with its own id."""
    return str(metadata_of(record).get(SESSION, record.conversation_id))
