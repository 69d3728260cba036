"""Approvals on the page: the whole call is shown, only the shown call is answered, and foreign text does nothing."""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Browser, Locator, Page, expect
from pydantic_ai import Tool
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import ExternalToolset

from pydantic_deep import AskUser, LocalBackend, Subagent, create_deep_agent
from pydantic_deep._text.escapes import escape, visible
from pydantic_deep.approvals import Approve
from pydantic_deep.mcp import McpServer, McpServers
from pydantic_deep.server import AnyAgent
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.versions import ApprovalInbox, ProtectedFilesWarning
from tests.server.conftest import Gate, Served
from tests.server.static.conftest import Held, OpenPage, Script, Seen, ask, page_marks

pytestmark = page_marks

TRICKY = (
    *('+++ b/harmless', '--- a/harmless', '++ import os', '-- x', '@@ -1,2 +1,2 @@', '\\ No newline at end of file'),
    *('diff --git a/x b/x', '', ' ', '\t', '+', '-', 'a', '<b>&amp;</b>', '</pre><script>'),
    *('\r', '\0', '\x1b[2J', '\u202edetrever', '\u2066', '\u200b', '\ufeff', '\xad', '\xa0', '\u2028', '\u3000'),
    *('\ufe0f', '\U000e0041', '\u115f', '\x85', 'é', '日本', '👩', '\\u202e', 'x' * 300),
)
"""Parts of lines that resemble a diff, HTML or escapes, or are invisible."""


def text_of(rng: random.Random, lines: int) -> str:
    """Return a random text with the given number of lines."""
    made = [''.join(rng.choices(TRICKY, k=rng.randint(1, 3))) for _ in range(lines)]
    return '\n'.join(made) + rng.choice(['', '\n'])


SHOWN = """async (root) => [...root.querySelectorAll('.argument')].map((each) => [
    each.querySelector('.name').textContent, each.querySelector('.value').textContent])"""
"""Returns the names and values of the arguments of a card from the DOM."""

LINES = """(root) => [...root.querySelectorAll('.diff tr:not(.hunk)')].map((row) => [
    [...row.querySelectorAll('.number')].map((each) => each.textContent), row.lastElementChild.textContent, row.className])"""
"""Returns the lines of a unified diff: line numbers, text and change."""


def odd(first: str, second: str, other: dict[str, Any]) -> str:
    """Return the arguments as one text."""
    return first + second + str(other)


QUESTION = call('ask_user', question='Which database?', choices=['SQLite', 'PostgreSQL'])

THERMOMETER = ToolDefinition(name='thermometer', description='Return the temperature of a room.')
"""A tool of a program outside of the server, which answers its calls."""

MCP_SERVER = McpServer(
    command=sys.executable,
    args=(str(Path(__file__).parents[2] / 'mcp/fixture_server.py'),),
    env={'CALLS': os.devnull},
)


def make_lead() -> AnyAgent:
    """Return an agent whose subagent lists files, writes one after approval, and reads it."""
    steps = (call('ls', path='/'), call('write_file', path='/a.txt', content='a\n'), call('read_file', path='/a.txt'))
    helper = Subagent(name='helper', description='Helps.', model=ScriptedModel(*steps, 'Written.'))
    model = ScriptedModel(call('task', subagent='helper', description='Write it'), 'Done.')
    return create_deep_agent(model, interrupt_on={'write_file': True}, subagents=[helper])


@pytest.fixture
def agents(script: Script, gate: Gate) -> Mapping[str, AnyAgent]:
    gated = {'write_file': True, 'edit_file': True}
    tools = [Tool(odd, requires_approval=True)]
    return {
        'careful': create_deep_agent(ScriptedModel(then=script), interrupt_on=gated, tools=tools),
        'bold': create_deep_agent(ScriptedModel(then=script)),
        'lead': make_lead(),
        'outside': create_deep_agent(
            ScriptedModel(then=script), interrupt_on={}, toolsets=[ExternalToolset([THERMOMETER])]
        ),
        'curious': create_deep_agent(ScriptedModel(then=script), interrupt_on={}, capabilities=[AskUser()]),
        'patient': create_deep_agent(
            ScriptedModel(QUESTION, call('hold'), 'Done.'),
            interrupt_on={},
            tools=[gate.hold],
            capabilities=[AskUser()],
        ),
        'teahouse': create_deep_agent(
            ScriptedModel(then=script),
            interrupt_on={},
            capabilities=[McpServers(servers={'shop': MCP_SERVER}, allow=['shop_book'])],
        ),
    }


async def open_inbox(open_page: OpenPage) -> Seen:
    """Open the inbox."""
    return await open_page(at='#/a')


def card_of(page: Page, approval: Mapping[str, Any]) -> Locator:
    return page.locator(f'[data-approval="{approval["id"]}"]')


async def check_card(page: Page, approval: Mapping[str, Any], args: Mapping[str, Any]) -> None:
    """Check that the card contains every character of every argument in order, with invisible ones escaped."""
    card = card_of(page, approval)
    await expect(card).to_be_visible()
    shown = await card.evaluate(SHOWN)
    assert [name for name, _ in shown] == [visible(name, one_line=True) for name in args]
    for (_, found), value in zip(shown, args.values(), strict=True):
        texts = (
            [value] if isinstance(value, str) else [json.dumps(value, ensure_ascii=False, indent=n) for n in (None, 2)]
        )
        assert found in [visible(text) for text in texts]
    hidden = await card.evaluate(
        r'(card) => /[^\P{C}\n\t]|\p{Default_Ignorable_Code_Point}|[\u2800\u2028]/u.test(card.textContent)'
    )
    assert hidden is False


async def check_diff(root: Locator, before: str | None, after: str) -> None:
    """Check that the diff shows the lines of the file with their numbers."""
    rows = await root.evaluate(LINES)
    new = [(numbers[1], text) for numbers, text, _ in rows if numbers[1]]
    assert [int(number) for number, _ in new] == [*range(1, len(new) + 1)]
    assert [text for _, text in new] == visible(after.removesuffix('\n')).split('\n')
    assert ([row for row in rows if row[2] == 'removed'] == []) is (before is None)


async def decide_round(page: Page, client: httpx.AsyncClient, script: Script, rng: random.Random, lines: int) -> None:
    """Request approval of a new file and of an odd call, and check both cards."""
    content, first = text_of(rng, lines), text_of(rng, rng.randint(1, 9))
    args = {'first': first, 'second': rng.choice(TRICKY), 'other': {rng.choice(TRICKY): [rng.choice(TRICKY), 1.5]}}
    run = await ask(
        client, script, call('write_file', path=f'/{rng.randint(0, 99)}.txt', content=content), call('odd', **args)
    )
    await page.reload()
    written, odd_call = run['approvals']
    await check_card(page, odd_call, args)
    await check_card(page, written, written['args'])
    assert written['args']['content'] == content
    await check_diff(card_of(page, written), None, content)
    for each in run['approvals']:
        await client.post(f'/api/approvals/{each["id"]}', json={'decision': 'deny'})


async def test_card_contains_every_character_of_every_argument(
    open_page: OpenPage, client: httpx.AsyncClient, script: Script
) -> None:
    """Random contents include lines like diff headers, CR, NUL and bidi characters. Every character of every argument
    is in the DOM, in order, escaped if invisible."""
    page = (await open_inbox(open_page)).page
    for seed in range(3):
        await decide_round(page, client, script, random.Random(seed), 30)


async def test_card_contains_every_character_of_large_arguments(
    open_page: OpenPage, client: httpx.AsyncClient, script: Script
) -> None:
    """The same for many contents, 10,000 lines and lines of 100 kB."""
    page = (await open_inbox(open_page)).page
    for seed in range(10, 40):
        await decide_round(page, client, script, random.Random(seed), 60)
    await decide_round(page, client, script, random.Random(40), 10_000)
    long = '+++ ' + 'ab\u200b ' * 25_000
    run = await ask(client, script, call('write_file', path='/long.txt', content=f'{long}\n--- {long}\n\0\n'))
    await page.reload()
    [written] = run['approvals']
    await check_card(page, written, written['args'])
    await check_diff(card_of(page, written), None, written['args']['content'])


@pytest.mark.parametrize('size', [30, 10_000])
async def test_version_diffs_show_every_line(
    open_page: OpenPage, client: httpx.AsyncClient, script: Script, size: int
) -> None:
    """The changes of a version and a comparison show the same lines, including those that resemble diff headers."""
    rng = random.Random(size)
    texts = [text_of(rng, size), text_of(rng, size)]
    path = (await client.post('/api/conversations', json={'agent': 'bold'})).headers['location']
    runs: list[str] = []
    for text in texts:
        script.next = [call('write_file', path='/a.txt', content=text)]
        runs.append((await client.post(f'{path}/turns', json={'prompt': 'go'})).json()['version_id'])
    for address in (f'#/v/{runs[1]}', f'#/v/{runs[0]}/{runs[1]}'):
        page = (await open_page(at=address)).page
        if address.count('/') == 2:
            await page.click('[role=tab]:text-is("Changes")')
        await expect(page.locator('.diff')).to_be_visible()
        sides = """(root) => [1, 3].map((at) => [...root.querySelectorAll('tr:not(.hunk)')]
            .filter((row) => row.children[at - 1].textContent !== '').map((row) => row.children[at].textContent))"""
        before, after = await page.locator('.diff').evaluate(sides)
        assert ['', *visible(texts[0].removesuffix('\n')).split('\n')][-len(before) :] == before
        assert ['', *visible(texts[1].removesuffix('\n')).split('\n')][-len(after) :] == after
        assert len(before) + len(after) > size


async def test_keys_do_nothing_without_a_focused_card(
    open_page: OpenPage, client: httpx.AsyncClient, script: Script
) -> None:
    """Keys act only on a focused card."""
    run = await ask(client, script, call('write_file', path='/a.txt', content='a'))
    page = (await open_inbox(open_page)).page
    await expect(card_of(page, run['approvals'][0])).to_be_visible()
    await page.evaluate('document.activeElement.blur()')

    for key in 'yne':
        await page.keyboard.press(key)
    await expect(page.locator('#problem')).to_contain_text('No call is focused')
    assert await page.locator('.answer-form').count() == 0
    assert [each['id'] for each in (await client.get('/api/approvals')).json()['items']] == [run['approvals'][0]['id']]


async def test_new_card_does_not_move_or_blur_existing_cards(
    open_page: OpenPage, client: httpx.AsyncClient, script: Script
) -> None:
    """New cards are appended, and the place of an answered card stays empty, so that neither a key nor a click reaches
    a call that the person has not seen."""
    first = (await ask(client, script, call('write_file', path='/first.txt', content='1')))['approvals'][0]
    page = (await open_inbox(open_page)).page
    await expect(card_of(page, first)).to_be_focused()
    place = await card_of(page, first).bounding_box()

    second = (await ask(client, script, call('write_file', path='/second.txt', content='2')))['approvals'][0]
    await page.evaluate("window.dispatchEvent(new Event('focus'))")  # the page looks for new calls
    await expect(card_of(page, second)).to_be_visible()
    await expect(card_of(page, first)).to_be_focused()
    assert await card_of(page, first).bounding_box() == place
    assert await page.evaluate("[...document.querySelectorAll('[data-approval]')].map((each) => each.dataset.approval)") == [
        first['id'], second['id']
    ]  # fmt: skip

    await page.keyboard.press('y')
    await expect(page.locator('.card.settled .says')).to_have_text('Approved by ada, just now')
    await page.keyboard.press('y')
    await page.keyboard.press('y')
    box = await page.locator('.card.settled .outcome').bounding_box()
    assert box is not None
    await page.mouse.dblclick(box['x'] + 5, box['y'] + 5)  # no other card has moved under the pointer
    waiting = (await client.get('/api/approvals')).json()['items']
    assert [each['id'] for each in waiting] == [second['id']]
    await page.keyboard.press('j')
    await expect(card_of(page, second)).to_be_focused()
    await expect(page.locator('.card.settled')).to_have_count(0)


async def test_key_approves_a_long_call_only_when_scrolled_to_its_end(
    open_page: OpenPage, client: httpx.AsyncClient, script: Script
) -> None:
    """If the card continues below the screen, the key scrolls down and a message explains it."""
    content = ''.join(f'line {number}\n' for number in range(60))
    approval = (await ask(client, script, call('write_file', path='/a.txt', content=content)))['approvals'][0]
    page = (await open_inbox(open_page)).page
    await expect(card_of(page, approval)).to_be_visible()
    await page.keyboard.press('a')
    await page.keyboard.press('y')
    await expect(page.locator('#problem')).to_contain_text('This call continues below.')
    assert len((await client.get('/api/approvals')).json()['items']) == 1
    for _ in range(10):
        await page.keyboard.press('y')
    await expect(card_of(page, approval)).to_have_count(0)
    assert (await client.get('/api/approvals', params={'all': True})).json()['items'][0]['status'] == 'approved'


async def test_approval_sends_the_digest_of_the_shown_call(
    open_page: OpenPage, client: httpx.AsyncClient, script: Script
) -> None:
    """The page sends the digest of the shown view. A call with another digest is not answered."""
    approval = (await ask(client, script, call('write_file', path='/a.txt', content='a')))['approvals'][0]
    page = (await open_inbox(open_page)).page
    card = card_of(page, approval)
    await expect(card).to_have_attribute('data-digest', approval['view']['digest'])
    await card.evaluate("(card) => { card.dataset.digest = '0'.repeat(64); }")
    await card.locator('[data-act=approve]').click()
    await expect(page.locator('#problem')).to_contain_text('has changed since it was shown')
    assert [each['status'] for each in (await client.get('/api/approvals')).json()['items']] == ['pending']


async def test_arguments_are_edited_in_fields(open_page: OpenPage, client: httpx.AsyncClient, script: Script) -> None:
    """Each argument has a field. A text with invisible characters is edited as JSON with escapes, another one as it is."""
    args: dict[str, Any] = {'first': 'a\u202eb\x00é', 'second': 'two\nlines', 'other': {}}
    approval = (await ask(client, script, call('odd', **args)))['approvals'][0]
    page = (await open_inbox(open_page)).page
    await card_of(page, approval).get_by_role('button', name='Edit').click()
    text = await page.input_value('.answer-form textarea >> nth=0')
    assert json.loads(text) == args['first']
    assert visible(text) == text
    assert 'é' in text
    await expect(page.locator('.answer-form textarea >> nth=1')).to_have_value('two\nlines')
    await page.fill('.answer-form textarea >> nth=1', '"quoted"')
    script.next = 'Done.'  # the edit is part of the next request as a prompt
    await page.press('.answer-form textarea >> nth=1', 'Enter')  # a line, and no decision
    await page.keyboard.type('and more')
    await page.keyboard.press('Control+Enter')
    await expect(page.locator('.card.settled .says')).to_have_text('Approved with other arguments by ada, just now')
    [answered] = (await client.get('/api/approvals', params={'all': True})).json()['items']
    assert answered['edited_args'] == args | {'second': '"quoted"\nand more'}


async def test_edit_preserves_numbers_that_were_not_changed(
    open_page: OpenPage, client: httpx.AsyncClient, script: Script
) -> None:
    """Numbers outside the range of JavaScript have their original text in the form and in the call."""
    other = {'big': 12345678901234567890, 'real': 1.0, 'small': 5e-324, 'long': 0.1, 'deep': [{'x': 2**70}]}
    run = await ask(client, script, call('odd', first='a', second='b', other=other))
    page = (await open_page(at=f'#/c/{run["conversation_id"]}')).page
    await card_of(page, run['approvals'][0]).get_by_role('button', name='Edit').click()
    text = await page.input_value('.answer-form textarea >> nth=2')
    assert json.loads(text) == other
    await page.fill('.answer-form textarea >> nth=2', text.replace('0.1', '0.2'))
    script.next = 'Edited.'  # the model is told of the change
    await page.click('.answer-form button[type=submit]')
    await expect(page.locator('.card.settled')).to_contain_text('Approved with other arguments by ada')
    await expect(page.locator('#dialogue .markdown').last).to_have_text('Edited.')
    await expect(page.locator('#dialogue .note')).to_contain_text('A person changed the arguments')
    await expect(page.locator('#dialogue > [data-live]')).to_have_count(0)
    # The run emits the call again; the page still shows it once.
    await expect(page.locator('#dialogue .call')).to_have_count(1)
    await page.click('#dialogue .call summary')
    shown = await page.locator('#dialogue .call pre').all_text_contents()
    assert json.loads(shown[2]) == other  # as the model called it
    assert shown[3] == f'ab{other | {"long": 0.2}}'


@pytest.mark.parametrize(
    ('key', 'filled', 'ends'), [('y', None, 'success'), ('n', 'Not today.', 'denied'), ('e', 'Edited', 'success')]
)
async def test_approvals_are_answered_by_keys_where_they_arose(
    open_page: OpenPage, client: httpx.AsyncClient, script: Script, key: str, filled: str | None, ends: str
) -> None:
    """A pending call is at the end of its dialogue: `a` focuses it, `y`, `n` and `e` answer it, and the turn continues."""
    script.next = [call('write_file', path='/report.md', content='# Sales\n\nmore')]
    seen = await open_page()
    await seen.page.click('.choice:has-text("careful")')
    await seen.send('write it')
    await expect(seen.page.locator('.card .added')).to_have_text(['1# Sales', '2', '3more'])
    await expect(seen.page.locator('#waiting')).to_have_text('1')

    await seen.press('a')
    await seen.page.keyboard.press(key)
    if filled is not None:
        script.next = 'Edited.'  # the model is told of the change
        field = seen.page.locator('.answer-form [name]').last
        await field.fill(filled)
        await (field.press('Enter') if key == 'n' else seen.page.click('.answer-form button[type=submit]'))
    await expect(seen.turns.last.locator('.markdown').last).to_have_text('Edited.' if key == 'e' else 'Done.')
    await expect(seen.page.locator('[data-approval]')).to_have_count(0)
    answered: dict[str, Any]
    [answered] = (await client.get('/api/approvals', params={'all': True})).json()['items']
    edited: dict[str, Any] = answered['edited_args'] or {}
    assert answered['reason'] == (filled if key == 'n' else None)
    assert edited.get('content') == (filled if key == 'e' else None)
    await expect(seen.page.locator('#files button')).to_have_text([] if key == 'n' else ['/report.md'])
    await expect(seen.calls).to_contain_text(['denied' if ends == 'denied' else '✓'])
    assert seen.problems == []


async def test_delegation_keeps_its_steps_through_an_approval(open_page: OpenPage) -> None:
    """A pending call of a subagent names it and has a diff, and its step is pending. Opened again, the delegation has the steps before and after the
    approval."""
    seen = await open_page()
    await seen.page.click('.choice:has-text("lead")')
    await seen.send('write it')
    await expect(seen.page.locator('.card header h3, .card header h2')).to_have_text('helper › write_file')
    await expect(seen.page.locator('.card .diff .added')).to_have_text(['1a'])
    await seen.page.reload()
    await seen.calls.first.click()
    await seen.page.click('text=Show the steps')
    await expect(seen.page.locator('.steps .call > summary')).to_have_text(['List/✓', 'Write/a.txtpending'])
    await seen.page.click('[data-act=approve]')
    await expect(seen.turns.last.locator('.markdown').last).to_have_text('Done.')
    await expect(seen.page.locator('#dialogue > [data-live]')).to_have_count(0)

    await seen.page.reload()
    await seen.calls.first.click()
    await seen.page.click('text=Show the steps')
    await expect(seen.page.locator('.steps .call > summary')).to_have_text(['List/✓', 'Write/a.txt✓', 'Read/a.txt✓'])
    await expect(seen.page.locator('.steps .markdown')).to_have_text(['Written.'])
    assert seen.problems == []


@pytest.mark.parametrize('words', ['PostgreSQL', 'None of them'])
async def test_question_is_answered_by_a_choice_or_in_words(
    open_page: OpenPage, client: httpx.AsyncClient, script: Script, words: str
) -> None:
    """A question of the agent shows its choices as buttons, and takes any other answer."""
    run = await ask(client, script, QUESTION, agent='curious')
    seen = await open_page(at=f'#/c/{run["conversation_id"]}')
    card = card_of(seen.page, run['approvals'][0])
    await expect(card.locator('.question p')).to_have_text('Which database?')
    await expect(card.locator('.argument')).to_have_count(0)
    if words == 'PostgreSQL':
        await card.get_by_role('button', name=words).click()
    else:
        await card.get_by_placeholder('Another answer').fill(words)
        await card.get_by_placeholder('Another answer').press('Enter')

    await expect(seen.turns.last.locator('.markdown').last).to_have_text('Done.')
    await expect(seen.page.locator('#dialogue > [data-live]')).to_have_count(0)
    await seen.page.reload()
    await expect(seen.calls.first).to_have_text(f'AskWhich database?{words}✓')
    await seen.calls.first.click()
    await expect(seen.page.locator('.field.result pre')).to_contain_text(words)
    assert seen.problems == []


@pytest.mark.parametrize('kind', ['Text', 'JSON'])
@pytest.mark.parametrize(('at', 'width'), [('#/c/{}', 1280), ('#/a', 390)])
async def test_result_of_an_external_call_is_given_by_keys(
    open_page: OpenPage, client: httpx.AsyncClient, script: Script, at: str, width: int, kind: str
) -> None:
    """The result of a call that a program outside of the server answers can also come from a person: a text, or JSON with
    its numbers as they are written. The answer has the digest of the shown call, and the turn continues."""
    run = await ask(client, script, call('thermometer', room='cellar'), agent='outside')
    seen = await open_page(at=at.format(run['conversation_id']), width=width)
    card = card_of(seen.page, run['approvals'][0])
    await expect(card.locator('.end button:visible')).to_have_text(['Respond r', 'Deny n'], use_inner_text=width > 390)
    await seen.press('a')
    await seen.page.keyboard.press('r')
    await expect(card.get_by_label('Result', exact=True)).to_be_focused()
    await seen.page.keyboard.type('{"degrees": 12.0,')
    await seen.page.keyboard.press('Enter')  # a line, and no answer
    await seen.page.keyboard.type('"sensor": 12345678901234567890}')
    if kind == 'JSON':
        await card.get_by_label('JSON').check()
    assert await card.evaluate('(card) => card.scrollWidth <= card.clientWidth')
    async with seen.page.expect_request(lambda request: request.method == 'POST') as sent:
        await card.get_by_label('Result', exact=True).press('Control+Enter')
    answer: Any = (await sent.value).post_data_json
    assert answer['digest'] == run['approvals'][0]['view']['digest']
    await expect(seen.page.locator('.card.settled')).to_contain_text('Answered by ada, just now')

    content = {'degrees': 12.0, 'sensor': 12345678901234567890}
    text = '{"degrees": 12.0,\n"sensor": 12345678901234567890}'
    [answered] = (await client.get('/api/approvals', params={'all': True})).json()['items']
    assert (answered['status'], answered['response']) == ('responded', text if kind == 'Text' else content)
    await seen.page.goto(f'{seen.page.url.split("#")[0]}#/c/{run["conversation_id"]}')
    await expect(seen.turns.last.locator('.markdown').last).to_have_text('Done.')
    await expect(seen.page.locator('#dialogue > [data-live]')).to_have_count(0)
    assert seen.problems == []


async def test_result_that_is_no_json_is_explained(
    open_page: OpenPage, client: httpx.AsyncClient, script: Script
) -> None:
    """If JSON is chosen, another text is not sent: a sentence says where the error is, and the text stays. It also stays if
    the server refuses the answer. Escape closes the form."""
    run = await ask(client, script, call('thermometer', room='cellar'), agent='outside')
    page = (await open_page(at=f'#/c/{run["conversation_id"]}')).page
    card = card_of(page, run['approvals'][0])
    await card.get_by_role('button', name='Respond').click()
    result = card.get_by_label('Result', exact=True)
    await result.fill('{"degrees": 12')
    await card.get_by_label('JSON').check()
    await card.get_by_role('button', name='Respond').click()
    await expect(page.locator('#problem')).to_contain_text('“Result” is not valid JSON: ')
    await expect(result).to_have_value('{"degrees": 12')

    await result.fill('12')
    await card.evaluate("(card) => { card.dataset.digest = '0'.repeat(64); }")
    await card.get_by_role('button', name='Respond').click()
    await expect(page.locator('#problem')).to_contain_text('has changed since it was shown')
    await expect(result).to_have_value('12')
    await result.press('Escape')
    await expect(result).to_have_count(0)
    await expect(card).to_be_focused()
    assert [each['status'] for each in (await client.get('/api/approvals')).json()['items']] == ['pending']


async def test_answers_and_results_are_shown_on_every_page(
    open_page: OpenPage, client: httpx.AsyncClient, script: Script
) -> None:
    """What a person answered to a question, and the result given to an external call, is on other pages and after a reload:
    in the card, in the list of answered calls, and in the opened call. A long text is shown in one line until it is opened;
    numbers are as they were written."""
    question = await ask(client, script, QUESTION, agent='curious')
    both = await ask(client, script, *(call('thermometer', room=room) for room in ('cellar', 'attic')), agent='outside')
    other = (await open_inbox(open_page)).page
    await expect(other.locator('[data-approval]')).to_have_count(3)

    long = '12 C, ' * 20 + '\nand rising'
    answers = [
        (question['approvals'][0], 'PostgreSQL'),
        (both['approvals'][0], {'degrees': 12.0}),
        (both['approvals'][1], long),
    ]
    for approval, content in answers[:2]:
        body = {'decision': 'respond', 'content': content, 'digest': approval['view']['digest']}
        await client.post(f'/api/approvals/{approval["id"]}', json=body)
    await other.evaluate("window.dispatchEvent(new Event('focus'))")
    outcomes = ['Answered by ada, just now: PostgreSQL', 'Answered by ada, just now: {"degrees":12.0}']
    await expect(other.locator('.card.settled .outcome')).to_have_text(outcomes[::-1])
    await expect(other.locator('.card .chosen')).to_have_text('PostgreSQL')
    await other.reload()
    await expect(other.locator('#answered .outcome')).to_have_text(outcomes[::-1])

    await other.goto(f'{other.url.split("#")[0]}#/c/{both["conversation_id"]}')
    calls = other.locator('#dialogue .call > summary')
    await expect(calls).to_have_text(['thermometercellar{"degrees":12.0}answered', 'thermometeratticpending'])
    await calls.first.click()
    await expect(other.locator('.opened .outcome')).to_have_text(outcomes[1])
    approval, content = answers[2]
    body = {'decision': 'respond', 'content': content, 'digest': approval['view']['digest']}
    await client.post(f'/api/approvals/{approval["id"]}', json=body)
    await other.evaluate("window.dispatchEvent(new Event('focus'))")
    quote = other.locator('.card.settled .quote')
    await expect(quote.locator('summary')).to_have_text(long[:60] + ' …')
    await expect(quote.locator('pre')).to_be_hidden()
    await quote.locator('summary').click()
    await expect(quote.locator('pre')).to_be_visible()
    await expect(quote.locator('pre')).to_have_text(long)


async def test_page_follows_a_turn_that_another_program_resumes(
    open_page: OpenPage, client: httpx.AsyncClient, script: Script
) -> None:
    """The page shows who answered and with what while the resumed run works, and then its end, without offering to resume it."""
    run = await ask(client, script, QUESTION, agent='curious')
    seen = await open_page(at=f'#/c/{run["conversation_id"]}')
    await expect(seen.page.locator('[data-approval]')).to_have_count(1)
    (approval,) = run['approvals']
    body = {'decision': 'respond', 'content': 'SQLite', 'digest': approval['view']['digest']}
    await client.post(f'/api/approvals/{approval["id"]}?resume=true', json=body)
    await seen.page.evaluate("window.dispatchEvent(new Event('focus'))")
    await expect(seen.calls).to_have_text(['AskWhich database?SQLite✓'])
    await expect(seen.turns.last.locator('.markdown').last).to_have_text('Done.')
    await expect(seen.page.locator('#resume')).to_have_count(0)


async def test_turn_that_is_stopped_after_an_answer_says_so(open_page: OpenPage, gate: Gate) -> None:
    """Also after a reload, and if another turn follows."""
    seen = await open_page()
    await seen.page.click('.choice:has-text("patient")')
    await seen.send('ask and wait')
    await seen.page.fill('.card input[name=answer]', 'SQLite')
    await seen.page.press('.card input[name=answer]', 'Enter')
    await gate.reached.wait()
    await seen.page.click('#stop')
    await expect(seen.page.locator('#stop')).to_be_hidden()
    note = seen.page.locator('#dialogue .answer > .note')
    await expect(note).to_have_text('This turn was interrupted. What was done is kept.')
    await seen.page.reload()
    await expect(note).to_have_text('This turn was interrupted. What was done is kept.')
    await seen.say('next', until='Done.')
    await expect(seen.turns.first.locator('.answer > .note')).to_have_count(1)


async def test_watched_run_shows_answers_that_others_gave(
    open_page: OpenPage, client: httpx.AsyncClient, script: Script, gate: Gate
) -> None:
    """A page that opens the conversation while the resumed run works shows the answer before the run ends."""
    run = await ask(client, script, agent='patient')
    (approval,) = run['approvals']
    body = {'decision': 'respond', 'content': 'SQLite', 'digest': approval['view']['digest']}
    await client.post(f'/api/approvals/{approval["id"]}?resume=true', json=body)
    await gate.reached.wait()
    seen = await open_page(at=f'#/c/{run["conversation_id"]}')
    await expect(seen.calls.first).to_contain_text('SQLite')
    await expect(seen.page.locator('#stop')).to_be_visible()
    gate.opened.set()
    await expect(seen.turns.last.locator('.markdown').last).to_have_text('Done.')


async def test_address_of_an_answered_call_shows_its_answer(
    open_page: OpenPage, client: httpx.AsyncClient, script: Script
) -> None:
    """An address leads to one call: its answer is shown, or that it does not exist, and no key answers another one."""
    write = call('write_file', path='/a.txt', content='a')
    (approval,) = (await ask(client, script, write))['approvals']
    await ask(client, script, write)
    body = {'decision': 'deny', 'reason': 'Keep it.', 'digest': approval['view']['digest']}
    await client.post(f'/api/approvals/{approval["id"]}', json=body)
    seen = await open_page(at=f'#/a/{approval["id"]}')
    await expect(seen.page.locator('#wanted .outcome')).to_have_text('Denied by ada, just now: Keep it.')
    await expect(seen.page.locator('[data-approval]')).to_have_count(1)
    await seen.press('y')
    await expect(seen.page.locator('#problem')).to_contain_text('No call is focused.')
    unknown = await open_page(at='#/a/00000000-0000-0000-0000-000000000000')
    await expect(unknown.page.locator('#wanted')).to_have_text('The call of this address does not exist any more.')


async def test_long_words_stay_in_their_cards(open_page: OpenPage, client: httpx.AsyncClient, script: Script) -> None:
    """Words without spaces are broken, in suggested answers and in the plan, also on a phone."""
    word = 'b' * 300
    todos = call('write_todos', todos=[{'content': word, 'status': 'pending'}])
    run = await ask(client, script, todos, call('ask_user', question=word, choices=[word, 'no']), agent='curious')
    seen = await open_page(at=f'#/c/{run["conversation_id"]}', width=390, height=780)
    await seen.page.click('#to-panel')
    for part in ('.card', '#panel'):
        box = seen.page.locator(part)
        await expect(box).to_contain_text(word)
        assert await box.evaluate('(box) => box.scrollWidth - box.clientWidth') == 0
    assert seen.problems == []


async def test_question_of_a_server_has_a_field_for_each_value(
    open_page: OpenPage, client: httpx.AsyncClient, script: Script
) -> None:
    """The form has the fields of the server. A wrong value is explained, and the card stays until the answer fits."""
    run = await ask(client, script, call('shop_form'), agent='teahouse')
    seen = await open_page(at=f'#/c/{run["conversation_id"]}')
    card = card_of(seen.page, run['approvals'][0])
    await expect(card.locator('.question p')).to_have_text("The MCP server 'shop' asks:\nWhich tea?")
    await expect(card.locator('.fields .name')).to_have_text(['Cups', 'kind', 'extras', 'gift', 'note'])
    await card.get_by_label('Cups').fill('9')
    await card.get_by_label('kind').select_option('Green')
    await card.get_by_label('extras').select_option(['milk', 'sugar'])
    await card.get_by_role('button', name='Answer').click()
    await expect(seen.page.locator('#problem')).to_contain_text("The field 'cups' does not accept '9'")
    await card.get_by_label('Cups').fill('2')
    await card.get_by_label('Cups').press('Enter')

    await expect(seen.turns.last.locator('.markdown').last).to_have_text('Done.')
    await expect(seen.page.locator('#dialogue > [data-live]')).to_have_count(0)
    await seen.calls.first.click()
    await expect(seen.page.locator('.field.result pre')).to_contain_text('"extras"')
    await expect(seen.calls.first).to_contain_text('kind: Green')


async def test_question_of_a_server_shows_its_link(
    open_page: OpenPage, client: httpx.AsyncClient, script: Script
) -> None:
    """An address is a link, and a suggested answer continues the call."""
    run = await ask(client, script, call('shop_book'), agent='teahouse')
    seen = await open_page(at=f'#/c/{run["conversation_id"]}')
    script.next = 'Done.'
    await card_of(seen.page, run['approvals'][0]).get_by_role('textbox').fill('2')
    await seen.page.get_by_role('button', name='Answer').click()
    link = seen.page.get_by_role('link', name='https://pay.example/1')
    await expect(link).to_have_attribute('rel', 'noopener noreferrer')
    await seen.page.get_by_role('button', name='Continue').click()
    await expect(seen.turns.last.locator('.markdown').last).to_have_text('Done.')


async def test_inbox_names_who_asks_since_when_and_where(
    open_page: OpenPage, client: httpx.AsyncClient, script: Script
) -> None:
    """The inbox has the calls of all conversations, each with its agent, its age and its conversation. An approval has an
    address."""
    first = await ask(client, script, call('write_file', path='/a.txt', content='a'))
    second = await ask(client, script, call('write_file', path='/b.txt', content='b'))
    await client.patch(first['path'], json={'name': 'Letters'})
    page = (await open_page(at=f'#/a/{first["approvals"][0]["id"]}')).page
    await expect(card_of(page, first['approvals'][0])).to_be_focused()
    await expect(page.locator('[data-approval]')).to_have_count(2)
    await expect(card_of(page, first['approvals'][0]).locator('header')).to_contain_text('careful asked just now')
    await card_of(page, second['approvals'][0]).locator('header a').click()
    await expect(page.locator('#dialogue .call')).to_have_count(1)
    await expect(card_of(page, second['approvals'][0])).to_be_visible()


async def test_conversation_that_is_left_while_it_is_loaded_is_no_error(
    open_page: OpenPage, client: httpx.AsyncClient, script: Script
) -> None:
    """A person goes to the inbox before the calls of a conversation are loaded."""
    run = await ask(client, script, call('write_file', path='/a.txt', content='a\n'))
    seen = await open_page()
    await expect(seen.page.locator('#waiting')).to_have_text('1')
    held = Held()
    await seen.page.route('**/api/approvals?limit=200', held)
    await seen.page.click('#conversations a')
    await held.arrived.wait()
    await seen.page.click('#to-inbox')
    held.released.set()
    await seen.page.unroute_all(behavior='wait')
    async with seen.page.expect_response(f'**/api/approvals?all=true&limit=50&conversation={run["conversation_id"]}'):
        await seen.page.click('#conversations a')
    assert seen.problems == []
    await expect(seen.page.locator('#problem')).to_have_count(0)


async def test_late_answer_gets_a_sentence(
    open_page: OpenPage, client: httpx.AsyncClient, script: Script, served: Served
) -> None:
    """A call that another person or program answered first is not answered again: the card says who decided what, and that
    this answer came too late, also if the person was filling in a form."""
    run = await ask(client, script, *(call('write_file', path=f'/{name}.txt', content=name) for name in 'ab'))
    first, second = run['approvals']
    page = (await open_inbox(open_page)).page
    await expect(card_of(page, first)).to_be_focused()
    await client.post(f'/api/approvals/{first["id"]}', json={'decision': 'deny', 'reason': 'Not now.'})
    await page.keyboard.press('y')
    card = page.locator('.card.settled')
    await expect(card.locator('.outcome')).to_have_text('Denied by ada, just now: Not now.')
    await expect(card.locator('.late')).to_have_text('Your answer came too late, and has no effect.')

    await card_of(page, second).locator('[data-act=deny]').click()
    await ApprovalInbox(served.store).answer(second['id'], Approve(digest=second['view']['digest']), by='bob')
    await page.evaluate("window.dispatchEvent(new Event('focus'))")
    await expect(card).to_have_count(2)
    await page.keyboard.type('Because')  # reaches the field, and is no key of the page
    await expect(card.last.get_by_label('Reason')).to_have_value('Because')
    await page.keyboard.press('Enter')
    await expect(card.last.locator('.outcome')).to_have_text('Approved by bob, just now')
    await expect(card.last.locator('.late')).to_be_visible()
    await expect(page.locator('#problem')).to_have_count(0)


async def test_answered_card_is_clearly_done(open_page: OpenPage, client: httpx.AsyncClient, script: Script) -> None:
    """Instead of its buttons, an answered card shows the decision, who made it, when, and the reason or the answer: for
    approvals, questions in words and with fields, and calls that a program answers. It keeps its size."""
    for agent, asked in (('careful', call('write_file', path='/a.txt', content='a')), ('curious', QUESTION)):
        await ask(client, script, asked, agent=agent)
    await ask(client, script, call('shop_form'), agent='teahouse')
    outside = (await ask(client, script, call('thermometer', room='cellar'), agent='outside'))['approvals'][0]
    page = (await open_inbox(open_page)).page
    cards = page.locator('.card')
    await expect(cards).to_have_count(4)
    heights = '(cards) => cards.map((card) => card.offsetHeight)'
    before = await cards.evaluate_all(heights)

    body = {'decision': 'respond', 'content': '12 C', 'digest': outside['view']['digest']}
    await client.post(f'/api/approvals/{outside["id"]}', json=body)
    form = cards.filter(has_text='Which tea?')
    await form.get_by_label('Cups').fill('2')
    await form.get_by_label('kind').select_option('Green')
    await form.get_by_role('button', name='Answer').click()
    await cards.filter(has_text='Which database?').get_by_role('button', name='SQLite').click()
    script.next = 'Done.'
    denied = cards.filter(has_text='/a.txt').first
    await denied.locator('[data-act=deny]').click()
    await denied.get_by_label('Reason').fill('Another name.')
    await denied.get_by_label('Reason').press('Enter')

    outcomes = {
        'thermometer': 'Answered by ada, just now: 12 C',
        'Which tea?': 'Answered by ada, just now: cups: 2, kind: Green',
        'Which database?': 'Answered by ada, just now: SQLite',
        '/a.txt': 'Denied by ada, just now: Another name.',
    }
    for text, outcome in outcomes.items():
        await expect(cards.filter(has_text=text).locator('.outcome')).to_have_text(outcome)
    await expect(page.locator('.card .main:visible, .card .end button:visible, .card :enabled:visible')).to_have_count(
        0
    )
    await expect(form.get_by_label('Cups')).to_have_value('2')
    assert await cards.evaluate_all(heights) == before


async def test_answered_card_leaves_with_the_next_prompt(open_page: OpenPage, script: Script) -> None:
    """It does not stay below turns to which it does not belong, although the person has touched nothing but the keys."""
    seen = await open_page()
    await seen.page.locator('.choice', has_text='careful').locator('input').check()
    script.next = [call('write_file', path='/a.txt', content='a')]
    await seen.send('Write')
    await seen.page.locator('.pending [data-act=approve]:enabled').press('Enter')
    await expect(seen.page.locator('.card.settled')).to_have_count(1)
    await expect(seen.page.locator('#dialogue > [data-live]')).to_have_count(0)
    await expect(seen.page.locator('.card.settled')).to_have_count(1)
    script.next = 'Next.'
    await seen.say('More', until='Next.')
    await expect(seen.page.locator('.card')).to_have_count(0)


async def test_answered_calls_are_shown_after_reload(
    open_page: OpenPage, client: httpx.AsyncClient, script: Script
) -> None:
    """The dialogue shows which of several calls are answered while others are pending, a call that is opened says who
    answered it, and the inbox lists the calls that were answered last. A turn that no program resumes can be resumed."""
    run = await ask(client, script, *(call('write_file', path=f'/{name}.txt', content=name) for name in 'ab'))
    first, second = run['approvals']
    seen = await open_page(at=f'#/c/{run["conversation_id"]}')
    await card_of(seen.page, first).locator('[data-act=approve]').click()
    await expect(seen.page.locator('.card.settled')).to_have_count(1)
    states = seen.page.locator('#dialogue .call .state')
    await seen.page.reload()
    await expect(states).to_have_text(['approved', 'pending'])
    await expect(seen.page.locator('#resume')).to_have_count(0)

    body = {'decision': 'edit', 'args': {'path': '/c.txt', 'content': 'c'}, 'digest': second['view']['digest']}
    await client.post(f'/api/approvals/{second["id"]}', json=body)
    await seen.page.evaluate("window.dispatchEvent(new Event('focus'))")
    await expect(states).to_have_text(['approved', 'approved'])
    script.next = 'Done.'
    await seen.page.click('#resume')
    await expect(seen.turns.last.locator('.markdown').last).to_have_text('Done.')
    await expect(seen.page.locator('#dialogue > [data-live]')).to_have_count(0)
    await expect(seen.page.locator('#resume')).to_have_count(0)
    await seen.page.reload()
    await seen.calls.first.click()
    await expect(seen.page.locator('.opened .outcome')).to_have_text('Approved by ada, just now')

    await seen.page.click('#to-inbox')
    lines = seen.page.locator('#answered li')
    await expect(lines).to_have_text([
        'Write /a.txt in a conversationApproved by ada, just now',
        'Write /b.txt in a conversationApproved with other arguments by ada, just now',
    ])  # fmt: skip
    await lines.first.get_by_role('link').click()
    await expect(seen.turns).to_have_count(1)
    assert seen.problems == []


async def test_key_without_approve_scope_sees_no_inbox_and_no_error(open_page: OpenPage, served: Any) -> None:
    """What a key may not do is not on the page."""
    seen = await open_page(key=await served.key('run'))
    await expect(seen.page.locator('.welcome')).to_be_visible()

    await expect(seen.page.locator('#to-inbox')).to_have_count(0)
    await expect(seen.page.locator('#problem')).to_have_count(0)
    assert seen.problems == []


async def test_changed_protected_files_are_shown_below_the_dialogue(
    browser: Browser, serve: Any, listen: Any, script: Script, tmp_path: Path
) -> None:
    """They are listed below the dialogue and among the changes of the version, because no diff contains `.git/config`. Invisible
    characters of names are escaped."""

    def open_files(owner: str, id: str) -> LocalBackend:
        return LocalBackend(tmp_path)

    def sneak() -> str:
        (tmp_path / '.git').mkdir()
        (tmp_path / '.git' / 'config').write_text('evil')
        (tmp_path / 'a\u202eb').mkdir()
        (tmp_path / 'a\u202eb' / '.envrc').write_bytes(b'\xff\0')
        return 'ok'

    agents = {'plain': create_deep_agent(ScriptedModel(then=script), tools=[sneak])}
    async with (
        serve(agents, make_backend=open_files) as served,
        served.client(key := await served.key('run')) as client,
        listen(served.app) as url,
    ):
        script.next = [call('sneak')]
        path = (await client.post('/api/conversations', json={'agent': 'plain'})).headers['location']
        with pytest.warns(ProtectedFilesWarning):
            await client.post(f'{path}/turns', json={'prompt': 'go'})
        page = await browser.new_page()
        await page.goto(f'{url}/#key={key}')
        await page.click('#conversations a')
        told = page.locator('.talk .protected')
        names = ['/.git/config (added)', '/a\\u202eb/.envrc (added)']
        await expect(told.locator('li')).to_have_text(names)
        await expect(told).to_contain_text('This turn changed files that programs of this machine run or obey')
        await page.click('#to-versions')
        await page.click('[role=tab]:text-is("Changes")')
        await expect(page.locator('.changes .protected li')).to_have_text(names)
        await expect(page.locator('.changes > p')).to_have_text(
            '/a\\u202eb/.envrc (added): not a text in UTF-8, or more than 1 MB.'
        )
        await page.click('.views a >> nth=0')
        script.next = 'Nothing.'
        await page.fill('#prompt', 'more')
        await page.press('#prompt', 'Enter')
        await expect(page.locator('#dialogue .markdown').last).to_have_text('Nothing.')
        await expect(told.locator('li')).to_have_count(0)


HIDDEN = 'a\u202eb\u200bc\U000e0041d\ufe0fe\x07f\xadg'
"""Invisible characters: a direction override, a zero-width space, a tag, a variation selector, a bell and a soft
hyphen."""

SHOWN_HIDDEN = visible(HIDDEN)

HIDES = r"""() => {
    const hidden = /[^\P{C}\n\t]|\p{Default_Ignorable_Code_Point}|[\u2800\u2028\u2029]/u;
    const found = [];
    for (const each of document.querySelectorAll('body, body *')) {
        const texts = [...each.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE).map((node) => node.data);
        for (const name of ['title', 'aria-label', 'placeholder', 'alt', 'download']) texts.push(each.getAttribute(name) ?? '');
        if (['TEXTAREA', 'INPUT'].includes(each.tagName)) texts.push(each.value);
        found.push(...texts.filter((text) => hidden.test(text)));
    }
    return found;
}"""
"""Returns the texts and visible attributes of the page that contain invisible characters."""


async def test_page_escapes_the_same_characters_as_the_server(open_page: OpenPage) -> None:
    """The page, the terminal and approvals use one list. This test compares it for all characters of Unicode."""
    page = (await open_inbox(open_page)).page
    digest = """async ([ranges, name]) => {
        const { split } = await import('/static/text.js');
        const unseen = await import('/static/unseen.js');
        let every = '';
        for (const [first, end] of ranges) for (let code = first; code < end; code += 1) every += String.fromCodePoint(code);
        const bytes = new TextEncoder().encode(split(every, unseen[name]).join('\\0'));
        return [...new Uint8Array(await crypto.subtle.digest('SHA-256', bytes))];
    }"""
    # In JavaScript, a high surrogate before a low one would form one character.
    ranges = [(0xDC00, 0xE000), (0, 0xDC00), (0xE000, sys.maxunicode + 1)]
    every = ''.join(chr(code) for first, end in ranges for code in range(first, end))
    for name, one_line in (('IN_LINE', True), ('IN_LINES', False)):
        written = '\0'.join(escape(every, one_line=one_line))
        assert bytes(await page.evaluate(digest, [ranges, name])) == hashlib.sha256(written.encode()).digest()
        ranges, every = [(0, 0x100)], every[0x400:0x500]  # the lists for lines differ only within this range


async def test_page_contains_no_invisible_characters(
    open_page: OpenPage, client: httpx.AsyncClient, script: Script
) -> None:
    """Checks titles, prompts, streamed and stored answers, calls, results, todos, files, diffs, merge conflicts, errors
    and dialogs: invisible characters are escaped, and none is missing."""
    seen = await open_page()
    page = seen.page
    name = f'/{HIDDEN} x  y.txt'.replace('\x07', '')  # paths have no control characters

    async def say(*told: Any) -> None:
        script.next = list(told)
        await expect(page.locator('#graph')).to_have_count(0)  # turns are counted where they are shown
        before = await seen.turns.count()
        await page.evaluate(
            """(text) => {
            document.getElementById('prompt').value = text;
            document.getElementById('say').requestSubmit();
        }""",
            f'go {HIDDEN}',
        )
        await expect(seen.turns).to_have_count(before + 1)
        await expect(page.locator('#dialogue > [data-live]')).to_have_count(0)

    await page.click('.choice:has-text("bold")')
    todos = [{'content': f'{HIDDEN}\nmore', 'status': 'pending'}]
    await say(
        f'Well: {HIDDEN}\n',
        call('write_todos', todos=todos),
        call('write_file', path=name, content=f'\ufeff{HIDDEN}\r\n'),
        call(f'odd{HIDDEN}', what=HIDDEN),
    )
    await expect(seen.turns.first.locator('.bubble')).to_have_text(f'go {SHOWN_HIDDEN}')
    await expect(seen.turns.first.locator('.markdown').first).to_have_text(f'Well: {SHOWN_HIDDEN}')
    await expect(seen.calls.nth(1)).to_contain_text(visible(name, one_line=True), use_inner_text=True)
    await expect(seen.calls.nth(2)).to_contain_text(f'odd{SHOWN_HIDDEN}')
    assert await page.locator('#todos .what').all_text_contents() == [f'{SHOWN_HIDDEN}\nmore']
    await expect(page.locator('#conversations a').first).to_contain_text(f'go {SHOWN_HIDDEN}')
    file = page.locator('#files .file')
    await expect(file).to_have_text(visible(name), use_inner_text=True)  # double spaces are preserved
    for at in range(3):
        await seen.calls.nth(at).click()
    assert await page.evaluate(HIDES) == []

    await file.click()
    await expect(page.locator('dialog pre')).to_have_text(f'\\ufeff{SHOWN_HIDDEN}\\r\n')
    await expect(page.locator('dialog h2')).to_have_text(visible(name), use_inner_text=True)
    assert await page.evaluate(HIDES) == []
    await page.keyboard.press('Escape')

    await say(call('write_file', path=name, content='mine'))
    await seen.show_versions()
    await expect(seen.versions.first).to_have_text(f'go {SHOWN_HIDDEN}')
    await page.click('#graph .version >> nth=1')
    await page.click('text=Rewind to here')
    await expect(page.locator('#graph .version >> nth=1')).to_contain_text('current')
    assert await page.evaluate(HIDES) == []
    await page.click('.views a >> nth=0')
    await say(call('write_file', path=name, content='yours'))
    await seen.show_versions()
    await page.click('#graph .version >> nth=1')
    await page.click('text=Merge into current')
    await expect(page.locator('dialog legend')).to_contain_text(visible(name))
    assert await page.evaluate(HIDES) == []
    await page.keyboard.press('Escape')

    [approval] = (await ask(client, script, call('write_file', path=name, content=HIDDEN)))['approvals']
    await page.click('#to-inbox')
    await card_of(page, approval).get_by_role('button', name='Edit').click()
    field = page.locator('.answer-form textarea').last
    await expect(field).to_have_value(json.dumps(HIDDEN).replace('\\u2764', '\u2764'))
    assert await page.evaluate(HIDES) == []
    await field.fill(HIDDEN)
    await page.click('.answer-form button[type=submit]')
    await expect(page.locator('#problem')).to_contain_text(
        f"“content” is not valid JSON: Unexpected token 'a', \"{SHOWN_HIDDEN[:20]}"
    )
    await field.evaluate("(field) => { field.value = ''; }")  # typed by the user, so not escaped
    assert await page.evaluate(HIDES) == []


CORPUS = [
    '<script>window.ran = 1</script>', '<img src=x onerror="window.ran = 1">', '<svg onload="window.ran = 1"></svg>',
    '<iframe srcdoc="<script>parent.ran = 1</script>"></iframe>', '"><script>window.ran = 1</script>',
    "'-(window.ran=1)-'", '${window.ran = 1}', '{{constructor.constructor("window.ran=1")()}}',
    '[a](javascript:window.ran=1)', '[a](&#106;avascript:window.ran=1)', '[a](  javascript:window.ran=1)',
    '[a](java\nscript:window.ran=1)', '[a](data:text/html,<script>window.ran=1</script>)', '[a](vbscript:x)',
    '![a](x" onerror="window.ran=1)', '![a](javascript:window.ran=1)', '<javascript:window.ran=1>',
    '[a]: javascript:window.ran=1\n\n[a]', '<a href="javascript:window.ran=1">x</a>', '`<img src=x onerror=window.ran=1>`',
    '```html\n<img src=x onerror=window.ran=1>\n```', '~~~"><script>window.ran=1</script>\nx\n~~~',
    '| <img src=x onerror=window.ran=1> | b |\n|---|---|\n| [a](javascript:window.ran=1) | c |',
    '<style>@import "https://example.com/x.css"; body { display: none }</style>', '<base href="https://example.com/">',
    '<form action="https://example.com/"><button>Send</button></form>', '<details open ontoggle="window.ran=1">x</details>',
    '<math><mtext><table><mglyph><style><img src=x onerror=window.ran=1>', '<noscript><p title="</noscript><img src=x onerror=window.ran=1>">',
    '&lt;script&gt;window.ran = 1&lt;/script&gt;', '<meta http-equiv="refresh" content="0;url=https://example.com/">',
    '![a](https://example.com/leak.png?q=secret)', '[![a](https://example.com/b.png)](https://example.com/)',
]  # fmt: skip
"""Attempts to run a script, to load something from elsewhere, or to change the page."""

FOREIGN = """() => ({
    ran: window.ran ?? null,
    elements: [...document.querySelectorAll('#page script, #page style, #page iframe, #page form[action], #page base, #page img:not(.brand img)')].length,
    handlers: [...document.querySelectorAll('#page *')].flatMap((each) => each.getAttributeNames()).filter((name) => name.startsWith('on')),
    links: [...document.querySelectorAll('#page a')].map((each) => each.protocol).filter((each) => !['http:', 'https:', 'mailto:'].includes(each)),
})"""


async def test_nothing_of_foreign_text_runs(open_page: OpenPage, client: httpx.AsyncClient, script: Script) -> None:
    """Prompts, answers in Markdown, file names, contents, todos, arguments and results are text, wherever they are shown:
    no script runs, nothing is loaded from elsewhere, no link leads to a script."""
    seen = await open_page()
    page = seen.page
    await page.click('.choice:has-text("bold")')
    whole = '\n\n'.join(CORPUS)
    script.next = [
        whole,
        call('write_todos', todos=[{'content': text.replace('\n', ' '), 'status': 'pending'} for text in CORPUS[:9]]),
        *(
            call('write_file', path='/' + text.replace('/', '|').replace('\n', ' '), content=text)
            for text in CORPUS[:6]
        ),
        call('odd', first=CORPUS[0], second=CORPUS[1], other={CORPUS[2]: CORPUS[3]}),
    ]
    await seen.send(CORPUS[1])
    await expect(seen.turns.last.locator('.answer > :last-child')).to_have_text('Done.')
    await expect(page.locator('#dialogue > [data-live]')).to_have_count(0)
    nothing: dict[str, Any] = {'ran': None, 'elements': 0, 'handlers': [], 'links': []}
    for at in range(await seen.calls.count()):
        await seen.calls.nth(at).click()
    assert await page.evaluate(FOREIGN) == nothing
    await page.click('#files .file >> nth=0')
    await expect(page.locator('dialog pre')).to_be_visible()
    assert await page.evaluate(FOREIGN) == nothing
    await page.keyboard.press('Escape')
    await seen.show_versions()
    await page.click('[role=tab]:text-is("Changes")')
    await expect(page.locator('.diff')).to_have_count(6)
    assert await page.evaluate(FOREIGN) == nothing
    await ask(client, script, call('write_file', path='/' + CORPUS[1], content=whole))
    await page.click('#to-inbox')
    await expect(page.locator('.card .diff')).to_be_visible()
    assert await page.evaluate(FOREIGN) == nothing
    assert seen.problems == []


async def test_binary_or_large_file_is_not_shown(
    open_page: OpenPage, client: httpx.AsyncClient, script: Script
) -> None:
    """Binary bytes would be shown as other ones, and a text of many megabytes would block the page."""
    path = (await client.post('/api/conversations', json={'agent': 'bold'})).headers['location']
    for name, content in (('a.bin', b'a\xff\0'), ('b.txt', b'a' * 1_000_001)):
        assert (await client.put(f'{path}/uploads/{name}', content=content)).status_code == 201
    page = (await open_page(at=f'#/c/{path.split("/")[-1]}')).page
    for place, told in enumerate(('Not a text in UTF-8.', 'More than 1 MB: download the files to read it.')):
        await page.locator('#files .file').nth(place).click()
        await expect(page.locator('dialog p')).to_have_text(told)
        await page.keyboard.press('Escape')


async def test_conversation_title_is_cut_between_characters(open_page: OpenPage, script: Script) -> None:
    """The first 60 characters of the prompt are the title. No emoji is cut in two."""
    seen = await open_page()
    await seen.page.click('.choice:has-text("bold")')
    await seen.say('x' * 59 + '👩👩', until='Nothing.')
    await expect(seen.page.locator('#conversations .name')).to_have_text('x' * 59 + '👩')


async def test_long_call_is_shown_from_its_beginning(open_page: OpenPage, script: Script) -> None:
    """A person sees which call a button approves: the dialogue does not jump to the end of a long one."""
    seen = await open_page()
    script.next = [call('write_file', path='/long.txt', content='line\n' * 300)]
    await seen.page.click('.choice:has-text("careful")')
    await seen.send('go')
    await expect(seen.page.locator('.pending .card header')).to_be_in_viewport()
    await expect(seen.page.locator('.pending [data-act=approve]')).not_to_be_in_viewport()
    await seen.press('a')
    await expect(seen.page.locator('.pending .card header')).to_be_in_viewport()


async def test_prompt_for_a_turn_with_pending_calls_is_not_lost(open_page: OpenPage, script: Script) -> None:
    """A prompt is refused in words for people while calls are pending, and stays in the composer."""
    seen = await open_page()
    script.next = [call('write_file', path='/a.txt', content='a\n')]
    await seen.page.click('.choice:has-text("careful")')
    await seen.send('go')
    await expect(seen.page.locator('.pending [data-act=approve]:enabled')).to_be_visible()
    await seen.send('and then?')
    await expect(seen.page.locator('#problem')).to_have_text(
        'Calls of the last turn wait for a decision. Answer them first, or edit an earlier prompt.'
    )
    await expect(seen.page.locator('#prompt')).to_have_value('and then?')
