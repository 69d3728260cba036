"""The tools `web_search` (by ddgs) and `web_fetch` (by pydantic-ai), with limits, and failures that never end a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import Any, Final

from anyio import to_thread
from pydantic_ai import BinaryContent, FunctionToolset, Tool
from pydantic_ai.exceptions import ModelRetry, ToolFailed

from pydantic_deep._messages.media import MAX_MEDIA_BYTES, MEDIA_TYPES
from pydantic_deep._toolsets.tool_schema import ToolSchema

from ._domains import DomainRules, host_of
from ._download import download

FETCH: Final = 'web_fetch'
"""The name of the tool that fetches pages."""

SEARCH: Final = 'web_search'
"""The name of the tool that searches."""

MAX_RESULTS: Final = 10
"""Maximum number of results of a search: one page of a search engine."""

MAX_REASON_CHARS: Final = 200
"""Maximum length of the reason why a search failed: the library reports the whole request of each engine."""


@dataclass(frozen=True, kw_only=True)
class Fetcher:
    """Fetches pages within limits."""

    rules: DomainRules
    max_chars: int
    """Maximum length of the text of a page in characters."""
    max_bytes: int
    """Maximum size of a download in bytes."""
    timeout_seconds: float
    """Maximum duration of a fetch, with its redirects."""
    private_addresses: bool
    """Whether addresses of private networks may be fetched."""

    async def web_fetch(self, url: str) -> str | list[str | BinaryContent]:
        """Read a web page as Markdown, or see an image or PDF."""
        host = host_of(url)
        if host is None:
            raise ToolFailed(f'{url!r} is not a URL of a page. Use one like https://example.com/page.')
        refusal = self.rules.refusal(host)
        if refusal is not None:
            raise ToolFailed(refusal)
        try:
            result = await download(
                url,
                host,
                rules=self.rules,
                max_chars=self.max_chars,
                max_bytes=self.max_bytes,
                timeout_seconds=self.timeout_seconds,
                private_addresses=self.private_addresses,
            )
        except ModelRetry as error:  # a second one in a row would end the run
            raise ToolFailed(error.message) from error
        except TimeoutError:
            raise ToolFailed(
                f'{url} did not answer within {self.timeout_seconds:g} seconds. Try another page.'
            ) from None
        if isinstance(result, BinaryContent):
            return _media(url, result)
        return result['content'] or f'{url} is empty.'  # the content begins with the title


def _media(url: str, content: BinaryContent) -> list[str | BinaryContent]:
    shown = f'{url}: {content.media_type}, {len(content.data):,} bytes'
    if content.media_type not in MEDIA_TYPES:
        raise ToolFailed(f'{shown}. Only text, images and PDFs can be read.')
    if len(content.data) > MAX_MEDIA_BYTES:
        raise ToolFailed(f'{shown}. At most {MAX_MEDIA_BYTES:,} bytes can be shown.')
    return [shown, content]


@dataclass(frozen=True, kw_only=True)
class Searcher:
    """Searches the web with DuckDuckGo and the other engines of ddgs."""

    rules: DomainRules
    timeout_seconds: float
    """Maximum duration of a request to one engine."""

    async def web_search(self, query: str) -> str:
        """Search the web."""
        from ddgs.ddgs import DDGS
        from ddgs.exceptions import DDGSException

        search = DDGS(timeout=ceil(self.timeout_seconds)).text
        try:
            found = await to_thread.run_sync(partial(search, query, max_results=MAX_RESULTS))
        except DDGSException as error:
            reason = str(error)[:MAX_REASON_CHARS].rstrip('.')
            raise ToolFailed(f'The search failed: {reason}. Use other words, or try later.') from error
        results = [f'{result["title"]}\n{result["href"]}\n{result["body"]}' for result in found if self._shows(result)]
        return '\n\n'.join(results) or 'No results. Use other words.'

    def _shows(self, result: Mapping[str, Any]) -> bool:
        """Return whether the page of a result is not denied."""
        host = host_of(result['href'])
        return host is not None and self.rules.verdict(host) != 'deny'


def web_toolset(fetcher: Fetcher | None, search: Searcher | Tool[Any] | None) -> FunctionToolset[Any]:
    """Return the tools.

    Args:
        fetcher: Fetches pages; `None` for no such tool.
        search: Searches the web, or a tool that does; `None` for no such tool.
    """
    toolset = FunctionToolset[Any](id='web', schema_generator=ToolSchema)
    metadata = {'effect': 'read'}
    if isinstance(search, Tool):
        toolset.add_tool(replace(search, metadata={**(search.metadata or {}), **metadata}))
    elif search is not None:
        toolset.add_function(search.web_search, name=SEARCH, metadata=metadata)
    if fetcher is not None:
        toolset.add_function(fetcher.web_fetch, name=FETCH, metadata=metadata)
    return toolset
