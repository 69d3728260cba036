"""The guarded download that `web_fetch` and `FileDownloader` share: public addresses only, with limits."""

from __future__ import annotations

import mimetypes
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from math import ceil
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import urlsplit

from anyio import fail_after
from httpx2 import HTTPStatusError
from pydantic_ai import BinaryContent
from pydantic_ai.exceptions import ModelRetry

from pydantic_deep.errors import DeepAgentError

from ._domains import DomainRules, host_of, parse_domains

if TYPE_CHECKING:
    from pydantic_ai.common_tools.web_fetch import WebFetchResult

MAX_BYTES: Final = 10_000_000
"""Maximum size of a download in bytes. The largest articles of Wikipedia have about 3 MB."""

TIMEOUT_SECONDS: Final = 30.0
"""Maximum duration of a download in seconds, as in pydantic-ai."""

_UNNAMED: Final = ('application/octet-stream', 'binary/octet-stream')
"""The media types with which servers describe files of types that they do not know."""


class DownloadError(DeepAgentError, OSError):
    """A file was not downloaded. The message does not contain the URL."""


async def download(
    url: str,
    host: str,
    *,
    rules: DomainRules,
    max_chars: int,
    max_bytes: int,
    timeout_seconds: float,
    private_addresses: bool,
) -> WebFetchResult | BinaryContent:
    """Return a page as Markdown, or a file.

    Args:
        url: The URL.
        host: Its host, as `host_of` returns it, which the rules allow.
        rules: The rules for domains, also for redirects.
        max_chars: Maximum length of the text of a page in characters.
        max_bytes: Maximum size of the download in bytes.
        timeout_seconds: Maximum duration, with redirects.
        private_addresses: Whether addresses of private networks are allowed.

    Raises:
        ModelRetry: The download failed, or would have led to an address that is not allowed.
        TimeoutError: It took too long.
    """
    from pydantic_ai.common_tools.web_fetch import web_fetch_tool

    fetch = web_fetch_tool(
        max_content_length=max_chars,
        allow_local_urls=private_addresses,
        timeout=ceil(timeout_seconds),
        max_download_bytes=max_bytes,
        allowed_domains=rules.redirect_hosts(host),
    )
    function = cast('Callable[[str], Awaitable[WebFetchResult | BinaryContent]]', fetch.function)
    with fail_after(timeout_seconds):
        return await function(url)


@dataclass(frozen=True, kw_only=True)
class FileDownloader:
    """Downloads images, PDF and other files that are not text, of which other people have named the URLs.

    A name is resolved once, and the request goes to the address that was checked; so do redirects, which stay in the
    allowed domains. Metadata services of clouds are always refused.

    Raises:
        ModuleNotFoundError: The extra `web` is not installed.
        ValueError: An entry of `allow` is not a domain.
    """

    allow: Sequence[str]
    """Domains, with their subdomains; `'*'` for all."""
    max_bytes: int = MAX_BYTES
    """Maximum size of a file in bytes."""
    timeout_seconds: float = TIMEOUT_SECONDS
    """Maximum duration of a download in seconds, with its redirects."""
    private_addresses: bool = False
    """Whether addresses of private networks and of this machine are allowed."""

    def __post_init__(self) -> None:
        check_installed('markdownify')
        parse_domains('allow', self.allow)

    def allows(self, url: str) -> bool:
        """Return whether the domain of a URL is allowed."""
        host = host_of(url)
        return host is not None and self._rules.verdict(host) == 'allow'

    async def download(self, url: str, *, media_type: str | None = None) -> BinaryContent:
        """Download a file.

        Args:
            url: An `http` or `https` URL.
            media_type: The media type if the server of the file does not know it.

        Raises:
            DownloadError: The domain is not allowed, the address is not public, the file is text, or the download failed
                or exceeds a limit.
        """
        host = host_of(url)
        if host is None or not self.allows(url):
            raise DownloadError('The domain of the URL is not one from which files are downloaded.')
        try:
            file = await download(
                url,
                host,
                rules=self._rules,
                max_chars=1,
                max_bytes=self.max_bytes,
                timeout_seconds=self.timeout_seconds,
                private_addresses=self.private_addresses,
            )
        except TimeoutError:
            raise DownloadError(f'The file did not arrive within {self.timeout_seconds:g} seconds.') from None
        except ModelRetry as error:
            raise DownloadError(_failure(error, self.max_bytes)) from error
        if not isinstance(file, BinaryContent):
            raise DownloadError('The URL leads to text, and only images, PDF and other files are downloaded.')
        if file.media_type in _UNNAMED:
            guessed = media_type or mimetypes.guess_type(urlsplit(url).path)[0]
            return BinaryContent(file.data, media_type=guessed or file.media_type)
        return file

    @property
    def _rules(self) -> DomainRules:
        return DomainRules(allow=parse_domains('allow', self.allow), deny=(), asks=False)


def check_installed(module: str) -> None:
    """Check that a module of the extra `web` is installed.

    Raises:
        ModuleNotFoundError: It is not.
    """
    if find_spec(module) is None:
        raise ModuleNotFoundError(
            f'The web needs {module!r}, which is not installed. Install the extra: '
            "`pip install 'versioned-deep-agents[web]'`.",
            name=module,
        )


def _failure(error: ModelRetry, max_bytes: int) -> str:
    if isinstance(error.__cause__, HTTPStatusError):
        return f'The server of the file answered with the status {error.__cause__.response.status_code}.'
    return (
        f'The file cannot be downloaded: it is larger than {max_bytes:,} bytes, its server is unreachable, or the URL leads '
        'to an address that is not public or not allowed.'
    )
