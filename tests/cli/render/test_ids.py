"""Short ids of versions."""

from __future__ import annotations

from pydantic_deep.cli.render._ids import short_id


def test_short_id_is_the_shortest_unique_suffix() -> None:
    assert short_id('0199c8a1-2b3c-7def-8abc-0123456789ab') == '456789ab'
    assert short_id('a-1112345678', ['a-1112345678', 'b-1212345678', 'c-99']) == '112345678'
    assert short_id('x-12345678', ['y-12345678']) == 'x-12345678'
