"""The simulation of fleets in `benchmarks/capacity.py` obeys the laws of queues."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2] / 'benchmarks'


@pytest.fixture
def capacity(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, 'path', [str(ROOT), *sys.path])
    monkeypatch.delitem(sys.modules, 'run', raising=False)
    return __import__('capacity')


def test_agents_that_never_wait_are_limited_by_their_model(capacity: ModuleType) -> None:
    rate, late = capacity.simulate(
        10, model_s=1.0, worker_ms=1.0, worker_cores=10, database_ms=1.0, database_cores=10, seconds=400
    )
    assert rate == pytest.approx(10 / 1.002, rel=0.03)
    assert late == pytest.approx(0.002, rel=0.01)


@pytest.mark.parametrize(('workers', 'database', 'limit'), [(2, 50, 200), (50, 2, 400)])
def test_busiest_cores_limit_the_rate(capacity: ModuleType, workers: int, database: int, limit: float) -> None:
    """With more agents than can be served, the rate is that of the busiest cores, and Little's law gives the delay."""
    rate, late = capacity.simulate(
        2000, model_s=1.0, worker_ms=10.0, worker_cores=workers, database_ms=5.0, database_cores=database, seconds=60
    )
    assert rate == pytest.approx(limit, rel=0.02)
    assert late + 1.0 == pytest.approx(2000 / rate, rel=0.1)
