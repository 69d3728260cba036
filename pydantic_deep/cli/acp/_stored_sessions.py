"""The sessions of a store: a conversation, or a fork of one, whose versions have the id of the session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from acp.schema import ListSessionsResponse, SessionInfo

from pydantic_deep.cli._metadata import DIRECTORY, SESSION
from pydantic_deep.cli.history._reader import VersionReader
from pydantic_deep.cli.history._revisions import Revisions
from pydantic_deep.cli.render._log import PROMPT_CHARS, summarize
from pydantic_deep.cli.render._terminal_text import first_line
from pydantic_deep.errors import DeepAgentError
from pydantic_deep.store import Store, VersionFilter, VersionRecord

MAX_SESSIONS: Final = 100
"""Maximum number of sessions that `session/list` returns at once. The cursor of the response leads to older ones."""


class InvalidSessionError(DeepAgentError, ValueError):
    """A session cannot be opened as the editor asks."""


class SessionNotFoundError(DeepAgentError, LookupError):
    """There is no session of this id."""

    def __init__(self, id: str) -> None:
        super().__init__(f'There is no session {id!r}. List the sessions, or create one.')


async def list_stored(store: Store, directory: Path | None, cursor: str | None) -> ListSessionsResponse:
    """Return the sessions of a directory, or of all directories, those that started last first.

    Raises:
        InvalidSessionError: The cursor is not one of a response.
    """
    starts = VersionFilter(
        kinds=('root', 'edit'),  # a conversation starts with a root, and a fork with an edit of its metadata
        metadata=None if directory is None else {DIRECTORY: str(directory)},
    )
    before = _number(cursor)
    shown: dict[str, VersionRecord] = {}
    while len(shown) < MAX_SESSIONS:
        page = await store.versions(starts, limit=MAX_SESSIONS - len(shown), before=before)
        for record in page:
            newest = await _newest_since(store, record)
            if newest is not None:
                shown[session_of(record)] = newest
        if not page:
            break
        before = page[-1].number
    reader = VersionReader(revisions=Revisions(store=store, directory=''))
    versions = await reader.views.versions(list(shown.values()))
    return ListSessionsResponse(
        sessions=[
            SessionInfo(
                session_id=id,
                cwd=str(metadata_of(record)[DIRECTORY]),
                title=first_line(version.name or summarize(version), PROMPT_CHARS),
                updated_at=version.created_at.isoformat(),
            )
            for (id, record), version in zip(shown.items(), versions, strict=True)
        ],
        next_cursor=str(before) if len(shown) == MAX_SESSIONS else None,
    )


async def find_newest(store: Store, id: str) -> VersionRecord | None:
    """Return the newest version of a session; `None` if there is no such session."""
    newest = await store.versions(VersionFilter(metadata={SESSION: id}), limit=1)
    if newest:
        return newest[0]
    stored = await store.conversation(id)
    return None if stored is None or stored.head_id is None else await store.version(stored.head_id)


async def _newest_since(store: Store, start: VersionRecord) -> VersionRecord | None:
    """Return the newest version of the session that a version starts; `None` if it starts none with a turn."""
    if not isinstance(metadata_of(start).get(DIRECTORY), str):
        return None
    id = session_of(start)
    starts = VersionFilter(kinds=('root', 'edit'), metadata={SESSION: id})
    last = await store.versions(starts, limit=1)
    is_start = last[0].id == start.id if last else start.kind == 'root'
    newest = await find_newest(store, id) if is_start else None
    return None if newest is None or newest.kind == 'root' else newest


def directory_of(cwd: str) -> Path:
    """Return the real path of a working directory.

    Raises:
        InvalidSessionError: It is not absolute, or no directory.
    """
    path = Path(cwd)
    if not path.is_absolute() or not path.is_dir():
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
