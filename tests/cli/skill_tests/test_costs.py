"""The tokens of skills."""

from __future__ import annotations

from pathlib import Path

import pytest

from pydantic_deep.cli.skill_tests._costs import SkillTokens, measure_tokens
from pydantic_deep.skills import Skills, discover_skills

from .conftest import WriteSkill

pytestmark = pytest.mark.anyio


async def test_texts_are_counted_as_models_receive_them(write_skill: WriteSkill, tmp_path: Path) -> None:
    folder = write_skill(evals=[])
    for name, data in {'a.md': b'12345678', 'sub/b.md': b'1234', 'logo.png': b'\0', '__pycache__/c.pyc': b'x'}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
    skills = Skills([tmp_path / 'skills'])
    chosen = [*discover_skills([tmp_path / 'skills']).skills.values()]
    texts: list[str] = []

    def count(text: str) -> int:
        texts.append(text)
        return len(text)

    (tokens,) = await measure_tokens(skills, chosen, count)
    line, loaded, *_ = texts
    assert line == '- invoices: Use this skill when the user wants an invoice for a customer. Not for reminders.'
    assert loaded.startswith('Write it.\n\n[Files, read with load_skill(')
    assert loaded.endswith('a.md, logo.png, sub/b.md]')
    assert tokens == SkillTokens(catalogue=len(line), instructions=len(loaded), files={'a.md': 8, 'sub/b.md': 4})


async def test_skill_without_a_line_of_its_own_has_no_tokens_in_requests(
    write_skill: WriteSkill, tmp_path: Path
) -> None:
    for number in range(20):
        write_skill(f'skill-{number}', f'Use this skill when you {"test " * 50}.')
    skills = Skills([tmp_path / 'skills'], max_catalog_tokens=50)
    chosen = [*discover_skills([tmp_path / 'skills']).skills.values()][:1]
    (tokens,) = await measure_tokens(skills, chosen, len)
    assert (tokens.catalogue, tokens.instructions) == (None, 9)
