"""`Call`: a call of a tool, with everything that its function needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from mcp.server.session import ServerSession
from mcp_types import CallToolRequestParams

from pydantic_deep.server.access._ownership import Access, ServedVersion

from ._runs import Report

Restore: TypeAlias = Callable[[ServedVersion], Awaitable[None]]
"""Restores the files of a version in the directory of its conversation."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call of a tool."""

    access: Access
    session: ServerSession
    params: CallToolRequestParams
    request_id: str | int | None
    report: Report | None
    """Sends progress; `None` if the client has not asked for it."""
    restore: Restore | None
    """Restores files before the head moves; `None` if the server does it before the next turn."""
