"""Fixtures that write and load skills."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pytest
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelMessage, ToolCallPart

from pydantic_deep.skills import Skill, SkillCatalog, Skills, SkillSource
from pydantic_deep.skills._scan import parse_file
from pydantic_deep.testing import ScriptedModel

WriteSkill: TypeAlias = Callable[..., Path]
Play: TypeAlias = Callable[..., Awaitable[list[str]]]


@dataclass
class Deps:
    """Third-party deps with a backend."""

    backend: object


@pytest.fixture(autouse=True)
def forget() -> None:
    """Clear the cache of parsed files."""
    parse_file.cache_clear()


@pytest.fixture
def write_skill(tmp_path: Path) -> WriteSkill:
    """Write a skill below `tmp_path` and return its directory."""

    def write(
        name: str,
        fields: str = 'description: Use this skill when you test.',
        body: str = '# Do it\n',
        *,
        root: str = 'skills',
        files: Sequence[str] = (),
    ) -> Path:
        directory = tmp_path / root / name
        directory.mkdir(parents=True)
        (directory / 'SKILL.md').write_text(f'---\nname: {name}\n{fields}\n---\n{body}')
        for file in files:
            (directory / file).parent.mkdir(parents=True, exist_ok=True)
            (directory / file).write_text(f'This is {file}.')
        return directory

    return write


@pytest.fixture
def load() -> Callable[..., ToolCallPart]:
    """Make a call of `load_skill`."""

    def make(name: str | None = None, **args: str) -> ToolCallPart:
        return ToolCallPart('load_skill', args if name is None else {'name': name, **args})

    return make


@pytest.fixture
def play() -> Play:
    """Run an agent with skills and return the result of each call, prefixed by its outcome unless it succeeded."""

    async def run(
        skills: Skills | Sequence[SkillSource],
        *steps: ToolCallPart | list[ToolCallPart],
        deps: object = None,
        also: Sequence[AbstractCapability[object]] = (),
        history: Sequence[ModelMessage] = (),
    ) -> list[str]:
        capability = skills if isinstance(skills, Skills) else Skills(skills)
        model = ScriptedModel(*steps, 'done')
        agent = Agent(model, capabilities=[capability, *also], output_type=[str, DeferredToolRequests], retries=5)
        await agent.run('go', deps=deps, message_history=history or None)
        returns = model.requests[-1].tool_returns
        return [str(p.content) if p.outcome == 'success' else f'{p.outcome}: {p.content}' for p in returns]

    return run


def codes(catalog: SkillCatalog) -> list[str]:
    return [diagnostic.code for diagnostic in catalog.diagnostics]


GREETING = Skill('greeting', 'Use this skill when you greet.', body='Say hello.')
