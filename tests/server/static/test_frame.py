"""What is around a dialogue on the page: sign-in, the list of conversations, addresses, colors, phones, mounting."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import RedirectResponse
from playwright.async_api import Browser, Route, expect
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import BUNDLED_SKILLS, create_deep_agent
from pydantic_deep.server import AnyAgent, Identity, ServerSettings, create_app
from pydantic_deep.store import SqlStore
from pydantic_deep.testing import ScriptedModel
from tests.server.conftest import Listen, Served
from tests.server.static.conftest import OpenPage, page_marks

pytestmark = page_marks


def answer(messages: list[ModelMessage], info: AgentInfo) -> str:
    return 'Hello.'


@pytest.fixture
def agents() -> Mapping[str, AnyAgent]:
    analyst = create_deep_agent(ScriptedModel(then=answer), skills=[BUNDLED_SKILLS])
    analyst.description = 'Reads tables.'
    return {'analyst': analyst, 'writer': create_deep_agent(ScriptedModel(then=answer))}


@pytest.fixture
def settings(settings: ServerSettings) -> ServerSettings:
    return settings.model_copy(update={'examples': {'writer': ('Write <b>a</b> haiku.\nThen stop.', 'Write more.')}})


async def test_sign_in_is_in_words_for_people(open_page: OpenPage, served: Served):
    """Without a key, the page says what an API key is and asks for it. A wrong key is refused in words, and never stays in
    the address. Signing out forgets the key."""
    seen = await open_page(key='pd_wrong')
    await expect(seen.page.locator('#problem')).to_contain_text('API key')
    assert 'pd_wrong' not in seen.page.url
    await expect(seen.page.locator('.sign-in')).to_contain_text('Your API key shows the server who you are')

    await seen.page.fill('#key', await served.key('run', 'approve'))
    await seen.page.press('#key', 'Enter')
    await expect(seen.page.locator('.welcome')).to_be_visible()
    await seen.page.click('#settings')
    await seen.page.click('#sign-out')
    await expect(seen.page.locator('.sign-in')).to_be_visible()
    assert await seen.page.evaluate("sessionStorage.getItem('key')") is None


async def test_link_with_another_key_asks_before_replacing_the_stored_key(open_page: OpenPage, served: Served):
    """A key in a link replaces the stored key only after confirmation, and is removed from the address."""
    seen = await open_page()
    await expect(seen.page.locator('.welcome')).to_be_visible()
    stored = await seen.page.evaluate("sessionStorage.getItem('key')")
    theirs = await served.key('run', owner='mallory')
    link = f'{seen.page.url}#key={theirs}'

    await seen.page.goto(link)
    await expect(seen.page.locator('dialog')).to_contain_text('another API key')
    assert await seen.page.evaluate("sessionStorage.getItem('key')") == stored
    await seen.page.click('dialog button:text-is("Cancel")')
    await seen.page.reload()
    assert await seen.page.evaluate("sessionStorage.getItem('key')") == stored
    assert theirs not in seen.page.url

    await seen.page.goto(link)
    await seen.page.click('dialog button[type=submit]')
    await seen.page.wait_for_function('(key) => sessionStorage.getItem("key") === key', arg=theirs)
    await expect(seen.page.locator('.owner')).to_have_text('mallory')


async def test_empty_page_introduces_the_agents(open_page: OpenPage):
    """Before the first prompt, the page says what the chosen agent is, and offers its skills and the examples that the
    settings have for it. Another one can be chosen."""
    seen = await open_page()
    await expect(seen.page.locator('.welcome h2')).to_have_text('analyst')
    await expect(seen.page.locator('.about')).to_contain_text('Reads tables.')
    await expect(seen.page.locator('.skills .name').first).to_be_visible()

    await seen.page.click('.choice >> nth=1')
    await expect(seen.page.locator('.welcome h2')).to_have_text('writer')
    await expect(seen.page.locator('#prompt')).to_have_attribute('placeholder', 'What should writer do?')
    await seen.page.click('.choice >> nth=0')
    await seen.page.click('.skill >> nth=0')
    await expect(seen.page.locator('#prompt')).to_have_value(re.compile('^Use the skill '))
    await seen.page.click('.choice >> nth=1')
    examples = seen.page.locator('.skills')
    await expect(examples.locator('h3')).to_have_text(['Examples'])
    await expect(examples.get_by_role('button')).to_have_text(['Write <b>a</b> haiku. Then stop.', 'Write more.'])
    await examples.get_by_role('button').first.click()
    await expect(seen.page.locator('#prompt')).to_have_value('Write <b>a</b> haiku.\nThen stop.')
    await expect(seen.turns).to_have_count(0)
    await seen.say('Hi', until='Hello.')
    await expect(seen.page.locator('.agent-name')).to_have_text('writer')
    await expect(seen.page.locator('.bar .usage')).to_have_text('100 in · 10 out')


async def test_escape_leaves_the_prompt_for_the_keys_of_the_page(open_page: OpenPage):
    """The prompt has the focus after a turn, and keys in it are text."""
    seen = await open_page()
    await seen.say('Hi', until='Hello.')
    await expect(seen.page.locator('#prompt')).to_be_focused()
    await seen.page.keyboard.press('Escape')
    await seen.page.keyboard.press('?')
    await expect(seen.page.locator('dialog')).to_contain_text('Esc')
    await expect(seen.page.locator('#prompt')).to_have_value('')


@pytest.mark.parametrize('width', [1199, 1200])
async def test_panel_never_covers_the_composer_by_itself(open_page: OpenPage, served: Served, width: int):
    """At the width from which the panel of the plan and the files is open, it is beside the dialogue."""
    async with served.client(await served.key('run')) as client:
        path = (await client.post('/api/conversations', json={'agent': 'analyst'})).headers['location']
        await client.put(f'{path}/uploads/a.txt', content=b'a')
    seen = await open_page(width=width, at=f'#/c/{path.rpartition("/")[2]}')
    await expect(seen.page.locator('#to-panel')).to_be_visible()
    await expect(seen.page.locator('#panel')).to_have_count(int(width == 1200))
    await seen.page.fill('#prompt', 'x')
    await seen.page.get_by_role('button', name='Send', exact=True).click(trial=True, timeout=10_000)


async def test_conversations_are_searched_renamed_and_deleted(open_page: OpenPage, served: Served):
    """The search is by names and texts, in all conversations. Deleting asks first."""
    async with served.client(await served.key('run')) as client:
        for number in range(40):
            await client.post('/api/conversations', json={'agent': 'analyst', 'name': f'Talk {number}'})
    seen = await open_page()
    rows = seen.page.locator('#conversations li')
    await expect(rows).to_have_count(30)
    await seen.page.click('#more')
    await expect(rows).to_have_count(40)

    await seen.page.fill('[type=search]', 'TALK 7')
    await expect(rows).to_have_count(1)
    await rows.first.hover()
    await seen.page.click('[aria-label="Rename Talk 7"]')
    await seen.page.fill('dialog input', 'Sales')
    await seen.page.click('dialog button[type=submit]')
    await expect(rows.locator('.name')).to_have_text('Sales')
    await seen.page.fill('[type=search]', 'none such')
    await expect(seen.page.locator('#list .nothing')).to_have_text('No conversation has this text.')

    await seen.page.fill('[type=search]', 'sales')
    await rows.first.hover()
    await seen.page.click('[aria-label="Delete Sales"]')
    await expect(seen.page.locator('dialog')).to_contain_text('This cannot be undone.')
    await seen.page.click('dialog button:text-is("Delete")')
    await expect(rows).to_have_count(0)
    await seen.page.fill('[type=search]', '')
    await seen.page.click('#more')
    await expect(rows).to_have_count(39)
    assert seen.problems == []


async def test_older_conversations_are_listed_once(open_page: OpenPage, served: Served):
    """Whoever clicks twice gets them once."""
    async with served.client(await served.key('run')) as client:
        for number in range(40):
            await client.post('/api/conversations', json={'agent': 'analyst', 'name': f'Talk {number}'})
    seen = await open_page()
    rows = seen.page.locator('#conversations li')
    await expect(rows).to_have_count(30)
    answered: list[object] = []
    async with seen.page.expect_event(
        'requestfinished', lambda request: answered.append(request) or len(answered) == 2
    ):
        await seen.page.evaluate("() => { for (const _ of '12') document.getElementById('more').click(); }")

    await seen.page.evaluate('new Promise(requestAnimationFrame)')
    await expect(rows).to_have_count(40)


async def test_conversations_have_addresses(open_page: OpenPage):
    """The address of a conversation opens it; the buttons of the browser go back and forth; an unknown one, or
    one that is no address, shows nothing of a conversation."""
    seen = await open_page()
    await seen.say('One', until='Hello.')
    address = seen.page.url.split('#')[1]
    await seen.page.click('#new')
    await seen.page.go_back()
    await expect(seen.turns.last.locator('.bubble')).to_have_text('One')

    again = await open_page(at=f'#{address}')
    await expect(again.turns.last.locator('.bubble')).to_have_text('One')
    for unknown in ('c/00000000-0000-0000-0000-000000000000', 'v/00000000-0000-0000-0000-000000000000', 'c/%zz'):
        page = (await open_page(at=f'#/{unknown}')).page
        await expect(page.locator('main')).to_contain_text('This conversation is not here')
        await expect(page.locator('#prompt')).to_have_count(0)
        await page.click('main >> text=New conversation')
        await expect(page.locator('#prompt')).to_be_visible()


async def test_deleted_conversation_leaves_other_pages(open_page: OpenPage, served: Served):
    """A page that shows a conversation which another page has deleted says so when a person returns to it. Deleting it there
    too is no error."""
    seen = await open_page()
    await seen.say('One', until='Hello.')
    await seen.page.click('#new')
    await seen.say('Two', until='Hello.')
    async with served.client(await served.key('run')) as client:
        for each in (await client.get('/api/conversations')).json()['items']:
            await client.delete(f'/api/conversations/{each["id"]}')
    await seen.page.route('**/api/conversations?*', lambda route: route.abort())  # the list is not up to date
    await seen.page.evaluate("window.dispatchEvent(new Event('focus'))")
    await expect(seen.page.locator('main')).to_contain_text('This conversation is not here')
    rows = seen.page.locator('#conversations li')
    await expect(rows).to_have_count(1)
    await rows.first.hover()
    await seen.page.click('[aria-label="Delete One"]')
    await seen.page.click('dialog button:text-is("Delete")')
    await expect(rows).to_have_count(0)
    await expect(seen.page.locator('#problem')).to_have_count(0)


async def test_title_names_the_conversation(open_page: OpenPage):
    """Tabs and the history of the browser tell conversations apart."""
    seen = await open_page()
    await seen.say('Emoji ⚠\ufe0f', until='Hello.')
    await expect(seen.page).to_have_title('Emoji ⚠\ufe0f · pydantic-deep')
    await seen.page.click('#to-inbox')
    await expect(seen.page).to_have_title('Approvals · pydantic-deep')
    await seen.page.click('#new')
    await expect(seen.page).to_have_title('pydantic-deep')


async def test_page_works_without_storage_of_the_browser(browser: Browser, url: str, served: Served):
    """If the browser refuses all storage, key and settings last until the page is left."""
    page = await browser.new_page()
    await page.add_init_script(
        "for (const name of ['localStorage', 'sessionStorage'])"
        "    Object.defineProperty(window, name, { get() { throw new DOMException('denied', 'SecurityError'); } });"
    )
    await page.goto(f'{url}/#key={await served.key("run", "approve")}')
    await page.click('#settings')
    await page.get_by_label('Dark').check()
    await expect(page.locator('html')).to_have_attribute('data-theme', 'dark')
    await page.keyboard.press('Escape')
    await page.fill('#prompt', 'Hi')
    await page.press('#prompt', 'Enter')
    await expect(page.locator('#dialogue .markdown')).to_have_text('Hello.')


async def test_next_person_sees_nothing_of_the_last_one(open_page: OpenPage, served: Served):
    """If a key ends while the page is open and another person signs in there, nothing of the first one remains. If the same
    person signs in, the conversation and an unsent prompt do."""
    seen = await open_page()
    await seen.say('Secret', until='Hello.')
    await seen.page.fill('#prompt', 'unsent')

    async def expire() -> None:
        refusal = {'error': {'type': 'unauthorized', 'message': 'This requires a valid API key.'}}
        await seen.page.route('**/api/approvals?*', lambda route: route.fulfill(status=401, json=refusal))
        await seen.page.evaluate("window.dispatchEvent(new Event('focus'))")
        await expect(seen.page.locator('.sign-in')).to_contain_text('it is wrong, or has expired, or was revoked.')
        await seen.page.unroute('**/api/approvals?*')

    await expire()
    await seen.page.fill('#key', await served.key('run', 'approve'))
    await seen.page.press('#key', 'Enter')
    await expect(seen.turns.last.locator('.bubble')).to_have_text('Secret')
    await expect(seen.page.locator('#prompt')).to_have_value('unsent')
    await expire()
    await seen.page.fill('#key', await served.key('run', 'approve', owner='bob'))
    await seen.page.press('#key', 'Enter')
    await expect(seen.page.locator('.owner')).to_have_text('bob')
    await expect(seen.page.locator('main')).to_contain_text('This conversation is not here')
    await expect(seen.page.locator('#conversations li')).to_have_count(0)


async def test_server_that_is_away_is_named_only_to_who_asks(open_page: OpenPage):
    """While the server cannot be reached, looking for approvals is silent; an action of a person says what is wrong."""
    seen = await open_page()
    await seen.say('Hi', until='Hello.')
    await seen.page.route('**/api/**', lambda route: route.abort())
    async with seen.page.expect_event('requestfailed'):
        await seen.page.evaluate("window.dispatchEvent(new Event('focus'))")
    await expect(seen.page.locator('#problem')).to_have_count(0)
    await seen.send('More')
    await expect(seen.page.locator('#problem')).to_contain_text('The server cannot be reached.')
    await expect(seen.page.locator('#prompt')).to_have_value('More')


async def test_small_screen_shows_one_view_at_a_time(open_page: OpenPage):
    """On a phone, the list is opened by a button, versions are below each other, and nothing is wider than the screen."""
    seen = await open_page(width=390, height=760)
    await seen.say('Hello', until='Hello.')
    width = 'document.documentElement.scrollWidth'

    await expect(seen.page.locator('#list')).to_be_hidden()
    await seen.page.click('.only-narrow')
    await expect(seen.page.locator('#list')).to_be_visible()
    await seen.page.click('#conversations a')
    await expect(seen.page.locator('#list')).to_be_hidden()
    assert await seen.page.evaluate(width) <= 390
    await seen.show_versions()
    await seen.page.click('#graph .version >> nth=0')
    await expect(seen.page.locator('#graph')).to_be_hidden()
    assert await seen.page.evaluate(width) <= 390
    await seen.page.click('text=All versions')
    await expect(seen.page.locator('#graph')).to_be_visible()


async def test_list_of_a_small_screen_closes_by_going_back(open_page: OpenPage):
    """The list does not cover the view to which a person goes back."""
    seen = await open_page(width=390, height=760)
    await seen.say('Hello', until='Hello.')
    await seen.page.click('.only-narrow')
    await expect(seen.page.locator('#list')).to_be_visible()
    await seen.page.go_back()

    await expect(seen.page.locator('.welcome')).to_be_visible()
    await expect(seen.page.locator('#list')).to_be_hidden()


async def test_conversations_are_reached_on_a_zoomed_page(open_page: OpenPage):
    """A page of 1280 x 1024 pixels that is zoomed to 400% (WCAG 2.2, 1.4.10) has the conversations in its list."""
    seen = await open_page(width=320, height=256)
    await seen.say('Hello', until='Hello.')
    await seen.page.click('.only-narrow')
    entry = seen.page.locator('#conversations a')
    await entry.scroll_into_view_if_needed()

    await expect(entry).to_be_in_viewport(ratio=1)


async def test_page_works_under_a_path(browser: Browser, store: SqlStore, served: Served, listen: Listen):
    """Mounted into another application, the page uses addresses below its path only."""
    inner = create_app(served.state.agents, store)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        async with inner.router.lifespan_context(inner):
            yield

    outer = FastAPI(lifespan=lifespan)
    outer.mount('/deep', inner)
    async with outer.router.lifespan_context(outer), listen(outer) as url:
        page = await browser.new_page()
        paths: list[str] = []
        page.on('request', lambda request: paths.append(request.url.removeprefix(url)))
        await page.goto(f'{url}/deep/#key={await served.key("run")}')
        await page.fill('#prompt', 'Hi')
        await page.press('#prompt', 'Enter')
        await expect(page.locator('#dialogue .markdown')).to_have_text('Hello.')
    assert all(path.startswith('/deep/') for path in paths)


@pytest.fixture
async def hosted(served: Served, store: SqlStore, listen: Listen) -> AsyncGenerator[str]:
    """The address of an application with its own login, in which the page is mounted."""
    outer = FastAPI()

    def authenticate(request: Request) -> Identity | None:
        user = request.cookies.get('user')
        return None if user is None else Identity(owner=user)

    @outer.get('/login')
    async def log_in() -> RedirectResponse:
        response = RedirectResponse('/deep/')
        response.set_cookie('user', 'ada', httponly=True, samesite='lax')
        return response

    @outer.get('/logout')
    async def log_out() -> RedirectResponse:
        response = RedirectResponse('/deep/')
        response.delete_cookie('user')
        return response

    inner = create_app(served.state.agents, store, authenticate=authenticate, login_url='/login', logout_url='/logout')
    outer.mount('/deep', inner)
    async with inner.router.lifespan_context(inner), listen(outer) as url:
        yield url


async def test_page_uses_the_login_of_the_host_application(browser: Browser, hosted: str):
    """Without a login, the page links to that of the host. With it, the page needs no key, shows the owner, and a turn runs.
    If the login ends, the page says so."""
    page = await browser.new_page()
    await page.goto(f'{hosted}/deep/')
    await expect(page.locator('.sign-in')).to_contain_text('the login of the application')
    await expect(page.locator('#problem')).to_have_count(0)
    await expect(page.locator('#key')).to_have_count(0)
    await page.click('#to-login')
    await expect(page.locator('.owner')).to_have_text('ada')
    await page.fill('#prompt', 'Hi')
    await page.press('#prompt', 'Enter')
    await expect(page.locator('#dialogue .markdown')).to_have_text('Hello.')
    await page.context.clear_cookies()
    await page.evaluate("window.dispatchEvent(new Event('focus'))")
    await expect(page.locator('.sign-in')).to_contain_text('Log in, or send the key')


async def test_sign_out_leads_to_the_host_application(browser: Browser, hosted: str):
    """The settings link to the address of the host that ends the login. Without one, they offer no sign-out."""
    page = await browser.new_page()
    await page.goto(f'{hosted}/login')
    await page.click('#settings')
    await page.click('#sign-out')
    await expect(page.locator('#to-login')).to_be_visible()

    async def omit_address(route: Route) -> None:
        known = await (await route.fetch()).json()
        await route.fulfill(json={**known, 'logout_url': None})

    await page.route('**/api/me', omit_address)
    await page.goto(f'{hosted}/login')
    await page.click('#settings')
    await expect(page.locator('.settings')).to_contain_text('Account')
    await expect(page.locator('#sign-out')).to_have_count(0)


async def test_address_is_kept_while_a_person_signs_in(browser: Browser, hosted: str):
    """A link to a conversation, a version or an approval leads there after the login of the host application."""
    page = await browser.new_page()
    await page.goto(f'{hosted}/deep/#/a')
    await page.click('#to-login')
    await expect(page.locator('.bar h1')).to_have_text('Approvals')
    assert page.url == f'{hosted}/deep/#/a'
    await page.goto(f'{hosted}/deep/')
    await expect(page.locator('.welcome')).to_be_visible()


async def test_key_of_a_link_does_not_replace_the_login(browser: Browser, hosted: str, served: Served):
    """The login of the host decides who the owner is: a key in a link is not used and not stored."""
    page = await browser.new_page()
    await page.goto(f'{hosted}/login')
    await expect(page.locator('.owner')).to_have_text('ada')
    await page.goto('about:blank')
    await page.goto(f'{hosted}/deep/#key={await served.key("run", owner="mallory")}')
    await expect(page.locator('.owner')).to_have_text('ada')
    assert await page.evaluate("sessionStorage.getItem('key')") is None


async def test_page_of_another_origin_cannot_use_the_login(
    browser: Browser, hosted: str, store: SqlStore, listen: Listen
):
    """Chromium sends the cookie of the host with a form of another port, which is the same site, and the server refuses
    the request."""
    page = await browser.new_page()
    await page.goto(f'{hosted}/login')
    await expect(page.locator('.owner')).to_have_text('ada')
    async with listen(FastAPI()) as other:
        await page.goto(f'{other}/openapi.json')
        form = (
            "(url) => { const form = document.createElement('form'); document.body.append(form); form.method = 'post';"
            'form.action = url; form.submit(); }'
        )
        async with page.expect_response(f'{hosted}/**') as response:
            await page.evaluate(form, f'{hosted}/deep/api/conversations')
    answer = await response.value
    assert 'user=ada' in (await answer.request.all_headers())['cookie']
    assert answer.status == 403
    assert await store.versions() == []


@pytest.mark.parametrize('leave', ['Enter', 'Escape'])
async def test_focus_returns_to_where_a_dialog_was_opened(open_page: OpenPage, leave: str):
    """By its button and by Escape. A dialog never covers the view to which a person goes back."""
    seen = await open_page()
    await seen.say('Hello', until='Hello.')
    await seen.page.focus('#keys')
    await seen.page.keyboard.press('Enter')
    await expect(seen.page.locator('dialog [aria-label=Close]')).to_be_focused()
    await seen.page.keyboard.press(leave)
    await expect(seen.page.locator('dialog')).to_have_count(0)
    await expect(seen.page.locator('#keys')).to_be_focused()
    await seen.page.keyboard.press('Enter')
    await expect(seen.page.locator('dialog')).to_be_visible()
    await seen.page.go_back()
    await expect(seen.page.locator('.welcome')).to_be_visible()
    await expect(seen.page.locator('dialog')).to_have_count(0)


async def test_keys_are_listed(open_page: OpenPage):
    """`?` lists the keys; `/` goes to the prompt; Escape closes."""
    seen = await open_page()
    await expect(seen.page.locator('.welcome')).to_be_visible()
    await seen.press('?')
    await expect(seen.page.locator('dialog')).to_contain_text('stop the run')
    await seen.page.keyboard.press('Escape')
    await expect(seen.page.locator('dialog')).to_have_count(0)
    await seen.press('/')
    await expect(seen.page.locator('#prompt')).to_be_focused()


async def test_list_shows_what_another_page_has_started(open_page: OpenPage):
    """Whoever comes back to a page finds the conversations of the other pages."""
    seen, other = await open_page(), await open_page()
    await expect(seen.page.locator('.welcome')).to_be_visible()
    await other.say('Hi', until='Hello.')
    await seen.page.evaluate("window.dispatchEvent(new Event('focus'))")
    await expect(seen.page.locator('#conversations a')).to_have_text(['Hianalyst'])
