"""The exit code of a command, from the result of its tool call."""

from __future__ import annotations

from typing import cast

from pydantic_ai.messages import BaseToolReturnPart

from pydantic_deep.filesystem._toolset import EXIT_CODE_KEY


def exit_code_of(part: BaseToolReturnPart) -> int | None:
    """Return the exit code that a result carries; `None` if it carries none."""
    metadata: object = part.metadata  # whatever a tool has put there
    code = cast('dict[str, object]', metadata).get(EXIT_CODE_KEY) if isinstance(metadata, dict) else None
    return code if isinstance(code, int) else None
