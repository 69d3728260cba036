"""Names of tools."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from pydantic_deep.mcp._names import is_allowed, name_of


def test_name_of_a_tool_begins_with_its_server() -> None:
    """Tools of two servers with the same name have different names for the model."""
    assert (name_of('git', 'log', ()), name_of('hg', 'log', ())) == ('git_log', 'hg_log')


def test_names_that_would_be_equal_get_a_digest() -> None:
    """The tool `b_c` of the server `a` and the tool `c` of `a_b` have different names."""
    first = name_of('a', 'b_c', ())
    second = name_of('a_b', 'c', {first})
    assert first == 'a_b_c'
    assert re.fullmatch('a_b_c_[0-9a-f]{8}', second)


@given(st.text(), st.text())
def test_every_name_is_one_that_providers_accept(server: str, tool: str) -> None:
    """Whatever a server calls its tools, providers accept the names, and they are the same each time."""
    name = name_of(server, tool, ())
    assert re.fullmatch('[A-Za-z0-9_-]{1,64}', name)
    assert name == name_of(server, tool, ())


def test_patterns_match_whole_names() -> None:
    """A pattern without a wildcard matches one tool."""
    assert is_allowed('git_log', ['git_*'])
    assert not is_allowed('git_log', ['git', 'log'])
