"""The capability on any agent: the source of its files, its instructions, and state shared by runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import anyio
import pytest
from inline_snapshot import snapshot
from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage, SystemPromptPart
from pydantic_ai.workspaces import CommandResult, LocalWorkspaceBackend, WorkspaceRef

from pydantic_deep import DeepAgentDeps, create_deep_agent
from pydantic_deep.filesystem import Filesystem
from pydantic_deep.filesystem._toolset import function_toolset
from pydantic_deep.testing import ScriptedModel, call, deps_for_test
from pydantic_deep_backends import LocalBackend, StateBackend

from .conftest import Tenant, script

pytestmark = pytest.mark.anyio


NO_DEPS = cast('DeepAgentDeps', None)


class CommandsOnly:
    """A workspace without file operations."""

    def __init__(self, root: Path) -> None:
        self._local = LocalWorkspaceBackend(root)

    @property
    def ref(self) -> WorkspaceRef:
        return self._local.ref

    async def working_dir(self) -> str:
        return await self._local.working_dir()

    async def run(
        self,
        command: str | Sequence[str],
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        return await self._local.run(command, shell=shell, env=env, timeout=timeout)


def said(model: ScriptedModel) -> list[str]:
    return [str(part.content) for part in model.requests[-1].tool_returns]


# Source of the files


async def test_explicit_backend_has_precedence() -> None:
    model, given, other = script(), StateBackend(), StateBackend()
    agent = Agent(model, deps_type=Tenant, capabilities=[Filesystem(backend=given)])
    await agent.run('go', deps=Tenant(other))
    assert said(model)[-1] == '1→two'
    assert await given.read_bytes('/a.txt') == b'two\n'
    assert not await other.exists('/a.txt')


async def test_deps_of_any_type_can_provide_the_backend() -> None:
    model, backend = script(), StateBackend()
    await Agent(model, deps_type=Tenant, capabilities=[Filesystem()]).run('go', deps=Tenant(backend))
    assert await backend.read_bytes('/a.txt') == b'two\n'


async def test_third_party_workspace_can_be_the_backend_of_deps(tmp_path: Path) -> None:
    model = script()
    agent = Agent(model, deps_type=Tenant, capabilities=[Filesystem()])
    await agent.run('go', deps=Tenant(LocalWorkspaceBackend(tmp_path)))
    assert said(model)[-1] == '1→two'
    assert (tmp_path / 'a.txt').read_bytes() == b'two\n'
    assert 'execute' in model.requests[0].tool_names


async def test_run_workspace_is_the_backend_by_default(tmp_path: Path) -> None:
    model = script()
    await Agent(model, capabilities=[Filesystem()]).run('go', workspace=LocalWorkspaceBackend(tmp_path))
    assert (tmp_path / 'a.txt').read_bytes() == b'two\n'


@pytest.mark.slow
@pytest.mark.parametrize('through_deps', [False, True])
async def test_workspace_with_only_commands_supports_files(tmp_path: Path, through_deps: bool) -> None:
    model, workspace = script(), CommandsOnly(tmp_path)
    agent = Agent(model, deps_type=Tenant | None, capabilities=[Filesystem()])
    if through_deps:
        await agent.run('go', deps=Tenant(workspace))
    else:
        await agent.run('go', workspace=workspace)
    assert said(model)[-1] == '1→two'
    assert (tmp_path / 'a.txt').read_bytes() == b'two\n'


async def test_deps_without_a_backend_fall_back_to_the_workspace(tmp_path: Path) -> None:
    agent = Agent(script(), deps_type=Tenant, capabilities=[Filesystem()])
    await agent.run('go', deps=Tenant(None), workspace=LocalWorkspaceBackend(tmp_path))
    assert (tmp_path / 'a.txt').read_bytes() == b'two\n'


async def test_deep_agent_uses_the_backend_of_deps(tmp_path: Path) -> None:
    model = script()
    await create_deep_agent(model).run('go', deps=DeepAgentDeps(backend=LocalBackend(tmp_path)))
    assert (tmp_path / 'a.txt').read_bytes() == b'two\n'


async def test_deep_agent_without_deps_works_in_memory() -> None:
    model = script()
    await create_deep_agent(model).run('go', deps=NO_DEPS)
    assert said(model) == ['Created /a.txt: 1 line, 4 bytes.', 'Replaced 1 match at line 1.', '1→two']


# Model-facing text


async def test_model_facing_text_is_short(tmp_path: Path) -> None:
    model = ScriptedModel('done')
    await Agent(model, capabilities=[Filesystem()]).run('go', workspace=LocalWorkspaceBackend(tmp_path))
    tools = [
        {'name': tool.name, 'description': tool.description, 'parameters': tool.parameters_json_schema}
        for tool in model.requests[0].tools
    ]
    assert model.requests[0].instructions == snapshot(
        'Only tools change files. Start with a tool call. Paths are relative to the working directory. Read a file before you edit it.'
    )
    assert [f'{tool["name"]}: {tool["description"]}' for tool in tools] == snapshot(
        [
            'ls: List a directory.',
            'read_file: Read a text as numbered lines from line offset, or see an image or PDF.',
            'write_file: Create a file, or replace all of it.',
            'edit_file: Replace old_string by new_string. Copy old_string exactly, without line numbers; it must occur once.',
            'glob: Find files by name, such as **/*.py.',
            'grep: Search lines by a regular expression, in files that match glob.',
            'execute: Run a shell command in the working directory.',
        ]
    )
    assert [json.dumps(tool['parameters']) for tool in tools] == snapshot(
        [
            '{"properties": {"path": {"type": "string"}}, "type": "object"}',
            '{"properties": {"path": {"type": "string"}, "offset": {"type": "integer"}, "limit": {"type": "integer"}}, "required": ["path"], "type": "object"}',
            '{"properties": {"path": {"type": "string"}, "content": {"type": "string"}}, "required": ["path", "content"], "type": "object"}',
            '{"properties": {"path": {"type": "string"}, "old_string": {"type": "string"}, "new_string": {"type": "string"}, "replace_all": {"type": "boolean"}}, "required": ["path", "old_string", "new_string"], "type": "object"}',
            '{"properties": {"pattern": {"type": "string"}, "path": {"type": "string"}}, "required": ["pattern"], "type": "object"}',
            '{"properties": {"pattern": {"type": "string"}, "path": {"type": "string"}, "glob": {"type": "string"}, "output_mode": {"enum": ["content", "files_with_matches", "count"], "type": "string"}}, "required": ["pattern"], "type": "object"}',
            '{"properties": {"command": {"type": "string"}, "timeout_seconds": {"type": "number"}}, "required": ["command"], "type": "object"}',
        ]
    )
    assert len(json.dumps(tools)) + len(model.requests[0].instructions or '') == snapshot(1910)
    assert len(json.dumps(tools)) + len(model.requests[0].instructions or '') <= 2_600


async def test_every_tool_declares_its_effect(tmp_path: Path) -> None:
    model = ScriptedModel('done')
    await Agent(model, capabilities=[Filesystem()]).run('go', workspace=LocalWorkspaceBackend(tmp_path))
    assert {tool.name: (tool.metadata or {}).get('effect') for tool in model.requests[0].tools} == snapshot(
        {
            'ls': 'read',
            'read_file': 'read',
            'write_file': 'write',
            'edit_file': 'write',
            'glob': 'read',
            'grep': 'read',
            'execute': 'external',
        }
    )


def notices(messages: list[ModelMessage]) -> list[str]:
    return [part.content for m in messages for part in m.parts if isinstance(part, SystemPromptPart)]


async def test_uploads_are_listed_and_later_ones_appended() -> None:
    deps = deps_for_test()
    await deps.upload('sales.csv', b'a,b\n1,2\n')

    async def add_one(ctx: RunContext[DeepAgentDeps]) -> str:
        await ctx.deps.upload('logo.png', b'\x89PNG\r\n\x1a\n')
        return 'added'

    model = ScriptedModel(call('add_one'), 'done')
    result = await create_deep_agent(model, tools=[add_one], include_todo=False).run('go', deps=deps)
    first, second = (request.instructions for request in model.requests)
    assert first == second
    assert notices(result.all_messages()) == snapshot(
        [
            """\
Uploads:
- /uploads/sales.csv (8 bytes, text/csv, utf-8, 2 lines)\
""",
            """\
Uploads:
- /uploads/sales.csv (8 bytes, text/csv, utf-8, 2 lines)
- /uploads/logo.png (8 bytes, image/png)\
""",
        ]
    )
    again = await create_deep_agent(ScriptedModel('done')).run('on', deps=deps, message_history=result.all_messages())
    assert notices(again.new_messages()) == []


async def test_no_uploads_add_no_instructions() -> None:
    model = ScriptedModel('done')
    await create_deep_agent(model).run('go', deps=deps_for_test())
    assert 'Uploads' not in (model.requests[0].instructions or '')


# State shared by runs


@pytest.mark.slow
async def test_two_hundred_concurrent_runs_share_no_state() -> None:
    agent = create_deep_agent()
    users = [f'user {number}' for number in range(200)]
    deps_by_user = {user: deps_for_test({'/name.txt': user}) for user in users}

    async def run(user: str) -> None:
        model = ScriptedModel(
            call('read_file', path='name.txt'),
            call('edit_file', path='name.txt', old_string=user, new_string=f'{user}, seen'),
            call('write_file', path=f'{user}.txt', content=user),
            'done',
        )
        await agent.run('go', model=model, deps=deps_by_user[user])
        assert said(model)[0] == f'1→{user}'

    async with anyio.create_task_group() as group:
        for user in users:
            group.start_soon(run, user)
    for user, deps in deps_by_user.items():
        assert [entry.name for entry in await deps.backend.list_dir('/')] == sorted(['name.txt', f'{user}.txt'])
        assert await deps.backend.read_bytes('/name.txt') == f'{user}, seen'.encode()


def test_function_toolset_is_created_once() -> None:
    assert function_toolset() is function_toolset()
