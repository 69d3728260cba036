"""The output of `log`: the graph, and a line for each version."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest
from inline_snapshot import snapshot
from rich.console import Console
from typer.testing import Result

from pydantic_deep.cli.render._log import describe_age, print_log
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.views import Version
from tests.cli.conftest import document

Invoke = Callable[..., Result]


def test_log_draws_the_version_graph_of_the_directory(invoke: Invoke, history: list[str]) -> None:
    result = invoke('log')
    assert result.exit_code == 0
    text = result.stdout
    for number, id in enumerate(history):
        text = text.replace(id[-8:], f'version{number}')
    assert text == snapshot("""\
◌ version4 (HEAD, main) pause pending now  Wait
● version3 now  Look
│ ● version2 (side) now  Write \\x1b[31mnew  1 file
● │ version1 now  Fix the poem  1 file
├─╯
○ version0 root now  a conversation begins
""")


def test_log_shows_steps_below_their_turn(invoke: Invoke, history: list[str]) -> None:
    lines = invoke('log', '--steps', HEAD := 'HEAD').stdout.splitlines()
    assert HEAD in lines[0]
    lines = invoke('log', '--steps', '--limit', '3').stdout.splitlines()
    assert [line[0] for line in lines] == ['◌', '●', '·', '…']
    assert lines[2].endswith('now  calls task')


def test_log_truncates_prompts_to_the_terminal_width(invoke: Invoke, history: list[str]) -> None:
    rows = [Version(**row) for row in document(invoke('log', '--json'))]
    screen = Console(file=StringIO(), width=40, force_terminal=True, color_system=None)
    print_log(screen, [row for row in rows if row.kind == 'turn'], {}, titles={})
    assert isinstance(screen.file, StringIO)
    lines = screen.file.getvalue().splitlines()
    assert [len(line) <= 40 for line in lines] == [True] * len(lines)
    assert lines[1].endswith('…  1 file')


def test_log_in_a_pipe_prints_one_untruncated_line_per_version(invoke: Invoke) -> None:
    words = 'https://example.com/a/very/long/address/that/does/not/fit/in/eighty/columns/of/a/terminal and then more'
    invoke('run', words, model=ScriptedModel('Done.'))
    lines = invoke('log').stdout.splitlines()
    assert (len(lines), lines[0].endswith(f'now  {words}')) == (2, True)


@pytest.mark.parametrize(('seconds', 'age'), [(0, 'now'), (59, 'now'), (61, '1m'), (7_300, '2h'), (200_000, '2d')])
def test_ages_use_one_unit(seconds: int, age: str) -> None:
    now = datetime(2026, 1, 5, tzinfo=UTC)
    assert describe_age(now - timedelta(seconds=seconds), now) == age


ALLOW = '--approvals=allow'
READ = call('read_file', path='/poem.txt')
WRITE_A = call('write_file', path='/a.txt', content='a\n')
WRITE_B = call('write_file', path='/b.txt', content='b\n')


def ids_of(invoke: Invoke, *options: str) -> list[str]:
    """Return the version ids of the directory, oldest first."""
    return [row['id'] for row in reversed(document(invoke('log', '--json', *options)))]


def named(text: str, ids: Sequence[str]) -> str:
    """Replace version ids in the text with `version` and their index."""
    for number, id in enumerate(ids):
        text = text.replace(id, f'version{number}').replace(id[-8:], f'version{number}')
    return text


@pytest.fixture
def left_at_a_step(invoke: Invoke) -> list[str]:
    """The ids of the root, the steps of a turn, and its end. The second step is checked out, as after a crash."""
    invoke('run', 'Write both', ALLOW, model=ScriptedModel(WRITE_A, WRITE_B, READ, 'Wrote both.'))
    ids = ids_of(invoke, '--steps')
    assert invoke('checkout', ids[2]).exit_code == 0
    return ids


def test_log_shows_a_checked_out_step(invoke: Invoke, left_at_a_step: list[str]) -> None:
    assert named(invoke('log').stdout, left_at_a_step) == snapshot("""\
● version4 (main) now  Write both  2 files
· version2 (HEAD) step now  Write both  1 file
○ version0 root now  a conversation begins
""")
    assert named(invoke('log', '--limit', '1').stdout, left_at_a_step).startswith('● version4 (main) now')
    assert '\nPrompt\nWrite both\n' in (text := invoke('show').stdout)
    assert '✓ write_file /a.txt' in text
    details = document(invoke('show', '--json'))
    assert [each['name'] for each in details['tool_calls']] == ['write_file', 'write_file']
    assert (details['steps'], len(details['requests'])) == (left_at_a_step[1:2], 2)


def test_log_shows_a_step_that_another_turn_continues(invoke: Invoke, left_at_a_step: list[str]) -> None:
    invoke('run', 'Go on', '-c', model=ScriptedModel('Done.'))
    ids = [*left_at_a_step, ids_of(invoke)[-1]]
    assert named(invoke('log').stdout, ids) == snapshot("""\
● version5 (HEAD, branch-2) now  Go on
│ ● version4 (main) now  Write both  2 files
├─╯
· version2 step now  Write both  1 file
○ version0 root now  a conversation begins
""")
    assert document(invoke('diff', '--json'))['before'] == ids[2]
    assert document(invoke('diff', 'HEAD~', '--json'))['before'] == ids[0]
    invoke('run', 'Another', model=ScriptedModel('Done.'))
    another = document(invoke('log', '--json'))[0]['conversation_id']
    assert len(document(invoke('log', '--conversation', another, '--json'))) == 2


def test_log_shows_a_merged_step(invoke: Invoke, left_at_a_step: list[str]) -> None:
    """A merge with a step of an earlier turn has two lines, although other steps are not shown."""
    invoke('run', 'Go on', '-c', model=ScriptedModel('Done.'))
    assert invoke('merge', 'HEAD', left_at_a_step[3]).exit_code == 0
    ids = [*left_at_a_step, *ids_of(invoke)[-2:]]
    assert named(invoke('log').stdout, ids) == snapshot("""\
◆ version6 (branch-2) merge now  with version3  1 file
├─╮
● │ version5 (HEAD) now  Go on
│ │ ● version4 (main) now  Write both  2 files
│ ├─╯
│ · version3 now  calls read_file  1 file
├─╯
· version2 step now  Write both  1 file
○ version0 root now  a conversation begins
""")


def test_log_labels_an_edit_after_a_step(invoke: Invoke, left_at_a_step: list[str], work: Path) -> None:
    (work / 'poem.txt').write_text('mine\n')
    invoke('run', 'Go on', '-c', model=ScriptedModel('Done.'))
    assert 'edited without the agent  1 file\n' in invoke('log').stdout


def test_log_names_other_conversations_by_their_first_prompt(invoke: Invoke) -> None:
    """Several conversations have a branch `main`: only that of HEAD has a bare name, and no line repeats its prompt."""
    invoke('run', 'Plan', model=ScriptedModel('Planned.'))
    invoke('run', 'Refine', '-c', model=ScriptedModel('Refined.'))
    invoke('run', 'Ask', model=ScriptedModel('Asked.'))
    invoke('run', 'Write', model=ScriptedModel('Wrote.'))
    assert named(invoke('log').stdout, ids_of(invoke)) == snapshot("""\
● version6 (HEAD, main) now  Write
○ version5 root now  a conversation begins
● version4 now  Ask
○ version3 root now  a conversation begins
● version2 (main of “Plan”) now  Refine
● version1 now  Plan
○ version0 root now  a conversation begins
""")


@pytest.fixture
def merged_twice(invoke: Invoke) -> None:
    """A branch that is merged into `main` twice, from different versions, with a turn between the merges."""
    invoke('run', 'Begin', ALLOW, model=ScriptedModel(WRITE_A, 'Begun.'))
    invoke('run', 'Main', '-c', ALLOW, model=ScriptedModel(READ, 'Main.'))
    invoke('branch', 'side', 'Aside', '--from', 'HEAD~', ALLOW, model=ScriptedModel(WRITE_B, 'Aside.'))
    invoke('checkout', document(invoke('merge', 'HEAD', 'side', '--json'))['version']['id'])
    invoke('run', 'Between', '--from', 'side', model=ScriptedModel('Between.'))
    invoke('merge', 'HEAD', 'side')
    invoke('merge', 'HEAD~', 'side')
    invoke('run', 'End', '-c', model=ScriptedModel('End.'))


@pytest.mark.parametrize('options', [(), ('--steps',), ('HEAD',)])
def test_log_with_a_limit_begins_like_the_whole_log(
    invoke: Invoke, merged_twice: None, options: tuple[str, ...]
) -> None:
    """Wherever a limit cuts the graph, the lines above are those of the whole graph, and `…` ends the open columns."""
    whole = invoke('log', *options).stdout.splitlines()
    assert '…' not in whole[-1]
    count = sum(any(mark in line[:9] for mark in '○●·◆') for line in whole)
    for limit in range(1, count):
        *lines, end = invoke('log', *options, '--limit', str(limit)).stdout.splitlines()
        assert (lines, set(end)) == (whole[: len(lines)], set(end) & {'…', ' '})
    assert invoke('log', *options, '--limit', str(count)).stdout.splitlines() == whole
