"""The tables of the server page match the server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow
def test_tables_of_routes_and_settings_are_up_to_date() -> None:
    script = ROOT / 'scripts/write_server_tables.py'

    done = subprocess.run([sys.executable, script, '--check'], check=False, capture_output=True, text=True)

    assert done.returncode == 0, f'Run {script.name}: {done.stderr}'
