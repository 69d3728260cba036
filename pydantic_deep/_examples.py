"""Example values for the JSON Schema of models."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict

EXAMPLE_ID = '019aa1b2-0000-7000-8000-000000000001'

EXAMPLE_MOMENT = '2026-11-22T12:00:00Z'

EXAMPLE_DIGEST = '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08'


def example_config(example: dict[str, Any], **config: Any) -> ConfigDict:
    """Return a model configuration with an example for JSON Schema and the OpenAPI document."""
    return ConfigDict(json_schema_extra={'examples': [example]}, **config)
