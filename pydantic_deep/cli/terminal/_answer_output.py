"""The answer on standard output: rendered for a person, as it is for a program."""

from __future__ import annotations

import sys

from rich.console import Console

from pydantic_deep.cli.render._event_lines import render_answer


def print_answer(output: str) -> None:
    """Print what the model answered; it can drive no terminal, and ends with a newline."""
    console = Console()
    if console.is_terminal:
        console.print()
        console.print(render_answer(output))
    else:
        sys.stdout.write(output if output.endswith('\n') else f'{output}\n')
        sys.stdout.flush()
