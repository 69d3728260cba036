"""`Call`: a call of a tool, with everything that its function needs; and refusals as errors of the protocol."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, CallToolRequestParams

from pydantic_deep.server.access._ownership import Access
from pydantic_deep.server.http._errors import ErrorType, refusal_of

from ._runs import Report

_TRANSIENT: Final[frozenset[ErrorType]] = frozenset({'conflict', 'rate_limited', 'unavailable'})
"""Refusals of requests that are valid, and may succeed later or elsewhere."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call of a tool."""

    access: Access
    session: ServerSession
    params: CallToolRequestParams
    request_id: str | int | None
    report: Report | None
    """Sends progress; `None` if the client has not asked for it."""


@contextmanager
def explained() -> Generator[None]:
    """Raise refusals as errors of JSON-RPC. The SDK answers other exceptions without their text."""
    try:
        yield
    except Exception as error:
        refusal = refusal_of(error)
        if refusal is None:
            raise
        code = INTERNAL_ERROR if refusal.type in _TRANSIENT else INVALID_PARAMS
        raise MCPError(code, refusal.message) from None
