"""The path at which a host application, or `root_path` of the server, has mounted this one."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send


def base_url(connection: HTTPConnection) -> str:
    """Return the URL of this application, which ends with a slash. That of Starlette is the URL of the outermost one."""
    return str(connection.url.replace(path=f'{connection.scope.get("root_path", "")}/', query=''))


class MountedLocations:
    """ASGI middleware that puts the path of the application before the paths of `Location` headers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_location(message: Message) -> None:
            if message['type'] == 'http.response.start':
                headers = MutableHeaders(scope=message)
                if (path := headers.get('location')) is not None:
                    headers['location'] = f'{scope.get("root_path", "")}{path}'
            await send(message)

        await self._app(scope, receive, send_location)
