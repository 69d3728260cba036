"""The contestants of the comparison, and the environment of each.

Each contestant is installed separately: the peers at the versions pinned in `environments/`, the bare library and ours
at those of `constraints.txt`. One peer has the same import name as ours, so environments cannot be shared.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parent.parent
"""The root of the repository."""

HERE = ROOT / 'benchmarks'
"""The directory of the benchmarks."""

CACHE = ROOT / '.cache' / 'bench'
"""Environments, the tree to search, and raw results. Safe to delete."""


EVERYBODY = frozenset({'import', 'create', 'step', 'history', 'search'})
"""Cases that every contestant runs."""

WHOLE = ('whole', 'whole-step', 'whole-create', 'delegate', 'skills', 'approve')
"""Cases of agents with more features than todos and files."""

STORE = ('store-step', 'store-growth')
"""Cases of agents with persisted steps."""

CONTEXT = ('context-coding', 'context-research', 'context-support', 'context-todos')
"""Sessions with counted requests, for agents with built-in history compaction."""

SERVER = ('server-streams',)
"""Cases of a server, for ours only."""

SCALE = ('store-late', 'store-lines', 'store-lists', 'store-gc', 'store-files', 'store-agents')
"""Cases of a store with many entries, for ours only."""


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """A framework that is measured."""

    name: str
    """The name of its column."""
    key: str
    """The key of its figures in the results."""
    environment: str
    """The name of its requirements file: `environments/ENVIRONMENT.txt`."""
    script: str
    """The script in `cases/` that runs its cases."""
    imports: str
    """The import statement of a user. Its CPU time is measured after `import pydantic_ai` if it builds on that."""
    cases: frozenset[str] = EVERYBODY | {'surface', 'memory', *WHOLE, *CONTEXT}
    """The cases that it supports."""
    on_pydantic_ai: bool = True
    """Whether it builds on pydantic-ai."""
    constrained: bool = False
    """Whether `constraints.txt` pins its dependencies; the requirements of a peer list all of them."""

    @property
    def requirements(self) -> Path:
        """The requirements file of its environment."""
        return HERE / 'environments' / f'{self.environment}.txt'


BARE = Contestant(
    name='bare pydantic-ai',
    key='bare',
    environment='bare',
    script='bare.py',
    imports='from pydantic_ai import Agent',
    cases=EVERYBODY | {'memory', 'store-step', *WHOLE} - {'whole', 'skills'},
    constrained=True,
)
BARE_LIST = replace(
    BARE,
    name='bare, in capabilities',
    key='bare-capabilities',
    script='bare_capabilities.py',
    cases=frozenset({'step', 'history', 'whole-step'}),
)
OURS = Contestant(
    name='ours',
    key='ours',
    environment='ours',
    script='ours.py',
    imports='from pydantic_deep import DeepAgentDeps, LocalBackend, StateBackend, create_deep_agent',
    cases=EVERYBODY | {'memory', 'surface', 'tree', *WHOLE, *STORE, *SCALE, *SERVER, *CONTEXT},
    constrained=True,
)
PEERS = (
    Contestant(
        name='pydantic-deep 0.3.50',
        key='peer-pydantic-deep',
        environment='peer-pydantic-deep',
        script='peer_pydantic_deep.py',
        imports='from pydantic_deep import DeepAgentDeps, create_deep_agent',
    ),
    Contestant(
        name='deepagents 0.7.32',
        key='peer-deepagents',
        environment='peer-deepagents',
        script='peer_deepagents.py',
        imports='from deepagents import create_deep_agent',
        cases=EVERYBODY | {'surface', *WHOLE, *STORE, *CONTEXT},
        on_pydantic_ai=False,
    ),
    Contestant(
        name='pydantic-ai-harness 0.62.0',
        key='peer-harness',
        environment='peer-pydantic-deep',
        script='peer_harness.py',
        imports='from pydantic_ai_harness.step_persistence import StepPersistence',
        cases=frozenset(STORE),
    ),
)


class CaseError(Exception):
    """A case failed, so there is no comparison."""

    def __init__(self, contestant: str, case: str, stderr: str) -> None:
        super().__init__(f'Case {case!r} of {contestant} failed:\n{stderr}')


def prepare(contestant: Contestant) -> str:
    """Return the Python of a contestant's environment, which is rebuilt when its requirements have changed."""
    directory = CACHE / contestant.environment
    python, mark = directory / 'bin' / 'python', directory / 'made-from'
    wanted = _fingerprint(contestant)
    if python.exists() and mark.exists() and mark.read_text() == wanted:
        return str(python)
    print(f'Making the environment of {contestant.name} …', file=sys.stderr)
    shutil.rmtree(directory, ignore_errors=True)
    arguments = ['-r', str(contestant.requirements)]
    if contestant.constrained:
        arguments += ['-c', str(ROOT / 'constraints.txt')]
    uv = shutil.which('uv') or shutil.which('uv', path=Path(sys.executable).parent)
    if uv:
        _call([uv, 'venv', '--quiet', '--python', sys.executable, str(directory)])
        _call([uv, 'pip', 'install', '--quiet', '--compile-bytecode', '--python', str(python), *arguments])
    else:
        _call([sys.executable, '-m', 'venv', str(directory)])
        _call([str(python), '-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', *arguments])
    mark.write_text(wanted)
    return str(python)


def _fingerprint(contestant: Contestant) -> str:
    requirements = contestant.requirements
    included = [line.removeprefix('-r ') for line in requirements.read_text().splitlines() if line.startswith('-r ')]
    sources = [requirements, *(requirements.parent / name for name in included)]
    if contestant.constrained:
        sources += [ROOT / 'constraints.txt', ROOT / 'pyproject.toml', ROOT / 'backends' / 'pyproject.toml']
    return hashlib.sha256(b'\0'.join([sys.version.encode(), *(path.read_bytes() for path in sources)])).hexdigest()


def _call(command: list[str]) -> None:
    subprocess.run(command, cwd=ROOT, check=True)


def run_case(contestant: Contestant, python: str, case: str, sizes: Mapping[str, object]) -> dict[str, float]:
    """Return the figures of one case, run in a separate process.

    Raises:
        CaseError: The case failed.
    """
    if case == 'import':
        command = [python, '-c', _import_program(contestant)]
    else:
        command = [python, str(HERE / 'cases' / contestant.script), case, json.dumps(sizes)]
    # Start in an empty directory, so that neither this checkout nor a stray configuration file is found.
    start = CACHE / 'start'
    start.mkdir(parents=True, exist_ok=True)
    finished = subprocess.run(command, cwd=start, env=_environment(), capture_output=True, text=True, check=False)
    if finished.returncode:
        raise CaseError(contestant.name, case, finished.stderr)
    return json.loads(finished.stdout.splitlines()[-1])


def _import_program(contestant: Contestant) -> str:
    """Return a program that prints the CPU time of the import: after pydantic-ai's own, and in total."""
    first = 'import pydantic_ai' if contestant.on_pydantic_ai else ''
    return '\n'.join(
        [
            'import json, time',
            'start = time.process_time()',
            first,
            'between = time.process_time()',
            contestant.imports,
            'end = time.process_time()',
            'print(json.dumps({"import_more_s": end - between, "import_s": end - start}))',
        ]
    )


def _environment() -> dict[str, str]:
    """Return the environment variables of a case: no keys, no telemetry, and no ripgrep on the `PATH`."""
    inherited = {name: os.environ[name] for name in ('HOME', 'LANG', 'LC_ALL', 'TMPDIR') if name in os.environ}
    return {**inherited, 'PATH': str(_programs_without_ripgrep()), 'LANGSMITH_TRACING': 'false'}


def _programs_without_ripgrep() -> Path:
    """Return a directory with links to the few programs that a contestant may start."""
    directory = CACHE / 'programs'
    directory.mkdir(parents=True, exist_ok=True)
    for name in ('bash', 'cat', 'env', 'find', 'grep', 'head', 'ls', 'sed', 'sh', 'sort', 'stat', 'timeout', 'wc'):
        program, link = shutil.which(name), directory / name
        if program and not link.exists():
            link.symlink_to(program)
    return directory
