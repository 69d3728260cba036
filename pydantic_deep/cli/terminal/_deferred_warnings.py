"""Warnings of a turn, printed after it has ended so that they do not interrupt the progress display."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from typing import TextIO

from pydantic_deep.versions import InstructionsWarning, ProtectedFilesWarning, UnversionedFilesWarning


@contextmanager
def deferred_warnings() -> Generator[None]:
    """Collect warnings about unversioned files, protected files and instructions, and print each once at the end."""
    with warnings.catch_warnings():
        show = warnings.showwarning
        texts: dict[str, None] = {}

        def collect(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if issubclass(category, (UnversionedFilesWarning, ProtectedFilesWarning, InstructionsWarning)):
                texts[str(message)] = None
            else:
                show(message, category, filename, lineno, file, line)

        warnings.showwarning = collect
        try:
            yield
        finally:
            for text in texts:
                print(f'warning: {text}', file=sys.stderr)  # noqa: T201
