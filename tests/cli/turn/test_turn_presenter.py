"""A turn as progress and an answer, or as JSON events."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from dirty_equals import IsStr
from inline_snapshot import snapshot
from typer.testing import Result

from pydantic_deep.approvals import ApprovalView
from pydantic_deep.cli.turn._turn_presenter import render_json
from pydantic_deep.streaming import STREAM_EVENTS, TextEvent
from pydantic_deep.testing import ScriptedModel, call

Invoke = Callable[..., Result]


def test_model_text_and_file_names_are_escaped_on_stderr(invoke: Invoke) -> None:
    model = ScriptedModel(
        ['\x1b]0;owned\x07', call('write_file', path='/\u202egnp.exe', content='x')],
        call('write_todos', todos=[{'content': 'a\x1b[2Jb', 'status': 'pending'}]),
        'Done.',
    )
    result = invoke('run', 'Go', model=model)
    assert result.exit_code == 0
    assert not set('\x1b\x07\u202e') & set(result.stderr)


MakeTerminal = Callable[..., Any]

EDIT = call('edit_file', path='/poem.txt', old_string='violet', new_string='lily')
WRITE = call('write_file', path='/new.txt', content='new\n')


def events(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_json_events_contain_pending_approvals_and_answers(invoke: Invoke, make_terminal: MakeTerminal) -> None:
    task = call('task', subagent='general-purpose', description='Fix it')
    model = ScriptedModel([WRITE, task], EDIT, 'Fixed.', 'Done.')
    terminal = make_terminal('e', 'path: /b\ncontent: x', 'n', 'No.')
    result = invoke('run', 'Go', '--json', model=model, terminal=terminal)
    found = [event for event in events(result) if event['type'] not in ('usage', 'start', 'end', 'text')]
    for event in found:
        for approval in event.get('approvals', ()):
            view = ApprovalView.model_validate(approval['view'])
            assert view.preview is not None
            approval['view'] = str(view.preview.diff)
    assert found == snapshot(
        [
            {
                'type': 'tool_call',
                'id': 'call-1',
                'name': 'write_file',
                'args': '{"path":"/new.txt","content":"new\\n"}',
                'index': 0,
                'path': [],
                'intent': None,
                'sub_agent_thread_id': None,
            },
            {
                'type': 'tool_call',
                'id': 'call-2',
                'name': 'task',
                'args': '{"subagent":"general-purpose","description":"Fix it"}',
                'index': 1,
                'path': [],
                'intent': 'Fix it',
                'sub_agent_thread_id': None,
            },
            {
                'type': 'tool_call',
                'id': 'call-2/call-3',
                'name': 'edit_file',
                'args': '{"path":"/poem.txt","old_string":"violet","new_string":"lily"}',
                'index': 0,
                'path': ['general-purpose'],
                'intent': None,
                'sub_agent_thread_id': None,
            },
            {
                'type': 'approval_required',
                'approvals': [
                    {
                        'id': 'call-1',
                        'path': [],
                        'tool': 'write_file',
                        'args': {'path': '/new.txt', 'content': 'new\n'},
                        'view': """\
--- /dev/null
+++ b/new.txt
@@ -0,0 +1 @@
+new\
""",
                        'decisions': ['approve', 'edit', 'deny', 'respond'],
                        'has_changed': False,
                    },
                    {
                        'id': 'call-2/call-3',
                        'path': ['general-purpose'],
                        'tool': 'edit_file',
                        'args': {'path': '/poem.txt', 'old_string': 'violet', 'new_string': 'lily'},
                        'view': """\
--- a/poem.txt
+++ b/poem.txt
@@ -1,2 +1,2 @@
 rose
-violet
+lily\
""",
                        'decisions': ['approve', 'edit', 'deny', 'respond'],
                        'has_changed': False,
                    },
                ],
            },
            {
                'type': 'approval_answer',
                'id': 'call-1',
                'decision': 'edit',
                'by': 'person',
                'reason': None,
                'args': {'path': '/b', 'content': 'x'},
                'answered_by': None,
            },
            {
                'type': 'approval_answer',
                'id': 'call-2/call-3',
                'decision': 'deny',
                'by': 'person',
                'reason': 'A person denied this call: No.',
                'args': None,
                'answered_by': None,
            },
            {
                'type': 'tool_result',
                'id': 'call-1',
                'name': 'write_file',
                'outcome': 'success',
                'content': 'Created /b: 1 line, 1 byte.',
                'exit_code': None,
                'path': [],
                'sub_agent_thread_id': None,
            },
            {
                'type': 'file',
                'path': '/b',
                'change': 'created',
                'added_lines': 1,
                'removed_lines': 0,
            },
            {
                'type': 'tool_result',
                'id': 'call-2/call-3',
                'name': 'edit_file',
                'outcome': 'denied',
                'content': 'A person denied this call: No.',
                'exit_code': None,
                'path': ['general-purpose'],
                'sub_agent_thread_id': None,
            },
            {
                'type': 'tool_result',
                'id': 'call-2',
                'name': 'task',
                'outcome': 'success',
                'content': 'Fixed.',
                'exit_code': None,
                'path': [],
                'sub_agent_thread_id': IsStr(),
            },
        ]
    )


def test_subagent_text_is_not_part_of_the_answer(invoke: Invoke) -> None:
    task = call('task', subagent='general-purpose', description='Fix it')
    model = ScriptedModel(task, ['Secret words.', call('ls')], 'More words.', 'Done.')
    result = invoke('run', 'Go', '--json', model=model)
    assert [event['text'] for event in events(result) if event['type'] == 'text' and not event['path']] == ['Done.']


def test_event_is_one_line_of_ascii_json() -> None:
    event = TextEvent(text='\x1b[31m\x9b "Ω"\n\udce9')
    line = render_json(event)
    assert line.isascii()
    assert '\n' not in line
    assert STREAM_EVENTS.validate_python(json.loads(line)) == event


def test_json_mode_prints_only_events_to_stdout(invoke: Invoke) -> None:
    model = ScriptedModel(call('ls'), 'Done.')
    result = invoke('run', 'Go', '--json', model=model)
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 0
    assert result.stderr == ''
    assert [event['type'] for event in events] == snapshot(
        ['start', 'usage', 'tool_call', 'tool_result', 'text', 'usage', 'end']
    )
    assert len(events[-1].pop('version_id')) == 36
    assert events[-1]['workspace'].pop('store').endswith('/state/pydantic-deep/agents.db')
    assert events[-1] == snapshot(
        {
            'type': 'end',
            'finish_reason': 'stop',
            'status': 'complete',
            'output': 'Done.',
            'usage': {
                'type': 'usage',
                'requests': 2,
                'tool_calls': 1,
                'cache_read_tokens': 0,
                'cache_write_tokens': 0,
                'input_tokens': 200,
                'output_tokens': 20,
            },
            'files': [],
            'todos': [],
            'seconds': 0.0,
            'workspace': {'is_in_directory': True, 'has_files': True, 'has_all_changes': True},
        }
    )


@pytest.mark.parametrize('format', ['text', 'json', 'stream-json'])
def test_ctrl_c_while_an_mcp_server_starts_ends_the_command(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, work: Path, format: str
) -> None:
    """The servers start before the turn, which therefore has no result."""

    class Starting:
        async def __aenter__(self) -> None:
            if not starts:
                starts.append(self)
                signal.raise_signal(signal.SIGINT)
                await anyio.wait_all_tasks_blocked()
            raise OSError('busy')  # the signal had no effect

    starts: list[Starting] = []
    monkeypatch.setattr('pydantic_deep.mcp._connection._create_toolset', lambda *_: Starting())  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    (work / 'servers.json').write_text('{"mcpServers": {"shop": {"command": "shop"}}}')
    options = ('--mcp-config', 'servers.json', '--output-format', format)
    result = invoke('run', 'Go', *options, model=ScriptedModel('never'))
    assert (result.exit_code, result.stdout) == (130, '')
