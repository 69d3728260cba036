"""Removal of configuration and of grants by a person from messages, and from values that are not messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from pydantic_deep import (
    Approve,
    Conversation,
    DeepAgentDeps,
    LocalBackend,
    MessageList,
    SkillDirectory,
    create_deep_agent,
    prompt,
)
from pydantic_deep.fluent._portable_messages import portable
from pydantic_deep.testing import ScriptedModel, call


@pytest.mark.parametrize('value', ['text', None, 3, ['a'], {'kind': 'request'}, {'parts': 'none'}])
def test_values_that_are_not_messages_are_unchanged(value: JsonValue) -> None:
    assert portable(value) == value


def test_answer_to_an_unknown_tool_lists_no_tools() -> None:
    retry: JsonValue = {'cause': 'unknown_tool', 'attempt': 1, 'max_retries': 7}
    part: JsonValue = {
        'part_kind': 'tool-return',
        'tool_name': 'a',
        'content': "Available tools: 'CANARY'",
        'retry': retry,
    }

    assert portable({'kind': 'request', 'parts': [part]}) == {
        'kind': 'request',
        'parts': [
            {
                'part_kind': 'tool-return',
                'tool_name': 'a',
                'content': "Unknown tool name: 'a'.",
                'retry': {'cause': 'unknown_tool', 'attempt': 1},
            }
        ],
    }


def test_invalid_parts_are_preserved_and_configuration_is_removed() -> None:
    message: JsonValue = {
        'kind': 'request',
        'instructions': 'CANARY',
        'parts': [
            'text',
            {'part_kind': 'system-prompt', 'content': 'CANARY'},
            {'part_kind': 'user-prompt', 'content': 'Hi'},
        ],
    }

    assert portable(message) == {'kind': 'request', 'parts': ['text', {'part_kind': 'user-prompt', 'content': 'Hi'}]}


@pytest.fixture
def skills(tmp_path: Path) -> Path:
    folder = tmp_path / 'skills' / 'files'
    folder.mkdir(parents=True)
    head = '---\nname: files\ndescription: Use this skill when you make files.\nallowed-tools: Bash(touch:*)\n---\n'
    (folder / 'SKILL.md').write_text(f'{head}\nMake them.\n')
    return folder.parent


@pytest.fixture
def deps(tmp_path: Path) -> DeepAgentDeps:
    (tmp_path / 'work').mkdir()
    return DeepAgentDeps(backend=LocalBackend(tmp_path / 'work', allow_commands=True))


def conversation(skills: Path, deps: DeepAgentDeps, messages: MessageList, *, grants: bool | None) -> Any:
    """Return a conversation that continues from messages with a command of the skill."""
    model = ScriptedModel(call('execute', command='touch x'), 'Done.')
    agent = create_deep_agent(model, interrupt_on={'execute': True}, skills=[SkillDirectory(skills, grants=grants)])
    return Conversation(messages, agent=agent, deps=deps).continuation.user('Make x.').start()


async def granted(skills: Path, deps: DeepAgentDeps, *, grants: bool | None) -> Any:
    """Return the transcript of a conversation that has loaded the skill and granted its commands."""
    model = ScriptedModel(call('load_skill', name='files'), 'Loaded.')
    agent = create_deep_agent(model, interrupt_on={'execute': True}, skills=[SkillDirectory(skills, grants=grants)])
    first: Any = prompt(agent, deps=deps).user('Load it.').start()
    await first.run()
    if first.pending:
        await first.resume({each.id: Approve() for each in first.pending})
    return first.messages.to_dict()


async def test_transcript_does_not_carry_grants_by_a_person(skills: Path, deps: DeepAgentDeps) -> None:
    """A person granted commands in one conversation. Loading its transcript asks again, even if the file was forged."""
    document = await granted(skills, deps, grants=None)
    assert '"by": "person"' not in json.dumps(document)
    asked = conversation(skills, deps, MessageList.load(document), grants=None)
    await asked.run()
    assert [each.tool for each in asked.pending] == ['execute']

    by_code = json.dumps(await granted(skills, deps, grants=True))
    made_up = by_code.replace('"by": "code"', '"by": "person"')
    assert made_up != by_code
    asked = conversation(skills, deps, MessageList.load(json.loads(made_up)), grants=None)
    await asked.run()
    assert [each.tool for each in asked.pending] == ['execute']


async def test_grants_by_code_require_code_that_grants_them_again(skills: Path, deps: DeepAgentDeps) -> None:
    """A grant by code stays in a transcript and applies only with an agent whose code grants it too."""
    document = await granted(skills, deps, grants=True)
    runs = conversation(skills, deps, MessageList.load(document), grants=True)
    assert await runs.run() == 'Done.'
    asked = conversation(skills, deps, MessageList.load(document), grants=None)
    await asked.run()
    assert [each.tool for each in asked.pending] == ['execute']
