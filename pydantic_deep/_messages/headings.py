"""Headings of the texts that capabilities add to histories and instructions, by which the texts are recognized."""

from __future__ import annotations

from typing import Final

CATALOGUE_HEADING: Final = 'Skills are instructions for a kind of task. When one fits, load_skill it first.'
"""The first sentence of the skill catalogue in the instructions. Every request pays for each character."""

FILES_HEADING: Final = 'Files:'
"""The first line of a notice of the files in the working directory."""

PLAN_MODE_HEADING: Final = 'Plan mode:'
"""The first line of a notice of plan mode, and of the mode in a summary."""

PROJECT_HEADING: Final = 'Instructions of the project:'
"""The first line of a notice of instructions from `AGENTS.md` files, and of those in a summary."""

TODOS_HEADING: Final = 'Todos:'
"""The first line of a notice of todos, and of the todos in a summary."""

UPLOADS_HEADING: Final = 'Uploads:'
"""The first line of a notice of uploads."""
