"""Rate limits: token buckets for the requests of a key, and for wrong keys from an address.

Defined elsewhere: the middleware that applies them (`access._authentication`), and body limits (`http._body_limit`).
"""

from __future__ import annotations

import secrets
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from ipaddress import IPv4Address, ip_address, ip_network

WRONG_KEY_BUCKETS = 8192
"""The number of buckets for addresses that send wrong keys. They take 128 KiB in total."""


@dataclass(kw_only=True)
class RateLimit:
    """A token bucket for each key. Each request takes a token.

    It stores two numbers for each key that was used since the start.
    """

    per_second: float
    """The refill rate, in tokens per second."""
    burst: int
    """The capacity of a bucket."""
    clock: Callable[[], float]
    """A monotonic clock, in seconds."""
    _buckets: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]], repr=False)
    """The number of tokens and the time of their last update, by key."""

    def take(self, key: str) -> float:
        """Take a token and return 0, or return the seconds until one is available."""
        now = self.clock()
        tokens, at = self._buckets.get(key, (float(self.burst), now))
        tokens = min(self.burst, tokens + (now - at) * self.per_second)
        if tokens < 1:
            self._buckets[key] = tokens, now
            return (1 - tokens) / self.per_second
        self._buckets[key] = tokens - 1, now
        return 0.0


class WrongKeyLimit:
    """Token buckets for wrong keys by address, in a table of constant size.

    Addresses with colliding keyed hashes share a bucket. The limit never applies to valid keys, because several people
    may share an address.

    Args:
        per_minute: The refill rate, in tokens per minute.
        burst: The capacity of a bucket.
        clock: A monotonic clock, in seconds.
    """

    def __init__(self, *, per_minute: float, burst: int, clock: Callable[[], float]) -> None:
        self._per_second = per_minute / 60
        self._burst = burst
        self._clock = clock
        self._secret = secrets.token_bytes(16)  # prevents clients from targeting the bucket of another address
        self._tokens = array('d', [burst]) * WRONG_KEY_BUCKETS
        self._at = array('d', [clock()]) * WRONG_KEY_BUCKETS

    def take(self, address: str) -> float:
        """Take a token for an address and return 0, or return the seconds until one is available."""
        digest = blake2b(_network_of(address).encode(), key=self._secret, digest_size=4).digest()
        place, now = int.from_bytes(digest) % WRONG_KEY_BUCKETS, self._clock()
        tokens = min(self._burst, self._tokens[place] + (now - self._at[place]) * self._per_second)
        self._at[place] = now
        self._tokens[place] = tokens if tokens < 1 else tokens - 1
        return 0.0 if tokens >= 1 else (1 - tokens) / self._per_second


def _network_of(address: str) -> str:
    """Return the addresses that a single client is likely to have: an IPv4 address, or a 64-bit IPv6 network."""
    try:
        parsed = ip_address(address)
    except ValueError:  # not an IP address, such as that of a Unix socket
        return address
    if isinstance(parsed, IPv4Address):
        return str(parsed)
    return str(parsed.ipv4_mapped or ip_network((int(parsed), 64), strict=False))
