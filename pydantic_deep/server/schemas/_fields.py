"""Field types and example values that several schemas share."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, TypeAlias

from pydantic import ConfigDict, Field

EXAMPLE_ID = '019aa1b2-0000-7000-8000-000000000001'

EXAMPLE_DIGEST = '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08'

Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=200, pattern=r'^[^\x00\r\n]+$')]
"""A single-line display name."""

Id: TypeAlias = Annotated[str, Field(max_length=64)]
"""A complete, unabbreviated id."""

Reason: TypeAlias = Annotated[str, Field(max_length=10_000)]
"""The reason for a decision."""


def example_config(example: dict[str, Any], **config: Any) -> ConfigDict:
    """Return a model configuration with an example for the OpenAPI document."""
    return ConfigDict(json_schema_extra={'examples': [example]}, **config)


def moment(microseconds: int) -> datetime:
    """Return a datetime from microseconds since 1970."""
    return datetime.fromtimestamp(microseconds / 1e6, UTC)
