"""Names of tools."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydantic_deep.mcp._names import RESERVED, is_allowed, names_of


def name(server: str, tool: str, *, servers: Sequence[str] = (), reserved: Collection[str] = ()) -> str:
    return names_of(server, [tool], servers=servers or [server], reserved=reserved)[tool]


def has_digest(text: str, plain: str) -> bool:
    return re.fullmatch(f'{plain}_[0-9a-f]{{8}}', text) is not None


def test_name_of_a_tool_begins_with_its_server() -> None:
    """Tools of two servers with the same name have different names for the model."""
    assert (name('git', 'log'), name('hg', 'log')) == ('git_log', 'hg_log')


def test_name_belongs_to_the_server_with_the_longest_prefix() -> None:
    """`a_b_c` is the tool `c` of `a_b`, also before the server `a` adds a tool `b_c`: an approval stays with its server."""
    servers = ['a', 'a_b', 'a.b']
    assert name('a_b', 'c', servers=servers) == 'a_b_c'
    assert has_digest(name('a', 'b_c', servers=servers), 'a_b_c')
    assert has_digest(name('a.b', 'c', servers=servers), 'a_b_c')


def test_names_do_not_depend_on_the_order_of_the_tools() -> None:
    """A server that lists its tools in another order must not change what an approved call runs."""
    names = names_of('git', ['a.b', 'a_b', 'a b', 'c.d'], servers=['git'], reserved=())
    assert names == names_of('git', ['c.d', 'a b', 'a_b', 'a.b'], servers=['git'], reserved=())
    assert (names['a_b'], names['c.d']) == ('git_a_b', 'git_c_d')
    assert has_digest(names['a.b'], 'git_a_b')
    assert has_digest(names['a b'], 'git_a_b')
    assert len({*names.values()}) == 4


def test_names_of_other_tools_are_reserved() -> None:
    """A server cannot replace a tool of the agent, of this package or of pydantic-ai."""
    assert has_digest(name('read', 'mcp_resource', reserved=RESERVED), 'read_mcp_resource')
    assert has_digest(name('search', 'tools', reserved=RESERVED), 'search_tools')


@given(st.text(), st.text())
def test_every_name_is_one_that_providers_accept(server: str, tool: str) -> None:
    """Whatever a server calls its tools, providers accept the names, and they are the same each time."""
    found = name(server, tool)
    assert re.fullmatch('[A-Za-z0-9_-]{1,64}', found)
    assert found == name(server, tool)


def test_patterns_match_whole_names() -> None:
    """A pattern without a wildcard matches one tool."""
    assert is_allowed('git_log', ['git_*'])
    assert not is_allowed('git_log', ['git', 'log'])


@pytest.mark.parametrize(
    ('name', 'server', 'pattern', 'allowed'),
    [
        ('git_log', 'git', 'git_*', True),
        ('git_hub_delete', 'git_hub', 'git_*', False),
        ('git_hub_delete', 'git_hub', 'git_h*', False),
        ('git_hub_delete', 'git_hub', 'git_hub_*', True),
        ('git_hub_delete', 'git_hub', 'git_hub_delete', True),
        ('git_hub_delete_0f1e2d3c', 'git', 'git_hub_delete_0f1e2d3c', True),
        ('git_hub_delete_0f1e2d3c', 'git', 'git_hub_*', False),
        ('git_hub_delete', 'git_hub', '*', True),
        ('git_hub_delete', 'git_hub', '*_delete', True),
        ('git_hub_delete', 'git_hub', '[g]it_*', True),
    ],
)
def test_pattern_that_names_a_server_allows_no_tools_of_others(name: str, server: str, pattern: str, *, allowed: bool):
    assert is_allowed(name, [pattern], server=server, servers=['git', 'git_hub']) == allowed
