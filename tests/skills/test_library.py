"""The skills of an agent, scanned once. Their problems are reported at the start of a run."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic_ai import Agent
from pydantic_ai.exceptions import UserError

from pydantic_deep import DeepAgentDeps, create_deep_agent
from pydantic_deep.skills import BUNDLED_SKILLS, Skill, SkillDirectory, Skills
from pydantic_deep.skills import _library as library
from pydantic_deep.testing import ScriptedModel, call

from .conftest import GREETING

pytestmark = pytest.mark.anyio


WriteSkill = Callable[..., Path]


class TestAtTheStartOfARun:
    async def test_directories_are_scanned_once_at_the_first_run(
        self, write_skill: WriteSkill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        threads: list[str] = []
        real: Callable[..., None] = library.scan_directories

        def counting(*args: object) -> None:
            threads.append(threading.current_thread().name)
            real(*args)

        monkeypatch.setattr(library, 'scan_directories', counting)
        write_skill('pdf')
        agent = Agent(ScriptedModel('one', 'two', 'three'), capabilities=[Skills([tmp_path / 'skills'])])
        assert threads == []
        for _ in range(3):
            await agent.run('go')
        assert len(threads) == 1
        assert threads != [threading.main_thread().name]

    async def test_concurrent_runs_scan_once(self, write_skill: WriteSkill, tmp_path: Path) -> None:
        write_skill('pdf')
        skills = Skills([tmp_path / 'skills'])
        catalogs: list[object] = []

        async def look() -> None:
            catalogs.append(await skills.catalog())

        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(look)
        assert all(catalog is catalogs[0] for catalog in catalogs)

    async def test_missing_directory_raises_until_it_exists(self, write_skill: WriteSkill, tmp_path: Path) -> None:
        agent = Agent(ScriptedModel('done'), capabilities=[Skills([tmp_path / 'skills'])])
        with pytest.raises(UserError, match=r"skills': The directory does not exist\. Create it"):
            await agent.run('go')
        write_skill('pdf')
        assert (await agent.run('go')).output == 'done'

    async def test_diagnostics_are_logged_once(
        self, write_skill: WriteSkill, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, 'pydantic_deep')
        write_skill('bad', 'license: MIT')
        write_skill('odd', 'description: x\nversion: 1')
        agent = Agent(ScriptedModel('one', 'two'), capabilities=[Skills([tmp_path / 'skills'])])
        await agent.run('go')
        await agent.run('go')
        assert [(r.levelname, r.getMessage().rpartition('[')[2]) for r in caplog.records] == [
            ('WARNING', 'no-description]'),
            ('INFO', 'unknown-field]'),
        ]

    async def test_visible_changes_by_recovery_are_logged_as_warnings(
        self, write_skill: WriteSkill, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, 'pydantic_deep')
        directory = write_skill('broken')
        (directory / 'SKILL.md').write_text('---\nname: Broken Skill: [oops\ndescription: x\n---\nDo it.\n')
        agent = Agent(ScriptedModel('one', 'two'), capabilities=[Skills([tmp_path / 'skills'])])
        await agent.run('go')
        await agent.run('go')
        assert [(r.levelname, r.getMessage().rpartition('[')[2]) for r in caplog.records] == [
            ('WARNING', 'not-yaml]'),
            ('WARNING', 'name-form]'),
            ('INFO', 'name-differs]'),
        ]

    async def test_several_skills_capabilities_are_combined(self) -> None:
        model = ScriptedModel('done')
        skills = [Skills([GREETING]), Skills([Skill('other', 'x', body='x')], max_catalog_tokens=100)]
        await Agent(model, capabilities=skills).run('go')
        assert '- greeting: ' in (model.requests[0].instructions or '')
        assert '- other: ' in (model.requests[0].instructions or '')

    async def test_bundled_skills_work_in_a_deep_agent(self) -> None:
        model = ScriptedModel(call('load_skill', name='writing-skills'), 'done')
        agent = create_deep_agent(model, capabilities=[Skills([SkillDirectory(BUNDLED_SKILLS, scope='bundled')])])
        await agent.run('go', deps=DeepAgentDeps())
        assert str(model.requests[-1].tool_returns[0].content).startswith('# Writing a skill')


class TestWhatADeveloperGivesWrongly:
    @pytest.mark.parametrize(
        ('skill', 'sentence'),
        [
            (Skill('Bad Name', 'x', body='x'), "'Bad Name' has uppercase letters"),
            (Skill('x' * 65, 'x', body='x'), 'is too long'),
            (Skill('pdf', ' ', body='x'), 'has no description'),
            (Skill('pdf', 'x'), 'has neither a body nor a directory'),
        ],
    )
    def test_unusable_skill_is_refused(self, skill: Skill, sentence: str) -> None:
        with pytest.raises(ValueError, match=sentence):
            Skills([skill])

    def test_single_path_and_tiny_budget_are_refused(self) -> None:
        with pytest.raises(TypeError, match='Pass a sequence'):
            Skills('skills')
        with pytest.raises(ValueError, match='at least 50'):
            Skills([], max_catalog_tokens=10)


@pytest.mark.parametrize('given', [None, '', 'skills', 3])
def test_invalid_list_of_skills_is_refused(given: Any) -> None:
    with pytest.raises(TypeError, match=r'`skills` is .* Pass a list'):
        create_deep_agent(ScriptedModel(), skills=given)


def test_none_is_refused_by_the_skills_capability() -> None:
    given: Any = None
    with pytest.raises(TypeError, match=r'`skills` is None. Pass a list'):
        Skills(given)


def test_invalid_source_of_skills_is_refused() -> None:
    given: Any = [3]
    with pytest.raises(TypeError, match=r'3 is not a source of skills. Pass a directory or a `Skill`'):
        create_deep_agent(ScriptedModel(), skills=given)


@pytest.mark.parametrize('given', ['skills/pdf/SKILL.md', SkillDirectory('skills/pdf/SKILL.md')])
def test_skill_file_instead_of_its_directory_is_refused(given: str | SkillDirectory) -> None:
    with pytest.raises(ValueError, match=r"'skills/pdf/SKILL.md' is the file of a skill. Pass its directory"):
        create_deep_agent(ScriptedModel(), skills=[given])


@pytest.mark.anyio
async def test_other_skill_file_is_refused_at_the_first_run(tmp_path: Path) -> None:
    (tmp_path / 'pdf.md').touch()
    with pytest.raises(UserError, match=r"pdf\.md': It is a file\. Pass its directory\."):
        await Agent(ScriptedModel('done'), capabilities=[Skills([tmp_path / 'pdf.md'])]).run('go')
