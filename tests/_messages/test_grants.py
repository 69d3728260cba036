"""Commands granted by the `allowed-tools` of a skill."""

from __future__ import annotations

import pytest

from pydantic_deep._messages.grants import commands_of, is_granted


def allows(entry: str, command: str) -> bool:
    return is_granted(commands_of([entry]), 'execute', {'command': command}, {})


@pytest.mark.parametrize(
    ('entry', 'command'),
    [
        ('execute(git status)', 'git status'),
        ('execute(git status *)', 'git status'),
        ('execute(git status *)', 'git status --short src/a.py'),
        ('execute( git  status  * )', 'git status "a b"'),
        ('Bash(git status:*)', "git status 'a b'"),
        ('Bash(npm run test:*)', 'npm run test -- --watch=no'),
    ],
)
def test_command_matching_a_pattern_is_granted(entry: str, command: str) -> None:
    """A pattern names one simple command, word by word. A star at its end allows any further words."""
    assert allows(entry, command)


@pytest.mark.parametrize(
    ('entry', 'tool', 'args'),
    [
        ('execute', 'execute', {'command': 'git'}),
        ('Bash', 'execute', {'command': 'git'}),
        ('read_file', 'read_file', {'path': 'a'}),
        ('Read(src/*)', 'read_file', {'path': 'src/a'}),
        ('execute(a)(b)', 'execute', {'command': 'a'}),
        ('execute(git *)', 'execute', {}),
        ('execute(git *)', 'execute', {'command': ['git']}),
        ('execute(git *)', 'execute', {'command': 'git', 'env': {'A': 'b'}}),
        ('execute(git *)', 'run', {'command': 'git'}),
        ('execute()', 'execute', {'command': 'git'}),
        ('execute(*)', 'execute', {'command': 'git'}),
        ('execute(git\u200b *)', 'execute', {'command': 'git\u200b'}),
    ],
)
def test_other_calls_are_not_granted(entry: str, tool: str, args: dict[str, object]) -> None:
    """Only a call of `execute` with a matching command and no other argument is granted."""
    assert not is_granted(commands_of([entry]), tool, args, {})


@pytest.mark.parametrize(
    'command',
    [
        'git status; rm -rf /', 'git status && rm x', 'git status | sh', 'git status || x', 'git status & x',
        'git status > /etc/passwd', 'git status < x', 'git status $(rm x)', 'git status `rm x`', 'git status $HOME',
        'git status\nrm x', 'git status\rrm x', 'git status \\; rm', "git status '", 'git status "', 'git status *',
        'git status ?', 'git status [a]', 'git status {a,b}', 'git status ~', 'git status #x', 'git status !x',
        'git status \x00', 'git status \u202e', 'GIT_DIR=x git status', 'gitstatus', 'git', '',
        'git  ', 'git commit', '"git status"', 'xgit status', '(git status)', 'git-status',
    ],
)  # fmt: skip
def test_compound_or_different_command_is_not_granted(command: str) -> None:
    """Operators, expansions, redirections, assignments and invisible characters are never granted."""
    assert not allows('execute(git status *)', command)


@pytest.mark.parametrize(
    ('entry', 'command'),
    [
        ('execute(git status)', 'git status --short'),
        ('execute(git * main)', 'git push main'),
        ('execute(*:*)', 'git'),
        ('execute([g]it *)', 'git push'),
        ('execute(gi? *)', 'git push'),
    ],
)
def test_wildcards_are_allowed_only_at_the_end(entry: str, command: str) -> None:
    """Without a star no further words are granted, and wildcards elsewhere grant nothing."""
    assert not allows(entry, command)


def test_equivalent_entries_are_one_command() -> None:
    assert commands_of(['Bash(git log:*)', 'execute(git  log *)', 'Read', 'Bash(ls)']) == ('git log *', 'ls')
