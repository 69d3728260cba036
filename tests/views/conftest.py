"""The application of the tests of the server, for views of the store that it works on."""

from __future__ import annotations

from tests.server.conftest import make_client, serve, served, settings

__all__ = ('make_client', 'serve', 'served', 'settings')
