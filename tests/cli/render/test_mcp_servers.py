"""MCP servers and their tools as lines."""

from __future__ import annotations

from pydantic_deep.cli.render._mcp_servers import render_mcp_servers
from pydantic_deep.mcp import McpServerStatus, McpToolStatus


def test_lines_have_states_tools_and_no_secrets() -> None:
    """Text of servers is escaped, and secrets in commands are redacted."""
    add = McpToolStatus(name='shop_add', effect='read', needs_approval=False)
    order = McpToolStatus(name='shop_order', effect='external', needs_approval=True)
    key = 'sk-ant-api03-' + 'a' * 93 + 'AA'
    shop = McpServerStatus(name='shop', label='uvx shop', error=None, tools=(add, order), resources=1)
    one = McpServerStatus(name='one', label=f'x {key}', error='\x1b[31mgone', tools=(), resources=0)
    assert [line.plain for line in render_mcp_servers([shop, one])] == [
        'shop: 2 tools, 1 resource  uvx shop',
        '  shop_add',
        '  shop_order  (asks)',
        'one: not running  x [redacted: anthropic key]',
        '  \\x1b[31mgone',
    ]


def test_no_servers_are_one_line() -> None:
    """An empty list says so."""
    assert [line.plain for line in render_mcp_servers([])] == ['No MCP servers are configured.']
