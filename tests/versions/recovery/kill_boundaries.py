"""A program that kills a turn after each of its writes in turn, recovers it, and checks the result.

    python tests/versions/recovery/kill_boundaries.py URL --files DIRECTORY

It is deterministic, except for small differences in the order of parallel calls.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from pathlib import Path

from kill_rounds import NEVER, Arena, Death, warm_up

BATCH = 8
"""Number of turns killed at once, each with its own conversation and directory."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description='Kill a turn at every boundary, recover, check.')
    parser.add_argument('url')
    parser.add_argument('--files', type=Path, required=True)
    options = parser.parse_args(arguments)
    warnings.simplefilter('error')
    arena = Arena(url=options.url, files=options.files, turns=1)
    warm_up(arena)
    wrong: list[str] = []
    first, is_over = 1, False
    while not is_over:
        deaths = {f'b{at}': Death(at_write=at, after=True) for at in range(first, first + BATCH)}
        lines = arena.run_all({death: arena.worker(name, death) for name, death in deaths.items()})
        is_over = any(line.startswith('writes ') for line in lines)
        first += BATCH
        lines += arena.run_all({NEVER: arena.mender([*deaths], NEVER)})
        lines += arena.run_all({NEVER: arena.checker([*deaths], lines)})
        wrong += [line for line in lines if line.startswith('wrong ')]
    killed = arena.counts['killed']
    print(json.dumps({'boundaries': killed, 'wrong': wrong}), flush=True)
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
