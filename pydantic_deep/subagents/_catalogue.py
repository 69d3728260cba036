"""Render the list of subagents for the model. Pure."""

from __future__ import annotations

from collections.abc import Mapping

GENERAL = 'general-purpose'
"""The name of the subagent that is the agent itself."""

GENERAL_DESCRIPTION = 'a fresh copy of you, with your tools'

HEADING = 'Subagents for `task`:'

WITHOUT_CHOICE = 'Do the work yourself. Only large parts are for `task`.'
"""The instructions if the general-purpose subagent is the only one."""


def render_catalogue(description_by_name: Mapping[str, str]) -> str:
    """Return a heading, and one line for each subagent."""
    lines = [f'- {name}: {" ".join(description.split())}' for name, description in description_by_name.items()]
    return '\n'.join([HEADING, *lines])
