"""Calls of MCP servers on the page."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

import pytest
from playwright.async_api import expect

from pydantic_deep import create_deep_agent
from pydantic_deep.cli.turn._served_agents import with_configuration
from pydantic_deep.mcp import McpServer, McpServers
from pydantic_deep.server import AnyAgent
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.untrusted import UntrustedContent
from tests.server.static.conftest import OpenPage, page_marks

pytestmark = page_marks

SERVER = Path(__file__).parent.parent.parent / 'mcp/fixture_server.py'


@pytest.fixture
async def agents(tmp_path: Path) -> AsyncGenerator[Mapping[str, AnyAgent]]:
    server = McpServer(command=sys.executable, args=(str(SERVER),), env={'CALLS': str(tmp_path / 'calls')})
    steps = (
        call('shop_add', a=17, b=25),
        'Added.',
        call('shop_order', item='Tea'),
        'Ordered.',
        call('shop_stop'),
        'So.',
    )
    agent = create_deep_agent(ScriptedModel(*steps), capabilities=[UntrustedContent()], interrupt_on={})
    async with with_configuration({'analyst': agent}, McpServers(servers={'shop': server})) as served:
        yield served


async def test_calls_of_mcp_servers_are_approved_and_shown(open_page: OpenPage):
    """A tool that only reads runs at once, another one after an approval, whose arguments are fields, with a notice of the
    untrusted result before; a server that ends in a call fails this call."""
    seen = await open_page()
    await seen.say('add', until='Added.')
    await expect(seen.calls).to_have_text(['shop_add17, 25✓'])

    await seen.send('order')
    card = seen.page.locator('[data-approval]')
    await expect(card.locator('.warn')).to_contain_text('Untrusted content was read before this call')
    await expect(card.locator('.argument')).to_have_text(['itemTea'])
    await card.locator('[data-act=edit]').click()
    await seen.page.fill('.answer-form textarea', 'Coffee')
    await seen.page.click('text=Run with these')
    await expect(seen.turns.last.locator('.markdown')).to_have_text('Ordered.')
    await expect(seen.page.locator('#dialogue > [data-live]')).to_have_count(0)
    await expect(seen.turns.last).to_contain_text('to: {"item": "Coffee"}')

    await seen.say('stop', until='So.')
    await expect(seen.calls.last).to_have_text('shop_stopfailed')
    assert seen.problems == []
