"""Mechanical checks on the answer of a run and on its files. Pure."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, model_validator

from pydantic_deep_backends import InvalidPatternError
from pydantic_deep_backends.paths import path_problem, resolve_path
from pydantic_deep_backends.search import grep_file

OPERATIONS: Final = ('exists', 'contains', 'equals', 'matches')
"""The operations of a check. Each check has one."""


def file_path(path: str) -> str:
    """Return the canonical path of a file in the backend of a run.

    Raises:
        ValueError: The path cannot be used.
    """
    problem = path_problem(f'/{path.removeprefix("/")}')
    if problem is not None:
        raise ValueError(f'{path!r} is not a path: {problem}')
    return resolve_path(path, '/')


def _checked_pattern(pattern: str) -> str:
    try:
        grep_file('/', b'', pattern)
    except InvalidPatternError as error:
        raise ValueError(str(error)) from None
    return pattern


def _without_line_end(text: str) -> str:
    return text.removesuffix('\r\n') if text.endswith('\r\n') else text.removesuffix('\n')


class Check(BaseModel):
    """One check: an operation on a file, or on the answer."""

    model_config = ConfigDict(extra='forbid', frozen=True, strict=True)

    file: Annotated[str, AfterValidator(file_path)] | None = None
    """The path of a file, after the run. Without it, the check applies to the answer."""
    exists: bool | None = None
    """Whether the file exists."""
    contains: str | None = None
    """A text that the file or the answer contains."""
    equals: str | None = None
    """The complete text. A line end at the end, `\\n` or `\\r\\n`, makes no difference."""
    matches: Annotated[str, AfterValidator(_checked_pattern)] | None = None
    """A regular expression (RE2) that a line matches, as with the tool `grep`."""

    @model_validator(mode='after')
    def _has_one_operation(self) -> Check:
        named = [name for name in OPERATIONS if getattr(self, name) is not None]
        if len(named) != 1:
            raise ValueError(f'it has {len(named)} operations. Use one of {", ".join(OPERATIONS)} in each check.')
        if self.exists is not None and self.file is None:
            raise ValueError('`exists` needs a `file`. Name it.')
        return self

    def __str__(self) -> str:
        """Return the check as one line."""
        (name,) = (name for name in OPERATIONS if getattr(self, name) is not None)
        value: object = getattr(self, name)
        subject = self.file or 'answer'
        if name == 'exists':
            return f'{subject} exists' if value else f'{subject} does not exist'
        return f'{subject} {name} {value!r}'

    def passes(self, data: bytes | None) -> bool:
        """Return whether the check passes.

        Args:
            data: The contents of the file or the answer; `None` if the file does not exist.
        """
        if self.exists is not None or data is None:
            return (data is not None) is self.exists
        text = data.decode(errors='replace')
        if self.contains is not None:
            return self.contains in text
        if self.equals is not None:
            return _without_line_end(self.equals) == _without_line_end(text)
        return bool(grep_file('/', data, self.matches or '').matches)
