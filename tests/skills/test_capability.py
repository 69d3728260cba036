"""Skills from the perspective of an agent and its model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from inline_snapshot import snapshot
from pydantic_ai import Agent

from pydantic_deep.skills import BackendSkills, SkillNotFoundError, Skills
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep_backends import StateBackend

from .conftest import GREETING

pytestmark = pytest.mark.anyio

WriteSkill = Callable[..., Path]
Play = Callable[..., Awaitable[list[str]]]


class TestWhatTheModelSees:
    async def test_no_skills_add_no_catalogue_and_no_tool(self, tmp_path: Path) -> None:
        model = ScriptedModel('done')
        await Agent(model, capabilities=[Skills([tmp_path])]).run('go')
        assert model.requests[0].instructions is None
        assert model.requests[0].parameters.function_tools == []

    async def test_complete_request_of_an_agent_with_skills(self) -> None:
        model = ScriptedModel('done')
        await Agent(model, capabilities=[Skills([GREETING])]).run('go')
        tools = [(t.name, t.description, t.metadata) for t in model.requests[0].parameters.function_tools]
        assert (model.requests[0].instructions, tools) == snapshot(
            (
                """\
Skills are instructions for a kind of task. When one fits, load_skill it first.
- greeting: Use this skill when you greet.\
""",
                [('load_skill', 'Read a skill, or a file that it names.', {'effect': 'read', 'trusted': True})],
            )
        )
        assert model.requests[0].parameters.function_tools[0].parameters_json_schema == snapshot(
            {
                'properties': {
                    'name': {'type': 'string'},
                    'file': {'type': 'string'},
                },
                'required': ['name'],
                'type': 'object',
            }
        )

    async def test_catalogue_is_byte_for_byte_stable(self, write_skill: WriteSkill, tmp_path: Path) -> None:
        write_skill('b')
        write_skill('a')
        agent = Agent(capabilities=[Skills([tmp_path / 'skills'])])
        model = ScriptedModel(call('load_skill', name='a'), 'one', 'two')
        first = await agent.run('go', model=model)
        write_skill('c')
        await agent.run('on', model=model, message_history=first.all_messages())
        assert len({request.instructions for request in model.requests}) == 1


class TestAUserAsks:
    async def test_load_returns_text_for_a_prompt(self) -> None:
        assert await Skills([GREETING]).load('greeting') == snapshot("""\
<skill name="greeting">
Say hello.
</skill>\
""")

    async def test_load_of_an_unknown_name_raises(self) -> None:
        with pytest.raises(SkillNotFoundError, match=r"No skill named 'x'\. Skills: greeting\.") as caught:
            await Skills([GREETING]).load('x')
        assert caught.value.name == 'x'

    async def test_load_reads_a_backend_skill(self) -> None:
        backend = StateBackend()
        await backend.write_bytes('/skills/pdf/SKILL.md', b'---\nname: pdf\ndescription: x\n---\nFill it.')
        skills = Skills([BackendSkills('/skills', trusted=True)])
        assert await skills.load('pdf', backend=backend) == (
            '<skill name="pdf">\nFill it.\n\n[Directory: /skills/pdf]\n</skill>'
        )
        with pytest.raises(SkillNotFoundError):
            await skills.load('pdf')
