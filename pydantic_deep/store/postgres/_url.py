"""URLs of PostgreSQL servers, with the password masked in everything that is displayed."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit

SCHEMES: Final = ('postgresql', 'postgres')

_SECRET: Final = frozenset(('password', 'sslpassword'))

_UNREADABLE: Final = (
    'The URL of the PostgreSQL store cannot be read. In its password, percent-encode what has a meaning in a URL, such '
    'as `@`, `/`, `?` and `#`: `urllib.parse.quote(password, safe="")` does.'
)


def without_password(url: str) -> str:
    """Return the URL without its password.

    Raises:
        ValueError: The URL is ambiguous, for example because of a raw special character in the password.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError(_UNREADABLE) from None  # the message may contain the password
    if parts.scheme not in SCHEMES:
        raise ValueError('The URL of a PostgreSQL store begins with `postgresql://`.')
    login, _, hosts = parts.netloc.rpartition('@')
    has_strays = parts.fragment or '@' in f'{login}{parts.path}{parts.query}'
    if has_strays or not all(_has_port_or_none(host) for host in hosts.split(',')):
        raise ValueError(_UNREADABLE)
    role = login.partition(':')[0]
    query = urlencode([pair for pair in parse_qsl(parts.query) if pair[0] not in _SECRET], safe='/')
    return f'{parts.scheme}://{role}{"@" if role else ""}{hosts}{parts.path}{"?" if query else ""}{query}'


def _has_port_or_none(host: str) -> bool:
    """Return whether the text after a colon outside of brackets is a port number, and thus not a password."""
    _, colon, port = host.rpartition(']')[2].partition(':')
    return not colon or port.isdigit()
