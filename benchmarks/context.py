"""Context cost: only the sessions of `cases/sessions.py`, with the cost of each contestant broken down by part.

`run.py --only context-coding` and so on measures the same sessions; this script also prints the parts of the cost.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence

from contestants import CACHE, CONTEXT, OURS, PEERS, CaseError
from report import render_table
from run import main as run

PARTS = {
    'head': 'tools and instructions',
    'said': 'what users and the model said',
    'calls': 'calls',
    'results': 'results of tools',
    'summary': 'summaries',
    'output': 'output',
    'summarizer': 'requests to summarize',
}
"""Titles of the parts of the cost, by the suffix of their key."""


def main(arguments: Sequence[str]) -> int:
    """Measure the sessions and print the tables. The arguments are those of `run.py`."""
    only = [word for case in CONTEXT for word in ('--only', case)]
    code = run([*only, *arguments])
    print(f'\n{render_parts(json.loads((CACHE / "results.json").read_text()))}')
    return code


def render_parts(samples: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    """Return the parts of the cost as a table, in thousands of input tokens."""
    columns = [
        contestant for contestant in (OURS, *PEERS) if f'{CONTEXT[0][8:]}_cost' in samples.get(contestant.key, {})
    ]
    rows = [['', *(contestant.name for contestant in columns)]]
    for case in CONTEXT:
        session = case.removeprefix('context-')
        keys = {f'{session}_cost': f'{session}: cost'} | {f'{session}_cost_{end}': f'… {PARTS[end]}' for end in PARTS}
        keys |= {f'{session}_largest': '(longest request)'}
        rows += [
            [title, *(f'{samples[contestant.key][key][0]:,.0f}' for contestant in columns)]
            for key, title in keys.items()
        ]
    return render_table(rows)


if __name__ == '__main__':
    try:
        sys.exit(main(sys.argv[1:]))
    except CaseError as error:
        sys.exit(str(error))
