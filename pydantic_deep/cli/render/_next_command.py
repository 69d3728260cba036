"""Commands that messages suggest: they work on the store, the directory and the agent of the running command."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Final, TypeVar

import typer

from pydantic_deep._text.escapes import visible
from pydantic_deep.audit import redact

ValueT = TypeVar('ValueT', str | None, Path)

_RUNS_AGENT: Final = frozenset({'run', 'resume'})

_given: ContextVar[dict[str, str] | None] = ContextVar('_given', default=None)


def keep_options(context: typer.Context) -> None:
    """Keep the options of a command while it runs. `context` is that of the command line."""
    _given.set({})
    context.call_on_close(lambda: _given.set(None))


def keep_option(context: typer.Context, param: typer.CallbackParam, value: ValueT) -> ValueT:
    """Keep the value of an option for `next_command`, if it was given: configuration applies to the next command too."""
    given, source = _given.get(), context.get_parameter_source(param.name or '')
    if given is not None and source is not None and source.name == 'COMMANDLINE':
        given[param.opts[0]] = str(value)
    return value


def next_command(name: str, *words: str, instead: Mapping[str, str | None] | None = None) -> str:
    """Return a command line, with the given options of the running command that decide what it works on.

    Passwords in them, such as that of a store, are redacted, and control characters escaped.

    Args:
        name: The command.
        words: Its arguments.
        instead: Values that replace those of the running command; `None` leaves the option out.
    """
    given = {**(_given.get() or {}), **(instead or {})}
    options = [
        f'{option} {shlex.quote(visible(str(redact(value)), one_line=True))}'
        for option, value in given.items()
        if value is not None and (option != '--agent' or name in _RUNS_AGENT)
    ]
    return ' '.join(['pydantic-deep', name, *words, *options])
