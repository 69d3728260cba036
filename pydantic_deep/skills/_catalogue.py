"""Render the catalogue of skills within a token budget, and search skills that do not fit. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pydantic_deep._messages.headings import CATALOGUE_HEADING

from ._types import Skill

SHORT_CHARS = 40
"""Minimum length of shortened descriptions in characters. Below it, only names are listed."""

CHARS_PER_TOKEN = 4
"""The usual estimate for English text."""

MAX_FOUND = 10
"""Maximum number of search results."""

_WORD = re.compile(r'\w+')


@dataclass(frozen=True, kw_only=True)
class Catalogue:
    """The text of the catalogue for the instructions."""

    text: str
    """The heading and one line for each skill; empty if there are no skills."""
    is_searched: bool
    """Whether there are too many skills to list, so that `load_skill` supports search."""


def render_catalogue(skills: Iterable[Skill], max_tokens: int) -> Catalogue:
    """Return the catalogue of the visible skills, within a budget of estimated tokens.

    There are four levels of detail, and the text states which one applies: complete descriptions, shortened ones,
    names, and the number of skills.
    """
    shown = [skill for skill in skills if not skill.is_hidden]
    if not shown:
        return Catalogue(text='', is_searched=False)
    budget = max_tokens * CHARS_PER_TOKEN
    text = _whole(shown, budget) or _shortened(shown, budget) or _names(shown, budget)
    if text:
        return Catalogue(text=text, is_searched=False)
    count = f'There are {len(shown):,}, too many to list: find one with load_skill(query=…).'
    return Catalogue(text=f'{CATALOGUE_HEADING} {count}', is_searched=True)


def render_line(skill: Skill, limit: int | None = None) -> str:
    """Return the line of one skill, with its description shortened to a number of characters."""
    description = skill.description
    if limit is not None and len(description) > limit:
        description = f'{description[: limit - 1].rstrip()}…'
    return f'- {skill.name}: {description}'


def search_skills(skills: Iterable[Skill], query: str) -> list[Skill]:
    """Return the best `MAX_FOUND` matches for the words of a query. Words in the name count more than in the
    description.
    """
    words = set(_WORD.findall(query.casefold()))
    scored = [(_score(skill, words), skill.name, skill) for skill in skills if not skill.is_hidden]
    best = sorted((item for item in scored if item[0] > 0), key=lambda item: (-item[0], item[1]))
    return [skill for _, _, skill in best[:MAX_FOUND]]


def _score(skill: Skill, words: set[str]) -> int:
    name = set(_WORD.findall(skill.name.casefold()))
    description = skill.description.casefold()
    return sum(3 * (word in name) + (word in description) for word in words)


def _whole(skills: Sequence[Skill], budget: int) -> str:
    size = len(CATALOGUE_HEADING) + sum(len(skill.name) + len(skill.description) + 5 for skill in skills)
    return '\n'.join([CATALOGUE_HEADING, *map(render_line, skills)]) if size <= budget else ''


def _shortened(skills: Sequence[Skill], budget: int) -> str:
    """Return the catalogue with shortened descriptions; empty if they would be shorter than `SHORT_CHARS`."""
    heading = f'{CATALOGUE_HEADING} Descriptions are cut.'
    fixed = len(heading) + sum(len(skill.name) + 5 for skill in skills)
    lengths = [len(skill.description) for skill in skills]
    low, high = 0, max(lengths)
    while low < high:
        middle = (low + high + 1) // 2
        fits = fixed + sum(min(length, middle) for length in lengths) <= budget
        low, high = (middle, high) if fits else (low, middle - 1)
    return '\n'.join([heading, *(render_line(skill, low) for skill in skills)]) if low >= SHORT_CHARS else ''


def _names(skills: Sequence[Skill], budget: int) -> str:
    text = f'{CATALOGUE_HEADING} Only their names fit here: {", ".join(skill.name for skill in skills)}'
    return text if len(text) <= budget else ''
