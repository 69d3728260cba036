"""URLs of PostgreSQL servers, and how one is shown: a password never appears in what we say."""

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
    """Return the URL as it may be shown.

    Raises:
        ValueError: It cannot be read with certainty, for which a raw special character in a password is enough.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError(_UNREADABLE) from None  # what it says may have the password in it
    if parts.scheme not in SCHEMES:
        raise ValueError('The URL of a PostgreSQL store begins with `postgresql://`.')
    login, _, hosts = parts.netloc.rpartition('@')
    has_strays = parts.fragment or '@' in f'{login}{parts.path}{parts.query}'
    if has_strays or not all(_has_port_or_none(host) for host in hosts.split(',')):
        raise ValueError(_UNREADABLE)
    role = login.partition(':')[0]
    query = urlencode([each for each in parse_qsl(parts.query) if each[0] not in _SECRET], safe='/')
    return f'{parts.scheme}://{role}{"@" if role else ""}{hosts}{parts.path}{"?" if query else ""}{query}'


def _has_port_or_none(host: str) -> bool:
    """Return whether what follows a colon outside of brackets is a number, and so no password."""
    _, colon, port = host.rpartition(']')[2].partition(':')
    return not colon or port.isdigit()
