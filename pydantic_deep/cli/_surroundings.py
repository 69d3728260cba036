"""What the command line takes from outside, in one value: tests and programs that embed it bring their own."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic_ai.models import Model


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What commands work with."""

    models: Mapping[str, Model] = field(default_factory=dict[str, Model])
    """What `--model` may name besides the models of pydantic-ai."""
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    """The environment variables."""
    clock: Callable[[], float] = time.monotonic
    """Seconds that never go back."""

    @property
    def state_directory(self) -> Path:
        """Where what a person typed is kept (XDG Base Directory Specification, `XDG_STATE_HOME`)."""
        home = self.environment.get('XDG_STATE_HOME') or '~/.local/state'
        return Path(home).expanduser() / 'pydantic-deep'
