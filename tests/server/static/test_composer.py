"""The composer on the page: keys, attachments, and changed prompts, which are branches."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.server.conftest import Served
from tests.server.static.conftest import OpenPage, page_marks

pytestmark = page_marks

PUT = """async ([kind, name, text]) => {
    const data = new DataTransfer();
    data.items.add(new File([text], name, { type: name.endsWith('.png') ? 'image/png' : 'text/plain' }));
    const event = kind === 'drop' ? new DragEvent('drop', { bubbles: true, cancelable: true, dataTransfer: data })
        : new ClipboardEvent('paste', { bubbles: true, cancelable: true, clipboardData: data });
    document.getElementById('prompt').dispatchEvent(event);
}"""
"""Drops or pastes a file."""

DRAG = """([event, place, kind]) => {
    const data = new DataTransfer();
    if (kind === 'Files') data.items.add(new File(['a'], 'a.txt'));
    else data.setData(kind, 'a');
    const init = { bubbles: true, cancelable: true, dataTransfer: data };
    return !document.querySelector(place).dispatchEvent(new DragEvent(event, init));
}"""
"""Drags or drops a file or a text, and returns whether the page keeps the browser from opening it."""


async def test_enter_sends_and_shift_enter_starts_a_line(open_page: OpenPage):
    """Enter sends the prompt; Shift+Enter is a line break."""
    seen = await open_page()
    await seen.page.fill('#prompt', 'one')
    await seen.page.press('#prompt', 'Shift+Enter')
    await seen.page.type('#prompt', 'two')
    await expect(seen.page.locator('#prompt')).to_have_value('one\ntwo')
    await seen.page.press('#prompt', 'Enter')

    await expect(seen.turns.last.locator('.bubble')).to_have_text('one\ntwo')
    await expect(seen.page.locator('#prompt')).to_have_value('')


async def test_file_that_cannot_be_read_is_explained(open_page: OpenPage, tmp_path: Path):
    """The prompt is not sent without a file that was removed since it was attached."""
    seen = await open_page()
    path = tmp_path / 'sales.csv'
    path.write_text('1,2')
    await seen.page.set_input_files('input[type=file]', path)
    path.unlink()
    await seen.send('Read it')
    await expect(seen.page.locator('#problem')).to_have_text(
        'sales.csv cannot be read: it is a folder, or was changed or removed. Attach it again.'
    )
    await expect(seen.page.locator('#prompt')).to_have_value('Read it')
    await expect(seen.page.locator('.attached li')).to_have_count(1)


COMPOSE = """(field, key) => {
    for (const given of [{ isComposing: true }, { keyCode: 229 }]) {
        field.dispatchEvent(new KeyboardEvent('keydown', { key, ...given, bubbles: true, cancelable: true }));
    }
}"""
"""Presses a key while a character is composed: in most browsers, and in Safari, which ends the composition first."""


async def test_enter_that_ends_a_composition_sends_nothing(open_page: OpenPage):
    """In Chinese, Japanese and Korean, Enter chooses a character while a person composes it."""
    seen = await open_page()
    await seen.page.fill('#prompt', '日本')
    await seen.page.locator('#prompt').evaluate(COMPOSE, 'Enter')

    await expect(seen.page.locator('#prompt')).to_have_value('日本')
    await expect(seen.page.locator('.welcome')).to_be_visible()


async def test_prompt_of_a_new_branch_has_the_keys_of_the_composer(open_page: OpenPage):
    """Enter sends, Shift+Enter starts a line, Escape closes the field, and neither ends a composition. The same holds for a
    prompt that is changed in the dialogue."""
    seen = await open_page()
    await seen.say('first', until='You said: first')
    await seen.show_versions()
    await seen.page.click('text=Branch from here')
    field = seen.page.get_by_label('Prompt of the new branch')
    await expect(field).to_be_focused()
    await seen.page.keyboard.press('Escape')
    await expect(field).to_have_count(0)
    await seen.page.click('text=Branch from here')
    await seen.page.keyboard.press('Enter')  # an empty prompt is not sent
    await seen.page.keyboard.type('日本')
    await field.evaluate(COMPOSE, 'Enter')
    await field.evaluate(COMPOSE, 'Escape')
    await seen.page.keyboard.press('Shift+Enter')
    await seen.page.keyboard.type('more')
    await expect(field).to_have_value('日本\nmore')
    await seen.page.keyboard.press('Enter')
    await expect(seen.turns.last.locator('.bubble')).to_have_text('日本\nmore')
    await expect(seen.page.locator('#dialogue > [data-live]')).to_have_count(0)

    await seen.turns.last.hover()
    await seen.turns.last.get_by_role('button', name='Edit').click()
    field = seen.page.get_by_label('Change the prompt')
    await field.evaluate(COMPOSE, 'Escape')
    await field.evaluate(COMPOSE, 'Enter')
    await expect(field).to_have_value('日本\nmore')
    assert seen.problems == []


async def test_fields_of_one_line_are_submitted_by_enter(open_page: OpenPage):
    """Enter gives a conversation its new name, and Escape leaves it as it was. Enter searches at once."""
    seen = await open_page()
    await seen.say('first', until='You said: first')
    title = seen.page.locator('.bar .title')
    for key, name in (('Escape', 'first'), ('Enter', 'Letters')):
        await title.click()
        await seen.page.fill('dialog input', 'Letters')
        await seen.page.keyboard.press(key)
        await expect(title).to_have_text(name)
        await expect(seen.page.locator('dialog')).to_have_count(0)

    search = seen.page.get_by_label('Search conversations')
    await search.fill('nowhere')
    await expect(seen.page.locator('#conversations a')).to_have_count(0)
    requests: list[str] = []
    seen.page.on('request', lambda request: requests.append(request.url))
    await search.evaluate(COMPOSE, 'Enter')
    await search.press('Enter')
    await expect(seen.page.locator('#conversations a')).to_have_count(0)
    assert [url for url in requests if 'search=nowhere' in url] != []
    await search.press('Escape')
    await expect(seen.page.locator('#conversations a')).to_have_count(1)


async def test_double_submit_sends_one_prompt(open_page: OpenPage, served: Served):
    """Pressing Enter twice sends one prompt."""
    seen = await open_page()
    await seen.page.fill('#prompt', 'Hello')
    await seen.page.evaluate("for (let i = 0; i < 2; i += 1) document.getElementById('say').requestSubmit()")

    await expect(seen.turns.last.locator('.markdown')).to_have_text('You said: Hello')
    await expect(seen.page.locator('#dialogue > [data-live]')).to_have_count(0)
    await expect(seen.turns).to_have_count(1)
    assert len(await served.store.conversations()) == 1


async def test_files_are_attached_by_button_drop_and_paste(open_page: OpenPage, served: Served):
    """Attached files are named in the composer, can be removed, and become uploads of the turn, which names all of them."""
    seen = await open_page()
    chips = seen.page.locator('.attached .chip')
    await seen.page.set_input_files('input[type=file]', {'name': 'a.csv', 'mimeType': 'text/csv', 'buffer': b'1,2\n'})
    await seen.page.evaluate(PUT, ['drop', 'b.txt', 'dropped'])
    await seen.page.evaluate(PUT, ['paste', 'image.png', 'pasted'])
    await seen.page.evaluate(PUT, ['drop', 'c.txt', 'unwanted'])
    await expect(chips).to_have_count(4)
    await expect(chips.nth(0)).to_have_text('a.csv 4 B')
    await expect(chips.nth(2)).to_contain_text('pasted-')
    await seen.page.click('[aria-label="Remove c.txt"]')
    await seen.say('Read them', until='You said: Read them')

    await expect(chips).to_have_count(0)
    shown = seen.turns.last.locator('.bubble .chip')
    await expect(shown).to_have_count(3)
    await expect(shown).to_contain_text(['a.csv', 'b.txt', 'pasted-'])
    files = await seen.page.locator('#files button').all_inner_texts()
    assert [name.split('-')[0] for name in files] == ['/uploads/a.csv', '/uploads/b.txt', '/uploads/pasted']
    assert seen.problems == []


async def test_files_are_dropped_anywhere_on_the_page(open_page: OpenPage):
    """A file that misses the composer is attached, and does not replace the page, also where no composer is. A dragged text is
    dropped into the field, as without the page."""
    seen = await open_page()
    await seen.page.wait_for_selector('#say')
    assert await seen.page.evaluate(DRAG, ['dragover', 'main', 'Files'])
    await expect(seen.page.locator('#say.over')).to_be_visible()
    await seen.page.evaluate(DRAG, ['dragleave', 'main', 'Files'])
    await expect(seen.page.locator('#say.over')).to_have_count(0)
    assert await seen.page.evaluate(DRAG, ['drop', 'main', 'Files'])
    await expect(seen.page.locator('.attached .chip')).to_have_text('a.txt 1 B')
    assert not await seen.page.evaluate(DRAG, ['drop', '#prompt', 'text/plain'])
    await seen.page.click('#to-inbox')
    await expect(seen.page.locator('#say')).to_have_count(0)
    assert await seen.page.evaluate(DRAG, ['drop', 'main', 'Files'])


async def test_pasted_files_of_one_name_are_all_attached(open_page: OpenPage):
    """Browsers name each pasted image `image.png`. Of other files with the same name, the last one counts."""
    seen = await open_page()
    await seen.page.wait_for_selector('#say')
    await seen.page.evaluate(
        """() => {
            const data = new DataTransfer();
            for (const name of ['image.png', 'image.png', 'a.txt', 'a.txt']) data.items.add(new File([name], name));
            const event = new ClipboardEvent('paste', { bubbles: true, cancelable: true, clipboardData: data });
            document.getElementById('prompt').dispatchEvent(event);
        }"""
    )
    await expect(seen.page.locator('.attached .chip')).to_have_count(3)


async def test_each_conversation_keeps_its_draft(open_page: OpenPage):
    """What is written and attached in one conversation stays there, and not in the next one, until it is sent."""
    seen = await open_page()
    await seen.say('one', until='You said: one')
    prompt, chips = seen.page.locator('#prompt'), seen.page.locator('.attached .chip')
    await prompt.fill('draft of one')
    await seen.page.evaluate(PUT, ['drop', 'b.txt', 'dropped'])
    await expect(chips).to_have_count(1)
    await seen.page.click('#new')
    await expect(seen.page.locator('.welcome')).to_be_visible()
    await expect(prompt).to_have_value('')
    await expect(chips).to_have_count(0)
    await seen.say('two', until='You said: two')
    await expect(prompt).to_have_value('')
    await prompt.fill('draft of two')
    await seen.page.click('#conversations a >> text=one')
    await expect(prompt).to_have_value('draft of one')
    await expect(chips).to_have_count(1)
    await seen.show_versions()
    await seen.page.go_back()
    await seen.page.press('#prompt', 'Enter')
    await expect(seen.turns.last.locator('.markdown')).to_have_text('You said: draft of one')
    await expect(chips).to_have_count(0)
    await seen.page.click('#conversations a >> text=two')
    await expect(prompt).to_have_value('draft of two')
    await seen.page.click('#conversations a >> text=one')
    await expect(prompt).to_have_value('')


async def test_unsent_text_survives_a_reload_in_its_conversation(open_page: OpenPage):
    """What is written and not sent is there after a reload. A browser keeps no files, so the page names those that are lost.
    What is sent is not there any more."""
    seen = await open_page()
    prompt, note = seen.page.locator('#prompt'), seen.page.locator('#say .note')
    await prompt.fill('draft of a new one')
    await seen.page.reload()
    await expect(prompt).to_have_value('draft of a new one')
    await expect(note).to_have_count(0)
    await seen.say('one', until='You said: one')
    await prompt.fill('draft of one\nand more')
    await seen.page.evaluate(PUT, ['drop', 'b.txt', 'dropped'])
    await expect(seen.page.locator('.attached .chip')).to_have_count(1)
    await seen.page.reload()
    await expect(prompt).to_have_value('draft of one\nand more')
    await expect(note).to_contain_text('Attach them again: b.txt')
    await seen.page.click('#new')
    await expect(seen.page.locator('.welcome #prompt')).to_have_value('')
    await expect(note).to_have_count(0)
    await seen.page.go_back()
    await seen.page.evaluate(PUT, ['drop', 'b.txt', 'dropped'])
    await expect(note).to_have_count(0)
    await prompt.press('Enter')
    await expect(seen.turns.last.locator('.bubble')).to_contain_text('draft of one\nand more')
    await seen.page.reload()
    await expect(seen.turns).to_have_count(2)
    await expect(prompt).to_have_value('')
    assert seen.problems == []


async def test_prompt_that_the_browser_has_no_space_for_is_sent(open_page: OpenPage):
    """A browser refuses to keep texts of several megabytes. They are sent, and their turns are shown."""
    seen = await open_page()
    await seen.say('one', until='You said: one')
    await seen.page.evaluate(
        "() => { Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError'); }; }"
    )
    await seen.say('two', until='You said: two')
    assert seen.problems == []


async def test_attached_files_are_shown_while_the_turn_runs(open_page: OpenPage):
    """The files are at their prompt from the beginning of the turn, also before its end is stored."""
    seen = await open_page()
    await seen.page.wait_for_selector('#say')
    await seen.page.evaluate(PUT, ['drop', 'b.txt', 'dropped'])
    await seen.page.route('**/events?**', lambda route: route.abort())  # the page does not see the end
    await seen.send('Read it')
    await expect(seen.page.locator('[data-live=true] .bubble .chip')).to_have_text('b.txt')


async def test_refused_upload_keeps_prompt_and_files(open_page: OpenPage):
    """If an upload fails, nothing is lost: the prompt and the files stay in the composer."""
    seen = await open_page()
    refusal = {'error': {'type': 'too_large', 'message': 'The upload is too large.'}}
    await seen.page.route('**/uploads/*', lambda route: route.fulfill(status=413, json=refusal))
    await seen.page.wait_for_selector('#say')
    await seen.page.evaluate(PUT, ['drop', 'b.txt', 'dropped'])
    await seen.send('Read it')

    await expect(seen.page.locator('#problem')).to_contain_text('b.txt: The upload is too large.')
    await expect(seen.page.locator('#prompt')).to_have_value('Read it')
    await expect(seen.page.locator('.attached .chip')).to_have_count(1)


async def test_changed_prompt_is_a_branch_with_a_picker(open_page: OpenPage):
    """An earlier prompt is changed and sent again: the dialogue continues on a branch, and a picker at this prompt leads
    to the other one and back."""
    seen = await open_page()
    await seen.say('first', until='You said: first')
    await seen.say('second', until='You said: second')
    await seen.say('third', until='You said: third')

    await seen.turns.nth(1).hover()
    await seen.turns.nth(1).get_by_role('button', name='Edit').click()
    await seen.page.fill('.prompt-form textarea', 'other')
    await seen.page.press('.prompt-form textarea', 'Enter')
    await expect(seen.turns.last.locator('.markdown')).to_have_text('You said: other')
    await expect(seen.page.locator('#dialogue > [data-live]')).to_have_count(0)
    await expect(seen.turns).to_have_count(2)
    picker = seen.turns.nth(1).locator('.picker')
    await expect(picker).to_contain_text('2 / 2')

    await picker.get_by_role('button', name='Previous branch').click()
    await expect(seen.turns).to_have_count(3)
    await expect(seen.turns.last.locator('.bubble')).to_have_text('third')
    await expect(picker).to_contain_text('1 / 2')
    await expect(seen.page.locator('#toast')).to_contain_text('Switched to “second”.')
    await seen.page.click('#toast button:has-text("Undo")')
    await expect(seen.turns).to_have_count(2)
    await expect(picker).to_contain_text('2 / 2')
    assert seen.problems == []


async def test_first_prompt_can_be_changed(open_page: OpenPage):
    """The first prompt starts from the empty beginning of the conversation. Escape leaves it as it was."""
    seen = await open_page()
    await seen.say('first', until='You said: first')
    await seen.turns.first.hover()
    await seen.turns.first.get_by_role('button', name='Edit').click()
    await seen.page.keyboard.press('Escape')
    await expect(seen.turns.first.locator('.bubble')).to_have_text('first')
    await seen.turns.first.get_by_role('button', name='Edit').click()
    await seen.page.fill('.prompt-form textarea', 'better')
    await seen.page.click('.prompt-form button:text-is("Send")')

    await expect(seen.turns.first.locator('.markdown')).to_have_text('You said: better')
    await expect(seen.turns.first.locator('.picker')).to_contain_text('2 / 2')


@pytest.mark.parametrize('scopes', [('approve',)])
async def test_key_without_run_scope_sees_no_composer(open_page: OpenPage, served: Served, scopes: tuple[str, ...]):
    """A key that may only approve sees the approvals, and nothing that it may not use."""
    seen = await open_page(key=await served.key('approve'))

    await expect(seen.page.locator('#to-inbox')).to_be_visible()
    await expect(seen.page.locator('#prompt')).to_have_count(0)
    await expect(seen.page.locator('#problem')).to_have_count(0)
    assert seen.problems == []
