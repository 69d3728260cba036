"""Security headers for browsers, added to every response."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    'content-security-policy': "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "object-src 'none'; img-src 'self' blob: data:; require-trusted-types-for 'script'; trusted-types 'none'",
    'x-content-type-options': 'nosniff',
    'x-frame-options': 'DENY',
    'referrer-policy': 'no-referrer',
    'cross-origin-opener-policy': 'same-origin',
    'cross-origin-resource-policy': 'same-origin',
    'permissions-policy': 'camera=(), geolocation=(), microphone=()',
    'cache-control': 'no-store',
}
"""The default headers: the page loads no external resources, parses no text as HTML or as a script, cannot be framed, and
responses are not cached. Images may also be contents that the page has already loaded with its key."""


def add_headers(headers: MutableHeaders) -> None:
    """Add all headers that are not set yet: routes may override them."""
    for name, value in HEADERS.items():
        headers.setdefault(name, value)


class SecurityHeaders:
    """ASGI middleware that adds `HEADERS` to every response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message['type'] == 'http.response.start':
                add_headers(MutableHeaders(scope=message))
            await send(message)

        await self._app(scope, receive, send_with_headers if scope['type'] == 'http' else send)
