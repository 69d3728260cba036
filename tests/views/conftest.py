"""Fixtures of the server tests, for views of the store that the server uses."""

from __future__ import annotations

from tests.server.conftest import make_client, serve, served, settings

__all__ = ('make_client', 'serve', 'served', 'settings')
