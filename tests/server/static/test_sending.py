"""Prompts on a slow or failing connection: each goes to its own conversation, and no text is lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from playwright.async_api import Route, expect

from pydantic_deep import create_deep_agent
from pydantic_deep.server import AnyAgent, ServerSettings
from pydantic_deep.testing import ScriptedModel, call
from tests.server.conftest import Gate, Serve, Served
from tests.server.static.conftest import Held, OpenPage, Seen, page_marks

pytestmark = page_marks

TURNS = '**/turns?wait=false'

RECORD = """() => {
    window.shownInOne = new Set();
    const look = () => {
        if (document.querySelector('h1').textContent !== 'one') return;
        for (const each of document.querySelectorAll('.bubble')) window.shownInOne.add(each.textContent);
    };
    new MutationObserver(look).observe(document.body, { childList: true, subtree: true, characterData: true });
    look();
}"""
"""Records all prompts that the conversation `one` shows."""


@pytest.fixture
def agents(gate: Gate) -> Mapping[str, AnyAgent]:
    async def answer(messages: object, info: object) -> Any:
        text = str(messages)
        if "'fail'" in text and "'two'" not in text:
            raise ValueError('inside')
        if "'think'" in text:
            await gate.hold()
        return [call('hold')] if "'wait'" in text and 'held' not in text else 'Yes.'

    return {'analyst': create_deep_agent(ScriptedModel(then=answer), tools=[gate.hold])}


async def refuse(route: Route) -> None:
    """Answer that there are too many requests."""
    await route.fulfill(status=429, json={'error': {'type': 'rate_limited', 'message': 'Too many requests.'}})


async def edit_first(seen: Seen, text: str) -> None:
    """Change the first prompt, without sending it."""
    await seen.turns.first.hover()
    await seen.turns.first.get_by_role('button', name='Edit').click()
    await seen.page.fill('.prompt-form textarea', text)


@pytest.mark.parametrize('place', ['two', 'a new conversation'])
async def test_prompt_is_shown_in_its_own_conversation_only(open_page: OpenPage, place: str):
    """A person who opens another conversation before the server has accepted a prompt stays there, and the prompt and its
    answer are in the conversation for which it was written."""
    seen = await open_page()
    await seen.say('one', until='Yes.')
    await seen.page.click('#new')
    if place == 'two':
        await seen.say('two', until='Yes.')
    held = Held()
    await seen.page.route(TURNS, held)
    await seen.send('three')
    await held.arrived.wait()
    await seen.page.click('#conversations a >> text=one')
    await expect(seen.page.locator('h1')).to_have_text('one')
    await expect(seen.turns).to_have_count(1)
    await seen.page.evaluate(RECORD)

    async with seen.page.expect_response(TURNS) as accepted:
        held.released.set()
    await (await accepted.value).finished()
    await expect(seen.page.locator('#conversations a')).to_have_count(2)
    await expect(seen.page.locator('h1')).to_have_text('one')
    await seen.page.click(f'#conversations a >> text={"two" if place == "two" else "three"}')
    await expect(seen.turns.last.locator('.bubble')).to_have_text('three')
    await expect(seen.turns.last.locator('.markdown')).to_have_text('Yes.')
    assert await seen.page.evaluate('[...window.shownInOne]') == ['one']
    assert seen.problems == []


@pytest.mark.parametrize('is_new', [False, True])
async def test_next_prompt_can_be_written_while_one_is_sent(open_page: OpenPage, is_new: bool):
    """What a person writes before the server has accepted a prompt remains in the composer."""
    seen = await open_page()
    if not is_new:
        await seen.say('one', until='Yes.')
    held = Held()
    await seen.page.route(TURNS, held)
    await seen.send('two')
    await held.arrived.wait()
    await seen.page.locator('#prompt').press_sequentially(' and three')
    held.released.set()
    await expect(seen.turns.last.locator('.markdown')).to_have_text('Yes.')
    await expect(seen.turns.last.locator('.bubble')).to_have_text('two')
    await expect(seen.page.locator('#prompt')).to_have_value('and three')
    await expect(seen.page.locator('#dialogue > [data-live]')).to_have_count(0)
    await seen.page.click('#new')
    await expect(seen.page.locator('.welcome #prompt')).to_have_value('')


async def test_changed_prompt_that_is_refused_changes_nothing(open_page: OpenPage, served: Served):
    """If the server refuses a changed prompt, the dialogue is as long as before, and the prompt is in the composer, before
    what was written there."""
    seen = await open_page()
    await seen.say('one', until='Yes.')
    await seen.say('two', until='Yes.')
    await seen.page.fill('#prompt', 'draft')
    await seen.page.route(TURNS, refuse)
    await edit_first(seen, 'other')
    await seen.page.press('.prompt-form textarea', 'Enter')

    await expect(seen.page.locator('#problem')).to_contain_text('Too many requests.')
    await expect(seen.page.locator('#prompt')).to_have_value('other\ndraft')
    await expect(seen.turns.locator('.bubble')).to_have_text(['one', 'two'])
    async with served.client(await served.key('run')) as client:
        (conversation,) = (await client.get('/api/conversations')).json()['items']
        versions = (await client.get(f'/api/conversations/{conversation["id"]}/versions')).json()['items']
    assert (versions[0]['prompt'], versions[0]['is_head']) == ('two', True)


async def test_prompt_of_a_branch_that_is_refused_is_in_the_composer(open_page: OpenPage):
    """If the server refuses the prompt of a new branch, the head stays where it was, and the prompt is in the composer."""
    seen = await open_page()
    await seen.say('one', until='Yes.')
    await seen.page.route(TURNS, refuse)
    await seen.show_versions()
    await seen.page.click('#graph .version >> nth=-1')
    await seen.page.click('text=Branch from here')
    await seen.page.fill('.branch-form textarea', 'other')
    await seen.page.press('.branch-form textarea', 'Enter')

    await expect(seen.page.locator('#problem')).to_contain_text('Too many requests.')
    await expect(seen.page.locator('#prompt')).to_have_value('other')
    await expect(seen.turns.locator('.bubble')).to_have_text(['one'])


async def test_prompt_that_is_changed_while_a_run_starts_is_not_lost(open_page: OpenPage, gate: Gate):
    """If a run is at work when a changed prompt is sent, such as of another page, it is in the composer."""
    seen = await open_page()
    await seen.say('one', until='Yes.')
    await edit_first(seen, 'other')
    other = await open_page(at=seen.page.url.split('/', 3)[3])
    await other.send('wait')
    await gate.reached.wait()
    await seen.page.evaluate("window.dispatchEvent(new Event('focus'))")
    await expect(seen.page.locator('[data-live=true]')).to_have_count(1)
    await seen.page.press('.prompt-form textarea', 'Enter')
    await expect(seen.page.locator('#prompt')).to_have_value('other')
    gate.opened.set()
    await expect(seen.turns.locator('.bubble')).to_have_text(['one', 'wait'])


async def test_address_of_a_conversation_never_shows_a_new_one(open_page: OpenPage):
    """While a page with the address of a conversation loads, a prompt goes to this conversation."""
    seen = await open_page()
    await seen.say('one', until='Yes.')
    held = Held()
    await seen.page.route('**/api/conversations?limit=30', held)
    await seen.page.reload()
    await held.arrived.wait()
    await seen.send('two')
    held.released.set()
    await expect(seen.turns.locator('.bubble')).to_have_text(['one', 'two'])
    await expect(seen.page.locator('#conversations a')).to_have_count(1)


async def test_run_is_shown_in_its_own_conversation_only(open_page: OpenPage, gate: Gate):
    """A person who opens a conversation with a run, and then another one before the first is loaded, sees no run there."""
    seen = await open_page()
    await seen.say('one', until='Yes.')
    await seen.page.click('#new')
    await seen.send('wait')
    await gate.reached.wait()
    await expect(seen.page.locator('[data-live=true]')).to_have_count(1)
    await seen.page.click('#conversations a >> text=one')
    await expect(seen.turns.locator('.bubble')).to_have_text(['one'])
    await seen.page.evaluate(RECORD)
    held = Held()
    await seen.page.route('**/api/approvals?limit=200', held)
    await seen.page.click('#conversations a >> text=wait')
    await held.arrived.wait()
    await seen.page.click('#conversations a >> text=one')
    await expect(seen.turns.locator('.bubble')).to_have_text(['one'])
    held.released.set()
    await seen.page.click('#conversations a >> text=wait')
    await expect(seen.calls).to_have_text(['holdrunning'])
    assert await seen.page.evaluate('[...window.shownInOne]') == ['one']
    gate.opened.set()


async def test_turn_that_ends_while_the_server_is_away_is_shown_once(open_page: OpenPage, gate: Gate):
    """If the stored turn cannot be loaded at the end of its run, it replaces the turn that has run as soon as it can."""
    seen = await open_page()
    await seen.say('one', until='Yes.')
    await seen.send('wait')
    await gate.reached.wait()
    await expect(seen.calls).to_have_text(['holdrunning'])
    away = Held()

    async def refuse_once(route: Route) -> None:
        away.arrived.set()
        await route.fulfill(status=503, json={})

    await seen.page.route('**/api/conversations/*', refuse_once)
    gate.opened.set()
    await away.arrived.wait()
    await expect(seen.page.locator('#dialogue > [data-live=false]')).to_be_visible()
    await seen.page.unroute('**/api/conversations/*')
    await seen.page.evaluate("dispatchEvent(new Event('online'))")

    await expect(seen.page.locator('#dialogue > [data-live]')).to_have_count(0)
    await expect(seen.turns.locator('.bubble')).to_have_text(['one', 'wait'])


async def test_error_of_a_turn_leaves_with_the_next_turn_of_another_page(open_page: OpenPage):
    """A page that shows a failed turn shows the turns that another page has sent since, without the error below them."""
    seen = await open_page()
    await seen.say('one', until='Yes.')
    await seen.send('fail')
    await expect(seen.page.locator('.failure')).to_be_visible()
    other = await open_page()
    await other.page.click('#conversations a')
    await other.say('two', until='Yes.')
    await seen.page.evaluate("dispatchEvent(new Event('focus'))")

    await expect(seen.turns.locator('.bubble')).to_have_text(['one', 'fail', 'two'])
    await expect(seen.page.locator('.failure')).to_have_count(0)


async def test_prompt_of_a_second_page_is_kept_while_the_first_has_a_run(open_page: OpenPage, gate: Gate):
    """The second page says why in words for people, and shows the run."""
    first = await open_page()
    await first.say('one', until='Yes.')
    second = await open_page()
    await second.page.click('#conversations a')
    await expect(second.turns.last.locator('.markdown')).to_have_text('Yes.')
    await first.send('wait')
    await gate.reached.wait()
    await second.send('two')
    await expect(second.page.locator('#problem')).to_have_text(
        'A turn of the conversation is running. Wait for its end, or stop it first.'
    )
    await expect(second.turns.last.locator('.bubble')).to_have_text('wait')
    await expect(second.page.locator('#prompt')).to_have_value('two')
    await second.page.click('#stop')
    await expect(second.turns.last).to_contain_text('This turn was interrupted.')


async def test_turn_of_another_page_is_shown_with_its_prompt_when_it_begins(open_page: OpenPage, gate: Gate):
    """A page that is open finds the turn that another one has started without a click, and shows its prompt before the
    model has answered."""
    first = await open_page()
    await first.say('one', until='Yes.')
    second = await open_page()
    await second.page.clock.install()
    await second.page.click('#conversations a')
    await expect(second.turns.last.locator('.markdown')).to_have_text('Yes.')
    await first.send('think')
    await gate.reached.wait()
    await second.page.clock.run_for(15_000)
    await expect(second.turns.last.locator('.bubble')).to_have_text('think')
    await expect(second.page.locator('#stop')).to_be_visible()
    assert first.problems == second.problems == []


FRONT = ServerSettings(requests_per_second=1000, request_burst=100_000, worker=False)
"""The settings of a server that executes no runs."""


@pytest.mark.parametrize('settings', [FRONT])
async def test_run_that_no_worker_begins_says_so_until_one_does(
    open_page: OpenPage, serve: Serve, monkeypatch: pytest.MonkeyPatch
):
    seen = await open_page()
    await seen.send('Hi')
    working = seen.turns.last.locator('.working')
    await expect(working).to_have_text('Working')
    monkeypatch.setattr('pydantic_deep.server.schemas._runs._LATE_SECONDS', 0)
    await seen.page.evaluate("window.dispatchEvent(new Event('focus'))")  # the page looks for changes
    await expect(working).to_contain_text("No worker has begun this run yet: those that have the agent 'analyst'")
    async with serve(settings=FRONT.model_copy(update={'worker': True})):
        await expect(seen.turns.last.locator('.answer > :last-child')).to_have_text('Yes.')
        await expect(working).to_have_count(0)
    assert seen.problems == []


async def test_new_conversation_is_listed_once(open_page: OpenPage):
    """A list that was loaded after the creation of a conversation and before its first prompt was accepted has it already."""
    seen = await open_page()
    held = Held()
    await seen.page.route(TURNS, held)
    await seen.send('one')
    await held.arrived.wait()
    async with seen.page.expect_response('**/api/conversations?*'):
        await seen.page.evaluate("window.dispatchEvent(new Event('focus'))")
    await expect(seen.page.locator('#conversations li')).to_have_count(1)
    held.released.set()

    await expect(seen.turns.last.locator('.markdown')).to_have_text('Yes.')
    await expect(seen.page.locator('#conversations li')).to_have_count(1)


async def test_next_view_is_there_before_the_next_key(open_page: OpenPage):
    """A link is followed at once. The event of the browser for a changed address comes after keys that were pressed since."""
    seen = await open_page()
    await seen.say('one', until='Yes.')

    is_shown = "async () => { document.getElementById('new').click(); await null; return document.querySelector('.welcome') !== null; }"
    assert await seen.page.evaluate(is_shown)
    await seen.page.go_back()
    await expect(seen.turns.last.locator('.bubble')).to_have_text('one')
