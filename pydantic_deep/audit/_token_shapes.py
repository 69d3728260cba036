"""Shapes of tokens of providers. `token_shapes.tsv` contains them, with the licences of the scanners that define them."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


def token_shapes() -> tuple[tuple[str, str], ...]:
    """Return kinds and RE2 expressions. The group `secret` of an expression is the token."""
    return _read_shapes()['token']


def named_shapes() -> tuple[tuple[str, str], ...]:
    """Return the same for tokens that only the name or the URL of their provider before them identifies."""
    return _read_shapes()['named']


@cache
def _read_shapes() -> dict[str, tuple[tuple[str, str], ...]]:
    text = files('pydantic_deep.audit').joinpath('token_shapes.tsv').read_text(encoding='utf-8')
    rows = [line.split('\t') for line in text.splitlines() if not line.startswith('#')]
    return {
        table: tuple((kind, expression) for name, kind, expression in rows if name == table)
        for table in ('token', 'named')
    }
