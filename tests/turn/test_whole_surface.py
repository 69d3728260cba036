"""Everything that a model receives before the user's first prompt, from an agent with all features enabled.

Todos, files and commands of a sandbox, a declared subagent beside the general-purpose one, the four bundled skills,
and approvals. Every request pays for each character, so proofread a changed snapshot.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from inline_snapshot import snapshot

from pydantic_deep import BUNDLED_SKILLS, DeepAgentDeps, LocalBackend, Subagent, create_deep_agent
from pydantic_deep.testing import ScriptedModel, SeenRequest
from pydantic_deep_backends import BackendProtocol
from pydantic_deep_backends.sandbox import SandboxBackend

pytestmark = pytest.mark.anyio

MEASURE = Path(__file__).parent.parent.parent / 'benchmarks' / 'cases' / 'measure.py'

MAX_TOOLS = 11

MAX_CHARS = 6_000


def figures_of(request: SeenRequest) -> dict[str, float]:
    """Count like the benchmarks."""
    count = cast(
        'Callable[[list[tuple[str, str, object]], str], dict[str, float]]',
        runpy.run_path(str(MEASURE))['surface_figures'],
    )
    tools = [(tool.name, tool.description or '', cast('object', tool.parameters_json_schema)) for tool in request.tools]
    return count(tools, request.instructions or '')


async def first_request(backend: BackendProtocol, *, max_depth: int = 1) -> SeenRequest:
    model = ScriptedModel('Done.')
    agent = create_deep_agent(
        model,
        subagents=[Subagent('reviewer', 'Reviews a change and lists its faults.')],
        skills=[BUNDLED_SKILLS],
        interrupt_on={'write_file': True, 'edit_file': True, 'execute': True},
    )
    await agent.run('Go on.', deps=DeepAgentDeps(backend=backend, max_depth=max_depth))
    return model.requests[0]


async def test_whole_surface_is_within_its_limits(tmp_path: Path) -> None:
    figures = figures_of(await first_request(SandboxBackend(tmp_path)))
    assert figures == snapshot({'surface_tools': 10, 'surface_chars': 3400})
    assert figures['surface_tools'] <= MAX_TOOLS
    assert figures['surface_chars'] <= MAX_CHARS


async def test_tools_as_the_model_sees_them(tmp_path: Path) -> None:
    request = await first_request(SandboxBackend(tmp_path))
    assert request.tool_names == snapshot(
        ['ls', 'read_file', 'write_file', 'edit_file', 'glob', 'grep', 'execute', 'load_skill', 'task', 'write_todos']
    )
    assert {tool.name: (tool.description, tool.parameters_json_schema) for tool in request.tools} == snapshot(
        {
            'write_todos': (
                'Note a plan. This does no work. Send the whole list each time.',
                {
                    'properties': {
                        'todos': {
                            'items': {
                                'properties': {
                                    'content': {'type': 'string'},
                                    'status': {'enum': ['pending', 'in_progress', 'completed'], 'type': 'string'},
                                },
                                'required': ['content', 'status'],
                                'type': 'object',
                            },
                            'type': 'array',
                        }
                    },
                    'required': ['todos'],
                    'type': 'object',
                },
            ),
            'ls': (
                'List a directory.',
                {
                    'properties': {'path': {'type': 'string'}},
                    'type': 'object',
                },
            ),
            'read_file': (
                'Read a text as numbered lines from line offset, or see an image or PDF.',
                {
                    'properties': {
                        'path': {'type': 'string'},
                        'offset': {'type': 'integer'},
                        'limit': {'type': 'integer'},
                    },
                    'required': ['path'],
                    'type': 'object',
                },
            ),
            'write_file': (
                'Create a file, or replace all of it.',
                {
                    'properties': {'path': {'type': 'string'}, 'content': {'type': 'string'}},
                    'required': ['path', 'content'],
                    'type': 'object',
                },
            ),
            'edit_file': (
                'Replace old_string by new_string. Copy old_string exactly, without line numbers; it must occur once.',
                {
                    'properties': {
                        'path': {'type': 'string'},
                        'old_string': {'type': 'string'},
                        'new_string': {'type': 'string'},
                        'replace_all': {'type': 'boolean'},
                    },
                    'required': ['path', 'old_string', 'new_string'],
                    'type': 'object',
                },
            ),
            'glob': (
                'Find files by name, such as **/*.py.',
                {
                    'properties': {
                        'pattern': {'type': 'string'},
                        'path': {'type': 'string'},
                    },
                    'required': ['pattern'],
                    'type': 'object',
                },
            ),
            'grep': (
                'Search lines by a regular expression, in files that match glob.',
                {
                    'properties': {
                        'pattern': {'type': 'string'},
                        'path': {'type': 'string'},
                        'glob': {'type': 'string'},
                        'output_mode': {
                            'enum': ['content', 'files_with_matches', 'count'],
                            'type': 'string',
                        },
                    },
                    'required': ['pattern'],
                    'type': 'object',
                },
            ),
            'execute': (
                'Run a shell command in the working directory.',
                {
                    'properties': {
                        'command': {'type': 'string'},
                        'timeout_seconds': {'type': 'number'},
                    },
                    'required': ['command'],
                    'type': 'object',
                },
            ),
            'load_skill': (
                'Read a skill, or a file that it names.',
                {
                    'properties': {
                        'name': {'type': 'string'},
                        'file': {'type': 'string'},
                    },
                    'required': ['name'],
                    'type': 'object',
                },
            ),
            'task': (
                """\
Hand a large part of the work to a subagent. It sees only the description, you only its answer. Several calls run
in parallel.\
""",
                {
                    'properties': {
                        'subagent': {'type': 'string'},
                        'description': {'type': 'string'},
                    },
                    'required': ['description', 'subagent'],
                    'type': 'object',
                },
            ),
        }
    )


async def test_instructions_as_the_model_sees_them(tmp_path: Path) -> None:
    assert (await first_request(SandboxBackend(tmp_path))).instructions == snapshot("""\
Only tools change files. Start with a tool call. Paths are relative to the working directory. Read a file before you edit it.

Skills are instructions for a kind of task. When one fits, load_skill it first.
- analysing-tables: Use this skill when the user asks anything of tabular data (CSV, TSV, JSON Lines, spreadsheet exports), such as totals, trends, outliers, duplicates, joins, or what is in it. Gives checked numbers.
- researching-questions: Use this skill when a question needs answering from sources and not from memory, such as comparing options, checking a claim, or surveying documents or a code base. Not for one quick look-up.
- reviewing-changes: Use this skill when the user asks to review or check a change: a diff, pull request, commit, or files just edited, your own included. Gives proven findings by severity. Not for writing the change.
- writing-skills: Use this skill when the user wants to write, improve or debug a skill (a folder with a SKILL.md), or to turn a runbook or a correction into instructions for agents. Not for documentation that people read.

Subagents for `task`:
- general-purpose: a fresh copy of you, with your tools
- reviewer: Reviews a change and lists its faults.

Do work of one or two steps directly with the file tools. For more, plan with write_todos first.\
""")


async def test_commands_with_and_without_a_sandbox_look_the_same_to_the_model(tmp_path: Path) -> None:
    plain = await first_request(LocalBackend(tmp_path, allow_commands=True))
    isolated = await first_request(SandboxBackend(tmp_path))
    assert plain.tools == isolated.tools
    assert plain.instructions == isolated.instructions


async def test_approvals_add_nothing_to_the_surface(tmp_path: Path) -> None:
    model = ScriptedModel('Done.')
    agent = create_deep_agent(
        model, subagents=[Subagent('reviewer', 'Reviews a change and lists its faults.')], skills=[BUNDLED_SKILLS]
    )
    await agent.run('Go on.', deps=DeepAgentDeps(backend=SandboxBackend(tmp_path)))
    gated = await first_request(SandboxBackend(tmp_path))
    assert figures_of(model.requests[0]) == figures_of(gated)
    assert model.requests[0].instructions == gated.instructions


async def test_agent_that_may_not_delegate_has_no_delegation_surface(tmp_path: Path) -> None:
    request = await first_request(SandboxBackend(tmp_path), max_depth=0)
    assert 'task' not in request.tool_names
    assert 'ubagent' not in (request.instructions or '')
    assert figures_of(request) == snapshot({'surface_tools': 9, 'surface_chars': 3009})
