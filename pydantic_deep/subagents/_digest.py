"""Compute a digest of a subagent's description, to decide whether its agent must be rebuilt. Pure."""

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
    """The digest of a description."""

    value: str
    """Changes if anything in the description changes. Texts, numbers, limits and nested subagents are compared by
    value, and other objects such as functions, models and capabilities by identity.
    """
    live: tuple[object, ...]
    """The objects that are compared by identity. Hold them as long as the digest, as ids are reused after an object is
    freed.
    """


def digest_of(subagent: Subagent, build: Callable[..., object]) -> Digest:
    """Return the digest of a subagent and its builder."""
    live: list[object] = []
    text = _text([subagent, build], live)
    return Digest(value=hashlib.sha256(text.encode()).hexdigest(), live=tuple(live))


def _text(value: object, live: list[object]) -> str:
    """Return the text of a value for the digest, and add objects compared by identity to `live`."""
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
