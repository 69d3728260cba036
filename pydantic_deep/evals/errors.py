"""The errors of evaluations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic_deep.errors import DeepAgentError

__all__ = ('CaseError', 'CaseFormatError', 'SecretsFoundError')


class CaseError(DeepAgentError, ValueError):
    """A version cannot become a case, or a case cannot run."""


class CaseFormatError(CaseError):
    """A folder is not a case that this release can read.

    Attributes:
        path: The folder or file.
    """

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        super().__init__(f'{str(path)!r} is not a case: {reason}')


class SecretsFoundError(CaseError):
    """A case would contain secrets, so nothing was written.

    Attributes:
        found: The kind of each secret, and the file of the case that would contain it.
    """

    def __init__(self, found: Sequence[str]) -> None:
        self.found: tuple[str, ...] = tuple(found)
        super().__init__(
            f'The case would contain what looks like secrets: {", ".join(found)}. Nothing was written. Record another '
            'turn. If none of these is a secret, or the case stays private, allow them: `allow_secrets=True`, '
            '`--allow-secrets`.'
        )
