"""The tasks tagged `easy` of the package `harness-bench-fast`, in an environment of their own.

The package is installed without its dependencies, which include an agent framework. Its verifiers run code that the
model wrote.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.contestants import CACHE, HERE

from .tasks import REQUEST_LIMIT

SCRIPT = Path(__file__).parent / 'agents' / 'harness_tasks.py'

REQUIREMENTS = HERE / 'environments' / 'lab-harness.txt'


@dataclass(frozen=True, kw_only=True)
class HarnessTask:
    """A task of the package."""

    id: str
    prompt: str
    python: str
    """The Python of the package's environment."""
    denied: tuple[str, ...] = ()
    has_skills: bool = False
    request_limit: int = REQUEST_LIMIT

    def write(self, directory: Path) -> None:
        """Write the files at the start."""
        _ask(self.python, 'write', self._name, str(directory))

    def check(self, directory: Path) -> str | None:
        """Return the mistake in the files at the end, or `None`."""
        return _ask(self.python, 'check', self._name, str(directory))

    @property
    def _name(self) -> str:
        return self.id.partition('/')[2]


def easy_tasks(count: int) -> list[HarnessTask]:
    """Return the first easy tasks; the first call installs the package."""
    if not count:
        return []
    python = _prepare()
    tasks = _ask(python, 'list')[:count]
    return [HarnessTask(id=f'easy/{task["id"]}', prompt=task['prompt'], python=python) for task in tasks]


def _prepare() -> str:
    directory = CACHE / 'lab-harness'
    python, mark = directory / 'bin' / 'python', directory / 'made-from'
    if not mark.exists() or mark.read_text() != REQUIREMENTS.read_text():
        subprocess.run([sys.executable, '-m', 'venv', '--clear', str(directory)], check=True)
        # It declares Python 3.12 and these tasks run on 3.11 too, which pip can be made to accept and uv cannot.
        options = ['--quiet', '--disable-pip-version-check', '--no-deps', '--ignore-requires-python']
        subprocess.run([str(python), '-m', 'pip', 'install', *options, '-r', str(REQUIREMENTS)], check=True)
        mark.write_text(REQUIREMENTS.read_text())
    return str(python)


def _ask(python: str, *arguments: str) -> Any:
    done = subprocess.run([python, str(SCRIPT), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f'{SCRIPT.name} {" ".join(arguments)} failed:\n{done.stderr}')
    return json.loads(done.stdout.splitlines()[-1])
