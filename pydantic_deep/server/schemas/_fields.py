"""Field types that several schemas share."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from pydantic import Field

Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=200, pattern=r'^[^\x00\r\n]+$')]
"""A single-line display name."""

Id: TypeAlias = Annotated[str, Field(max_length=64)]
"""A complete, unabbreviated id."""

MAX_REASON_CHARS: Final = 10_000
"""Maximum length of a reason."""

Reason: TypeAlias = Annotated[str, Field(max_length=MAX_REASON_CHARS)]
"""The reason for a decision."""
