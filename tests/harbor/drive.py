"""Runs `pydantic-deep acp` by the agent class of Harbor, in an environment that is this machine instead of a container.

It installs, starts and drives our agent as a benchmark does, with permissions, the files and the terminals of Harbor's
client. It runs in an environment with Harbor: see `scripts/test-harbor.sh`.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from harbor.agents.installed.acp import AcpAgent
from harbor.environments.base import ExecResult
from harbor.models.agent.context import AgentContext

ROOT = Path(__file__).resolve().parents[2]
PYTHON = str(ROOT / '.venv/bin/python')
FIXED = ('/installed-agent', '/logs/agent')
"""Directories of a container, which are below the directory of the test here."""


class ThisMachine:
    """The operations of an environment that the agent class uses. System packages are not installed."""

    default_user = None

    def __init__(self, top: Path) -> None:
        self.top = top
        self.work = top / 'work'
        self.work.mkdir()
        for path in FIXED:
            self.place(path).mkdir(parents=True)

    def place(self, path: str) -> Path:
        """Return the path on this machine."""
        return Path(self._translate(path))

    async def exec(self, command: str, env: dict[str, str] | None = None, **_: Any) -> ExecResult:
        if 'apt-get update' in command:
            return ExecResult(return_code=0)
        process = await asyncio.create_subprocess_exec(
            'bash',
            '-c',
            self._translate(command),
            cwd=self.work,
            env={**os.environ, **(env or {})},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        return ExecResult(return_code=process.returncode or 0, stdout=output.decode())

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        self.place(target_path).write_text(self._translate(Path(source_path).read_text()))

    def _translate(self, text: str) -> str:
        text = text.replace('/opt/harbor-acp-venv/bin/python', PYTHON)
        for path in FIXED:
            text = text.replace(path, f'{self.top}{path}')
        return text


async def run(prompt: str, *, permission_mode: str) -> tuple[ThisMachine, dict[str, Any]]:
    """Install the agent, run one prompt, and return the environment and Harbor's record of the run."""
    top = Path(tempfile.mkdtemp()).resolve()
    environment: Any = ThisMachine(top)
    local = {
        'cmd': PYTHON,
        'args': [str(ROOT / 'tests/js/acp_agent.py'), '--terminal'],
        'env': {'HOME': str(top), 'XDG_STATE_HOME': str(top)},
    }
    entry = {
        'id': 'pydantic-deep',
        'name': 'Pydantic Deep',
        'version': '0',
        'description': 'The agent of this repository.',
        'distribution': {'local': local},
    }
    logs = environment.place('/logs/agent')
    agent = AcpAgent(registry_entry=entry, logs_dir=logs, permission_mode=permission_mode)
    await agent.setup(environment)
    context = AgentContext()
    await agent.run(prompt, environment, context)
    agent.populate_context_post_run(context)
    return environment, json.loads((logs / 'trajectory.json').read_text())


async def main() -> None:
    environment, record = await run('run echo made | tee made.txt', permission_mode='allow')
    user, call, answer = record['steps']
    check(user['message'], 'run echo made | tee made.txt')
    check(call['tool_calls'][0]['function_name'], 'execute')
    check('made' in call['observation']['results'][0]['content'], True)
    check(answer['message'], 'Done: made')
    check((environment.work / 'made.txt').read_text(), 'made\n')

    environment, record = await run('write Hello', permission_mode='deny')
    check(record['steps'][1]['extra']['permissions_requested'], 1)
    check(list(environment.work.iterdir()), [])
    print('Harbor has run the agent, with a command that it permitted and a change that it denied.')


def check(actual: object, expected: object) -> None:
    """End the program with a message if two values differ."""
    if actual != expected:
        raise SystemExit(f'Expected {expected!r}, and got {actual!r}.')


if __name__ == '__main__':
    asyncio.run(main())
