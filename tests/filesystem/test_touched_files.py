"""Files in a summary: read and changed by calls, and the uploads."""

import pytest
from pydantic import JsonValue
from pydantic_ai.messages import CompactionPart, ModelMessage, ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.usage import RunUsage

from pydantic_deep import DeepAgentDeps, Summarization, create_deep_agent
from pydantic_deep._messages.summary_metadata import SummaryMetadata
from pydantic_deep.filesystem._touched_files import MAX_FILES, carried_over
from pydantic_deep.summarization import Messages
from pydantic_deep.testing import ScriptedModel, call

pytestmark = pytest.mark.anyio


def exchange(tool: str, outcome: str = 'success', **arguments: object) -> list[ModelMessage]:
    asked = ToolCallPart(tool, arguments, f'{tool} {arguments}')
    returned = ToolReturnPart(tool, 'x', asked.tool_call_id, outcome='success' if outcome == 'success' else 'failed')
    return [ModelResponse(parts=[asked]), ModelRequest(parts=[returned])]


def test_each_file_is_listed_once_as_changed_or_read() -> None:
    history = [
        *exchange('read_file', path='/a'),
        *exchange('read_file', path='/b'),
        *exchange('edit_file', path='/a'),
        *exchange('read_file', path='/a'),
        *exchange('write_file', path='/c'),
    ]
    found = carried_over(history)
    assert found.text == 'Files changed: /a, /c.\nFiles read: /b.'
    assert found.state == {'/b': False, '/a': True, '/c': True}


def test_failed_calls_and_other_tools_are_omitted() -> None:
    history = [
        *exchange('write_file', 'failed', path='/a'),
        *exchange('write_file', text='x'),
        *exchange('ls', path='/b'),
    ]
    assert carried_over(history).text == ''
    assert carried_over(history).state is None


def test_files_of_an_earlier_summary_are_carried_over() -> None:
    carried: dict[str, JsonValue] = {'filesystem': {f'/{number}': True for number in range(MAX_FILES)}}
    part = SummaryMetadata(
        reason='tokens', is_plain=False, goal='', carried=carried, usage=RunUsage(), messages=None
    ).part('x')
    assert isinstance(part, CompactionPart)
    found = carried_over([ModelRequest(parts=[part]), *exchange('read_file', path='/new')])
    assert isinstance(found.state, dict)
    assert list(found.state) == [*(f'/{number}' for number in range(1, MAX_FILES)), '/new']


async def test_a_summary_lists_the_announced_uploads() -> None:
    model = ScriptedModel(*(call('ls') for _ in range(4)), 'Facts: none.', 'done')
    agent = create_deep_agent(model, capabilities=[Summarization(trigger=Messages(8), keep=Messages(3))])
    deps = DeepAgentDeps()
    await deps.upload('sales.csv', b'a\n')
    await agent.run('go', deps=deps)
    (summary,) = (part for part in model.requests[-1].messages[0].parts if isinstance(part, CompactionPart))
    assert (summary.content or '').endswith('Uploads:\n- /uploads/sales.csv (2 bytes, text/csv, utf-8, 1 line)')
