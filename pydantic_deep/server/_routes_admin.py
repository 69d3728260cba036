"""Routes about the server itself: whether it lives, what it has, who asks, what was done."""

from __future__ import annotations

from fastapi import APIRouter

router = APIRouter()
