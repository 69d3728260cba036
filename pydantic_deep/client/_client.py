"""`Client`: the connection to one server with one key."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import httpx2

from pydantic_deep._checks import check_object, check_positive
from pydantic_deep.errors import ValidationError

from ._approvals import ApprovalsClient
from ._connection import Connection
from ._conversations import ConversationsClient
from ._files import FilesClient
from ._memory import MemoryClient
from ._turns import TurnsClient
from ._versions import VersionsClient


class Client:
    """A client of the HTTP API. It sees what the owner of its key owns.

    Use it as an async context manager, or call `aclose`. One client may be used by any number of tasks.

    Each method raises `ApiError` if the server refuses the request or does not answer. No request is repeated, except
    for those of `turns.events`.

    Args:
        base_url: The URL of the server, such as `http://127.0.0.1:8000`, with the path if it is mounted below one.
        api_key: The API key, from `pydantic-deep keys create`.
        timeout_seconds: How long to wait for a connection, and for each part of a response. Turns may take longer.
        transport: How to reach the server, for example `httpx2.ASGITransport(app)` for an application in this process
            or `httpx2.AsyncHTTPTransport(verify=…)` for a certificate authority of your own. The client closes it.

    Raises:
        ValidationError: The URL is not one of HTTP, or the key cannot be sent in a header.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str,
        *,
        timeout_seconds: float = 60,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        if not _is_url(base_url):
            raise ValidationError('base_url', f'{base_url!r} must be a URL that starts with `http://` or `https://`.')
        check_object('api_key', api_key, str, 'Create a key with `pydantic-deep keys create`.')
        check_positive('timeout_seconds', timeout_seconds)
        if not api_key.isascii() or not api_key.isprintable() or not api_key or ' ' in api_key:
            raise ValidationError(
                'api_key', 'It is empty, or has spaces or other characters that no key has. Copy it again.'
            )
        headers = {'authorization': f'Bearer {api_key}'}
        self._http = httpx2.AsyncClient(
            base_url=base_url, headers=headers, timeout=timeout_seconds, transport=transport
        )
        connection = Connection(self._http)
        self.conversations: ConversationsClient = ConversationsClient(connection)
        """Conversations: create, list, get, rename, delete."""
        self.turns: TurnsClient = TurnsClient(connection)
        """Turns and their runs: start, stream, wait, cancel, resume."""
        self.approvals: ApprovalsClient = ApprovalsClient(connection)
        """Pending calls: list and answer."""
        self.versions: VersionsClient = VersionsClient(connection)
        """Versions: log, diff, rewind, branch, merge."""
        self.files: FilesClient = FilesClient(connection)
        """Files of versions, and uploads."""
        self.memory: MemoryClient = MemoryClient(connection)
        """What agents remember: list, history, restore."""

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


def _is_url(text: str) -> bool:
    try:
        url = httpx2.URL(text)
    except (httpx2.InvalidURL, TypeError, UnicodeEncodeError):
        return False
    return url.scheme in ('http', 'https') and bool(url.host)
