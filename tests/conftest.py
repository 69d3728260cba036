"""Fixtures of the whole suite. Requests to real models are switched off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator

import pytest
from pydantic_ai import models

models.ALLOW_MODEL_REQUESTS = False


@pytest.fixture
def anyio_backend() -> str:
    return 'asyncio'


@pytest.fixture
def let_time_pass(anyio_backend: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return what lets seconds pass for all that the event loop of a test has promised to end at some time.

    How far something gets in a tenth of a second is a matter of the machine: so a time that is to be over in a test is
    far away until the test says that it has come. Loops have no other door to their clock.
    """

    def let_pass(seconds: float) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time
        monkeypatch.setattr(loop, 'time', lambda: now() + seconds)

    return let_pass


@pytest.fixture(scope='session', autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    """Let the command line keep nothing in the home of whoever runs the suite."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('XDG_STATE_HOME', str(tmp_path_factory.mktemp('state')))
        yield
