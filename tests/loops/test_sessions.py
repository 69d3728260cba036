"""Sessions of deep agents with files: honest work is not interrupted, and loops are."""

from __future__ import annotations

import pytest
from pydantic_ai.messages import ModelMessage, ToolReturnPart
from pydantic_ai.models.test import TestModel

from pydantic_deep import DeepAgentDeps, StateBackend, create_deep_agent
from pydantic_deep.loops._repetitions import NEXT_NOTICE, NOTICE
from pydantic_deep.testing import ScriptedModel, Step, call

from .conftest import returns

pytestmark = pytest.mark.anyio

LINES = ['def total(items):', '    result = 1', '    for item in items:', '        result += item', '    return result']
TODO = {'content': 'Fix total', 'status': 'in_progress'}


async def play(*steps: Step, tools: tuple[object, ...] = ()) -> list[ModelMessage]:
    """Return the messages of a session in which the model plays these steps."""
    backend = StateBackend()
    await backend.write_bytes('/total.py', '\n'.join(LINES).encode())
    model = ScriptedModel(*steps, 'done')
    agent = create_deep_agent(model, tools=tools)  # pyright: ignore[reportArgumentType] - plain functions
    result = await agent.run('go', deps=DeepAgentDeps(backend=backend))
    assert result.output == 'done'
    return result.all_messages()


def run_tests() -> str:
    """Run the tests. They fail in the same way until the end."""
    return 'FAILED test_total: assert 4 == 3'


async def test_coding_session_is_not_interrupted() -> None:
    """Tests that fail in the same way after each edit, files that are read again, and todos."""
    test, read, look = call('run_tests'), call('read_file', path='/total.py'), call('ls', path='/')
    steps: list[Step] = [look, call('write_todos', todos=[TODO]), read, test]
    text = LINES[1].strip()
    for attempt in range(2, 10):
        other = f'result = {attempt}'
        edit = call('edit_file', path='/total.py', old_string=text, new_string=other)
        steps += [edit, test, read, call('grep', pattern='result = 1$', path='/'), test]
        text = other
    assert NOTICE not in returns(await play(*steps, tools=(run_tests,)))


async def test_reads_of_one_file_between_edits_of_others_are_not_interrupted() -> None:
    steps: list[Step] = []
    for number in range(8):
        steps += [
            call('write_file', path=f'/part_{number}.py', content='import total\n'),
            call('read_file', path='/total.py'),
        ]
    assert NOTICE not in returns(await play(*steps))


@pytest.mark.parametrize(
    'step',
    [
        call('ls', path='/'),
        call('read_file', path='/missing.py'),
        call('write_todos', todos=[TODO]),
        call('edit_file', path='/total.py', old_string='no such line', new_string='x'),
        call('write_file', path='/total.py', content='x'),
    ],
)
async def test_equal_steps_are_interrupted(step: Step) -> None:
    """Waiting for a file, the same plan, the same failing edit."""
    messages = await play(step, step, step, step)
    assert [part for part in returns(messages) if part in (NOTICE, NEXT_NOTICE)] == [NOTICE, NEXT_NOTICE]


async def test_failing_edit_between_reads_is_interrupted() -> None:
    edit = call('edit_file', path='/total.py', old_string='no such line', new_string='x')
    messages = await play(*[edit, call('read_file', path='/total.py')] * 4)
    parts = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    assert {part.tool_name for part in parts if part.content == NOTICE} == {'edit_file', 'read_file'}


async def test_model_that_only_tests_ends_without_an_error() -> None:
    """`TestModel` calls each tool, and repeats calls that ask for a retry."""
    result = await create_deep_agent(TestModel()).run('go', deps=DeepAgentDeps())
    assert NOTICE in returns(result.all_messages())
    assert result.output.startswith('{"ls":')
