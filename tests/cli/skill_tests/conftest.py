"""Fixtures that write skills with cases."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from pydantic import JsonValue

from pydantic_deep.cli.skill_tests._cases import Case, CaseReader
from pydantic_deep.skills import discover_skills

WriteSkill: TypeAlias = Callable[..., Path]
ReadCases: TypeAlias = Callable[..., tuple[list[Case], list[str]]]


@pytest.fixture
def write_skill(tmp_path: Path) -> WriteSkill:
    """Write a skill with its cases below `skills` in the temporary directory, and return its folder."""

    def write(
        name: str = 'invoices',
        description: str = 'Use this skill when the user wants an invoice for a customer. Not for reminders.',
        *,
        evals: JsonValue = None,
        queries: JsonValue = None,
        extra: str = '',
    ) -> Path:
        folder = tmp_path / 'skills' / name
        (folder / 'evals/files').mkdir(parents=True)
        (folder / 'SKILL.md').write_text(f'---\nname: {name}\ndescription: {description}\n{extra}---\nWrite it.\n')
        if evals is not None:
            evals = evals if isinstance(evals, dict) else {'skill_name': name, 'evals': evals}
            (folder / 'evals/evals.json').write_text(json.dumps(evals))
        if queries is not None:
            (folder / 'evals/eval_queries.json').write_text(json.dumps(queries))
        return folder

    return write


@pytest.fixture
def read_cases(tmp_path: Path) -> ReadCases:
    """Return the cases of the only skill, and its problems without the path of the skill."""

    def read() -> tuple[list[Case], list[str]]:
        (skill,) = discover_skills([tmp_path / 'skills']).skills.values()
        reader = CaseReader(skill=skill)
        cases = reader.read()
        return cases, [str(problem).replace(f'{skill.directory}/', '') for problem in reader.diagnostics]

    return read
