"""The scripted model: which skill it loads, and the steps it plays."""

from __future__ import annotations

import pytest
from pydantic_ai import Agent

from pydantic_deep.cli.skill_tests._cases import ScriptStep
from pydantic_deep.cli.skill_tests._scripted import NO_ANSWER, ScriptedSkillModel, ScriptStepError, choose_skill
from pydantic_deep.skills import Skill

SKILLS = [
    Skill('sorting-files', 'Use this skill when the user wants files sorted into folders.', body='x'),
    Skill('writing-skills', 'Use this skill when a skill is missing. Not for folders with photos.', body='x'),
    Skill('moving-files', 'Use this skill when the user wants files moved into folders.', body='x'),
]


@pytest.mark.parametrize(
    ('prompt', 'skill'),
    [
        ('Sort my files.', 'sorting-files'),
        ('SORTING by Folder?', 'sorting-files'),
        ('Put the files into folders.', 'moving-files'),
        ('My files are gone.', None),
        ('When the user wants this skill, use it.', None),
        ('Write a skill.', 'writing-skills'),
        ('Write a skill on photos in folders.', None),
        ('', None),
    ],
)
def test_skill_with_most_words_of_the_prompt_is_loaded(prompt: str, skill: str | None) -> None:
    """At least two words, compared by their first four letters; the first name of several."""
    assert choose_skill(SKILLS, prompt) == skill


def test_no_skill_is_loaded_if_there_is_none() -> None:
    assert choose_skill([], 'Sort my files.') is None


@pytest.mark.anyio
async def test_steps_are_played_in_order_and_end_with_an_answer() -> None:
    script = [ScriptStep(tool='add', args={'a': 1}), ScriptStep(tool='add', args={'a': 2})]
    model = ScriptedSkillModel(None, script)
    agent, added = Agent(model), list[int]()

    @agent.tool_plain
    def add(a: int) -> None:
        added.append(a)

    assert (await agent.run('x')).output == NO_ANSWER
    assert (added, model.model_name, model.system) == ([1, 2], 'scripted', 'scripted')
    async with agent.run_stream('x') as stream:
        assert await stream.get_output() == NO_ANSWER


@pytest.mark.anyio
async def test_failed_step_ends_the_run() -> None:
    agent = Agent(ScriptedSkillModel(None, [ScriptStep(tool='add'), ScriptStep(answer='Done.')]))

    @agent.tool_plain
    def add(a: int) -> int:
        return a

    with pytest.raises(ScriptStepError, match=r'^Step 1 of `script` failed\. add: '):
        await agent.run('x')
