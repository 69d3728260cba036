"""Files of clients by URL: fetched from the domains that the operator allows, by a client that refuses private addresses.

A file is fetched when it becomes part of a history: its contents are in the version, and a later request that contains
the same URL finds the version by it. Requests that are refused fetch nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import anyio
from pydantic_ai import BinaryContent

from pydantic_deep.server._settings import ServerSettings
from pydantic_deep.server.http._errors import ServerError
from pydantic_deep.web import DownloadError, FileDownloader

from ._dialogue import NOT_FETCHED, Content, Dialogue, LinkedFile, invalid_request

MAX_BYTES: Final = 20_000_000
"""Maximum size of the files of a prompt, or of earlier messages, in bytes: inline files of Google's API have the same
limit."""

TIMEOUT_SECONDS: Final = 30.0
"""Maximum duration of their downloads, so that a request does not outlast the time limits of proxies."""


def check_links(settings: ServerSettings, content: Iterable[Content]) -> None:
    """Check that the operator allows the domains of all files by URL.

    Raises:
        ServerError: One is not allowed.
    """
    links = [piece for piece in content if isinstance(piece, LinkedFile)]
    domains = settings.file_url_domains
    if links and not (domains and all(map(FileDownloader(allow=domains).allows, (link.url for link in links)))):
        raise invalid_request(f'{NOT_FETCHED} The operator allows domains in the setting `file_url_domains`.')


async def fetch_content(settings: ServerSettings, content: Sequence[Content]) -> tuple[Content, ...]:
    """Return content with its files by URL fetched.

    Raises:
        ServerError: A domain is not allowed, or a file cannot be fetched.
    """
    return _with_files(content, await _fetch(settings, content))


async def fetch_history(settings: ServerSettings, dialogue: Dialogue) -> Dialogue:
    """Return a dialogue with the files of its earlier messages fetched.

    Raises:
        ServerError: See `fetch_content`.
    """
    files = await _fetch(settings, [piece for message in dialogue.messages for piece in message.content])
    messages = [replace(message, content=_with_files(message.content, files)) for message in dialogue.messages]
    return replace(dialogue, messages=messages)


async def _fetch(settings: ServerSettings, content: Sequence[Content]) -> dict[LinkedFile, BinaryContent]:
    """Fetch each file once."""
    check_links(settings, content)
    files: dict[LinkedFile, BinaryContent] = {}
    try:
        with anyio.fail_after(TIMEOUT_SECONDS):
            for link in dict.fromkeys(piece for piece in content if isinstance(piece, LinkedFile)):
                left = MAX_BYTES - sum(len(file.data) for file in files.values())
                downloader = FileDownloader(allow=settings.file_url_domains, max_bytes=left)
                files[link] = await downloader.download(link.url, media_type=link.media_type)
    except TimeoutError:
        raise _failed(f'The files by URL did not arrive within {TIMEOUT_SECONDS:g} seconds.') from None
    except DownloadError as error:
        raise _failed(str(error)) from None
    return files


def _with_files(content: Iterable[Content], files: Mapping[LinkedFile, BinaryContent]) -> tuple[Content, ...]:
    return tuple(files[piece] if isinstance(piece, LinkedFile) else piece for piece in content)


def _failed(reason: str) -> ServerError:
    return invalid_request(f'{reason} Send the file itself, as a `data:` URL or as base64.')
