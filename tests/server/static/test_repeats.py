"""Calls that a person approves together with an earlier one, on the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from playwright.async_api import expect

from pydantic_deep import create_deep_agent
from pydantic_deep.server import AnyAgent
from pydantic_deep.testing import ScriptedModel, call
from tests.server.static.conftest import OpenPage, Script, ask, page_marks

pytestmark = page_marks


@pytest.fixture
def agents(script: Script) -> Mapping[str, AnyAgent]:
    gated = {'write_file': True, 'edit_file': True}
    return {'careful': create_deep_agent(ScriptedModel(then=script), interrupt_on=gated)}


def write(path: str) -> Any:
    return call('write_file', path=path, content='x\n')


async def test_calls_of_a_tool_are_approved_for_a_conversation(
    open_page: OpenPage, client: httpx.AsyncClient, script: Script
) -> None:
    """Later calls of the tool run without a question in this conversation only, each with an answer of its own, also after
    the page is loaded again. What is approved is listed above the prompt, and can be ended."""
    seen = await open_page()
    script.next = [write('/a.txt')]
    await seen.send('first')
    await expect(seen.page.locator('[data-act=repeat]')).to_contain_text('Approve each write_file in this conversation')
    await seen.press('a')
    await seen.page.keyboard.press('Y')
    await expect(seen.turns.last.locator('.markdown').last).to_have_text('Done.')
    await expect(seen.page.locator('.approved .chip')).to_contain_text(['write_file'])

    script.next = [write('/b.txt')]
    await seen.say('second', until='Done.')
    await seen.page.reload()
    await expect(seen.page.locator('.approved .chip')).to_contain_text(['write_file'])
    script.next = [write('/c.txt')]
    await seen.say('third', until='Done.')
    answered = (await client.get('/api/approvals', params={'all': True})).json()['items']
    assert [(each['status'], each['reason']) for each in answered] == [
        ('approved', 'Approved for this conversation.'),
        ('approved', 'Approved for this conversation.'),
        ('approved', None),
    ]
    assert len({each['view']['digest'] for each in answered}) == 3

    elsewhere = await ask(client, script, write('/d.txt'))
    await seen.page.evaluate("location.hash = '#/a'")
    await expect(seen.page.locator('[data-approval]')).to_have_count(1)
    await expect(seen.page.locator('#inbox .approved')).to_contain_text('write_file in first')
    assert (await client.get(elsewhere['path'])).json()['state'] == 'awaiting_approval'

    await seen.page.click('text=first')
    await seen.page.click('.approved button')
    await expect(seen.page.locator('.approved')).to_have_count(0)
    script.next = [write('/e.txt')]
    await seen.send('fourth')
    await expect(seen.page.locator('.pending [data-act=approve]:enabled')).to_be_visible()
    assert seen.problems == []


async def test_other_tools_and_calls_with_a_notice_are_still_asked(open_page: OpenPage, script: Script) -> None:
    """The approval of writes covers no edits, and no write that a notice warns of."""
    seen = await open_page()
    script.next = [write('/a.txt')]
    await seen.send('first')
    await seen.page.click('[data-act=repeat]')
    await expect(seen.turns.last.locator('.markdown').last).to_have_text('Done.')

    script.next = [call('edit_file', path='/a.txt', old_string='x', new_string='y')]
    await seen.send('second')
    await expect(seen.page.locator('.pending [data-act=repeat]:enabled')).to_contain_text('edit_file')
    await seen.page.click('.pending [data-act=approve]:enabled')
    await expect(seen.turns.last.locator('.markdown').last).to_have_text('Done.')

    script.next = [write('/AGENTS.md')]
    await seen.send('third')
    await expect(seen.page.locator('.pending .card:not(.settled) .warn')).to_have_text(
        'This call may change a protected file.'
    )
    await expect(seen.page.locator('.pending [data-act=repeat]:enabled')).to_have_count(0)


async def test_answer_of_another_page_is_no_error(
    open_page: OpenPage, client: httpx.AsyncClient, script: Script
) -> None:
    """If another page answers such a call first, nothing is shown as failed."""
    seen = await open_page()
    script.next = [write('/a.txt')]
    await seen.send('first')
    await seen.page.click('[data-act=repeat]')
    await expect(seen.turns.last.locator('.markdown').last).to_have_text('Done.')
    await seen.page.route(
        '**/api/approvals/*',
        lambda route: route.fulfill(status=409, json={'error': {'message': 'x', 'status': 'approved'}}),
    )
    script.next = [write('/b.txt')]
    async with seen.page.expect_response('**/api/approvals/*'):
        await seen.send('second')
    await expect(seen.page.locator('.pending .card:not(.settled)')).to_be_visible()
    await expect(seen.page.locator('#problem')).to_have_count(0)


async def test_calls_of_other_branches_are_not_shown_in_the_dialogue(open_page: OpenPage, script: Script) -> None:
    """A call is shown where it arose. A line names those that wait on other branches, and leads to them."""
    seen = await open_page()
    await seen.say('first', until='Nothing.')
    script.next = [write('/main.txt')]
    await seen.send('second')
    await expect(seen.page.locator('.pending .card')).to_have_count(1)

    await seen.show_versions()
    await seen.page.click('#graph .version >> nth=-2')
    await seen.page.click('text=Branch from here')
    script.next = [write('/aside.txt')]
    await seen.page.fill('.branch-form textarea', 'third')
    await seen.page.click('.branch-form button[type=submit]')
    await expect(seen.page.locator('.pending .card')).to_have_count(1)
    await expect(seen.page.locator('.pending .card')).to_contain_text('/aside.txt')
    await expect(seen.page.locator('.elsewhere')).to_have_text('1 call on other branches waits for your decision')
    await seen.page.click('.pending [data-act=approve]:enabled')
    await expect(seen.turns.last.locator('.markdown').last).to_have_text('Done.')
    await expect(seen.page.locator('.pending .card:not(.settled)')).to_have_count(0)
    await expect(seen.page.locator('#dialogue > [data-live]')).to_have_count(0)

    await seen.page.click('.elsewhere a')
    await expect(seen.page.locator('#inbox .card')).to_contain_text('/main.txt')
    assert seen.problems == []


async def test_approval_that_comes_too_late_approves_no_later_calls(
    open_page: OpenPage, client: httpx.AsyncClient, script: Script
) -> None:
    """If another person has denied the call, "Approve each" has no effect at all: the next call is asked."""
    seen = await open_page()
    script.next = [write('/a.txt')]
    await seen.send('first')
    await expect(seen.page.locator('[data-act=repeat]:enabled')).to_be_visible()
    (approval,) = (await client.get('/api/approvals')).json()['items']
    denial = {'decision': 'deny', 'reason': 'No.', 'digest': approval['view']['digest']}
    assert (await client.post(f'/api/approvals/{approval["id"]}', json=denial)).is_success
    await seen.page.click('[data-act=repeat]')
    await expect(seen.page.locator('.pending .late')).to_be_visible()
    await expect(seen.page.locator('.approved')).to_have_count(0)


async def test_approval_that_fails_approves_no_later_calls(open_page: OpenPage, script: Script) -> None:
    """If the server is not available, "Approve each" has no effect at all."""
    seen = await open_page()
    script.next = [write('/a.txt')]
    await seen.send('first')
    await seen.page.route('**/api/approvals/*?resume=true', lambda route: route.abort())
    await seen.page.click('[data-act=repeat]:enabled')
    await expect(seen.page.locator('#problem')).to_be_visible()
    await expect(seen.page.locator('.pending [data-act=approve]:enabled')).to_be_visible()
    await expect(seen.page.locator('.approved')).to_have_count(0)
