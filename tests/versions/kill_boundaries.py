"""A program: ends a turn right after each of its writes, one after another, recovers it, and checks what is there then.

    python tests/versions/kill_boundaries.py URL --files DIRECTORY

Nothing is left to chance: what runs at once in a turn meets in the same way each time, or nearly so.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from pathlib import Path

from kill_rounds import NEVER, Arena, Death, Program, warm_up


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description='Kill a turn at every boundary, recover, check.')
    parser.add_argument('url')
    parser.add_argument('--files', type=Path, required=True)
    parser.add_argument('--only', type=int)
    options = parser.parse_args(arguments)
    warnings.simplefilter('error')
    arena = Arena(url=options.url, files=options.files, turns=1)
    warm_up(arena)
    wrong: list[str] = []
    at = options.only or 1
    while True:
        name = f'b-{at}'
        death = Death(at_write=at, after=True)
        lines = arena.run_all({death: _worker(arena, name, death)})
        is_killed = not any(line.startswith('writes ') for line in lines)
        lines += arena.run_all({NEVER: _mender(arena, name)})
        known = [line for line in lines if line.startswith(('version ', 'call '))]
        lines += arena.run_all({NEVER: _checker(arena, name, known)})
        wrong += [f'{name}: {line}' for line in lines if line.startswith('wrong ')]
        if not is_killed or options.only:
            break
        at += 1
    print(json.dumps({'boundaries': at, 'wrong': wrong}), flush=True)
    return 1 if wrong else 0


def _worker(arena: Arena, name: str, death: Death) -> Program:
    return lambda tell: arena.work(name, death, tell)


def _mender(arena: Arena, name: str) -> Program:
    return lambda tell: arena.mend([name], NEVER, tell)


def _checker(arena: Arena, name: str, known: list[str]) -> Program:
    return lambda tell: arena.check([name], known, tell)


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
