"""Extend the output type of a child so that it can pause. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from types import UnionType
from typing import Any, Union, cast, get_args, get_origin

from pydantic_ai import DeferredToolRequests
from pydantic_ai.output import OutputSpec


def with_pause(output_type: OutputSpec[Any]) -> OutputSpec[Any] | None:
    """Return an output type that also allows a pause; `None` if the given one already does.

    Markers such as `NativeOutput` cannot contain the pause, so it is added next to them.
    """
    if _allows_pause(output_type):
        return None
    return cast('OutputSpec[Any]', [output_type, DeferredToolRequests])


def _allows_pause(output_type: object) -> bool:
    if isinstance(output_type, Sequence):
        return any(_allows_pause(item) for item in cast('Sequence[object]', output_type))
    if get_origin(output_type) in (Union, UnionType):
        return DeferredToolRequests in get_args(output_type)
    return output_type is DeferredToolRequests
