"""All routers of the application, in matching order. To add a router, add a line."""

from __future__ import annotations

from fastapi import APIRouter

from . import (
    _a2a,
    _admin,
    _approvals,
    _compat,
    _conversations,
    _google,
    _mcp,
    _memory,
    _openai_conversations,
    _page,
    _responses,
    _turns,
    _ui,
    _uploads,
    _versions,
    _webhooks,
)

ROUTERS: tuple[APIRouter, ...] = (
    _admin.router,
    _conversations.router,
    _turns.router,
    _versions.router,
    _approvals.router,
    _uploads.router,
    _webhooks.router,
    _memory.router,
    _compat.router,
    _google.router,
    _responses.router,
    _openai_conversations.router,
    _ui.router,
    _mcp.router,
    _a2a.router,
    _page.router,
)
