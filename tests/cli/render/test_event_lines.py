"""Events as lines: calls, results, files, skills, usage and answers."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from inline_snapshot import snapshot
from rich.console import Console

from pydantic_deep.cli.render._event_lines import (
    render_call,
    render_file,
    render_skills,
    render_usage,
    summarize_result,
)
from pydantic_deep.cli.terminal._progress import ProgressDisplay
from pydantic_deep.skills import Skill, SkillCatalog, SkillDiagnostic
from pydantic_deep.streaming import FileEvent, StreamEvent, ToolCallEvent, ToolResultEvent, UsageEvent
from pydantic_deep.testing import FakeClock


def show(*events: StreamEvent, shows_answer: bool = False) -> str:
    stream = StringIO()
    with ProgressDisplay(
        Console(file=stream, width=60), clock=FakeClock().monotonic, shows_answer=shows_answer
    ) as progress:
        for event in events:
            progress.show(event)
    return stream.getvalue()


WRITE = ToolCallEvent(id='2', name='write_file', args=json.dumps({'path': '/a'}))


def test_failed_call_shows_the_reason_in_its_line() -> None:
    failed = ToolResultEvent(id='2', name='write_file', outcome='failed', content='It is not valid:\n1 error\npath')
    assert show(WRITE, failed) == snapshot('✗ write_file /a  It is not valid:\n')


@pytest.mark.parametrize(
    ('code', 'text', 'line'),
    [
        (0, 'boo\nhoo', '✓ execute make  2 lines'),
        (7, '[exit code 7]', '✗ execute make  exit code 7'),
        (7, 'boo\nhoo\n\n[exit code 7]', '✗ execute make  exit code 7: hoo'),
    ],
)
def test_failed_command_shows_its_exit_code(code: int, text: str, line: str) -> None:
    made = ToolCallEvent(id='3', name='execute', args=json.dumps({'command': 'make'}))
    result = ToolResultEvent(id='3', name='execute', outcome='success', content=text, exit_code=code)
    assert show(made, result) == f'{line}\n'


@pytest.mark.parametrize(
    ('args', 'line'),
    [
        ({}, '· t'),
        ({'limit': 3}, '· t'),
        ({'limit': 3, 'query': 'x', 'other': 'y'}, '· t x'),
        ({'path': '/a', 'content': 'long'}, '· t /a'),
        ({'path': '/a', 'pattern': 'x'}, '· t x /a'),
        ({'path': 3, 'content': 'long'}, '· t'),
        ({'command': '[red]x[/red]'}, '· t [red]x[/red]'),
    ],
)
def test_call_line_shows_the_main_arguments(args: dict[str, str | int], line: str) -> None:
    assert render_call(ToolCallEvent(id='1', name='t', args=json.dumps(args))).plain == line


@pytest.mark.parametrize('args', ['{"path": ', '["x"]'])
def test_arguments_that_are_not_an_object_are_shown_unchanged(args: str) -> None:
    assert render_call(ToolCallEvent(id='1', name='t', args=args)).plain == f'· t {args.strip()}'


@pytest.mark.parametrize(
    ('text', 'summary'), [('', ''), ('one\n', 'one'), ('a\nb\n', '2 lines'), ('x' * 300, 'x' * 199 + '…')]
)
def test_long_result_is_shown_as_a_line_count(text: str, summary: str) -> None:
    assert summarize_result(text) == summary


def test_newline_in_a_file_name_is_escaped() -> None:
    change = FileEvent(path='/a\nb', change='changed', added_lines=1, removed_lines=2)
    assert render_file(change).plain == 'changed /a\\nb +1 -2'


@pytest.mark.parametrize(
    ('tokens', 'shown'), [(0, '0'), (9_999, '9999'), (10_000, '10k'), (999_499, '999k'), (1_250_000, '1.2M')]
)
def test_token_counts_are_abbreviated(tokens: int, shown: str) -> None:
    assert f', {shown} tokens in, ' in render_usage(UsageEvent(input_tokens=tokens), 0).plain


def test_file_changed_by_a_command_has_no_line_counts() -> None:
    change = FileEvent(path='/a', change='changed', added_lines=None, removed_lines=None)
    assert render_file(change).plain == 'changed /a by a command'


def test_skills_and_diagnostics_print_one_line_each() -> None:
    wrong = SkillDiagnostic(severity='error', path='/s/\x1b', line=2, message='It is broken.', code='broken')
    catalog = SkillCatalog(skills={'haiku': Skill('haiku', 'Write\x1b one.\nNow.', body='x')}, diagnostics=[wrong])
    assert [line.plain for line in render_skills(catalog)] == snapshot(
        ['/haiku  Write\\x1b one.', '/s/\\x1b:2: error: It is broken. [broken]']
    )
