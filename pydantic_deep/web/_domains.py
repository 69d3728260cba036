"""Decide by its domain whether a page may be fetched. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic_deep._checks import check_strings

EVERY: Final = '*'
"""The entry of a list that matches every domain."""

MAX_LISTED: Final = 10
"""Maximum number of domains to list in a message to the model."""

_DOMAIN: Final = re.compile(r'[a-z0-9_-]+(\.[a-z0-9_-]+)*|[0-9a-f:.]*:[0-9a-f:.]*')
"""A name or an address, as `normal` returns it."""

Verdict: TypeAlias = Literal['allow', 'ask', 'deny']
"""The page may be fetched, a person decides, or it is refused."""


@dataclass(frozen=True, kw_only=True)
class DomainRules:
    """The rules for domains. An entry of a list also matches the subdomains."""

    allow: Sequence[str]
    deny: Sequence[str]
    asks: bool
    """Whether a person decides on domains that are in neither list. Otherwise they are refused."""

    def verdict(self, host: str) -> Verdict:
        """Return the verdict on a host, as `host_of` returns it."""
        if _matches(self.deny, host):
            return 'deny'
        if _matches(self.allow, host):
            return 'allow'
        return 'ask' if self.asks else 'deny'

    def refusal(self, host: str) -> str | None:
        """Return the message to the model if the host is refused; `None` otherwise."""
        if self.verdict(host) != 'deny':
            return None
        if _matches(self.deny, host):
            return f'The domain {host!r} is denied. Continue without it.'
        listed = ', '.join(self.allow[:MAX_LISTED]) + ', …' * (len(self.allow) > MAX_LISTED)
        return f'The domain {host!r} is not allowed. Allowed: {listed or "none"}. Continue without it.'

    def redirect_hosts(self, host: str) -> list[str] | None:
        """Return the hosts that a request for a host may be redirected to, and the host itself; `None` for all."""
        if EVERY in self.allow and not self.deny:
            return None
        twin = host.removeprefix('www.') if host.startswith('www.') else f'www.{host}'
        others = [twin, *self.allow]
        return [host, *(other for other in others if other != EVERY and not _matches(self.deny, other))]


def host_of(url: str) -> str | None:
    """Return the host of a URL in the form that is compared; `None` if it has none."""
    try:
        host = urlsplit(url).hostname
    except ValueError:
        return None
    return None if host is None else normal(host)


def normal(host: str) -> str | None:
    """Return a host in ASCII, as the resolver encodes it, without the dot at its end; `None` if that is impossible."""
    try:
        name = host.encode('idna').decode().lower().rstrip('.')
    except UnicodeError:
        return None
    return name if _DOMAIN.fullmatch(name) else None


def parse_domains(name: str, domains: Sequence[str]) -> tuple[str, ...]:
    """Return the domains of a list in the form that is compared.

    Args:
        name: The name of the list, for errors.
        domains: The domains.

    Raises:
        ValueError: One of them is not a domain.
        TypeError: They are not a list of strings.
    """
    check_strings(name, domains)
    parsed = {domain: EVERY if domain == EVERY else normal(domain) for domain in domains}
    for domain, value in parsed.items():
        if value is None:
            raise ValueError(
                f"`{name}` has {domain!r}, which is not a domain. Use one like 'python.org', which matches its "
                f'subdomains too, or {EVERY!r} for all.'
            )
    return tuple(filter(None, parsed.values()))


def _matches(domains: Sequence[str], host: str) -> bool:
    return any(domain in (EVERY, host) or host.endswith(f'.{domain}') for domain in domains)
