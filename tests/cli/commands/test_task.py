"""One task with `run` or `branch`, and its exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import typer
from inline_snapshot import snapshot
from pydantic_ai.exceptions import ModelConnectionError
from pydantic_ai.messages import ModelRequest
from typer.testing import Result

from pydantic_deep.cli.commands._options import read_task
from pydantic_deep.testing import ScriptedModel, call

Invoke = Callable[..., Result]
Steady = Callable[[str], str]

PLAN = [{'content': 'Write it', 'status': 'in_progress'}, {'content': 'Read it', 'status': 'pending'}]


def test_run_prints_the_answer_to_stdout_and_progress_to_stderr(invoke: Invoke, work: Path, steady: Steady) -> None:
    model = ScriptedModel(
        ['I plan.', call('write_todos', todos=PLAN)],
        call('write_file', path='/note.md', content='# One\n\ntwo\n'),
        call('read_file', path='/note.md'),
        call('read_file', path='/nothing.md'),
        '**Done.**',
    )
    result = invoke('run', 'Write a note', '--approvals=allow', model=model)
    assert result.exit_code == 0
    assert result.stdout == '**Done.**\n'
    assert steady(result.stderr) == snapshot("""\
given in /tmp/work
I plan.
✓ write_todos
  ▸ Write it
  ○ Read it
✓ write_file /note.md  Created /note.md: 3 lines, 11 bytes.
✓ read_file /note.md  3 lines
↻ read_file /nothing.md  /nothing.md does not exist. Similar: /note.md
created /note.md +3 -0
5 requests, 3 tool calls, 500 tokens in, 50 out, 0 s
version 01234567 in /tmp/state/pydantic-deep/agents.db
""")
    assert (work / 'note.md').read_text() == '# One\n\ntwo\n'


@pytest.mark.parametrize('command', [('run', 'Go'), ('chat',)])
def test_theme_has_the_colors_of_code_in_an_answer(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """The key `theme` of the configuration replaces the palette of the terminal by the colors of a style."""
    for name, value in {'FORCE_COLOR': '1', 'COLORTERM': 'truecolor', 'TERM': 'xterm-256color'}.items():
        monkeypatch.setenv(name, value)

    def answer() -> str:
        model = ScriptedModel('```python\nprint(1)\n```')
        return invoke(*command, model=model, variables={'XDG_CONFIG_HOME': str(tmp_path)}, stdin='Go\n').stdout

    assert '\x1b[38;2;' not in answer()
    (tmp_path / 'pydantic-deep').mkdir()
    (tmp_path / 'pydantic-deep/config.toml').write_text('theme = "monokai"')
    assert '\x1b[38;2;' in answer()


def test_agent_cannot_read_outside_its_directory(invoke: Invoke, work: Path, tmp_path: Path) -> None:
    (tmp_path / 'secret.txt').write_text('secret')
    model = ScriptedModel(call('read_file', path='/../secret.txt'), call('read_file', path='/poem.txt'), 'Done.')
    invoke('run', 'Go', '--dir', str(work), model=model)
    returns = [part.model_response_str() for part in model.requests[-1].tool_returns]
    assert 'secret' not in returns[0].replace('/../secret.txt', '').replace('/secret.txt', '')
    assert 'rose' in returns[1]


def test_unreachable_provider_exits_with_1(invoke: Invoke) -> None:
    result = invoke('run', 'Go', model=ScriptedModel(*[ModelConnectionError('m', 'Connection error.')] * 3))
    assert (result.exit_code, result.stdout) == (1, '')
    assert result.stderr.endswith(
        "'m' cannot be reached: Connection error. Check the network, and the base URL if you set one.\n"
    )


def test_exhausted_budget_exits_with_4(invoke: Invoke) -> None:
    result = invoke('run', 'Go', '--max-tokens', '1', model=ScriptedModel(call('ls'), 'Done.'))
    assert (result.exit_code, result.stdout) == (4, '')
    assert result.stderr.endswith(
        'The budget of 1 tokens for a turn is used up: 110 tokens used. Continue with `pydantic-deep run --continue TASK`, or '
        'in a chat with another prompt; --max-tokens raises it.\n'
    )


EDIT = call('edit_file', path='/poem.txt', old_string='violet', new_string='lily')
WRITE = call('write_file', path='/new.txt', content='new\n')
ALLOW = '--approvals=allow'


def document(result: Result) -> Any:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def ids(invoke: Invoke) -> list[str]:
    """Return the version ids of the directory, oldest first."""
    return [row['id'] for row in reversed(document(invoke('log', '--json')))]


@pytest.fixture
def two_turns(invoke: Invoke) -> list[str]:
    """The ids of a root version, a turn that edits the poem and a turn that writes a file."""
    invoke('run', 'Fix', ALLOW, model=ScriptedModel(EDIT, 'Fixed.'))
    invoke('run', 'Write', '-c', ALLOW, model=ScriptedModel(WRITE, 'Wrote.'))
    return ids(invoke)


def test_branch_runs_on_a_copy_until_checkout(invoke: Invoke, two_turns: list[str], work: Path, steady: Steady) -> None:
    write = call('write_file', path='/other.txt', content='1\n2\n')
    result = invoke('branch', 'side', '-', '--from', 'HEAD~', ALLOW, stdin='Else', model=ScriptedModel(write, 'Else.'))
    assert (result.exit_code, result.stdout) == (0, 'Else.\n')
    assert steady(result.stderr) == snapshot("""\
given in /tmp/work
✓ write_file /other.txt  Created /other.txt: 2 lines, 4 bytes.
created /other.txt +2 -0
2 requests, 1 tool call, 200 tokens in, 20 out, 0 s
version 01234567 in /tmp/state/pydantic-deep/agents.db
The agent worked on a copy; the directory is unchanged. To check out the files: pydantic-deep checkout 01234567
""")
    assert sorted(path.name for path in work.iterdir()) == ['new.txt', 'poem.txt']
    row = document(invoke('log', '--json'))[0]
    assert (row['branch'], row['is_head'], row['parent_id']) == ('side', False, two_turns[1])
    invoke('checkout', row['id'])
    assert sorted(path.name for path in work.iterdir()) == ['other.txt', 'poem.txt']


def test_branch_from_head_runs_in_the_directory(invoke: Invoke, two_turns: list[str], work: Path) -> None:
    write = call('write_file', path='/other.txt', content='1\n')
    events = invoke('branch', 'side', 'Else', ALLOW, '--json', model=ScriptedModel(write, 'Else.')).stdout.splitlines()
    last = json.loads(events[-1])
    assert (last['workspace']['is_in_directory'], (work / 'other.txt').exists()) == (True, True)
    assert document(invoke('log', '--json'))[0]['branch'] == 'side'


def test_branch_name_must_be_unique(invoke: Invoke, two_turns: list[str]) -> None:
    model = ScriptedModel()
    result = invoke('branch', 'main', 'Else', model=model)
    assert (result.exit_code, result.stdout) == (2, '')
    assert result.stderr == "The conversation has a branch 'main' already. Choose another name.\n"
    assert ids(invoke) == two_turns


@pytest.mark.parametrize('name', ['', ' ', 'HEAD', 'side~2'])
def test_branch_name_must_be_a_revision_of_its_own(invoke: Invoke, two_turns: list[str], name: str) -> None:
    """A branch `HEAD` or `side~2` could never be selected."""
    result = invoke('branch', name, 'Else', model=ScriptedModel())
    assert (result.exit_code, result.stdout) == (2, '')
    assert result.stderr.startswith(f'{name!r} cannot be the name of a branch: ')
    assert ids(invoke) == two_turns


def has_instructions(model: ScriptedModel) -> list[bool]:
    """Return for each request whether its instructions end with those of the conversation."""
    last = [request.messages[-1] for request in model.requests]
    texts = [message.instructions or '' for message in last if isinstance(message, ModelRequest)]
    return [text.endswith('\n\nSpeak like a pirate.') for text in texts]


def test_instructions_apply_to_all_turns_of_a_conversation(invoke: Invoke) -> None:
    """`run --instructions TEXT` adds instructions to all turns of the conversation, including continued ones."""
    model = ScriptedModel('one', 'two', 'three', 'four')
    assert invoke('run', 'Go', '--instructions', 'Speak like a pirate.', model=model).exit_code == 0
    assert invoke('run', 'On', '--continue', '--max-tokens', '1000000', model=model).exit_code == 0
    assert invoke('chat', '--from', 'HEAD~1', model=model, stdin='On\n').exit_code == 0
    assert invoke('run', 'Go', model=model).exit_code == 0
    assert has_instructions(model) == [True, True, True, False]


def test_result_is_one_document(invoke: Invoke) -> None:
    """`--output-format json` prints the last events of the turn as one document, and nothing else."""
    result = invoke('run', 'Go', '--output-format', 'json', model=ScriptedModel('Dóne.'))
    printed = json.loads(result.stdout)
    assert (result.exit_code, result.stderr) == (0, '')
    assert (printed['error'], printed['end']['output'], printed['end']['status']) == (None, 'Dóne.', 'complete')
    assert printed['end']['version_id'] == json.loads(invoke('show', '--json').stdout)['id']


def test_failure_is_in_the_document(invoke: Invoke) -> None:
    """The document of a failed turn, or of a turn without a model, has the error; exit codes are those of text."""
    failed = invoke('run', 'Go', '--output-format=json', model=ScriptedModel(*[ModelConnectionError('m', 'No.')] * 3))
    printed = json.loads(failed.stdout)
    assert (failed.exit_code, printed['error']['type'], printed['end']['status']) == (1, 'error', 'failed')
    missing = invoke('run', 'Go', '--output-format=json')
    assert (missing.exit_code, json.loads(missing.stdout)['error']['kind']) == (3, 'unusable_model')
    assert json.loads(missing.stdout)['end']['status'] == 'failed'


def test_events_are_lines(invoke: Invoke) -> None:
    """`--output-format stream-json` prints what `--json` prints; both together are the same, another format is not."""

    def events(*options: str) -> list[str]:
        printed = invoke('run', 'Go', *options, model=ScriptedModel('One.')).stdout
        return [json.loads(line)['type'] for line in printed.splitlines()]

    assert events('--output-format=stream-json') == events('--json') == events('--json', '--output-format=stream-json')
    assert events('--json')[-1] == 'end'
    refused = invoke('run', 'Go', '--json', '--output-format=json', model=ScriptedModel())
    assert refused.exit_code == 2
    assert '--json is --output-format=stream-json.' in refused.stderr
    unknown = invoke('run', 'Go', '--output-format=yaml', model=ScriptedModel())
    assert "'yaml' is not one of text, json," in unknown.stderr


def test_task_is_read_from_a_pipe(invoke: Invoke) -> None:
    """Without a task, `run` reads it from standard input; an empty input is refused."""
    model = ScriptedModel('One.')
    assert invoke('run', model=model, stdin='Count them').stdout == 'One.\n'
    assert 'Count them' in str(model.requests[0].messages)
    refused = invoke('run', model=ScriptedModel(), stdin=' ')
    assert (refused.exit_code, 'it is empty. Describe a task.' in refused.stderr) == (2, True)


def test_task_is_required_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a terminal, a missing task is not waited for."""

    class Keyboard(StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr('sys.stdin', Keyboard())
    with pytest.raises(typer.BadParameter, match=r'describe a task, or pipe it to standard input\.'):
        read_task(None)


@pytest.fixture
def other(work: Path) -> Path:
    """A directory beside the current one, which has project files."""
    (work / 'AGENTS.md').write_text('Use tabs.\n')
    (work / '.mcp.json').write_text('{"mcpServers": {}}')
    (work / 'pyproject.toml').write_text('[tool.pydantic-deep]\nmax_tokens = 9000\n')
    other = work.parent / 'other'
    other.mkdir()
    return other


@pytest.mark.parametrize(
    ('options', 'unused'),
    [
        ([], '.mcp.json, AGENTS.md, [tool.pydantic-deep] in pyproject.toml'),
        (['--no-project-config'], 'AGENTS.md'),
        (['--no-project-context'], '.mcp.json, [tool.pydantic-deep] in pyproject.toml'),
        (['--no-project-config', '--no-project-context'], None),
    ],
)
def test_project_files_of_the_current_directory_are_not_dropped_silently(
    invoke: Invoke, other: Path, options: list[str], unused: str | None
) -> None:
    """`--dir` selects the project: files of the current directory that have no effect are listed on one line."""
    result = invoke('run', 'Go', '--dir', '../other', *options, model=ScriptedModel('Done.'))
    lines = [line for line in result.stderr.splitlines() if 'current directory' in line]
    sentence = f'The project files of --dir ../other are used, not those of the current directory ({unused}).'
    assert lines == ([] if unused is None else [sentence])


def test_project_files_are_not_listed_where_they_have_an_effect(invoke: Invoke, other: Path, work: Path) -> None:
    """Files of the same name take their place, and an `AGENTS.md` above `--dir` in its git repository is read."""
    for name in ('AGENTS.md', '.mcp.json'):
        (other / name).write_bytes((work / name).read_bytes())
    (work / 'pyproject.toml').write_text('invalid')
    inner = work / 'inner'
    inner.mkdir()
    (inner / '.mcp.json').write_text('{"mcpServers": {}}')
    (work / '.git').mkdir()
    for directory in ('../other', 'inner', '.'):
        result = invoke('run', 'Go', '--dir', directory, model=ScriptedModel('Done.'))
        assert 'current directory' not in result.stderr
