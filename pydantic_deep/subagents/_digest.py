"""When a subagent must be built anew: the digest of all that is said of it. Pure."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import cast

from pydantic_ai.usage import UsageLimits

from ._types import Subagent


@dataclass(frozen=True, kw_only=True)
class Digest:
    """What a description comes to."""

    value: str
    """Another one if anything in the description is another: by value for texts, numbers, limits and nested
    subagents, by identity for objects such as functions, models and capabilities.
    """
    live: tuple[object, ...]
    """The objects that count by identity. Keep them as long as the value: it says nothing once one is gone."""


def digest_of(subagent: Subagent, build: Callable[..., object]) -> Digest:
    """Return the digest of a subagent that `build` would make."""
    live: list[object] = []
    text = _text([subagent, build], live)
    return Digest(value=hashlib.sha256(text.encode()).hexdigest(), live=tuple(live))


def _text(value: object, live: list[object]) -> str:
    """Return what stands for a value, and add to `live` what stands there by its identity."""
    if value is None or isinstance(value, str | int | float | Decimal):
        return repr(value)
    if isinstance(value, Subagent | UsageLimits):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return f'{type(value).__name__}{_text(fields, live)}'
    if isinstance(value, Mapping):
        items = cast('Mapping[object, object]', value).items()
        return f'{{{",".join(f"{_text(key, live)}:{_text(item, live)}" for key, item in items)}}}'
    if isinstance(value, list | tuple):
        return f'[{",".join(_text(item, live) for item in cast("list[object]", value))}]'
    live.append(value)
    return f'<{id(value)}>'
