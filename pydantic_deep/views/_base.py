"""The base class of the views, and values that their examples share."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict

EXAMPLE_ID = '019aa1b2-0000-7000-8000-000000000001'

EXAMPLE_MOMENT = '2026-11-22T12:00:00Z'

EXAMPLE_DIGEST = '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08'


class View(BaseModel):
    """A stored object in its JSON form. The validator is built on first use."""

    model_config = ConfigDict(frozen=True, defer_build=True, from_attributes=True)


def example_config(example: dict[str, Any], **config: Any) -> ConfigDict:
    """Return a model configuration with an example for JSON Schema."""
    return ConfigDict(json_schema_extra={'examples': [example]}, **config)


def moment(microseconds: int) -> datetime:
    """Return a datetime from microseconds since 1970."""
    return datetime.fromtimestamp(microseconds / 1e6, UTC)
