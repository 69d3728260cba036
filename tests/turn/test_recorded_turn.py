"""A whole turn of a deep agent on a recording: the model's answers are recorded, the tools are real."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from pydantic_ai.messages import ToolReturnPart
from pydantic_ai.run import AgentRunResult

from pydantic_deep import DeepAgentDeps, LocalBackend, Todo, create_deep_agent
from pydantic_deep.testing import (
    RecordedModel,
    RecordedRequestError,
    RecordingModel,
    ScriptedModel,
    call,
    deps_for_test,
)

pytestmark = pytest.mark.anyio

FILES = {'/src/a.py': 'import os\n', '/src/b.py': 'import os\nimport sys\n'}
PROMPT = 'Report the modules that import os.'


def script() -> ScriptedModel:
    return ScriptedModel(
        call('write_todos', todos=[{'content': 'Search', 'status': 'in_progress'}]),
        [call('grep', pattern='import os'), call('read_file', path='/src/b.py')],
        call('write_file', path='/report.md', content='a.py and b.py\n'),
        [
            call('edit_file', path='/report.md', old_string='a.py', new_string='src/a.py'),
            call('write_todos', todos=[{'content': 'Search', 'status': 'completed'}]),
        ],
        'The report stands in /report.md.',
    )


@pytest.fixture
async def recording(tmp_path: Path) -> Path:
    path = tmp_path / 'turn.json'
    await create_deep_agent(RecordingModel(script(), path)).run(PROMPT, deps=deps_for_test(FILES))
    return path


def found(result: AgentRunResult[str]) -> list[str]:
    """Return the results of `grep`."""
    parts = [part for message in result.all_messages() for part in message.parts]
    return [str(part.content) for part in parts if isinstance(part, ToolReturnPart) and part.tool_name == 'grep']


async def test_tools_work_on_real_files_during_playback(recording: Path, tmp_path: Path) -> None:
    root = tmp_path / 'work'
    root.mkdir()
    deps = DeepAgentDeps(backend=LocalBackend(root))
    for path, text in FILES.items():
        await deps.backend.write_bytes(path, text.encode())
    model = RecordedModel(recording)
    result = await create_deep_agent(model).run(PROMPT, deps=deps)
    assert result.output == 'The report stands in /report.md.'
    assert await deps.backend.read_bytes('/report.md') == b'src/a.py and b.py\n'
    assert deps.todos == [Todo(content='Search', status='completed')]
    assert model.remaining == 0


@pytest.mark.slow
async def test_concurrent_users_play_one_recording_without_leaks(recording: Path) -> None:
    agent = create_deep_agent(RecordedModel(recording))
    users = [deps_for_test(FILES) for _ in range(20)]

    async def ask(deps: DeepAgentDeps) -> None:
        await agent.run(PROMPT, deps=deps)

    async with anyio.create_task_group() as tasks:
        for deps in users:
            tasks.start_soon(ask, deps)
    for deps in users:
        assert await deps.backend.read_bytes('/report.md') == b'src/a.py and b.py\n'
        assert deps.todos == [Todo(content='Search', status='completed')]


async def test_different_files_raise_and_name_the_new_tool_result(recording: Path) -> None:
    files = {**FILES, '/src/c.py': 'import os\n'}
    with pytest.raises(RecordedRequestError) as caught:
        await create_deep_agent(RecordedModel(recording)).run(PROMPT, deps=deps_for_test(files))
    assert caught.value.exchange == 2
    assert '/src/c.py' in caught.value.diff


async def test_different_files_are_allowed_if_only_the_prompt_must_match(recording: Path) -> None:
    deps = deps_for_test({**FILES, '/src/c.py': 'import os\n'})
    result = await create_deep_agent(RecordedModel(recording, match='prompt')).run(PROMPT, deps=deps)
    assert '/src/c.py' in found(result)[0]
    assert await deps.backend.read_bytes('/report.md') == b'src/a.py and b.py\n'


async def test_missing_capability_raises(recording: Path) -> None:
    agent = create_deep_agent(RecordedModel(recording, match='prompt'), include_todo=False)
    with pytest.raises(RecordedRequestError) as caught:
        await agent.run(PROMPT, deps=deps_for_test(FILES))
    assert '-    name: write_todos' in caught.value.diff


async def test_recording_contains_instructions_and_schemas_once(recording: Path) -> None:
    text = await anyio.Path(recording).read_text()
    assert text.count('"name": "edit_file"') == 1
    assert text.count(PROMPT) == 1
