"""A loaded skill and its errors, as the model reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pydantic_deep.skills import Skill
from pydantic_deep.testing import call

from .conftest import GREETING, Play, WriteSkill

pytestmark = pytest.mark.anyio


async def test_many_files_are_counted(
    play: Play, write_skill: WriteSkill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_skill('pdf', files=[f'f{n:02}' for n in range(60)])
    (answer,) = await play([tmp_path / 'skills'], call('load_skill', name='pdf'))
    assert answer.endswith('f48, f49, and 10 more]')
    monkeypatch.setattr('pydantic_deep.skills._files.MAX_ENTRIES', 20)
    (answer,) = await play([tmp_path / 'skills'], call('load_skill', name='pdf'))
    assert answer.endswith(', f18, and more]')


async def test_unknown_skill_error_lists_similar_names(play: Play) -> None:
    many = [Skill(f'skill-{n}', 'x', body='x') for n in range(20)]
    wrong = call('load_skill', name='greting')
    assert await play([GREETING], wrong) == ["retried: No skill named 'greting'. Similar: greeting."]
    assert await play([GREETING], call('load_skill', name='zzz')) == [
        "retried: No skill named 'zzz'. Skills: greeting."
    ]
    assert (
        'Skills: skill-0, skill-1, skill-10, skill-11, skill-12, skill-13, skill-14, skill-15, skill-16, skill-17, ….'
        in (await play(many, call('load_skill', name='zzz')))[0]
    )
