"""Patterns for command lines, which match only a single simple command."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydantic_deep._text.simple_command import MAX_LINE_CHARS, Reader, matches_simple_command


@pytest.mark.parametrize(
    ('pattern', 'line'),
    [
        ('git status', 'git status'),
        ('git status *', 'git status'),
        ('git status *', 'git  status\t--short -b'),
        ('ls *', 'ls /any/where .. -l'),
        ('cat *.txt', 'cat notes.txt'),
        ('cat src/*', 'cat src/a.py'),
        ('pytest --maxfail=*', 'pytest --maxfail=3'),
        ('echo *', "echo 'a; rm -rf / $(x) `y` > z'"),
        ('echo *', 'echo "two words; and a pipe | here"'),
        ('echo two*', "echo 'two words'"),
        ('echo a', "echo 'a'"),
    ],
)
def test_simple_command_matches_word_by_word(pattern: str, line: str) -> None:
    assert matches_simple_command(pattern, line)


@pytest.mark.parametrize(
    ('pattern', 'line'),
    [
        ('git status', 'git status --short'),
        ('git status *', 'git stash'),
        ('git status *', 'git'),
        ('git status *', "'git status'"),
        ('*', ''),
        ('*', '   '),
        ('cat src/*', 'cat src/a/../../secret'),
        ('cat src/*', 'cat src/..'),
        ('cat src/*/x', 'cat src/../x'),
        ('cat *.txt', 'cat /etc/notes.txt'),
    ],
)
def test_command_that_does_not_fit_the_pattern_does_not_match(pattern: str, line: str) -> None:
    assert not matches_simple_command(pattern, line)


@pytest.mark.parametrize(
    'line',
    [
        'git status; rm -rf /',
        'git status && rm x',
        'git status || rm x',
        'git status | sh',
        'git status & rm x',
        'git status\nrm x',
        'git status\rrm x',
        'git status > /etc/passwd',
        'git status < /etc/passwd',
        'git status $(rm x)',
        'git status "$(rm x)"',
        'git status `rm x`',
        'git status "`rm x`"',
        'git status $HOME',
        'git status "$HOME"',
        'git status ${HOME}',
        'git status {a,b}',
        'git status ~root',
        'git status *.py',
        'git status ?',
        'git status [ab]',
        'git status !!',
        'git status # comment',
        'git status \\; rm x',
        'git status "\\""',
        "git status 'open",
        'git status "open',
        'git status (x)',
        'git status )',
        'git status <(rm x)',
        'git status \x00',
        'git status \u202ex',
        'git status \u200b',
        'GIT_DIR=/tmp git status',
        'A=b',
        "'a=b' x",
        'git status ' + 'x' * MAX_LINE_CHARS,
    ],
)
def test_anything_but_one_simple_command_never_matches(line: str) -> None:
    assert not matches_simple_command('*', line)
    assert not matches_simple_command('git status *', line)


@given(st.text(st.sampled_from('abgit \t\n;&|<>$`(){}[]*?~!#\\\'"=/.-\x00\u202e'), max_size=30))
def test_matching_line_is_read_like_in_a_posix_shell(line: str) -> None:
    if matches_simple_command('*', line):
        assert Reader(line).read().commands == [tuple(shlex.split(line))]
