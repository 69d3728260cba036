"""Metadata keys of versions that the command line creates."""

from __future__ import annotations

DIRECTORY = 'directory'
"""The key of the absolute path of the working directory."""

SETTINGS = 'settings'
"""The key of the settings of the agent."""

SESSION = 'session'
"""The key of the id of the editor's session that created a version (`pydantic-deep acp`)."""
