"""The command line in this process, with a model, a clock and an environment that a test chooses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TypeAlias

import pytest
from pydantic_ai.models import Model
from typer.testing import CliRunner, Result

from pydantic_deep.cli._app import app
from pydantic_deep.cli._approvals import ApprovalMode
from pydantic_deep.cli._run import Worker
from pydantic_deep.cli._surroundings import Surroundings
from pydantic_deep.cli._worker import MAX_TOKENS, Settings, open_worker
from pydantic_deep.testing import FakeClock

Invoke: TypeAlias = Callable[..., Result]
MakeWorker: TypeAlias = Callable[..., Worker]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A directory with one file in it."""
    directory = tmp_path / 'work'
    directory.mkdir()
    (directory / 'poem.txt').write_text('rose\nviolet\n')
    return directory


@pytest.fixture
def invoke(work: Path, tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Run the command line in the directory; standard streams are no terminal."""
    monkeypatch.chdir(work)

    def invoke(
        *args: str, model: Model | None = None, environment: Mapping[str, str] | None = None, stdin: str = ''
    ) -> Result:
        models = {} if model is None else {'given': model}
        named = {} if model is None else {'PYDANTIC_DEEP_MODEL': 'given'}
        surroundings = Surroundings(
            models=models,
            environment={
                'XDG_STATE_HOME': str(tmp_path / 'state'),
                'HOME': str(tmp_path / 'home'),
                **named,
                **(environment or {}),
            },
            clock=clock.monotonic,
            open_terminal=nullcontext,
        )
        return CliRunner().invoke(app, list(args), obj=surroundings, input=stdin)

    return invoke


@pytest.fixture
def make_worker(work: Path, clock: FakeClock) -> MakeWorker:
    """Make an agent in the directory."""

    def make(
        model: Model,
        *,
        approvals: ApprovalMode = ApprovalMode.allow,
        max_tokens: int = MAX_TOKENS,
        sandbox: bool = False,
    ) -> Worker:
        surroundings = Surroundings(models={'given': model}, environment={'HOME': '/nowhere'}, clock=clock.monotonic)
        settings = Settings(directory=str(work), model='given', max_tokens=max_tokens, sandbox=sandbox)
        return open_worker(surroundings, settings, approvals=approvals)

    return make
