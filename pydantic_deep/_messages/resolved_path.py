"""The path that a `..` resolved to, stored with the result of a call: links may change afterwards."""

from __future__ import annotations

from typing import Final, TypeVar

from pydantic_ai import ToolReturn
from pydantic_ai.messages import BaseToolReturnPart

PATH_KEY: Final = 'path'
"""The key in the metadata of a result."""

ResultT = TypeVar('ResultT')


def with_resolved_path(result: ResultT, typed: str, path: str) -> ResultT | ToolReturn[ResultT]:
    """Return the result of a tool, with the resolved path if the one in its arguments has `..`."""
    return ToolReturn(result, metadata={PATH_KEY: path}) if '..' in typed.split('/') else result


def resolved_path(part: BaseToolReturnPart) -> str | None:
    """Return the resolved path of the call that has this result; `None` if it is the one in its arguments."""
    metadata: object = part.metadata
    path: object = metadata.get(PATH_KEY) if isinstance(metadata, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - what a tool has put there
    return path if isinstance(path, str) else None
