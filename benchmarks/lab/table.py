"""The results as Markdown: one row for each contestant, and one for each task. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import mean

from .runs import Run

Z_95 = 1.959964
"""The quantile of the normal distribution that leaves 2.5% on each side."""

COLUMNS = ('contestant', 'solved', '95%', 'requests', 'input tokens', 'output tokens', 'seconds', 'why not solved')


def wilson_interval(successes: int, total: int) -> tuple[float, float]:
    """Return the 95% interval of a proportion by Wilson, *Journal of the American Statistical Association* 22 (1927)."""
    if not total:
        return 0.0, 1.0
    proportion, spread = successes / total, Z_95**2 / total
    center = (proportion + spread / 2) / (1 + spread)
    half = Z_95 * math.sqrt(proportion * (1 - proportion) / total + spread / (4 * total)) / (1 + spread)
    return max(center - half, 0.0), min(center + half, 1.0)


def render_table(runs: Sequence[Run]) -> str:
    """Return the table of contestants, and the table of tasks below it. Figures are means of a run."""
    contestants = list(dict.fromkeys(run.contestant for run in runs))
    rows = [_contestant_row(name, [run for run in runs if run.contestant == name]) for name in contestants]
    tasks = list(dict.fromkeys(run.task for run in runs))
    cells = [[task, *(_task_cell(runs, task, name) for name in contestants)] for task in tasks]
    return f'{_markdown(COLUMNS, rows)}\n\n{_markdown(("task", *contestants), cells)}'


def _contestant_row(name: str, runs: Sequence[Run]) -> list[str]:
    solved = sum(run.solved for run in runs)
    low, high = wilson_interval(solved, len(runs))
    return [
        name,
        f'{solved} of {len(runs)}',
        f'{low:.0%} to {high:.0%}',
        f'{mean(run.requests for run in runs):.1f}',
        f'{mean(run.input_tokens for run in runs):,.0f}',
        f'{mean(run.output_tokens for run in runs):,.0f}',
        f'{mean(run.seconds for run in runs):,.0f}',
        _reasons(runs),
    ]


def _reasons(runs: Sequence[Run]) -> str:
    counts = Counter(run.reason for run in runs if run.reason is not None)
    cut_off = sum(run.solved and run.ending != 'finished' for run in runs)
    texts = [f'{count} {reason}' for reason, count in counts.most_common()]
    return ', '.join([*texts, *([f'({cut_off} solved, then cut off)'] if cut_off else [])])


def _task_cell(runs: Sequence[Run], task: str, contestant: str) -> str:
    own = [run for run in runs if (run.task, run.contestant) == (task, contestant)]
    solved = sum(run.solved for run in own)
    reasons = ', '.join(dict.fromkeys(run.reason for run in own if run.reason is not None))
    if len(own) <= 1:
        return reasons or ('solved' if own else '')
    return f'{solved} of {len(own)}' + (f': {reasons}' if reasons else '')


def _markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ['---'] * len(columns), *rows]
    return '\n'.join(f'| {" | ".join(line)} |' for line in lines)
