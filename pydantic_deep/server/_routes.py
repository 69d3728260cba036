"""All routers of the application, in the order in which they are tried: a new one is one line here."""

from __future__ import annotations

from fastapi import APIRouter

from . import (
    _routes_admin,
    _routes_approvals,
    _routes_conversations,
    _routes_files,
    _routes_page,
    _routes_turns,
    _routes_ui,
    _routes_versions,
    _routes_wire,
)

ROUTERS: tuple[APIRouter, ...] = (
    _routes_admin.router,
    _routes_conversations.router,
    _routes_turns.router,
    _routes_versions.router,
    _routes_approvals.router,
    _routes_files.router,
    _routes_wire.router,
    _routes_ui.router,
    _routes_page.router,
)
