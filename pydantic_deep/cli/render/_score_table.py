"""The comparison of agents over cases as a table, with the problems below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from ._tables import create_table, print_table
from ._terminal_text import escape_invisible
from ._wrapping import print_lines

if TYPE_CHECKING:
    from pydantic_deep.evals import CaseScore, Comparison

MAX_PROBLEM_LINES = 20
"""Maximum number of lines of a problem; --json has all of them."""

_STATES = {True: Text('solved', 'green'), False: Text('failed', 'red'), None: Text('')}


def render_scores(console: Console, comparison: Comparison) -> None:
    """Print a row for each case and agent, the totals of each agent, and the problems of unsolved cases."""
    table = create_table('case', 'agent', '')
    for name in ('requests', 'tokens', 'cost'):
        table.add_column(name, justify='right', no_wrap=True)
    last = ''
    for score in comparison.scores:
        table.add_row(*_cells(score, '' if score.case == last else score.case))
        last = score.case
    table.add_section()
    for number, score in enumerate(comparison.totals):
        solved = [one.is_solved for one in comparison.scores if one.agent == score.agent]
        state = Text('' if score.is_solved is None else f'{sum(map(bool, solved))}/{len(solved)}')
        table.add_row(*_cells(score, '' if number else 'total', state), style='bold')
    print_table(console, table)
    for score in comparison.scores:
        for problem in score.problems:
            lines = escape_invisible(problem).splitlines()
            more = len(lines) - MAX_PROBLEM_LINES
            lines = [*lines[:MAX_PROBLEM_LINES], *([f'… {more} more lines'] if more > 0 else [])]
            heading = Text(escape_invisible(f'\n{score.case}, {score.agent}:'), 'bold')
            print_lines(console, [heading, *(Text(f'  {line}') for line in lines)])


def _cells(score: CaseScore, case: str, state: Text | None = None) -> list[Text]:
    usage = score.usage
    cost = '' if usage.cost is None else f'${usage.cost:.4f}'
    return [
        Text(escape_invisible(case)),
        Text(escape_invisible(score.agent)),
        _STATES[score.is_solved] if state is None else state,
        Text(f'{usage.requests:,}'),
        Text(f'{usage.tokens:,}'),
        Text(cost),
    ]
