"""One request to a webhook, to an address that was checked: never to a private network, unless the operator allows it."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Collection, Mapping
from functools import cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final, NamedTuple

import anyio
import httpx2

TIMEOUT_SECONDS: Final = 15
"""Maximum duration of a request, with the lookup of its host; Standard Webhooks recommends 15 to 30."""

_UNICAST: Final = IPv6Network('2000::/3')
"""The IPv6 addresses of the public internet (RFC 4291). Outside of it are others that reach private hosts, such as
site-local ones, and those that a network translates to IPv4 by a prefix of its own (RFC 8215)."""

_NAT64: Final = IPv6Network('64:ff9b::/96')
"""Addresses that stand for an IPv4 address in their last 32 bits (RFC 6052)."""


class RequestFailedError(Exception):
    """A request got no response. The message is a sentence for the owner of the webhook."""


class Reply(NamedTuple):
    """The response to a request. Its body is not read."""

    status_code: int
    """The HTTP status."""
    retry_after: str | None
    """The header `Retry-After`."""


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Return whether an address belongs to the public internet, also if it stands for an IPv4 address."""
    if isinstance(address, IPv6Address):
        if address in _NAT64:
            return is_public(IPv4Address(int(address) & 0xFFFF_FFFF))
        if (inner := address.ipv4_mapped or address.sixtofour) is not None:
            return is_public(inner)
        if address not in _UNICAST:
            return False
    return address.is_global and not address.is_multicast


async def post(url: str, body: str, headers: Mapping[str, str], private_hosts: Collection[str]) -> Reply:
    """Send JSON to a URL, and return the response. Redirects are not followed, and proxies not used.

    Args:
        url: The URL, as `url_problem` accepts it.
        body: The JSON.
        headers: Additional headers.
        private_hosts: Hosts that may have private addresses.

    Raises:
        RequestFailedError: The host has no address or a private one, or there was no response in time.
    """
    parsed = httpx2.URL(url)
    try:
        with anyio.fail_after(TIMEOUT_SECONDS):
            address = await _resolve(parsed.host, private_hosts)
            return await _post(parsed, address, body, headers)
    except TimeoutError:
        raise RequestFailedError(f'{parsed.host} did not respond within {TIMEOUT_SECONDS} seconds.') from None
    except (OSError, httpx2.HTTPError) as error:
        raise RequestFailedError(f'The request failed: {error or type(error).__name__}.') from error


async def _resolve(host: str, private_hosts: Collection[str]) -> str:
    """Return an address of a host."""
    found = await anyio.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    addresses = [str(entry[4][0]) for entry in found]
    if host not in private_hosts:
        for address in addresses:  # all of them: a public address beside a private one is not trusted either
            if not is_public(ip_address(address.partition('%')[0])):
                raise RequestFailedError(
                    f'{host} has the private address {address}. Name the host in the setting `webhook_private_hosts` '
                    'to allow it.'
                )
    return addresses[0]


@cache
def _ssl_context() -> ssl.SSLContext:
    """Return the context of all requests, since loading the certificates takes longer than a request."""
    return httpx2.create_ssl_context(trust_env=False)


async def _post(url: httpx2.URL, address: str, body: str, headers: Mapping[str, str]) -> Reply:
    sent = {'host': url.netloc.decode(), 'content-type': 'application/json', 'user-agent': 'pydantic-deep', **headers}
    async with (
        # A client for each request: one with a pool would use a connection to an address for another name at it.
        httpx2.AsyncClient(trust_env=False, timeout=TIMEOUT_SECONDS, verify=_ssl_context()) as client,
        client.stream(
            'POST',
            url.copy_with(host=address),
            content=body.encode(),
            headers=sent,
            extensions={'sni_hostname': url.host},
        ) as response,
    ):
        return Reply(response.status_code, response.headers.get('retry-after'))
