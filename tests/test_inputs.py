"""Invalid arguments of the factory and of deps are refused with advice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.exceptions import UserError

from pydantic_deep import DeepAgentDeps, Subagent, create_deep_agent
from pydantic_deep.errors import DeepAgentError
from pydantic_deep.skills import SkillDirectory, Skills
from pydantic_deep.subagents import InvalidSubagentError
from pydantic_deep.testing import ScriptedModel

WORKER = Subagent('worker', 'Works.')


@pytest.mark.parametrize(
    ('given', 'said'),
    [
        (['a'], "`subagents` contains 'a'. Pass `Subagent(name, description)`."),
        ([{'name': 'a'}], "`subagents` contains {'name': 'a'}. Pass `Subagent(name, description)`."),
        (['x' * 300], f"`subagents` contains '{'x' * 199}…. Pass `Subagent(name, description)`."),
        ('worker', "`subagents` is 'worker'. Pass a list: `[Subagent(name, description)]`."),
        (None, '`subagents` is None. Pass a list: `[Subagent(name, description)]`.'),
    ],
)
def test_invalid_list_of_subagents_is_refused(given: Any, said: str) -> None:
    with pytest.raises(TypeError) as refused:
        create_deep_agent(ScriptedModel(), subagents=given)
    assert str(refused.value) == said


def test_single_subagent_instead_of_a_list_is_refused() -> None:
    given: Any = WORKER
    with pytest.raises(TypeError, match=r"`subagents` is Subagent\(name='worker'"):
        create_deep_agent(ScriptedModel(), subagents=given)


@pytest.mark.parametrize(
    ('field', 'given', 'said'),
    [
        ('subagents', ['a'], "`subagents` contains 'a'"),
        ('usage_limits', 5, '`usage_limits` is 5. Use `UsageLimits('),
        ('timeout_seconds', 'x', "`timeout_seconds` is 'x'. Use more than 0."),
        ('max_depth', 'x', "`max_depth` is 'x'. Use 0 or more."),
        ('max_depth', 0.5, '`max_depth` is 0.5. Use 0 or more.'),
    ],
)
def test_subagent_field_of_another_type_is_refused(field: str, given: Any, said: str) -> None:
    fields: dict[str, Any] = {field: given}
    with pytest.raises(InvalidSubagentError) as refused:
        Subagent('worker', 'Works.', **fields)
    assert said in str(refused.value)


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


@pytest.mark.parametrize('depth', [-1, 'x', 0.5])
def test_invalid_depth_is_refused(depth: Any) -> None:
    with pytest.raises(ValueError, match=r'DeepAgentDeps\(max_depth=.*\): pass the maximum number of levels'):
        DeepAgentDeps(max_depth=depth)


def test_invalid_depth_in_json_is_refused() -> None:
    text = DeepAgentDeps(max_depth=1).to_json().replace('"max_depth": 1', '"max_depth": -1')
    with pytest.raises(DeepAgentError, match=r'These are not valid DeepAgentDeps: .*max_depth=-1'):
        DeepAgentDeps.from_json(text)
