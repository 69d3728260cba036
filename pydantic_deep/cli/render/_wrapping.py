"""Text wrapped to the width of a terminal without breaking commands, so that they can be copied and run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.text import Text

_TOKEN = re.compile(r"\S*`[^`\n]+`\S*|pydantic-deep [^`\n]+|pip install '[^'\n]+'\S*|\S+")
"""A word, or a command in backticks or to the end of its line."""

_COMMAND_HINT = re.compile('`|pydantic-deep |pip install ')
"""Matches lines that contain a command."""


def print_wrapped(console: Console, text: Text) -> None:
    """Print text, wrapped on a terminal and unchanged elsewhere.

    A command that does not fit into the rest of a line starts the next line. A command longer than a line is wrapped by
    the terminal, which adds no line break to copied text.
    """
    if not console.is_terminal or _COMMAND_HINT.search(text.plain) is None:
        console.print(text, soft_wrap=not console.is_terminal)
        return
    for line in text.split('\n', allow_blank=True):
        for part in wrapped_parts(line, console.width):
            console.print(part, soft_wrap=True)


def print_truncated(console: Console, text: Text) -> None:
    """Print a line, truncated to the width of a terminal and complete elsewhere."""
    if console.is_terminal:
        console.print(text, no_wrap=True, overflow='ellipsis')
    else:
        console.print(text, soft_wrap=True)  # `no_wrap` and `overflow` would take precedence


def print_lines(console: Console, lines: Iterable[RenderableType]) -> None:
    """Print lines, wrapped on a terminal and unchanged elsewhere."""
    for line in lines:
        if isinstance(line, Text):
            print_wrapped(console, line)
        else:
            console.print(line, soft_wrap=not console.is_terminal)


def wrapped_parts(line: Text, width: int) -> Iterator[Text]:
    """Split a line between tokens into parts that fit into the width."""
    start = end = 0
    for token in _TOKEN.finditer(line.plain):
        if end > start and cell_len(line.plain[start : token.end()]) > width:
            yield line[start:end]
            start = token.start()
        end = token.end()
    yield line[start:]
