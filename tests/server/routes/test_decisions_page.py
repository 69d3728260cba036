"""Approvals on the web page in Chromium: the whole call is shown, and only the shown call is answered."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest
from playwright.async_api import Browser, Locator, Page, async_playwright, expect
from pydantic_ai import Tool
from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import LocalBackend, create_deep_agent
from pydantic_deep._text.escapes import escape, visible
from pydantic_deep.server import AnyAgent
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.versions import ProtectedFilesWarning

CHROMIUM = shutil.which('chromium')

expect.set_options(timeout=60_000)  # the default of five seconds can be too short on a busy machine

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason='Chromium is missing: see scripts/install-chromium.sh'),
]

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


class Script:
    """A model with a settable next response."""

    def __init__(self) -> None:
        self.next: Any = 'Nothing.'

    def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> Any:
        last = messages[-1]
        assert isinstance(last, ModelRequest)
        is_new = any(isinstance(part, UserPromptPart) for part in last.parts)
        return self.next if is_new else 'Done.'


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def agents(script: Script) -> Mapping[str, AnyAgent]:
    gated = {'write_file': True, 'edit_file': True}
    tools = [Tool(odd, requires_approval=True)]
    return {
        'careful': create_deep_agent(ScriptedModel(then=script), interrupt_on=gated, tools=tools),
        'bold': create_deep_agent(ScriptedModel(then=script)),
    }


@pytest.fixture
async def browser() -> AsyncGenerator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=['--no-sandbox'])
        yield browser
        await browser.close()


OpenPage: TypeAlias = Callable[[], Awaitable[Page]]


@pytest.fixture
async def client(make_client: Any) -> httpx.AsyncClient:
    return await make_client('run', 'approve')


@pytest.fixture
async def open_page(browser: Browser, served: Any, listen: Any) -> AsyncGenerator[OpenPage]:
    """Return a function that opens the page. The fixture fails on JavaScript errors."""
    problems: list[str] = []
    async with listen(served.app) as url:

        async def open_page() -> Page:
            page = await browser.new_page()
            page.set_default_timeout(60_000)
            page.on('pageerror', lambda error: problems.append(str(error)))
            await page.goto(f'{url}/#key={await served.key("run", "approve")}')
            return page

        yield open_page
        for context in browser.contexts:
            await context.close()
    assert problems == []


async def ask(client: httpx.AsyncClient, script: Script, *calls: Any, agent: str = 'careful') -> dict[str, Any]:
    """Make an agent call tools in a new conversation, and return the run."""
    script.next = list(calls)
    path = (await client.post('/api/conversations', json={'agent': agent})).headers['location']
    run = (await client.post(f'{path}/turns', json={'prompt': 'go'})).json()
    return run | {'path': path}


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
    page = await open_page()
    for seed in range(3):
        await decide_round(page, client, script, random.Random(seed), 30)


async def test_card_contains_every_character_of_large_arguments(
    open_page: OpenPage, client: httpx.AsyncClient, script: Script
) -> None:
    """The same for many contents, 10,000 lines and lines of 100 kB."""
    page = await open_page()
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
    """`What changed` and `Compare with head` show the same lines, including those that resemble diff headers."""
    rng = random.Random(size)
    texts = [text_of(rng, size), text_of(rng, size)]
    script.next = [call('write_file', path='/a.txt', content=texts[0])]
    path = (await client.post('/api/conversations', json={'agent': 'bold'})).headers['location']
    await client.post(f'{path}/turns', json={'prompt': 'one'})
    script.next = [call('write_file', path='/a.txt', content=texts[1])]
    await client.post(f'{path}/turns', json={'prompt': 'two'})
    page = await open_page()
    for version, button in (('two', 'What changed'), ('one', 'Compare with head')):
        await page.click(f'#graph .version:has-text("{version}")')
        await page.click(f'text={button}')
        await expect(page.locator('#difference .diff')).to_be_visible()
        sides = """(root) => [1, 3].map((at) => [...root.querySelectorAll('tr:not(.hunk)')]
            .filter((row) => row.children[at - 1].textContent !== '').map((row) => row.children[at].textContent))"""
        before, after = await page.locator('#difference .diff').evaluate(sides)
        assert ['', *visible(texts[0].removesuffix('\n')).split('\n')][-len(before) :] == before
        assert ['', *visible(texts[1].removesuffix('\n')).split('\n')][-len(after) :] == after
        assert len(before) + len(after) > size
        await page.click('#shown button')


async def test_keys_do_nothing_without_a_focused_card(
    open_page: OpenPage, client: httpx.AsyncClient, script: Script
) -> None:
    """Keys act only on a focused card."""
    run = await ask(client, script, call('write_file', path='/a.txt', content='a'))
    page = await open_page()
    await expect(card_of(page, run['approvals'][0])).to_be_visible()
    await page.evaluate('document.activeElement.blur()')

    for key in 'yne':
        await page.keyboard.press(key)
    await expect(page.locator('#problem')).to_contain_text('No call is focused')
    assert await page.locator('dialog[open]').count() == 0
    assert [each['id'] for each in (await client.get('/api/approvals')).json()['items']] == [run['approvals'][0]['id']]


async def test_new_card_does_not_move_or_blur_existing_cards(
    open_page: OpenPage, client: httpx.AsyncClient, script: Script
) -> None:
    """Focus is restored by id when the list is rebuilt. New cards are appended, and the place of an answered card stays
    empty."""
    first = (await ask(client, script, call('write_file', path='/first.txt', content='1')))['approvals'][0]
    page = await open_page()
    await expect(card_of(page, first)).to_be_visible()
    await page.keyboard.press('c')  # starts a new conversation; the pending approval can only be answered
    await page.evaluate('document.activeElement.blur()')
    await page.keyboard.press('a')
    await expect(card_of(page, first)).to_be_focused()
    place = await card_of(page, first).bounding_box()

    second = (await ask(client, script, call('write_file', path='/second.txt', content='2')))['approvals'][0]
    script.next = 'Nothing.'
    await page.evaluate("document.getElementById('prompt').value = 'hello'")
    await page.evaluate("document.getElementById('say').requestSubmit()")  # the list is rebuilt at the end of the run
    await expect(card_of(page, second)).to_be_visible()
    await expect(card_of(page, first)).to_be_focused()
    assert await card_of(page, first).bounding_box() == place
    assert await page.evaluate("[...document.querySelectorAll('[data-approval]')].map((each) => each.dataset.approval)") == [
        first['id'], second['id']
    ]  # fmt: skip

    await page.keyboard.press('y')
    await expect(page.locator('#approvals .settled')).to_contain_text('Answered: approved.')
    await page.keyboard.press('y')
    await page.keyboard.press('y')
    box = await page.locator('#approvals .settled .main').bounding_box()
    assert box is not None
    await page.mouse.dblclick(box['x'] + 5, box['y'] + 5)  # no other card has moved under the pointer
    waiting = (await client.get('/api/approvals')).json()['items']
    assert [each['id'] for each in waiting] == [second['id']]
    await page.keyboard.press('j')
    await expect(card_of(page, second)).to_be_focused()
    await expect(page.locator('#approvals .settled')).to_have_count(0)


async def test_key_approves_a_long_call_only_when_scrolled_to_its_end(
    open_page: OpenPage, client: httpx.AsyncClient, script: Script
) -> None:
    """If the card continues below the screen, the key scrolls down and a message explains it."""
    content = ''.join(f'line {number}\n' for number in range(60))
    approval = (await ask(client, script, call('write_file', path='/a.txt', content=content)))['approvals'][0]
    page = await open_page()
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
    page = await open_page()
    card = card_of(page, approval)
    await expect(card).to_have_attribute('data-digest', approval['view']['digest'])
    await card.evaluate("(card) => { card.dataset.digest = '0'.repeat(64); }")
    await card.get_by_role('button', name='Approve').click()
    await expect(page.locator('#problem')).to_contain_text('has changed since it was shown')
    assert [each['status'] for each in (await client.get('/api/approvals')).json()['items']] == ['pending']


async def test_arguments_are_edited_as_json_with_escaped_characters(
    open_page: OpenPage, client: httpx.AsyncClient, script: Script
) -> None:
    args: dict[str, Any] = {'first': 'a\u202eb\x00é', 'second': '\U000e0041 \u3000', 'other': {}}
    approval = (await ask(client, script, call('odd', **args)))['approvals'][0]
    page = await open_page()
    await card_of(page, approval).get_by_role('button', name='Edit').click()
    text = await page.input_value('#asked textarea')
    assert json.loads(text) == args
    assert visible(text) == text
    assert 'é' in text


async def test_edit_preserves_numbers_that_were_not_changed(
    open_page: OpenPage, client: httpx.AsyncClient, script: Script
) -> None:
    """Numbers outside the range of JavaScript have their original text in the form and in the call."""
    other = {'big': 12345678901234567890, 'real': 1.0, 'small': 5e-324, 'long': 0.1, 'deep': [{'x': 2**70}]}
    approval = (await ask(client, script, call('odd', first='a', second='b', other=other)))['approvals'][0]
    page = await open_page()
    await card_of(page, approval).get_by_role('button', name='Edit').click()
    text = await page.input_value('#asked textarea')
    assert json.loads(text)['other'] == other
    await page.fill('#asked textarea', text.replace('"b"', '"c"'))
    script.next = 'Edited.'  # the model receives the edit
    await page.click('#asked button[value=yes]')
    await expect(page.locator('#approvals .settled')).to_contain_text('Answered: edited.')
    await expect(page.locator('#dialogue > li').last).to_have_text('Edited.')
    # The run emits the call again; the page still shows it once.
    assert await page.locator('#dialogue .call').count() == 1
    call_shown, result_shown = await page.locator('#dialogue .call pre').all_text_contents()
    assert json.loads(call_shown)['other'] == other
    assert result_shown == f'ac{other}'


async def test_changed_protected_files_are_shown_beside_the_dialogue(
    browser: Browser, serve: Any, listen: Any, script: Script, tmp_path: Path
) -> None:
    """They are listed beside the dialogue and under `What changed`, because no diff contains `.git/config`. Invisible
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
        told = page.locator('#protected')
        names = ['/.git/config (added)', '/a\\u202eb/.envrc (added)']
        await expect(told.locator('li')).to_have_text(names)
        await expect(told).to_contain_text('This turn changed files that programs of this machine run or obey')
        await page.click('#graph .version:has-text("go")')
        await page.click('text=What changed')
        await expect(page.locator('#difference .protected li')).to_have_text(names)
        await expect(page.locator('#difference > p').nth(1)).to_have_text(
            '/a\\u202eb/.envrc (added): not a text in UTF-8, or more than 1 MB.'
        )
        await page.click('#shown button')
        script.next = 'Nothing.'
        await page.fill('#prompt', 'more')
        await page.press('#prompt', 'Control+Enter')
        await expect(page.locator('#graph .version:has-text("more")')).to_be_visible()
        await expect(told.locator('li')).to_have_count(0)


HIDDEN = 'a\u202eb\u200bc\U000e0041d\u2764\ufe0fe\x07f\xadg'
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
    page = await open_page()
    digest = """async ([ranges, name]) => {
        const { split } = await import('/static/elements.js');
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


@pytest.mark.slow
async def test_page_contains_no_invisible_characters(
    open_page: OpenPage, client: httpx.AsyncClient, script: Script
) -> None:
    """Checks titles, prompts, streamed and stored answers, calls, results, todos, files, diffs, merge conflicts, errors
    and dialogs: invisible characters are escaped, and none is missing."""
    page = await open_page()
    name = f'/{HIDDEN} x  y.txt'.replace('\x07', '')  # paths have no control characters

    async def say(*told: Any) -> None:
        script.next = list(told)
        count = await page.locator('#graph .version').count()
        await page.evaluate('(text) => { document.getElementById("prompt").value = text; }', f'go {HIDDEN}')
        await page.evaluate('document.getElementById("say").requestSubmit()')
        await expect(page.locator('#graph .version')).to_have_count(count + 1 if count else 2)

    await page.select_option('#agents', 'bold')
    todos = [{'content': f'{HIDDEN}\nmore', 'status': 'pending'}]
    await say(
        f'Well: {HIDDEN}\n',
        call('write_todos', todos=todos),
        call('write_file', path=name, content=f'\ufeff{HIDDEN}\r\n'),
        call(f'odd{HIDDEN}', what=HIDDEN),
    )
    said = await page.locator('#dialogue > li').all_text_contents()
    assert said[:2] == [f'go {SHOWN_HIDDEN}', f'Well: {SHOWN_HIDDEN}\n']
    assert visible(name, one_line=True) in said[3]
    assert said[4].startswith(f'odd{SHOWN_HIDDEN} ')
    assert await page.locator('#todos li').all_text_contents() == [f'{SHOWN_HIDDEN}\\nmore']
    await expect(page.locator('#conversations button').first).to_contain_text(f'go {SHOWN_HIDDEN}')
    await expect(page.locator('#graph .version').first).to_contain_text(f'go {SHOWN_HIDDEN}')
    file = page.locator('#files button')
    await expect(file).to_have_text(visible(name), use_inner_text=True)  # double spaces are preserved
    assert await page.evaluate(HIDES) == []

    await file.click()
    await expect(page.locator('#difference pre')).to_have_text(f'\\ufeff{SHOWN_HIDDEN}\\r\n')
    await expect(page.locator('#difference h2')).to_have_text(visible(name), use_inner_text=True)
    assert await page.evaluate(HIDES) == []
    await page.click('#shown button')

    await say(call('write_file', path=name, content='mine'))
    await page.click('#graph .version >> nth=1')
    await page.click('text=Rewind to here')
    await expect(page.locator('#graph .version >> nth=1')).to_contain_text('head')
    await say(call('write_file', path=name, content='yours'))
    await page.click('#graph .version >> nth=1')
    await page.click('text=Merge into head')
    await expect(page.locator('#difference li')).to_contain_text(visible(name))
    assert await page.evaluate(HIDES) == []
    await page.click('#shown button')

    [approval] = (await ask(client, script, call('write_file', path=name, content=HIDDEN)))['approvals']
    await page.reload()
    await card_of(page, approval).get_by_role('button', name='Edit').click()
    assert visible(await page.input_value('#asked textarea')) == await page.input_value('#asked textarea')
    assert await page.evaluate(HIDES) == []
    await page.fill('#asked textarea', HIDDEN)
    await page.click('#asked button[value=yes]')
    await expect(page.locator('#problem')).to_contain_text(f"Invalid JSON: Unexpected token 'a', \"{SHOWN_HIDDEN[:20]}")
    await page.evaluate("document.querySelector('#asked textarea').value = ''")  # typed by the user, so not escaped
    assert await page.evaluate(HIDES) == []


@pytest.mark.slow
async def test_binary_or_large_file_is_not_shown(
    open_page: OpenPage, client: httpx.AsyncClient, script: Script
) -> None:
    """Binary bytes would be shown as other ones, and a text of many megabytes would block the page."""
    path = (await client.post('/api/conversations', json={'agent': 'bold'})).headers['location']
    for name, content in (('a.bin', b'a\xff\0'), ('b.txt', b'a' * 1_000_001)):
        assert (await client.put(f'{path}/uploads/{name}', content=content)).status_code == 201
    page = await open_page()
    for place, told in enumerate(('Not a text in UTF-8.', 'More than 1 MB: download the files to read it.')):
        await page.locator('#files button').nth(place).click()
        await expect(page.locator('#difference p')).to_have_text(told)
        await page.click('#shown button')


@pytest.mark.slow
async def test_conversation_title_is_cut_between_characters(open_page: OpenPage, script: Script) -> None:
    script.next = 'Nothing.'
    page = await open_page()
    await page.select_option('#agents', 'bold')
    await page.fill('#prompt', 'x' * 59 + '👩👩\nmore')
    await page.press('#prompt', 'Control+Enter')
    await expect(page.locator('#graph .version').first).to_contain_text('x' * 59 + '👩👩 …')
    await expect(page.locator('#conversations button')).to_contain_text('x' * 59 + '👩')
