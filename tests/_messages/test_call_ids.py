"""Ids of nested calls: different paths have different ids, and escaped ids can be unescaped."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pydantic_deep._messages.call_ids import escape_call_id, nested_call_id, unescape_call_id


@given(st.lists(st.lists(st.text('a/%2F', max_size=4), min_size=1, max_size=3), unique_by=tuple, max_size=6))
def test_different_paths_have_different_ids(paths: list[list[str]]) -> None:
    assert len({nested_call_id(*path) for path in paths}) == len(paths)


@given(st.text('a/%25F', max_size=6))
def test_escaped_id_has_no_slash_and_round_trips(id: str) -> None:
    escaped = escape_call_id(id)
    assert '/' not in escaped
    assert unescape_call_id(escaped) == id
