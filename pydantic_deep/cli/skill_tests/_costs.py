"""The tokens of the texts of skills, as models receive them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from pydantic_ai import Agent
from pydantic_ai.messages import ModelRequest

from pydantic_deep._text.encodings import parse_text
from pydantic_deep.skills import Skill, Skills
from pydantic_deep.tokens import TokenCounter

from ._scripted import ScriptedSkillModel


@dataclass(frozen=True, kw_only=True)
class SkillTokens:
    """The tokens of one skill."""

    catalogue: int | None
    """Of its line in the instructions of every request; `None` if it has no line of its own."""
    instructions: int
    """Of the result of `load_skill`, with the list of files."""
    files: dict[str, int]
    """Of each other text file, by relative path."""


async def measure_tokens(skills: Skills, chosen: Sequence[Skill], counter: TokenCounter) -> list[SkillTokens]:
    """Return the tokens of skills.

    Args:
        skills: The capability with all skills.
        chosen: The skills to measure.
        counter: Counts the tokens of a text.
    """
    agent = Agent[object, str](ScriptedSkillModel(None, ()), deps_type=object, capabilities=[skills])
    first = cast('ModelRequest', (await agent.run('Hello')).all_messages()[0])
    lines = (first.instructions or '').split('\n')
    return [
        SkillTokens(
            catalogue=next((counter(line) for line in lines if line.startswith(f'- {skill.name}: ')), None),
            instructions=counter((await skills.load(skill.name)).split('\n', 1)[1].rsplit('\n', 1)[0]),
            files={path: counter(text) for path, text in _texts(skill)},
        )
        for skill in chosen
    ]


def _texts(skill: Skill) -> Iterator[tuple[str, str]]:
    """Yield the text files that a model can read besides `SKILL.md`."""
    root = cast('Path', skill.directory)
    for path in sorted(root.rglob('*')):
        name = path.relative_to(root).as_posix()
        if name == 'SKILL.md' or name.startswith('evals/') or '__pycache__' in name or not path.is_file():
            continue
        text = parse_text(path.read_bytes())
        if text is not None:
            yield name, text.shown
