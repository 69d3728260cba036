"""Where a path with `..` led, noted with the result of a call: its arguments do not tell, and links change."""

from __future__ import annotations

from typing import Final, TypeVar

from pydantic_ai import ToolReturn
from pydantic_ai.messages import BaseToolReturnPart

PATH_KEY: Final = 'path'
"""The key in the metadata of a result."""

ResultT = TypeVar('ResultT')


def with_walked_path(result: ResultT, typed: str, path: str) -> ResultT | ToolReturn[ResultT]:
    """Return the result of a tool, with the path that was meant where the one in its arguments has `..`."""
    return ToolReturn(result, metadata={PATH_KEY: path}) if '..' in typed.split('/') else result


def walked_path(part: BaseToolReturnPart) -> str | None:
    """Return the path that was meant by the call that has this result; `None` where that is the one in its arguments."""
    metadata: object = part.metadata
    path: object = metadata.get(PATH_KEY) if isinstance(metadata, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - what a tool has put there
    return path if isinstance(path, str) else None
