"""Skills that a user loads by name: their form in the prompt, and the prompt as the user typed it. Pure."""

from __future__ import annotations

import re

_LOADED = re.compile(r'<skill name="([^"\n]+)">\n.*?\n</skill>\n\n', re.DOTALL)


def loaded_skill(name: str, text: str) -> str:
    """Return a skill as a part of a prompt. A blank line separates it from what follows."""
    return f'<skill name="{name}">\n{text}\n</skill>'


def typed_prompt(prompt: str) -> str:
    """Return a prompt with `/NAME` in place of each skill at its beginning."""
    names: list[str] = []
    start = 0
    while skill := _LOADED.match(prompt, start):
        names.append(f'/{skill[1]}')
        start = skill.end()
    return ' '.join([*names, prompt[start:]])
