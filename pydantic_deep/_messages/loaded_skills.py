"""Skills that a user loads by name: their form in the prompt, and the prompt as the user typed it. Pure."""

from __future__ import annotations

import re
from typing import Final

LOADED: Final = '<skill name="'
"""The beginning of each skill in a prompt."""

_LOADED = re.compile(rf'{LOADED}([^"\n]+)">\n.*?\n</skill>\n\n', re.DOTALL)


def loaded_skill(name: str, text: str) -> str:
    """Return a skill as a part of a prompt. A blank line separates it from what follows."""
    return f'{LOADED}{name}">\n{text}\n</skill>'


def typed_prompt(prompt: str) -> str:
    """Return a prompt with `/NAME` in place of each skill at its beginning."""
    names: list[str] = []
    start = 0
    while skill := _LOADED.match(prompt, start):
        names.append(f'/{skill[1]}')
        start = skill.end()
    return ' '.join([*names, prompt[start:]])
