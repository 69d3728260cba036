"""Metadata keys of versions that the command line creates."""

from __future__ import annotations

import json

from pydantic_deep.store import VersionRecord

DIRECTORY = 'directory'
"""The key of the absolute path of the working directory."""

SETTINGS = 'settings'
"""The key of the settings of the agent."""

TITLE = 'title'
"""The key of the first line of the first prompt of a conversation, or of an editor's session that forked it."""

SESSION = 'session'
"""The key of the id of the editor's session that created a version (`pydantic-deep acp`)."""


def conversation_title(record: VersionRecord) -> str | None:
    """Return the name of the conversation of a version, or else its first prompt; `None` if neither is recorded."""
    return record.name or str(json.loads(record.metadata).get(TITLE, '')) or None
