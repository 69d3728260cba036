"""Fixtures of the whole test suite. Requests to real models are disabled."""

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
    """Return a function that advances the event loop's clock by some seconds.

    Real timeouts of a tenth of a second depend on the speed of the machine. Tests set long timeouts instead, and
    advance
    the clock when they should expire. Event loops have no other interface to their clock.

    """

    def let_pass(seconds: float) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time
        monkeypatch.setattr(loop, 'time', lambda: now() + seconds)

    return let_pass


@pytest.fixture(scope='session', autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    """Keep the state of the command line out of the home directory of the user."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('XDG_STATE_HOME', str(tmp_path_factory.mktemp('state')))
        yield
