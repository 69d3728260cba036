"""Metadata keys of versions that the command line creates."""

from __future__ import annotations

DIRECTORY = 'directory'
"""The key of the absolute path of the working directory."""

SETTINGS = 'settings'
"""The key of the settings of the agent."""

TITLE = 'title'
"""The key of the first line of the first prompt of a conversation, or of an editor's session that forked it."""

SESSION = 'session'
"""The key of the id of the editor's session that created a version (`pydantic-deep acp`)."""
