"""Events as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Callable

from inline_snapshot import snapshot
from typer.testing import Result

from pydantic_deep.cli.render._event_json import render_json
from pydantic_deep.streaming import STREAM_EVENTS, TextEvent
from pydantic_deep.testing import ScriptedModel, call


def test_event_is_one_line_of_ascii_json() -> None:
    event = TextEvent(text='\x1b[31m\x9b "Ω"\n\udce9')
    line = render_json(event)
    assert line.isascii()
    assert '\n' not in line
    assert STREAM_EVENTS.validate_python(json.loads(line)) == event


Invoke = Callable[..., Result]


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
