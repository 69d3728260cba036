"""Wrapping of sentences that contain commands."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console
from rich.text import Text

from pydantic_deep.cli.render._wrapping import print_wrapped


def printed(text: str, width: int, *, is_terminal: bool = True) -> list[str]:
    file = StringIO()
    print_wrapped(Console(file=file, width=width, force_terminal=is_terminal, color_system=None), Text(text))
    return file.getvalue().splitlines()


@pytest.mark.parametrize('width', [20, 40, 60, 80])
@pytest.mark.parametrize(
    ('sentence', 'commands'),
    [
        ('Paused: 1 call waits. Answer with: pydantic-deep resume 01234567', ['pydantic-deep resume 01234567']),
        (
            'It waits: answer with `pydantic-deep resume 01234567`, or go on with `pydantic-deep run --continue` now.',
            ['`pydantic-deep resume 01234567`,', '`pydantic-deep run --continue`'],
        ),
        ("Missing packages: pip install 'pydantic-ai-slim[NAME]'. More.", ["pip install 'pydantic-ai-slim[NAME]'."]),
        ('first line\nthen: pydantic-deep run --continue', ['pydantic-deep run --continue']),
    ],
)
def test_commands_are_never_wrapped(sentence: str, commands: list[str], width: int) -> None:
    """A command in a hint is on one line at any terminal width, and no word of the sentence is lost."""
    lines = printed(sentence, width)
    assert all(any(command in line for line in lines) for command in commands)
    assert ' '.join(lines).split() == sentence.split()
    assert all(len(line.rstrip()) <= width or any(command in line for command in commands) for line in lines)


def test_text_without_commands_is_wrapped_only_on_a_terminal() -> None:
    """A sentence without a command is wrapped at words. Output to other streams is not wrapped."""
    assert printed('one two three', 8) == ['one two ', 'three']
    assert printed('a `pydantic-deep log` b', 8, is_terminal=False) == ['a `pydantic-deep log` b']
