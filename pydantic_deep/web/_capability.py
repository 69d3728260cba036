"""The capability with the tools for the web, for any pydantic-ai agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic_ai import RunContext, Tool, ToolDefinition
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.toolsets import AbstractToolset

from pydantic_deep._capabilities.base import BaseCapability
from pydantic_deep._checks import check_flags, check_object, check_positive
from pydantic_deep._pause_check import check_can_pause
from pydantic_deep.extensions import Preview

from ._domains import EVERY, DomainRules, host_of, parse_domains
from ._download import MAX_BYTES, TIMEOUT_SECONDS, check_installed
from ._toolset import FETCH, Fetcher, Searcher, web_toolset

MAX_CHARS: Final = 50_000
"""Maximum length of the text of a page in characters, about 12,500 tokens, as in pydantic-ai."""


@dataclass(kw_only=True)
class Web(BaseCapability[object]):
    """Lets the model search the web and read pages: `Web(allow=['python.org'])`.

    A person approves each page outside of `allow`. Pages in `deny` are refused, and left out of the results of searches.
    A search needs no approval: the query goes to search engines, not to an address that the model chooses.

    Only public addresses are fetched. A name is resolved once, the address is checked, and the request goes to this
    address; so do redirects. A redirect to another host is refused, unless it adds or removes `www.` or leads to a
    domain that is in `allow` itself. With `allow=['*']` and an empty `deny`, it may lead to every public address.

    Both tools declare the effect `read`: they work in plan mode, and run again after a crash. Their results are
    untrusted for `UntrustedContent`, which then asks about every page, also one in `allow`: a URL can contain any data.

    Raises:
        ModuleNotFoundError: The extra `web` is not installed.
        TypeError: `allow` or `deny` is a single string.
        ValueError: An entry is not a domain, a limit is not positive, or there is neither a search nor a fetch.
        UserError: At the start of a run without approvals, if some domains ask.
    """

    id: str | None = 'web'
    allow: Sequence[str] = ()
    """Domains whose pages need no approval, with their subdomains. `'*'` for all. Rules in `interrupt_on` still apply."""
    deny: Sequence[str] = ()
    """Domains whose pages are refused, with their subdomains. They win over `allow`."""
    asks: bool = True
    """Whether a person decides on domains in neither list. Otherwise they are refused."""
    search: bool | Tool[Any] = True
    """Whether to have `web_search`, or another tool instead, for example `tavily_search_tool(…)` of pydantic-ai."""
    fetch: bool = True
    """Whether to have `web_fetch`."""
    max_chars: int = MAX_CHARS
    """Maximum length of the text of a page in characters. A longer one is cut, and says so."""
    max_bytes: int = MAX_BYTES
    """Maximum size of a download in bytes. A larger one fails."""
    timeout_seconds: float = TIMEOUT_SECONDS
    """Maximum duration of a fetch with its redirects, and of the request of a search to one engine."""
    private_addresses: bool = False
    """Whether pages of private networks and of this machine may be fetched. Metadata services of clouds are always
    refused.
    """
    _rules: DomainRules = field(init=False, repr=False, compare=False)
    _toolset: AbstractToolset[object] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check()
        self._rules = DomainRules(
            allow=parse_domains('allow', self.allow), deny=parse_domains('deny', self.deny), asks=self.asks
        )
        fetcher = Fetcher(
            rules=self._rules,
            max_chars=self.max_chars,
            max_bytes=self.max_bytes,
            timeout_seconds=self.timeout_seconds,
            private_addresses=self.private_addresses,
        )
        searcher = Searcher(rules=self._rules, timeout_seconds=self.timeout_seconds)
        search = self.search if isinstance(self.search, Tool) else searcher if self.search else None
        self._toolset = web_toolset(fetcher if self.fetch else None, search)

    def get_toolset(self) -> AbstractToolset[object]:
        """Return the tools."""
        return self._toolset

    async def before_run(self, ctx: RunContext[object]) -> None:
        """Check that the run can ask a person, if it may have to.

        Raises:
            UserError: It has no approvals.
        """
        if self.fetch and self.asks and EVERY not in self.allow:
            check_can_pause(ctx, 'Web')

    async def approval_reason(
        self,
        ctx: RunContext[object],
        *,
        tool_def: ToolDefinition,
        args: Mapping[str, Any],
        files: Sequence[str] | None,
    ) -> str | None:
        """Return the reason why a person decides on a page; `None` for other calls, and for those that are refused."""
        host = host_of(args['url']) if tool_def.name == FETCH else None
        if host is None or self._rules.verdict(host) != 'ask':
            return None
        return f'The domain {host!r} is not in `allow` of `Web`.'

    async def preview(
        self, ctx: RunContext[object], *, call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, Any]
    ) -> Preview | None:
        """Return the refusal of a page, about which nobody is asked; `None` for other calls."""
        host = host_of(args['url']) if tool_def.name == FETCH else None
        refusal = None if host is None else self._rules.refusal(host)
        return None if refusal is None else Preview(kind='call', failure=refusal)

    def _check(self) -> None:
        for module, is_used in (('markdownify', self.fetch), ('ddgs', self.search is True)):
            if is_used:
                check_installed(module)
        check_object('search', self.search, (bool, Tool), 'Pass True, False or a `Tool` that searches.')
        check_flags(asks=self.asks, fetch=self.fetch, private_addresses=self.private_addresses)
        for name in ('max_chars', 'max_bytes', 'timeout_seconds'):
            check_positive(name, getattr(self, name))
        if not self.fetch and not self.search:
            raise ValueError('`fetch` and `search` are both false. Use one of them, or leave `Web` out.')
