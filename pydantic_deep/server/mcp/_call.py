"""`Call`: a call of a tool, with everything that its function needs."""

from __future__ import annotations

from dataclasses import dataclass

from mcp.server.session import ServerSession
from mcp_types import CallToolRequestParams

from pydantic_deep.server.access._ownership import Access

from ._runs import Report


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call of a tool."""

    access: Access
    session: ServerSession
    params: CallToolRequestParams
    request_id: str | int | None
    report: Report | None
    """Sends progress; `None` if the client has not asked for it."""
