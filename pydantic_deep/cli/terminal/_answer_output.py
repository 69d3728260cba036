"""The answer on standard output: rendered on a terminal, unchanged elsewhere."""

from __future__ import annotations

import sys

from rich.console import Console

from pydantic_deep.cli.render._event_lines import render_answer


def print_answer(output: str) -> None:
    """Print the answer of the model, ending with a newline. On a terminal, control characters are escaped."""
    console = Console()
    if console.is_terminal:
        console.print()
        console.print(render_answer(output))
    else:
        sys.stdout.write(output if output.endswith('\n') else f'{output}\n')
        sys.stdout.flush()
