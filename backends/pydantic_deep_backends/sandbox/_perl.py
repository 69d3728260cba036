"""The Perl programs of the sandbox: files of this package, loaded on first use."""

from __future__ import annotations

import functools
from importlib.resources import files
from typing import Final

PERL: Final = '/usr/bin/perl'
"""The interpreter. It is part of every Debian, and a sandbox has `/usr`."""


@functools.cache
def read_program(name: str) -> str:
    """Return the source of a program, such as `init.pl`."""
    return files('pydantic_deep_backends.sandbox').joinpath(name).read_text(encoding='utf-8')
