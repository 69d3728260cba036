"""Commands that messages suggest: they work on the store, the directory and the agent of the running command."""

from __future__ import annotations

import shlex
from contextvars import ContextVar
from pathlib import Path
from typing import Final, TypeVar

import typer

ValueT = TypeVar('ValueT', str | None, Path)

_RUNS_AGENT: Final = frozenset({'run', 'resume'})

_given: ContextVar[dict[str, str]] = ContextVar('_given', default={})  # noqa: B039 - never changed in place


def forget_options() -> None:
    """Forget the options when a command ends."""
    _given.set({})


def keep_option(context: typer.Context, param: typer.CallbackParam, value: ValueT) -> ValueT:
    """Keep the value of an option for `next_command`, if it was given: configuration applies to the next command too."""
    source = context.get_parameter_source(param.name or '')
    if source is not None and source.name == 'COMMANDLINE':
        _given.set({**_given.get(), param.opts[0]: str(value)})
    return value


def next_command(name: str, *words: str) -> str:
    """Return a command line, with the given options of the running command that decide what it works on."""
    options = [
        f'{option} {shlex.quote(value)}'
        for option, value in _given.get().items()
        if option != '--agent' or name in _RUNS_AGENT
    ]
    return ' '.join(['pydantic-deep', name, *words, *options])
