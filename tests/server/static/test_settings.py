"""The settings on the page, notifications, and how full the context is."""

from __future__ import annotations

from collections.abc import Mapping

import httpx
import pytest
from playwright.async_api import Page, expect

from pydantic_deep import create_deep_agent
from pydantic_deep.server import AnyAgent
from pydantic_deep.testing import ScriptedModel, call
from tests.server.static.conftest import OpenPage, Script, ask, page_marks

pytestmark = page_marks

NOTIFICATIONS = """(answer) => {
    window.shown = [];
    window.Notification = class {
        static requestPermission = async () => answer;
        constructor(title, options = {}) { window.shown.push([title, options.body ?? null]); window.last = this; }
        close() {}
    };
}"""
"""A fake of the browser's notifications, which headless browsers do not show."""

HIDE = "Object.defineProperty(document, 'visibilityState', { get: () => 'hidden', configurable: true })"
"""Puts the page into the background. Chromium has no way to do that to a page without a window."""


@pytest.fixture
def agents(script: Script) -> Mapping[str, AnyAgent]:
    bold = create_deep_agent(ScriptedModel(then=script))
    return {'bold': bold, 'careful': create_deep_agent(ScriptedModel(then=script), interrupt_on={'write_file': True})}


async def choose(page: Page, label: str) -> None:
    """Choose an option in the settings, and close them."""
    await page.click('#settings')
    await page.get_by_label(label).check()
    await page.keyboard.press('Escape')
    await expect(page.locator('dialog')).to_have_count(0)


async def test_colors_are_those_of_the_system_unless_chosen(open_page: OpenPage):
    """The colors are those of the system until a person chooses, and the choice is kept."""
    color = 'getComputedStyle(document.body).backgroundColor'
    seen = await open_page()
    await expect(seen.page.locator('.welcome')).to_be_visible()

    assert await seen.page.evaluate(color) == 'rgb(255, 255, 255)'
    assert await (await open_page(dark=True)).page.evaluate(color) == 'rgb(22, 20, 27)'
    await choose(seen.page, 'Dark')
    assert await seen.page.evaluate(color) == 'rgb(22, 20, 27)'
    await seen.page.reload()
    await expect(seen.page.locator('.welcome')).to_be_visible()
    assert await seen.page.evaluate(color) == 'rgb(22, 20, 27)'


async def test_enter_starts_a_line_if_chosen(open_page: OpenPage):
    """A person can choose that Enter starts a line and Ctrl+Enter sends; hint and keys say so, and the choice is kept."""
    seen = await open_page()
    await choose(seen.page, 'Enter starts a new line, Ctrl+Enter sends')
    await seen.page.reload()
    await expect(seen.page.locator('.hint')).to_have_text('Ctrl+Enter sends, Enter starts a new line')
    await seen.page.fill('#prompt', 'one')
    await seen.page.press('#prompt', 'Enter')
    await seen.page.type('#prompt', 'two')
    await expect(seen.page.locator('#prompt')).to_have_value('one\ntwo')

    await seen.press('?')
    await expect(seen.page.locator('.keys kbd >> nth=1')).to_have_text('Ctrl+Enter')
    await seen.page.keyboard.press('Escape')
    await seen.page.press('#prompt', 'Control+Enter')
    await expect(seen.turns.last.locator('.bubble')).to_have_text('one\ntwo')
    await expect(seen.page.locator('#dialogue > [data-live]')).to_have_count(0)

    await seen.show_versions()
    await seen.page.click('text=Branch from here')
    await seen.page.keyboard.type('three')
    await seen.page.keyboard.press('Enter')
    await seen.page.keyboard.type('four')
    await seen.page.keyboard.press('Control+Enter')
    await expect(seen.turns.last.locator('.bubble')).to_have_text('three\nfour')


async def test_settings_open_by_a_key_and_show_the_account(open_page: OpenPage):
    """A comma opens the settings, which show the owner and the permissions."""
    seen = await open_page()
    await expect(seen.page.locator('.welcome')).to_be_visible()
    await seen.press(',')
    await expect(seen.page.locator('.settings')).to_contain_text('ada')
    await expect(seen.page.locator('.settings')).to_contain_text('approve, run')


async def test_refused_notifications_are_explained(open_page: OpenPage):
    """If the browser refuses notifications, the settings say what to do, and they stay off."""
    seen = await open_page()
    await seen.page.evaluate(NOTIFICATIONS, 'denied')
    await seen.page.click('#settings')
    await seen.page.click('.settings [type=checkbox]')
    await expect(seen.page.locator('.settings .warn')).to_contain_text('refuses notifications')
    await expect(seen.page.locator('.settings [type=checkbox]')).not_to_be_checked()


async def test_background_page_notifies_of_ended_turns_and_pending_calls(
    open_page: OpenPage, client: httpx.AsyncClient, script: Script
):
    """A page in the background notifies of the end of a turn and of calls that need a decision, in any conversation. A click
    opens the call. A visible page does not, and neither does one whose person has switched notifications off."""
    seen = await open_page()
    await seen.page.evaluate(NOTIFICATIONS, 'granted')
    await seen.page.click('#settings')
    await seen.page.click('.settings [type=checkbox]')
    await expect(seen.page.locator('.settings [type=checkbox]')).to_be_checked()
    await seen.page.keyboard.press('Escape')
    await seen.say('Visible', until='Nothing.')
    assert await seen.page.evaluate('window.shown') == [['Notifications are on.', None]]

    await seen.page.evaluate(HIDE)
    await seen.say('Hidden', until='Nothing.')
    await seen.page.wait_for_function('() => window.shown.length === 2')
    assert await seen.page.evaluate('window.shown[1]') == ['Visible', 'The turn has ended.']
    run = await ask(client, script, call('write_file', path='/a.txt', content='a'))
    await seen.page.evaluate("window.dispatchEvent(new Event('focus'))")
    await seen.page.wait_for_function('() => window.shown.length === 3')
    assert await seen.page.evaluate('window.shown[2]') == ['Conversation', 'A call of write_file needs your decision.']
    await seen.page.evaluate('window.last.onclick()')
    await expect(seen.page.locator('.card a')).to_have_attribute(
        'href', run['path'].replace('/api/conversations', '#/c')
    )

    await seen.page.click('#settings')
    await seen.page.click('.settings [type=checkbox]')
    await seen.page.keyboard.press('Escape')
    await seen.page.click('#new')
    script.next = 'Nothing.'
    await seen.say('Quiet', until='Nothing.')
    assert await seen.page.evaluate('window.shown.length') == 3


@pytest.mark.parametrize(('window', 'text'), [(None, '110 tokens'), (1000, '11 % of context')])
async def test_composer_shows_how_full_the_context_is(
    open_page: OpenPage, monkeypatch: pytest.MonkeyPatch, window: int | None, text: str
):
    """After a response, the composer shows the tokens of the last request and its response, as a share of the model's
    context window if that is known. It shows nothing before."""
    monkeypatch.setattr('pydantic_deep.views._reader.window_of', lambda response: window)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    seen = await open_page()
    await expect(seen.page.locator('.welcome')).to_be_visible()
    await expect(seen.page.locator('.context')).to_have_count(0)
    await seen.say('Hello', until='Nothing.')
    await expect(seen.page.locator('.context')).to_have_text(text)
