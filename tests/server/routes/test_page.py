"""The web page in Chromium: dialogue, versions, approvals, keyboard use, small screens and dark mode."""

from __future__ import annotations

import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import httpx
import pytest
from playwright.async_api import Browser, Locator, Page, async_playwright, expect
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import create_deep_agent
from pydantic_deep.server import AnyAgent
from pydantic_deep.store import Commit, Committed, StoreUnavailableError
from pydantic_deep.testing import ScriptedModel, call

CHROMIUM = shutil.which('chromium')

expect.set_options(timeout=60_000)  # the default of five seconds can be too short on a busy machine

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason='Chromium is missing: see scripts/install-chromium.sh'),
]

TODOS = [{'content': 'Read the table', 'status': 'completed'}, {'content': 'Write the report', 'status': 'in_progress'}]


def answer(messages: Sequence[ModelMessage], info: AgentInfo) -> Any:
    """Plan on `plan`, write on `write`, hold on `wait`, raise on `fail`, and echo anything else."""
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    requests = [each for each in messages if isinstance(each, ModelRequest)]
    said = [str(part.content) for each in requests for part in each.parts if isinstance(part, UserPromptPart)][-1]
    returned = [part for part in last.parts if isinstance(part, ToolReturnPart)]
    if any(part.tool_name == 'write_todos' for part in returned):
        return [call('write_file', path='/report.md', content=f'# Sales\n\n{said}\n')]
    if returned:
        return f'Done: {returned[-1].outcome}.'
    if said.startswith('fail'):
        raise ValueError('inside')
    if said.startswith('plan'):
        return ['I plan.', call('write_todos', todos=TODOS)]
    if said.startswith('write'):
        return [call('write_file', path='/report.md', content=f'# Sales\n\n{said}\n')]
    return [call('hold')] if said.startswith('wait') else f'You said: <b>{said}</b>'


@pytest.fixture
def agents(gate: Any) -> dict[str, AnyAgent]:
    model = ScriptedModel(then=answer)
    return {
        'analyst': create_deep_agent(model, tools=[gate.hold]),
        'careful': create_deep_agent(model, interrupt_on={'write_file': True}),
    }


@dataclass(frozen=True)
class Seen:
    """The page and the errors of its console."""

    page: Page
    problems: list[str]

    async def say(self, text: str, *, until: str) -> None:
        """Send a prompt and wait for the last item of the dialogue."""
        version = self.page.locator('#graph .version')
        count = await version.count()
        await self.page.fill('#prompt', text)
        await self.page.press('#prompt', 'Control+Enter')
        await expect(version).to_have_count(count + 1 if count else 2)
        await expect(self.page.locator('#dialogue > li').last).to_have_text(until)

    async def press(self, key: str) -> None:
        """Press a key without a focused element."""
        await self.page.evaluate('document.activeElement.blur()')
        await self.page.keyboard.press(key)

    def versions(self) -> Locator:
        """Return the versions in the graph, newest first."""
        return self.page.locator('#graph .version > span:first-child')


OpenPage: TypeAlias = Callable[..., Awaitable[Seen]]


@pytest.fixture
async def browser() -> AsyncGenerator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=['--no-sandbox'])
        yield browser
        await browser.close()


@pytest.fixture
async def open_page(browser: Browser, served: Any, listen: Any) -> AsyncGenerator[OpenPage]:
    """Return a function that opens the page with a key and a viewport size."""
    async with listen(served.app) as url:

        async def open(*, key: str | None = None, width: int = 1280, height: int = 800, dark: bool = False) -> Seen:
            key = await served.key('run', 'approve') if key is None else key
            scheme = 'dark' if dark else 'light'
            context = await browser.new_context(viewport={'width': width, 'height': height}, color_scheme=scheme)
            context.set_default_timeout(60_000)
            page = await context.new_page()
            problems: list[str] = []
            page.on('pageerror', lambda error: problems.append(str(error)))
            page.on('console', lambda message: problems.append(message.text) if message.type == 'error' else None)
            await page.goto(f'{url}/#key={key}')
            return Seen(page, problems)

        yield open
        for context in browser.contexts:
            await context.close()


async def test_turn_shows_plan_calls_and_files(open_page: OpenPage) -> None:
    seen = await open_page()
    await seen.say('plan a report', until='Done: success.')

    texts = [text.strip() for text in await seen.page.locator('#dialogue > li').all_inner_texts()]
    assert texts == ['plan a report', 'I plan.', 'write_todos ✓', 'write_file ✓', 'Done: success.']
    await expect(seen.page.locator('#todos li')).to_have_text(['Read the table', 'Write the report'])
    await expect(seen.page.locator('#todos li').first).to_have_class('completed')
    await seen.page.click('#files button')
    await expect(seen.page.locator('#difference pre')).to_have_text('# Sales\n\nplan a report\n')
    assert seen.problems == []


async def test_conversation_is_titled_by_its_first_prompt_and_can_be_reopened(open_page: OpenPage) -> None:
    seen = await open_page()
    await seen.say('Hello there', until='You said: <b>Hello there</b>')
    await seen.press('c')
    await expect(seen.page.locator('#dialogue > li')).to_have_count(0)
    await seen.say('Another', until='You said: <b>Another</b>')
    await expect(seen.page.locator('#conversations button')).to_contain_text(['Another', 'Hello there'])

    await seen.page.click('#conversations button >> nth=1')
    await expect(seen.page.locator('#dialogue > li')).to_have_text(['Hello there', 'You said: <b>Hello there</b>'])


async def test_model_text_is_never_rendered_as_html(open_page: OpenPage) -> None:
    seen = await open_page()
    await seen.say('<img src=x onerror=alert(1)>', until='You said: <b><img src=x onerror=alert(1)></b>')

    assert await seen.page.locator('#dialogue img, #dialogue b').count() == 0
    assert seen.problems == []


async def test_rewind_and_branch_from_the_graph(open_page: OpenPage) -> None:
    seen = await open_page()
    await seen.say('write one', until='Done: success.')
    await seen.say('write two', until='Done: success.')
    await expect(seen.versions()).to_have_text(['write two', 'write one', 'Beginning'])

    await seen.page.click('#graph .version >> nth=1')
    await seen.page.click('text=Rewind to here')
    await expect(seen.page.locator('#dialogue > li')).to_have_count(3)
    await seen.say('write three', until='Done: success.')
    await expect(seen.versions()).to_have_text(['write three', 'write two', 'write one', 'Beginning'])

    await seen.page.click('#graph .version >> nth=1')
    await seen.page.click('text=Branch from here')
    await seen.page.fill('#asked textarea', 'write four')
    await seen.page.click('#asked button[value=yes]')
    await expect(seen.versions().first).to_have_text('write four')
    await expect(seen.page.locator('#graph circle.head')).to_have_count(1)
    await expect(seen.page.locator('#graph path')).to_have_count(4)
    assert seen.problems == []


async def test_diffs_are_side_by_side(open_page: OpenPage) -> None:
    seen = await open_page()
    await seen.say('write one', until='Done: success.')
    await seen.say('write two', until='Done: success.')
    await seen.page.click('#graph .version >> nth=0')
    await seen.page.click('text=What changed')

    row = seen.page.locator('.diff tr', has=seen.page.locator('.removed'))
    await expect(row.locator('td')).to_have_text(['3', 'write one', '3', 'write two'])


@pytest.mark.parametrize(
    ('key', 'filled', 'ends'),
    [
        ('y', None, 'Done: success.'),
        ('n', None, 'Done: denied.'),
        ('e', '{"path": "/other.md", "content": "Edited"}', 'Done: success.'),
    ],
)
async def test_approvals_are_answered_by_keys(open_page: OpenPage, key: str, filled: str | None, ends: str) -> None:
    seen = await open_page()
    await seen.page.select_option('#agents', 'careful')
    await seen.page.fill('#prompt', 'write it')
    await seen.page.press('#prompt', 'Control+Enter')
    await expect(seen.page.locator('#approvals .added')).to_have_text(['1# Sales', '2', '3write it'])

    await seen.press('a')
    await seen.page.keyboard.press(key)
    if key != 'y':
        if filled is not None:
            await seen.page.fill('#asked textarea', filled)
        await seen.page.click('#asked button[value=yes]')
    await expect(seen.page.locator('#dialogue > li').last).to_have_text(ends)
    await expect(seen.page.locator('#approvals [data-approval]')).to_have_count(0)
    files = [] if key == 'n' else ['/other.md'] if key == 'e' else ['/report.md']
    await expect(seen.page.locator('#files button')).to_have_text(files)
    assert seen.problems == []


async def test_run_started_on_another_page_can_be_watched_and_stopped(open_page: OpenPage, gate: Any) -> None:
    first = await open_page()
    await first.page.fill('#prompt', 'wait for me')
    await first.page.press('#prompt', 'Control+Enter')
    await gate.reached.wait()

    second = await open_page()
    await expect(second.page.locator('#stop')).to_be_visible()
    await second.press('s')
    for seen in (first, second):
        await expect(seen.page.locator('#stop')).to_be_hidden()
        await expect(seen.page.locator('#graph circle.interrupted')).to_have_count(1)


async def test_small_screen_shows_one_view_at_a_time(open_page: OpenPage) -> None:
    seen = await open_page(width=390, height=760)
    await seen.say('Hello', until='You said: <b>Hello</b>')

    for view in ('list', 'history', 'inbox', 'talk'):
        await seen.page.click(f'nav [data-goes={view}]')
        shown = [
            each for each in ('list', 'talk', 'history', 'inbox') if await seen.page.locator(f'#{each}').is_visible()
        ]
        assert shown == [view]
        assert await seen.page.evaluate('document.documentElement.scrollWidth') <= 390


async def test_page_follows_the_system_color_scheme(open_page: OpenPage) -> None:
    color = 'getComputedStyle(document.body).backgroundColor'

    assert await (await open_page()).page.evaluate(color) == 'rgb(255, 255, 255)'
    assert await (await open_page(dark=True)).page.evaluate(color) == 'rgb(22, 20, 27)'


async def test_wrong_key_is_requested_again_and_removed_from_the_url(open_page: OpenPage, served: Any) -> None:
    seen = await open_page(key='pd_wrong')
    await expect(seen.page.locator('#problem')).to_contain_text('API key')
    assert 'pd_wrong' not in seen.page.url

    await seen.page.fill('#asked input', await served.key('run', 'approve'))
    await seen.page.press('#asked input', 'Enter')
    await expect(seen.page.locator('#agents option')).to_have_text(['analyst', 'careful'])


async def test_only_static_files_of_the_page_are_served(nobody: httpx.AsyncClient) -> None:
    for path, kind in (('/', 'text/html'), ('/static/page.js', 'javascript'), ('/static/icon.svg', 'image/svg')):
        response = await nobody.get(path)
        assert response.status_code == 200
        assert kind in response.headers['content-type']
    for path in ('/static/none.js', '/static/..%2F_api_keys.py', '/static/%2e%2e/_api_keys.py'):
        assert (await nobody.get(path)).status_code in (401, 404)


async def test_failed_run_shows_its_error_and_restores_the_prompt(open_page: OpenPage) -> None:
    seen = await open_page()
    await seen.page.fill('#prompt', 'fail now')
    await seen.page.press('#prompt', 'Control+Enter')

    await expect(seen.page.locator('#problem')).to_contain_text('The run failed with ValueError')
    await expect(seen.page.locator('#stop')).to_be_hidden()
    await expect(seen.page.locator('#prompt')).to_have_value('fail now')
    await expect(seen.versions()).to_have_text(['fail now', 'Beginning'])


async def test_reopened_conversation_follows_its_active_run(open_page: OpenPage, gate: Any) -> None:
    seen = await open_page()
    await seen.page.fill('#prompt', 'wait for me')
    await seen.page.press('#prompt', 'Control+Enter')
    await gate.reached.wait()
    await expect(seen.page.locator('#stop')).to_be_visible()

    await seen.page.click('#conversations button')
    await expect(seen.page.locator('#dialogue > li')).to_contain_text(['hold'])
    gate.opened.set()
    await expect(seen.page.locator('#dialogue > li').last).to_have_text('Done: success.')
    await expect(seen.page.locator('#stop')).to_be_hidden()
    assert seen.problems == []


async def test_double_submit_sends_one_prompt(open_page: OpenPage, served: Any) -> None:
    seen = await open_page()
    await seen.page.fill('#prompt', 'Hello')
    await seen.page.evaluate("for (let i = 0; i < 2; i += 1) document.getElementById('say').requestSubmit()")

    await expect(seen.page.locator('#dialogue > li')).to_have_text(['Hello', 'You said: <b>Hello</b>'])
    assert len(await served.store.conversations()) == 1


async def test_key_without_approve_scope_sees_no_inbox_and_no_error(open_page: OpenPage, served: Any) -> None:
    seen = await open_page(key=await served.key('run'))
    await seen.say('Hello', until='You said: <b>Hello</b>')

    await expect(seen.page.locator('#problem')).to_be_hidden()
    await expect(seen.page.locator('#inbox')).to_be_hidden()
    assert seen.problems == []


async def test_key_approves_nothing_before_the_card_is_visible(open_page: OpenPage) -> None:
    seen = await open_page(width=390, height=760)
    await seen.page.click('nav [data-goes=list]')
    await seen.page.select_option('#agents', 'careful')
    await seen.page.click('nav [data-goes=talk]')
    await seen.page.fill('#prompt', 'write it')
    await seen.page.press('#prompt', 'Control+Enter')
    await expect(seen.page.locator('#waiting')).to_have_text('1')
    await expect(seen.page.locator('#stop')).to_be_hidden()

    await seen.press('y')
    await seen.press('a')
    await expect(seen.page.locator('#approvals [data-approval]')).to_have_count(1)
    await seen.page.keyboard.press('y')
    await expect(seen.page.locator('#approvals [data-approval]')).to_have_count(0)


async def test_prompt_is_enabled_after_run_events_are_gone(open_page: OpenPage, served: Any, gate: Any) -> None:
    seen = await open_page()
    gone = {'error': {'type': 'not_found', 'message': 'Gone.'}}
    await seen.page.route('**/api/runs/*/events*', lambda route: route.fulfill(status=404, json=gone))
    await seen.page.fill('#prompt', 'wait for me')
    await seen.page.press('#prompt', 'Control+Enter')

    await expect(seen.page.locator('#problem')).to_have_text('Gone.')
    await expect(seen.page.locator('#say [type=submit]')).to_be_enabled()
    gate.opened.set()


async def test_lost_connection_is_reported_and_restored(open_page: OpenPage, gate: Any) -> None:
    seen = await open_page()
    events = '**/api/runs/*/events*'
    await seen.page.route(events, lambda route: route.fulfill(status=503, json={}))
    await seen.page.fill('#prompt', 'wait for me')
    await seen.page.press('#prompt', 'Control+Enter')
    await expect(seen.page.locator('#problem')).to_contain_text('The connection is lost')

    await seen.page.unroute(events)
    await expect(seen.page.locator('#problem')).to_be_hidden()
    gate.opened.set()
    await expect(seen.page.locator('#dialogue > li').last).to_have_text('Done: success.')


async def test_approval_answered_elsewhere_disappears(open_page: OpenPage, served: Any) -> None:
    seen = await open_page()
    await seen.page.select_option('#agents', 'careful')
    await seen.page.fill('#prompt', 'write it')
    await seen.page.press('#prompt', 'Control+Enter')
    await expect(seen.page.locator('#approvals [data-approval]')).to_have_count(1)
    id = await seen.page.locator('#approvals [data-approval]').get_attribute('data-approval')
    async with served.client(await served.key('run', 'approve')) as other:
        await other.post(f'/api/approvals/{id}', json={'decision': 'deny'})

    await seen.page.locator('#approvals [data-approval]').focus()
    await seen.page.keyboard.press('y')
    await expect(seen.page.locator('#approvals [data-approval]')).to_have_count(0)
    await expect(seen.page.locator('#approvals .settled .says')).to_contain_text('No longer pending')


async def test_version_actions_are_usable_by_keyboard(open_page: OpenPage) -> None:
    seen = await open_page()
    await seen.say('write one', until='Done: success.')
    await seen.say('write two', until='Done: success.')

    for key in ('v', 'j', 'Enter'):
        await (seen.press(key) if key == 'v' else seen.page.keyboard.press(key))
    await expect(seen.page.locator('#chosen button >> nth=0')).to_be_focused()
    for key in ('Tab', 'Tab', 'Enter'):
        await seen.page.keyboard.press(key)
    await expect(seen.page.locator('#dialogue > li').first).to_have_text('write one')
    await expect(seen.page.locator('#dialogue > li')).to_have_count(3)
    await expect(seen.page.locator('#graph .version >> nth=1')).to_contain_text('head')


async def test_link_with_another_key_asks_before_replacing_the_stored_key(open_page: OpenPage, served: Any) -> None:
    """A key in a link replaces the stored key only after confirmation, and is removed from the URL."""
    seen = await open_page()
    await expect(seen.page.locator('#agents option')).to_have_count(2)
    stored = await seen.page.evaluate("sessionStorage.getItem('key')")
    theirs = await served.key('run', owner='mallory')
    link = f'{seen.page.url}#key={theirs}'

    await seen.page.goto(link)
    await expect(seen.page.locator('#asked')).to_contain_text('another API key')
    assert await seen.page.evaluate("sessionStorage.getItem('key')") == stored
    await seen.page.click('#asked button[value=no]')
    await seen.page.reload()
    assert await seen.page.evaluate("sessionStorage.getItem('key')") == stored
    assert theirs not in seen.page.url

    await seen.page.goto(link)
    await seen.page.click('#asked button[type=submit]')
    await seen.page.wait_for_function('(key) => sessionStorage.getItem("key") === key', arg=theirs)
    await expect(seen.page.locator('#agents option')).to_have_count(2)


async def test_suspended_run_can_be_resumed_or_discarded(
    open_page: OpenPage, served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = await open_page()
    await seen.say('first', until='You said: <b>first</b>')
    commit = served.store.commit

    async def lose_ends(batch: Commit) -> Committed:
        if batch.ends:
            raise StoreUnavailableError('The disk is full.')
        return await commit(batch)

    for act, left in (('Discard', 0), ('Resume', 0)):
        with monkeypatch.context() as full:  # simulates a disk that fills up during the run
            full.setattr(served.store, 'commit', lose_ends)
            await seen.page.fill('#prompt', 'second')
            await seen.page.press('#prompt', 'Control+Enter')
            await expect(seen.page.locator('#suspended li')).to_contain_text('is suspended')
        await expect(seen.page.locator('#problem')).to_contain_text('suspended')
        await seen.page.click(f'#suspended button:text-is("{act}")')
        await expect(seen.page.locator('#suspended li')).to_have_count(left)
    await expect(seen.page.locator('#dialogue > li').last).to_have_text('You said: <b>second</b>')
