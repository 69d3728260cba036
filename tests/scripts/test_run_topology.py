"""The script that runs PostgreSQL, servers and workers."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.cli.conftest import PATIENCE_SECONDS
from tests.public_modules import ROOT
from tests.store.ports import free_port

MODULE = """
import os

from pydantic_deep import create_deep_agent
from pydantic_deep.testing import ScriptedModel

agents = {'analyst': create_deep_agent(ScriptedModel(then=lambda *_: f'by {os.getpid()}'))}
"""


@pytest.mark.slow
def test_topology_executes_turns_of_any_server_in_a_worker_until_ctrl_c(tmp_path: Path) -> None:
    (tmp_path / 'topology_house.py').write_text(MODULE)
    program = [sys.executable, str(ROOT / 'scripts/run-topology.py'), 'topology_house:agents', '--workers', '1']
    command = [*program, '--port', str(free_port(2))]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            _, *urls = process.stdout.readline().split()
            assert process.stdout.readline().startswith('store:   postgresql://')
            headers = {'authorization': f'Bearer {process.stdout.readline().split()[1]}'}
            with httpx.Client(headers=headers, timeout=PATIENCE_SECONDS) as client:
                conversation = client.post(f'{urls[0]}/api/conversations', json={'agent': 'analyst'}).json()['id']
                outputs = [
                    client.post(f'{url}/api/conversations/{conversation}/turns', json={'prompt': 'Hi'}).json()['output']
                    for url in urls
                ]
                assert len(urls) == 2
                assert outputs[0] == outputs[1]
        finally:
            process.send_signal(signal.SIGINT)
            try:
                code = process.wait(PATIENCE_SECONDS)
            finally:
                process.terminate()  # else a process that ignores Ctrl-C is awaited forever
        assert code == 0
