"""Accessibility of the page: axe-core finds no violation in any state, in both color schemes and on a phone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from playwright.async_api import Page, expect
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import ExternalToolset

from pydantic_deep import create_deep_agent
from pydantic_deep.server import AnyAgent
from pydantic_deep.testing import ScriptedModel, call
from tests.server.static.conftest import SIZES, OpenPage, Script, ask, check, page_marks
from tests.server.static.test_dialogue import MARKDOWN, TODOS

pytestmark = page_marks


@pytest.fixture
def agents(script: Script) -> Mapping[str, AnyAgent]:
    bold = create_deep_agent(ScriptedModel(then=script))
    bold.description = 'Writes at once.'
    outside = ExternalToolset[Any]([ToolDefinition(name='thermometer')])
    careful = create_deep_agent(ScriptedModel(then=script), interrupt_on={'write_file': True}, toolsets=[outside])
    return {'bold': bold, 'careful': careful}


async def walk(page: Page, client: httpx.AsyncClient, script: Script, axe: str, place: str) -> None:
    """Go through all states of the page."""
    await expect(page.locator('.welcome')).to_be_visible()
    await check(page, axe, f'{place}: a new conversation')
    script.next = [MARKDOWN, call('write_todos', todos=TODOS), call('write_file', path='/a.py', content='x = 1\n')]
    for prompt in ('First', 'Second'):
        await page.fill('#prompt', prompt)
        await page.press('#prompt', 'Enter')
        await expect(page.locator('#dialogue .bubble').last).to_have_text(prompt)
        await expect(page.locator('#dialogue .answer').last.locator('.markdown').last).to_have_text('Done.')
        await expect(page.locator('#dialogue > [data-live]')).to_have_count(0)
    await page.locator('.call summary').first.click()
    await page.locator('.call summary').last.click()
    await check(page, axe, f'{place}: a dialogue')
    await page.locator('.turn').last.hover()
    await page.locator('.turn .edit').last.click(force=True)
    await check(page, axe, f'{place}: a prompt that is changed')
    await page.keyboard.press('Escape')
    await page.click('#to-versions')
    await expect(page.locator('#graph')).to_be_visible()
    await check(page, axe, f'{place}: versions')
    await page.click('#graph .version >> nth=1')
    for tab in ('Dialogue', 'Changes', 'Files', 'Plan', 'Cost'):
        await page.click(f'[role=tab]:text-is("{tab}")')
        await check(page, axe, f'{place}: a version, {tab}')
    await page.click('text=Branch from here')
    await check(page, axe, f'{place}: a branch')
    await page.select_option('.compare select', index=1)
    await expect(page.locator('#difference')).to_be_visible()
    await check(page, axe, f'{place}: a comparison')

    pending = await ask(client, script, call('write_file', path='/b.txt', content='b\n' * 3))
    await page.evaluate(f"location.hash = '#/c/{pending['conversation_id']}'")
    await expect(page.locator('.pending .card .diff')).to_be_visible()
    await check(page, axe, f'{place}: a pending call in the dialogue')
    await page.evaluate("location.hash = '#/a'")
    await expect(page.locator('.card .diff')).to_be_visible()
    await check(page, axe, f'{place}: the inbox')
    await page.click('.card [data-act=edit]')
    await expect(page.locator('.answer-form textarea').first).to_be_visible()
    await check(page, axe, f'{place}: a call that is edited')
    await page.keyboard.press('Escape')
    await page.click('.card [data-act=deny]')
    await check(page, axe, f'{place}: a call that is denied')
    await page.press('.answer-form input', 'Enter')
    await expect(page.locator('.card.settled .says')).to_contain_text('Denied by ada, just now')
    await check(page, axe, f'{place}: an answered call')
    answered = await ask(client, script, call('thermometer', room='cellar'))
    await page.evaluate("dispatchEvent(new Event('focus'))")
    await page.click('.card [data-act=respond]:enabled')
    await page.get_by_label('Result', exact=True).fill('12 C\nand rising')
    await check(page, axe, f'{place}: a result that is given')
    await page.get_by_label('Result', exact=True).press('Control+Enter')
    await page.click('.card.settled .quote summary')
    await check(page, axe, f'{place}: a result that was given')
    await page.evaluate(f"location.hash = '#/c/{answered['conversation_id']}'")
    await expect(page.locator('.call .reply')).to_be_visible()
    await check(page, axe, f'{place}: a result in the dialogue')
    await page.evaluate("location.hash = '#/a'")
    await ask(client, script, call('write_file', path='/c.txt', content='c\n'))
    await page.evaluate("dispatchEvent(new Event('focus'))")
    await page.click('[data-act=repeat]:enabled')
    await expect(page.locator('.approved .chip')).to_be_visible()
    await check(page, axe, f'{place}: calls that are approved for a conversation')
    await page.reload()
    await expect(page.locator('#answered li').first).to_be_visible()
    await check(page, axe, f'{place}: answered calls')
    await page.evaluate('document.activeElement.blur()')
    await page.keyboard.press('?')
    await expect(page.locator('dialog')).to_be_visible()
    await check(page, axe, f'{place}: the keys')
    await page.keyboard.press('Escape')
    await expect(page.locator('dialog')).to_have_count(0)
    await page.keyboard.press(',')
    await expect(page.locator('.settings')).to_be_visible()
    await check(page, axe, f'{place}: the settings')
    await page.keyboard.press('Escape')


async def test_no_state_of_the_page_has_violations(
    open_page: OpenPage, client: httpx.AsyncClient, script: Script, axe: str
):
    """Sign-in, dialogue, versions, comparison, approvals and dialogs, at both widths and in both color schemes."""
    for given in SIZES:
        wrong = await open_page(key='pd_wrong', **given)
        await expect(wrong.page.locator('#problem')).to_be_visible()
        await check(wrong.page, axe, f'{given}: sign-in')
        await wrong.page.route(
            '**/api/*',
            lambda route: route.fulfill(status=401, json={'error': {'message': 'x', 'login_url': '/login'}}),
        )
        await wrong.page.reload()
        await expect(wrong.page.locator('#to-login')).to_be_visible()
        await check(wrong.page, axe, f'{given}: sign-in at the host application')
        await wrong.page.context.close()
        seen = await open_page(**given)
        await walk(seen.page, client, script, axe, str(given))
        if 'width' in given:
            await seen.page.click('.only-narrow')
            await check(seen.page, axe, f'{given}: the list')
        await seen.page.context.close()


async def test_screen_readers_know_who_speaks_and_what_is_pending(open_page: OpenPage, script: Script):
    """Prompts and answers are named, and a call that needs a decision is announced, in one sentence, wherever it arises."""
    seen = await open_page()
    await seen.page.click('.choice:has-text("careful")')
    await seen.say('Hi', until='Nothing.')
    await expect(seen.page.locator('#dialogue')).to_match_aria_snapshot(
        '- listitem:\n  - group "Prompt":\n    - text: Hi\n    - button "Edit"\n  - group "Answer":\n    - paragraph: Nothing.'
    )
    announced = seen.page.get_by_role('status').filter(has_text='for your decision')
    await expect(announced).to_have_count(0)
    script.next = [call('write_file', path='/a.txt', content='a\n')]
    await seen.send('go')
    await expect(announced).to_have_text('1 call waits for your decision')
    await seen.page.click('.pending [data-act=approve]:enabled')
    await expect(announced).to_have_count(0)
