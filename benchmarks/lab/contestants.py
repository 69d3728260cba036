"""The agents that are compared, and their environments.

Environments are those of the other benchmarks with a client for OpenAI's API: `benchmarks/environments/lab-*.txt`.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

from benchmarks.contestants import BARE, OURS, PEERS, Contestant, prepare

from .runs import Launch

AGENTS = Path(__file__).parent / 'agents'
"""The directory of the scripts."""


def _of_lab(contestant: Contestant, key: str) -> Contestant:
    return replace(contestant, key=key, environment=f'lab-{contestant.environment}')


CONTESTANTS = {
    contestant.key: contestant
    for contestant in (
        _of_lab(BARE, 'bare'),
        _of_lab(OURS, 'ours'),
        _of_lab(PEERS[0], 'pydantic-deep'),
        _of_lab(PEERS[1], 'deepagents'),
    )
}
"""The contestants by name."""

INSTALLED_HERE = ('bare', 'ours')
"""The contestants that can also run in the project's own environment."""


def launch(name: str, *, is_here: bool) -> Launch:
    """Return a contestant that is ready to run.

    Args:
        name: A key of `CONTESTANTS`.
        is_here: Whether it runs in the environment of this process, if it can.
    """
    contestant = CONTESTANTS[name]
    python = sys.executable if is_here and name in INSTALLED_HERE else prepare(contestant)
    inherited = {key: os.environ[key] for key in ('LANG', 'LC_ALL', 'PATH', 'TMPDIR') if key in os.environ}
    return Launch(
        contestant=name,
        command=(python, str(AGENTS / contestant.script)),
        environment={**inherited, 'LANGSMITH_TRACING': 'false'},
    )
