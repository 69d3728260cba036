"""The tool `load_skill`: what it returns, and its search."""

from __future__ import annotations

from pathlib import Path

import pytest
from inline_snapshot import snapshot
from pydantic_ai import Agent
from pydantic_ai.messages import ToolReturnPart

from pydantic_deep.skills import Skill, Skills
from pydantic_deep.testing import ScriptedModel, call

from .conftest import GREETING, Play, WriteSkill

pytestmark = pytest.mark.anyio


async def test_load_skill_returns_the_body_and_lists_files(play: Play, write_skill: WriteSkill, tmp_path: Path) -> None:
    write_skill('pdf', files=['scripts/fill.py', 'LICENSE'])
    write_skill('plain')
    skills = [tmp_path / 'skills']
    assert await play(skills, call('load_skill', name='pdf'), call('load_skill', name='plain')) == [
        "# Do it\n\n[Files, read with load_skill('pdf', file) and not to be run here: LICENSE, scripts/fill.py]",
        '# Do it',
    ]


async def test_no_host_path_is_exposed(play: Play, write_skill: WriteSkill, tmp_path: Path) -> None:
    write_skill('pdf', files=['a.md'])
    calls = [
        call('load_skill', name='pdf'),
        *(call('load_skill', name='pdf', file=f) for f in ('b.md', '/', '../x')),
    ]
    answers = await play([tmp_path / 'skills'], *calls)
    assert not any(str(tmp_path) in answer for answer in answers)


async def test_edited_skill_is_loaded_with_its_new_contents(
    play: Play, write_skill: WriteSkill, tmp_path: Path
) -> None:
    file = write_skill('pdf') / 'SKILL.md'
    skills = Skills([tmp_path / 'skills'])
    model = ScriptedModel(call('load_skill', name='pdf'), 'one', call('load_skill', name='pdf'), 'two')
    agent = Agent(model, capabilities=[skills])
    first = await agent.run('go')
    file.write_text(file.read_text().replace('# Do it', '# Do it otherwise'))
    await agent.run('on', message_history=first.all_messages())
    assert [part.content for part in model.requests[-1].tool_returns] == ['# Do it', '# Do it otherwise']


async def test_loaded_body_is_identified_by_metadata() -> None:
    model = ScriptedModel(call('load_skill', name='greeting'), 'done')
    result = await Agent(model, capabilities=[Skills([GREETING])]).run('go')
    (part,) = [p for m in result.all_messages() for p in m.parts if isinstance(p, ToolReturnPart)]
    assert part.metadata == {
        'skill': 'greeting',
        'digest': snapshot('sha256:c8e2c1437abb87b67330d0dddbd1de9a179ca6be207497f14873894c26e7d742'),
    }


async def test_too_many_skills_are_searched() -> None:
    skills = [Skill(f'skill-{n}', f'Use this skill when number {n}.', body='x') for n in range(900)]
    model = ScriptedModel(
        call('load_skill', query='number 77'),
        call('load_skill', query='zebra'),
        call('load_skill', name='skill-8'),
        'done',
    )
    await Agent(model, capabilities=[Skills(skills)], retries=2).run('go')
    (tool,) = model.requests[0].parameters.function_tools
    assert tool.description == 'Find skills by words (query); read a skill, or a file that it names.'
    assert list(tool.parameters_json_schema['properties']) == ['name', 'file', 'query']
    assert '900, too many to list' in (model.requests[0].instructions or '')
    found, none, body = (str(part.content) for part in model.requests[-1].tool_returns)
    assert found.split('\n')[0] == '- skill-77: Use this skill when number 77.'
    assert len(found.split('\n')) == 10
    assert body == 'x'
    assert none == "No skill has a word of 'zebra' in its name or description. Try other words."


async def test_hidden_skill_can_be_loaded_only_by_a_person(play: Play, write_skill: WriteSkill, tmp_path: Path) -> None:
    write_skill('hidden', 'description: x\ndisable-model-invocation: true', files=['a.md'])
    skills = Skills([tmp_path / 'skills'])
    model = ScriptedModel('done')
    await Agent(model, capabilities=[skills]).run('go')
    assert model.requests[0].instructions is None
    assert await play(skills, call('load_skill', name='hidden'), call('load_skill', name='hidden', file='a.md')) == [
        "failed: Only a person may load the skill 'hidden'.",
        'This is a.md.',
    ]
    assert '# Do it' in await skills.load('hidden')
