"""The metadata keys that the command line writes to its versions."""

from __future__ import annotations

DIRECTORY = 'directory'
"""The key in the metadata of a version that says in which directory the command line made it."""

SETTINGS = 'settings'
"""The metadata key of a version for the settings of its agent."""
