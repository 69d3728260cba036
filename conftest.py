"""Configuration of both test suites: property tests use the same examples in every run, and more in a soak.

Coverage of processes that tests start is measured only where a test asks for it, because it doubles their start, and a
killed process leaves an unreadable file.

Garbage collection is off until all tests are collected, and then ignores the objects that exist at that point, because
imported modules remain in memory anyway. It runs less often than by default, which took 5% of the time.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

gc.disable()

COVERAGE = {name: value for name, value in os.environ.items() if name.startswith('COVERAGE')}
"""The variables with which each Python process measures its coverage."""

if 'PYTEST_XDIST_WORKER' in os.environ:  # which measures already
    for name in COVERAGE:
        del os.environ[name]

# Each HTTP client reads the certificates of all authorities, which takes longer than many tests. The tests contact nobody
# but servers on loopback, so one certificate, whose key does not exist any more, is enough.
os.environ['SSL_CERT_FILE'] = str(Path(__file__).parent / 'tests/no_authority.pem')

# No time limits: on a busy machine, tests are slow but correct. The suite uses the same examples every time, so that a
# change that causes a failure is the one under test.
base_profile = settings(database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile('suite', base_profile, derandomize=True)
settings.register_profile('soak', base_profile, max_examples=5000)
settings.load_profile('soak' if 'SOAK_ROUNDS' in os.environ else 'suite')


@pytest.fixture
def measured_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure the coverage of processes that a test starts."""
    for name, value in COVERAGE.items():
        monkeypatch.setenv(name, value)


def pytest_collection_finish() -> None:
    """Turn garbage collection on, for objects created from here on."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()
