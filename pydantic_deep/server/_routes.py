"""All routers of the application, in the order in which they are tried: a new one is one line here."""

from __future__ import annotations

from fastapi import APIRouter

from . import _routes_admin

ROUTERS: tuple[APIRouter, ...] = (_routes_admin.router,)
