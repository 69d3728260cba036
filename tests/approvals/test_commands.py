"""Finding the commands in a shell line, for matching with patterns."""

from __future__ import annotations

import pytest

from pydantic_deep.approvals._commands import matches_any_command


@pytest.mark.parametrize(
    'line',
    [
        'rm -rf /',
        'rm',
        'ls; rm x',
        'ls && rm x',
        'ls | rm x',
        'ls & rm x',
        'ls\nrm x',
        '(rm x)',
        '{ rm x; }',
        'echo $(rm x)',
        'echo "$(rm x)"',
        'echo `rm x`',
        'echo "`rm x`"',
        'echo "$(echo `rm x`)"',
        'cat <(rm x)',
        '/bin/rm x',
        'A=b rm x',
        'sudo rm x',
        'sudo -u root rm x',
        'env -i A=b rm x',
        'timeout 5s rm x',
        'find . | xargs rm',
        'find . -name x -exec rm {} +',
        "sh -c 'rm x'",
        "bash -lc 'ls; rm x'",
        'sh -c "sh -c \'rm x\'"',
        "eval 'rm x'",
        'if true; then rm x; fi',
        '! rm x',
        'r\\m x',
        'r\\\nm x',
        "'rm' x",
        'r"m" x',
        'ls > out; rm x',
        'case x in x) rm x;; esac',
    ],
)
def test_command_anywhere_in_a_line_is_found(line: str) -> None:
    assert matches_any_command('rm *', line)


@pytest.mark.parametrize(
    'line',
    [
        'git commit -m "rm x"',
        "echo 'rm x; rm y'",
        'grep rm file',
        'rmdir x',
        '',
        'echo )',
        'eval',
        'find . -exec',
        'sh x -c',
    ],
)
def test_words_that_are_not_commands_are_not_matched(line: str) -> None:
    assert not matches_any_command('rm *', line)


def test_nested_shells_are_searched_to_a_limited_depth() -> None:
    line = 'rm x'
    for _ in range(3):
        line = f'eval {line!r}'
    assert matches_any_command('rm *', line)
    assert not matches_any_command('rm *', 'eval ' * 40 + "'true'")


def test_search_of_a_hostile_line_is_abandoned() -> None:
    assert not matches_any_command('rm *', 'eval ' * 2_000)
