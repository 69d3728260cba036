"""The external dependencies of commands, in one value. Tests, and programs that embed the command line, replace it."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import anyio
from pydantic_ai.models import Model

from pydantic_deep.cli.terminal._terminal import Terminal, open_terminal

OpenTerminal: TypeAlias = Callable[[], AbstractContextManager[Terminal | None]]
"""Opens the terminal for prompts."""


VARIABLES: Mapping[str, str] = {
    '`PYDANTIC_DEEP_MODEL`': 'The model, if `--model` is not given; stronger than configuration files.',
    '`ANTHROPIC_API_KEY`, `OPENAI_API_KEY`, `GOOGLE_API_KEY`, `GEMINI_API_KEY`': 'The key of a provider. The first that '
    'is set chooses the default model. `pydantic-deep models` lists the variables of other providers.',
    '`OPENAI_BASE_URL`': 'The address of a server with the API of OpenAI.',
    '`PYDANTIC_DEEP_STORE`': 'The store of versions, if `--store` is not given.',
    '`PYDANTIC_DEEP_BLOBS`': 'Object storage for large contents of the store, such as `s3://bucket/prefix`. Set it whenever '
    'you use a store that was written with it.',
    '`PYDANTIC_DEEP_SERVER_…`': 'A setting of the server, such as `PYDANTIC_DEEP_SERVER_PORT`. Lists are JSON.',
    '`VISUAL`, `EDITOR`': 'The editor for the arguments of a call. The first that is set is used.',
    '`USER`, `LOGNAME`': 'The name that is stored with your answers.',
    '`XDG_CONFIG_HOME`': 'The parent of the directory with the configuration file, instead of `~/.config`.',
    '`XDG_STATE_HOME`': 'The parent of the state directory, instead of `~/.local/state`.',
    '`NO_COLOR`': 'Disables colors.',
}
"""The environment variables of the command line, as Markdown, with their meaning."""


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Models, environment variables, clock and terminal of one invocation of the command line."""

    models: Mapping[str, Model] = field(default_factory=dict[str, Model])
    """Models that `--model` accepts in addition to those of pydantic-ai, by name."""
    variables: Mapping[str, str] = field(default_factory=lambda: os.environ)
    """Environment variables by name."""
    clock: Callable[[], float] = time.monotonic
    """A monotonic clock in seconds."""
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep
    """Sleeps for a number of seconds."""

    open_terminal: OpenTerminal = open_terminal
    """Yields the terminal for prompts, or `None` if there is none."""

    @property
    def person(self) -> str:
        """The name of the user, which is stored with answers."""
        return self.variables.get('USER') or self.variables.get('LOGNAME') or 'person'

    @property
    def skills_directory(self) -> Path:
        """The directory of the user's own skills."""
        return Path(self.variables.get('HOME') or '~').expanduser() / '.agents' / 'skills'

    @property
    def state_directory(self) -> Path:
        """The directory of the chat history and the default store (XDG Base Directory: `XDG_STATE_HOME`)."""
        home = self.variables.get('XDG_STATE_HOME') or '~/.local/state'
        return Path(home).expanduser() / 'pydantic-deep'
