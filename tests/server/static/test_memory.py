"""What the agent remembers, on the page."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from playwright.async_api import expect

pytest.importorskip('pydantic_ai_harness', reason='the harness pins pydantic-ai to an older release than this one')

from pydantic_deep import create_deep_agent
from pydantic_deep.server import AnyAgent, ServerSettings
from pydantic_deep.testing import ScriptedModel, call
from tests.server.static.conftest import SIZES, OpenPage, check, page_marks

pytestmark = page_marks


@pytest.fixture
def settings() -> ServerSettings:
    return ServerSettings(requests_per_second=1000, request_burst=100_000, memory=True)


@pytest.fixture
def agents() -> Mapping[str, AnyAgent]:
    tea, milk = call('write_memory', content='- Drinks tea.'), call('write_memory', content='- Takes <b>milk</b>.')
    return {'analyst': create_deep_agent(ScriptedModel(tea, 'First.', milk, 'Second.'))}


@pytest.mark.parametrize('width', [1280, 390])
async def test_memory_is_shown_with_its_writers_and_undone(open_page: OpenPage, width: int):
    """The settings lead to the files, their revisions with the conversations that wrote them, and undo."""
    seen = await open_page(width=width)
    await seen.say('Remember tea', until='First.')
    await seen.press('c')
    await seen.say('Remember milk', until='Second.')
    await expect(seen.turns).to_have_count(1)
    await expect(seen.turns.locator('.note').first).to_have_text('The agent read its memory.')

    await seen.press(',')
    await seen.page.click('#to-memory')
    memory = seen.page.locator('.memory')
    await expect(memory.locator('h3')).to_have_text(['MEMORY.md'])
    await expect(memory.locator('pre').first).to_have_text('- Drinks tea.\n- Takes <b>milk</b>.')
    await memory.locator('summary').click()
    await expect(memory.locator('li a')).to_have_text(['Remember milk', 'Remember tea'])
    await memory.get_by_role('button', name='Restore').click()
    await expect(memory.locator('li > span').first).to_contain_text('3. restored by ada, just now')
    await expect(memory.locator('pre').first).to_have_text('- Drinks tea.')
    await memory.get_by_role('button', name='Delete the file').click()
    await expect(memory).to_contain_text('The file is deleted.')
    await memory.locator('li a', has_text='Remember tea').last.click()
    await expect(seen.turns.locator('.bubble')).to_have_text('Remember tea')
    await expect(seen.page.locator('dialog')).to_have_count(0)
    assert seen.problems == []


async def test_no_state_of_the_memory_has_violations(open_page: OpenPage, axe: str):
    """axe-core finds none in an empty memory, files, revisions and a deleted file, at both widths and in both color schemes."""
    first, *others = SIZES
    seen = await open_page(**first)
    await seen.page.locator('.welcome').wait_for()
    await seen.press(',')
    await seen.page.click('#to-memory')
    await expect(seen.page.locator('dialog')).to_contain_text('Nothing yet.')
    await check(seen.page, axe, 'an empty memory')
    await seen.page.keyboard.press('Escape')
    await seen.say('Remember tea', until='First.')
    await seen.press('c')
    await seen.say('Remember milk', until='Second.')
    for given in (first, *others):
        seen = await open_page(**given)
        await seen.page.locator('.welcome').wait_for()
        await seen.press(',')
        await seen.page.click('#to-memory')
        memory = seen.page.locator('.memory')
        await expect(memory.locator('pre').first).to_be_visible()
        await check(seen.page, axe, f'{given}: files')
        await memory.locator('summary').click()
        await expect(memory.locator('li a').first).to_be_visible()
        await check(seen.page, axe, f'{given}: revisions')
        await memory.get_by_role('button', name='Delete the file').click()
        await expect(memory).to_contain_text('The file is deleted.')
        await check(seen.page, axe, f'{given}: a deleted file')
        await memory.get_by_role('button', name='Restore').first.click()
        await expect(memory).not_to_contain_text('The file is deleted.')
        await seen.page.context.close()
