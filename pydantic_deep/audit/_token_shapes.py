"""Shapes of tokens of providers. `token_shapes.tsv` has them, with the licences of the scanners whose rules they are."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

_TEXT: Final = files('pydantic_deep.audit').joinpath('token_shapes.tsv').read_text(encoding='utf-8')
_ROWS: Final = [line.split('\t') for line in _TEXT.splitlines() if not line.startswith('#')]

TOKEN_SHAPES: Final = tuple((kind, expression) for table, kind, expression in _ROWS if table == 'token')
"""Kinds and expressions of RE2, whose group `secret` is the token."""

NAMED_SHAPES: Final = tuple((kind, expression) for table, kind, expression in _ROWS if table == 'named')
"""The same for tokens that are told by the name of their provider, or the URL, before them."""
