"""Text wrapped to the width of a terminal without breaking commands, so that they can be copied and run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.text import Text

_TOKEN = re.compile(r"\S*`[^`\n]+`\S*|pydantic-deep [^`\n]+|pip install '[^'\n]+'\S*|\S+")
"""A word, or a command: in backticks, or to the end of its line."""

_COMMAND_HINT = re.compile('`|pydantic-deep |pip install ')
"""What only lines with a command have."""


def print_wrapped(console: Console, text: Text) -> None:
    """Print text, wrapped on a terminal and unchanged elsewhere.

    A command that does not fit into the rest of a line begins the next; one longer than a line is left to the terminal,
    which puts no line end into what is copied from it.
    """
    if not console.is_terminal or _COMMAND_HINT.search(text.plain) is None:
        console.print(text, soft_wrap=not console.is_terminal)
        return
    for line in text.split('\n', allow_blank=True):
        for part in _wrapped_parts(line, console.width):
            console.print(part, soft_wrap=True)


def print_truncated(console: Console, text: Text) -> None:
    """Print a line that a terminal shows as one line, however narrow it is, and any other reader whole."""
    if console.is_terminal:
        console.print(text, no_wrap=True, overflow='ellipsis')
    else:
        console.print(text, soft_wrap=True)  # alone: what is said of wrapping beside it counts before it


def print_lines(console: Console, lines: Iterable[RenderableType]) -> None:
    """Print lines, wrapped on a terminal and unchanged elsewhere."""
    for line in lines:
        if isinstance(line, Text):
            print_wrapped(console, line)
        else:
            console.print(line, soft_wrap=not console.is_terminal)


def _wrapped_parts(line: Text, width: int) -> Iterator[Text]:
    """Yield a line in parts that fit into the width, broken between tokens."""
    start = end = 0
    for token in _TOKEN.finditer(line.plain):
        if end > start and cell_len(line.plain[start : token.end()]) > width:
            yield line[start:end]
            start = token.start()
        end = token.end()
    yield line[start:]
