"""A turn that waits in a file, and goes on in another process: here, another run of the command."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot
from pydantic_ai.exceptions import ModelConnectionError
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo
from typer.testing import Result

from pydantic_deep.cli._paused import Claim, PausedTurn, UnusablePauseError
from pydantic_deep.testing import ScriptedModel, call

Invoke = Callable[..., Result]
MakeTerminal = Callable[..., Any]

PLAN = [{'content': 'Write it', 'status': 'in_progress'}]
EDIT = call('edit_file', path='/poem.txt', old_string='violet', new_string='lily')
WRITE = call('write_file', path='/new.txt', content='new\n')
TASK = call('task', subagent='general-purpose', description='Fix it')


def told(messages: list[ModelMessage], info: AgentInfo) -> str:
    """Answer with what the model was told last."""
    return '\n'.join(
        f'{part.tool_name}: {part.content}' for part in messages[-1].parts if part.part_kind == 'tool-return'
    )


def events(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """The directory of turns that wait."""
    return tmp_path / 'state' / 'pydantic-deep' / 'paused'


@pytest.fixture
def paused(invoke: Invoke) -> str:
    """A turn that waits for two calls, one of a subagent."""
    model = ScriptedModel(call('write_todos', todos=PLAN), [WRITE, TASK], EDIT)
    result = invoke('run', 'Write and fix', '--approvals=pause', '--json', model=model)
    assert result.exit_code == 5
    return events(result)[-1]['paused_file']


def test_a_pause_says_what_waits_and_where(invoke: Invoke, work: Path, kept: Path) -> None:
    result = invoke('run', 'Go', '--approvals=pause', model=ScriptedModel([WRITE, EDIT]))
    (file,) = kept.iterdir()
    assert (result.exit_code, result.stdout) == (5, '')
    assert result.stderr.endswith(f'Paused: 2 calls wait for an approval. Answer with: pydantic-deep resume {file}\n')
    assert not (work / 'new.txt').exists()


def test_the_last_event_of_a_pause_has_all_that_waits(invoke: Invoke, kept: Path) -> None:
    result = invoke('run', 'Go', '--approvals=pause', '--json', model=ScriptedModel(WRITE))
    last = events(result)[-1]
    assert (last['status'], last['paused_file']) == ('paused', str(next(kept.iterdir())))
    assert last['error'].startswith('Paused: 1 call waits for an approval.')
    assert last['pending'] == [event['approval'] for event in events(result) if event['type'] == 'approval']


def test_only_the_user_can_read_what_waits(paused: str, kept: Path) -> None:
    modes = [path.stat().st_mode & 0o777 for path in (Path(paused), kept, kept.parent)]
    assert modes == [0o600, 0o700, 0o700]


def test_a_pause_that_cannot_be_kept_is_a_failure(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / 'state').write_text('a file')
    result = invoke('run', 'Go', '--approvals=pause', '--json', model=ScriptedModel(WRITE))
    assert (result.exit_code, events(result)[-1]['pending']) == (1, [])
    assert 'The turn cannot be kept to be resumed' in events(result)[-1]['error']


def test_it_goes_on_where_it_was(
    invoke: Invoke, make_terminal: MakeTerminal, paused: str, work: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir('/')
    terminal = make_terminal('y', 'y')
    model = ScriptedModel('Fixed.', told)
    result = invoke('resume', paused, model=model, terminal=terminal)
    assert (result.exit_code, result.stdout) == (0, 'write_file: Created /new.txt: 1 line, 4 bytes.\ntask: Fixed.\n')
    assert (work / 'poem.txt').read_text() == 'rose\nlily\n'
    assert (work / 'new.txt').read_text() == 'new\n'
    assert list(kept.iterdir()) == []
    assert '  subagent: general-purpose\n' in terminal.shown
    assert 'Write and fix' in str(model.requests[1].messages)


def test_usage_and_todos_go_on(invoke: Invoke, paused: str) -> None:
    result = invoke('resume', paused, '--approvals=allow', '--json', model=ScriptedModel('Fixed.', 'Done.'))
    first, *_, last = events(result)
    assert (first['task'], last['status']) == ('Write and fix', 'done')
    assert last['usage'] == {'requests': 5, 'tool_calls': 4, 'input_tokens': 500, 'output_tokens': 50}
    assert last['todos'] == PLAN


def test_the_budget_goes_on_and_can_be_raised(invoke: Invoke, make_terminal: MakeTerminal, kept: Path) -> None:
    model = ScriptedModel(WRITE)
    invoke('run', 'Go', '--approvals=pause', '--max-tokens', '150', model=model)
    first = next(kept.iterdir())
    assert invoke('resume', str(first), '--approvals=deny', model=ScriptedModel('Done.')).exit_code == 4
    invoke('run', 'Go', '--approvals=pause', '--max-tokens', '150', model=ScriptedModel(WRITE))
    second = next(path for path in kept.iterdir() if path.suffix == '.json')
    result = invoke('resume', str(second), '--approvals=deny', '--max-tokens', '300', model=ScriptedModel('Done.'))
    assert (result.exit_code, result.stdout) == (0, 'Done.\n')


def test_it_can_wait_again_in_a_new_file(invoke: Invoke, make_terminal: MakeTerminal, kept: Path, work: Path) -> None:
    invoke('run', 'Go', '--approvals=pause', model=ScriptedModel(WRITE))
    first = next(kept.iterdir())
    result = invoke('resume', str(first), '--approvals=pause', model=ScriptedModel(EDIT), terminal=make_terminal('y'))
    assert result.exit_code == 5
    assert (work / 'new.txt').exists()
    (second,) = kept.iterdir()
    assert second != first
    result = invoke('resume', str(second), model=ScriptedModel('Done.'), terminal=make_terminal('y'))
    assert (result.exit_code, result.stdout, list(kept.iterdir())) == (0, 'Done.\n', [])
    assert (work / 'poem.txt').read_text() == 'rose\nlily\n'


def test_another_model_can_go_on(invoke: Invoke, paused: str) -> None:
    result = invoke('resume', paused, '--approvals=deny', '--model', 'nobody')
    assert result.exit_code == 3
    assert result.stderr.startswith("'nobody' cannot be used.")
    assert Path(paused).exists()


def test_who_stops_at_a_question_leaves_the_file(invoke: Invoke, make_terminal: MakeTerminal, paused: str) -> None:
    result = invoke('resume', paused, model=ScriptedModel(), terminal=make_terminal('y', KeyboardInterrupt()))
    assert result.exit_code == 130
    assert result.stderr.endswith(f'Nothing was answered. {paused} waits on.\n')
    assert invoke('resume', paused, '--approvals=deny', model=ScriptedModel('No.', 'Done.')).exit_code == 0


@pytest.mark.parametrize('mode', ['ask', 'pause'])
def test_without_a_terminal_nothing_is_answered(invoke: Invoke, paused: str, mode: str) -> None:
    result = invoke('resume', paused, f'--approvals={mode}', model=ScriptedModel())
    assert (result.exit_code, result.stdout) == (2, '')
    assert result.stderr.startswith('There is no terminal to ask at.')
    assert Path(paused).exists()


def test_a_turn_that_fails_after_the_answers_says_what_may_have_run(
    invoke: Invoke, paused: str, kept: Path, work: Path
) -> None:
    model = ScriptedModel(ModelConnectionError('m', 'No.'), ModelConnectionError('m', 'No.'))
    result = invoke('resume', paused, '--approvals=allow', model=model)
    (held,) = kept.iterdir()
    assert result.exit_code == 1
    assert result.stderr.endswith(f'What was answered may have run. The turn as it was before is in {held}\n')
    assert (work / 'new.txt').exists()
    again = invoke('resume', paused, '--approvals=allow', model=ScriptedModel())
    assert again.exit_code == 2
    assert re.fullmatch(
        r'\S+ was answered by another: process \d+ on \S+, \d{8}T\d{6}Z\. If that process is gone, this may have run: '
        rf'write_file /new.txt, edit_file /poem.txt\. Look, then answer again if you want to: mv {held} {paused}\n',
        again.stderr,
    )


def test_a_second_one_is_told_who_was_first(invoke: Invoke, paused: str) -> None:
    claim = Claim.take(Path(paused))
    result = invoke('resume', paused, '--approvals=allow', model=ScriptedModel())
    assert result.exit_code == 2
    assert result.stderr.startswith(f'{paused} is being answered by another: process {os.getpid()} on ')
    assert result.stderr.endswith(f'nothing of it has run; take the file back with: mv {claim.held} {paused}\n')
    claim.release()
    assert Path(paused).exists()


def _claim(path: str) -> bool:
    try:
        Claim.take(Path(path))
    except UnusablePauseError:
        return False
    return True


def test_of_many_processes_one_claims_a_file(paused: str) -> None:
    with multiprocessing.get_context('spawn').Pool(4) as pool:
        assert pool.map(_claim, [paused] * 20, chunksize=1).count(True) == 1


@pytest.mark.parametrize(
    ('contents', 'sentence'),
    [
        (b'', 'is no paused turn. Pass a file that `--approvals=pause` has named.'),
        (b'[]', 'is no paused turn.'),
        (b'{"format": "else", "format_version": 1}', 'is no paused turn.'),
        (b'{"format": "pydantic-deep.paused-turn"}', 'is no paused turn.'),
        (
            b'{"format": "pydantic-deep.paused-turn", "format_version": 2}',
            'has format version 2, and this release reads up to 1. Upgrade pydantic-deep.',
        ),
        (b'{"format": "pydantic-deep.paused-turn", "format_version": 1}', 'is damaged: '),
    ],
)
def test_another_file_is_refused_and_left_as_it_is(invoke: Invoke, work: Path, contents: bytes, sentence: str) -> None:
    (work / 'file').write_bytes(contents)
    result = invoke('resume', 'file', '--approvals=allow', model=ScriptedModel())
    assert (result.exit_code, result.stdout) == (2, '')
    assert result.stderr.startswith(f'file {sentence}')
    assert (work / 'file').read_bytes() == contents


@pytest.mark.parametrize(
    ('field', 'value', 'sentence'),
    [
        ('deps', '{}', 'This is not what `DeepAgentDeps.to_json` wrote.'),
        ('conversation', {}, 'nothing in it waits.'),
        ('extra', 1, 'Extra inputs are not permitted'),
    ],
)
def test_a_damaged_file_is_refused(invoke: Invoke, paused: str, field: str, value: object, sentence: str) -> None:
    path = Path(paused)
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    result = invoke('resume', paused, '--approvals=allow', model=ScriptedModel())
    assert result.exit_code == 2
    assert f'{paused} is damaged: ' in result.stderr
    assert sentence in result.stderr


def test_a_file_that_is_not_there_or_not_ours_to_move_is_said(invoke: Invoke, work: Path) -> None:
    gone = invoke('resume', 'nothing', '--approvals=allow', model=ScriptedModel())
    assert gone.stderr == 'There is no file nothing. A paused turn that was resumed to its end is removed.\n'
    nowhere = invoke('resume', 'no/where', '--approvals=allow', model=ScriptedModel())
    assert nowhere.stderr.startswith('There is no file no/where.')
    within = invoke('resume', 'poem.txt/x', '--approvals=allow', model=ScriptedModel())
    assert within.stderr == 'poem.txt/x cannot be claimed: Not a directory.\n'


def test_what_another_left_behind_is_named_as_far_as_it_can_be_read(invoke: Invoke, work: Path) -> None:
    (work / 'turn.json.running-host-1-20260102T030405Z').write_text('?')
    result = invoke('resume', 'turn.json', '--approvals=allow', model=ScriptedModel())
    assert result.stderr == snapshot(
        'turn.json was answered by another: process 1 on host, 20260102T030405Z. If that process is gone, this may have run: what waited in it. Look, then answer again if you want to: mv turn.json.running-host-1-20260102T030405Z turn.json\n'
    )


def test_a_directory_that_is_gone_is_said_and_nothing_is_lost(
    invoke: Invoke, paused: str, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work.rename(work.with_name('elsewhere'))
    result = invoke('resume', paused, '--approvals=allow', model=ScriptedModel())
    assert result.exit_code == 2
    assert Path(paused).exists()


def test_what_is_kept_reads_back(paused: str) -> None:
    turn = PausedTurn.parse(Path(paused).read_bytes(), paused)
    assert PausedTurn.parse(turn.model_dump_json().encode(), paused) == turn
    assert [(pending.path, pending.tool) for pending in turn.pending] == [
        ((), 'write_file'),
        (('general-purpose',), 'edit_file'),
    ]
