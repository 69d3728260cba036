"""The dialogue on the page: Markdown, code, tool calls, thinking, images, errors and long dialogues."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from playwright.async_api import expect
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import StateBackend, Subagent, create_deep_agent
from pydantic_deep.server import AnyAgent
from pydantic_deep.server._state import OWNER
from pydantic_deep.store import Commit, Committed, StoreUnavailableError
from pydantic_deep.testing import ScriptedModel, call
from tests.server.conftest import Gate, Served
from tests.server.static.conftest import OpenPage, page_marks

pytestmark = page_marks

TODOS = [{'content': 'Read the table', 'status': 'completed'}, {'content': 'Write the report', 'status': 'in_progress'}]

MARKDOWN = """# Sales

They grew by **17 %**, see `report.md`.

| month | sales |
|---|--:|
| April<br>early | 12 |
| May | 14 |

```python
def growth():
    return 17
```

- [x] read
- [ ] check

[source](https://example.com/a) [bank.com](https://evil.example/) [*see* bank.com](https://evil.example/b)
https://example.com/a.py [run](javascript:alert(1))

![far](https://example.com/x.png) <b>bold</b>
"""

LONG_CODE = ''.join(f'def growth():\n    return {number}\n' for number in range(100))

PIXEL = base64.b64decode(
    'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=='
)


def answer(messages: Sequence[ModelMessage], info: AgentInfo) -> Any:
    """Plan on `plan`, delegate on `delegate`, write on `write`, read from line 2 on `read`, hold on `wait` and `think`, raise on
    `fail now`, or after a call on `fail later`, write Markdown on `markdown` and code on `code`, and echo anything else."""
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    requests = [each for each in messages if isinstance(each, ModelRequest)]
    said = [str(part.content) for each in requests for part in each.parts if isinstance(part, UserPromptPart)][-1]
    returned = [part for part in last.parts if isinstance(part, ToolReturnPart)]
    has_task = any(tool.name == 'task' for tool in info.function_tools)
    if any(part.tool_name == 'write_todos' for part in returned):
        return [call('write_file', path='/report.md', content=f'# Sales\n\n{said}\n')]
    if returned and 'fail later' in said:
        raise ValueError('inside')
    if returned:
        return f'Done: {returned[-1].outcome}.'
    if 'fail now' in said:
        raise ValueError('inside')
    if said.startswith('plan'):
        return [ThinkingPart('They want a report.'), 'I plan.', call('write_todos', todos=TODOS)]
    if said.startswith('delegate') and has_task:
        return [call('task', subagent='finder', description='wait' if 'wait' in said else 'write the notes')]
    if said.startswith('write'):
        return [call('write_file', path='/report.md', content=f'# Sales\n\n{said}\n')]
    if said.startswith('read'):
        return [call('read_file', path='/report.md', offset=2)]
    if said.startswith('markdown'):
        return MARKDOWN
    if said.startswith('code'):
        return f'```python\n{LONG_CODE}```'
    if said.startswith('think'):
        return [ThinkingPart('They want me to wait.'), call('hold')]
    return [call('hold')] if said.startswith('wait') else f'You said: {said}'


@pytest.fixture
def agents(gate: Gate) -> Mapping[str, AnyAgent]:
    model = ScriptedModel(then=answer)
    agent = create_deep_agent(
        model, tools=[gate.hold], subagents=[Subagent('finder', 'Finds facts.', tools=[gate.hold])]
    )
    return {'analyst': agent}


async def test_turn_shows_plan_calls_and_files(open_page: OpenPage):
    """Each call is one line that says what it does. Plan and files are beside the dialogue."""
    seen = await open_page()
    await seen.say('plan a report', until='Done: success.')

    await expect(seen.calls).to_have_text(['Update the plan1 of 2 done✓', 'Write/report.md✓'])
    await expect(seen.page.locator('#todos .what')).to_have_text(['Read the table', 'Write the report'])
    await expect(seen.page.locator('#todos li').first).to_have_class('completed')
    await seen.page.click('#files button')
    await expect(seen.page.locator('dialog pre')).to_have_text('# Sales\n\nplan a report\n')
    assert seen.problems == []


async def test_panel_does_not_cover_the_dialogue_of_a_narrow_page(open_page: OpenPage):
    """Plan and files are hidden when the page becomes narrow, such as by zooming. Escape closes them there."""
    seen = await open_page()
    await seen.say('plan a report', until='Done: success.')
    panel = seen.page.locator('#panel')
    await expect(panel).to_be_visible()
    await seen.page.set_viewport_size({'width': 640, 'height': 400})
    await expect(panel).to_be_hidden()
    await seen.page.click('#to-panel')
    await seen.page.click('#files button')
    await expect(seen.page.locator('dialog')).to_be_visible()
    await seen.page.keyboard.press('Escape')
    await expect(seen.page.locator('dialog')).to_have_count(0)
    await expect(panel).to_be_visible()
    await seen.page.keyboard.press('Escape')
    await expect(panel).to_be_hidden()


async def test_opened_call_shows_its_arguments_and_result(open_page: OpenPage):
    """A call is opened to read its arguments and its result; thinking is folded."""
    seen = await open_page()
    await seen.say('plan a report', until='Done: success.')

    await expect(seen.page.locator('.thought')).to_be_hidden()
    await seen.page.click('.thinking summary')
    await expect(seen.page.locator('.thought')).to_have_text('They want a report.')
    await seen.calls.nth(1).click()
    opened = seen.page.locator('.call .opened')
    await expect(opened.locator('pre')).to_have_text(
        ['# Sales\n\nplan a report\n', 'Created /report.md: 3 lines, 23 bytes.']
    )
    await seen.calls.first.click()
    await expect(opened.first.locator('.todos li')).to_have_count(2)


async def test_line_from_which_a_file_is_read_is_shown(open_page: OpenPage):
    seen = await open_page()
    await seen.say('write', until='Done: success.')
    await seen.say('read', until='Done: success.')
    await expect(seen.calls.last).to_have_text('Read/report.md from line 2✓')


async def test_text_of_any_script_is_shown_as_it_is_meant(open_page: OpenPage):
    """Paragraphs have the direction of their first letter. Joiners of emoji and words, and unusual spaces, are no escapes; what
    could hide a text is one."""
    text = 'مرحبا می\u200cخواهم ⚠\ufe0f 👩\u200d👧 a\xa0b'
    seen = await open_page()
    await seen.say(text, until=f'You said: {text}')
    await seen.send(f'می\u202e{text}')
    await expect(seen.turns.last.locator('.bubble')).to_have_text(f'می\\u202e{text}')
    escape = seen.turns.last.locator('.bubble .escape')
    letters = '(each) => { const all = document.createRange(); all.selectNodeContents(each); return all.getClientRects().length; }'
    assert await escape.evaluate(letters) == 1, 'its backslash is beside its letters'
    await expect(seen.page.locator('.bar h1')).to_contain_text(text)
    await expect(seen.turns.last.locator('.bubble')).to_have_css('unicode-bidi', 'plaintext')
    await expect(seen.turns.last.locator('.markdown p')).to_have_css('unicode-bidi', 'plaintext')
    await expect(seen.page.locator('#prompt')).to_have_attribute('dir', 'auto')
    await seen.show_versions()
    await expect(seen.versions.first).to_contain_text(text)


async def test_answer_is_rendered_as_markdown(open_page: OpenPage, served: Served):
    """Headings, tables, task lists, code with its language, links and images. HTML is shown as text, except for line
    breaks; links to scripts are no links; a link that names another host says where it leads; no image of another host
    is loaded."""
    seen = await open_page()
    await seen.send('markdown')
    answer = seen.page.locator('#dialogue .markdown')

    await expect(answer.locator('h2')).to_have_text('Sales')
    await expect(answer.locator('strong')).to_have_text('17 %')
    await expect(answer.locator('th')).to_have_text(['month', 'sales'])
    await expect(answer.locator('tbody tr').last.locator('td')).to_have_text(['May', '14'])
    assert await answer.locator('tbody td').first.inner_text() == 'April\nearly'
    await expect(answer.locator('.code .hljs-keyword').first).to_have_text('def')
    await expect(answer.locator('input[type=checkbox]')).to_have_count(2)
    links = await answer.locator('a').evaluate_all(
        '(all) => all.map((each) => [each.textContent, each.href, each.rel])'
    )
    rel = 'noopener noreferrer nofollow'
    assert links == [
        ['source', 'https://example.com/a', rel],
        ['bank.com', 'https://evil.example/', rel],
        ['see bank.com', 'https://evil.example/b', rel],
        ['https://example.com/a.py', 'https://example.com/a.py', rel],
        ['Image: far', 'https://example.com/x.png', rel],
    ]
    await expect(answer).to_contain_text('bank.com (evil.example) see bank.com (evil.example)')
    await expect(answer).not_to_contain_text('(example.com)')
    await expect(answer).to_contain_text('run (javascript:alert(1))')
    await expect(answer).to_contain_text('<b>bold</b>')
    assert await answer.locator('img, b').count() == 0
    assert seen.problems == []


async def test_code_is_copied_by_a_button(open_page: OpenPage):
    """The button copies exactly the code."""
    seen = await open_page()
    await seen.page.context.grant_permissions(['clipboard-read', 'clipboard-write'])
    await seen.send('markdown')
    await expect(seen.page.get_by_role('button', name='Copy')).to_be_visible()
    await expect(seen.page.locator('#dialogue > [data-live]')).to_have_count(0)  # the stored turn is shown
    await seen.page.get_by_role('button', name='Copy').click()

    await expect(seen.page.locator('.code .head button')).to_have_text('Copied')
    assert await seen.page.evaluate('navigator.clipboard.readText()') == 'def growth():\n    return 17'
    await seen.page.evaluate('delete Navigator.prototype.clipboard')  # as on a page that is opened by HTTP
    await seen.page.click('.code .head button')
    await expect(seen.page.locator('#problem')).to_contain_text('Select the code')
    assert seen.problems == []


@pytest.mark.parametrize('link', ['/uploads/my%20100%25%20chart.png', '</uploads/my 100% chart.png>'])
async def test_image_of_a_version_is_shown(open_page: OpenPage, served: Served, link: str):
    """An image that the answer names by its path, with escapes or without, is loaded from the files of the version. A file
    that is no image says so."""
    async with served.client(await served.key('run', 'approve')) as client:
        path = (await client.post('/api/conversations', json={'agent': 'analyst', 'name': 'Chart'})).headers['location']
        await client.put(f'{path}/uploads/my 100%25 chart.png', content=PIXEL)
        await client.put(f'{path}/uploads/text.png', content=b'text')
    seen = await open_page()
    await seen.page.click('text=Chart')
    await seen.say(f'![chart]({link})', until='You said: ')

    await expect(seen.page.locator('#dialogue .markdown img')).to_have_js_property('naturalWidth', 1)
    await seen.page.click('#files button >> nth=0')
    await expect(seen.page.locator('dialog img')).to_have_js_property('naturalWidth', 1)
    await seen.page.keyboard.press('Escape')
    await seen.page.click('#files button >> nth=1')
    await expect(seen.page.locator('dialog .content')).to_have_text('Not an image that this browser can show.')
    assert seen.problems == []


async def test_delegation_shows_the_steps_of_the_subagent(open_page: OpenPage):
    """The steps of a subagent are nested below its delegation, at work and when the dialogue is opened again."""
    seen = await open_page()
    await seen.say('delegate it', until='Done: success.')

    await expect(seen.calls.first).to_have_text('Delegate to finderwrite the notes✓')
    await seen.calls.first.click()
    await seen.page.click('text=Show the steps')
    await expect(seen.page.locator('.steps .call > summary')).to_have_text(['Write/report.md✓'])
    await expect(seen.page.locator('.steps .markdown')).to_have_text(['Done: success.'])
    assert seen.problems == []


async def test_steps_of_a_subagent_at_work_are_seen(open_page: OpenPage, gate: Gate):
    """The steps are below the delegation while it runs, also after a reload, without opening it."""
    seen = await open_page()
    await seen.send('delegate and wait')
    await gate.reached.wait()
    for _ in range(2):
        await expect(seen.page.locator('.steps .call > summary')).to_be_visible()
        await expect(seen.page.locator('.steps .call > summary')).to_have_text('holdrunning')
        await seen.page.reload()
    gate.opened.set()
    await expect(seen.turns.last.locator('.answer > :last-child')).to_have_text('Done: success.')


async def test_running_call_says_that_it_is_at_work(open_page: OpenPage, gate: Gate):
    """A call says that it is running, and the page that the agent works, until the end. The run is stopped by a button."""
    seen = await open_page()
    await seen.send('wait for me')

    await expect(seen.calls).to_have_text(['holdrunning'])
    await expect(seen.page.locator('.working')).to_have_text('Working')
    await seen.page.click('#stop')
    await expect(seen.page.locator('#stop')).to_be_hidden()
    await expect(seen.page.locator('#dialogue')).to_contain_text('This turn was interrupted.')


async def test_opened_call_and_thinking_remain_open_at_the_end_of_the_run(open_page: OpenPage, gate: Gate):
    """Nothing that a person reads closes when the stored turn replaces the one that has run, and it can be closed then."""
    seen = await open_page()
    await seen.send('think and wait')
    await gate.reached.wait()
    await seen.page.click('.thinking summary')
    await seen.calls.first.click()
    await expect(seen.page.locator('#dialogue > [data-live] details[open]')).to_have_count(2)
    gate.opened.set()

    await expect(seen.page.locator('#dialogue > [data-live]')).to_have_count(0)
    await expect(seen.page.locator('.thinking[open] .thought')).to_be_visible()
    await expect(seen.page.locator('.call[open] .result pre')).to_have_text('held')
    await seen.calls.first.click()
    await expect(seen.page.locator('#dialogue details[open]')).to_have_count(1)


async def test_failed_run_shows_its_error_with_try_again(open_page: OpenPage):
    """The error is in the dialogue, also after a reload. The prompt can be sent again or changed."""
    seen = await open_page()
    await seen.send('fail now')
    await expect(seen.page.locator('.failure')).to_contain_text('The run failed with ValueError')
    await expect(seen.turns.last.locator('.bubble')).to_have_text('fail now')

    await seen.page.reload()
    await expect(seen.page.locator('.failure')).to_contain_text('The last turn failed')
    await seen.page.click('text=Try again')
    await expect(seen.page.locator('.failure')).to_contain_text('The run failed with ValueError')
    await seen.page.click('text=Change the prompt')
    await expect(seen.page.locator('#prompt')).to_have_value('fail now')
    await seen.say('better', until='You said: better')
    await expect(seen.page.locator('.failure')).to_have_count(0)
    for _ in range(2):
        await expect(seen.page.locator('.bubble')).to_have_text(['fail now', 'better'])
        await expect(seen.page.locator('.note')).to_have_text('This turn failed. Why it failed')
        await seen.page.reload()
    await seen.page.click('text=Why it failed')
    await expect(seen.page.locator('.failure')).to_have_text('The turn failed: ValueError')


async def test_turns_that_failed_stay_where_they_were_sent(open_page: OpenPage):
    """Failures stay above the next turn, while it runs and after it, but not if the same prompt was tried again."""
    seen = await open_page()
    await seen.say('one', until='You said: one')
    for prompt in ('fail now', 'fail now, too', 'fail now'):
        await seen.send(prompt)
        await expect(seen.turns.last.locator('.bubble')).to_have_text(prompt)
        await expect(seen.page.locator('.failure')).to_contain_text('The run failed with ValueError')
    prompts = ['one', 'fail now, too', 'fail now']
    await expect(seen.page.locator('.bubble')).to_have_text(prompts)
    await seen.page.reload()
    await expect(seen.page.locator('.bubble')).to_have_text(prompts)
    await seen.send('wait')
    await expect(seen.page.locator('.call.running')).to_be_visible()
    await expect(seen.page.locator('.bubble')).to_have_text([*prompts, 'wait'])
    await seen.page.click('#stop')
    await expect(seen.turns.last).to_contain_text('This turn was interrupted.')
    await seen.say('two', until='Done: interrupted.')
    await expect(seen.page.locator('.bubble')).to_have_text([*prompts, 'wait', 'two'])


async def test_turn_that_failed_after_a_step_is_tried_again_in_its_place(open_page: OpenPage):
    """What was done before the error is stored, and the error is shown below it, also after a reload. The prompt is sent again
    on a branch."""
    seen = await open_page()
    await seen.send('write, then fail later')
    await expect(seen.page.locator('.failure')).to_contain_text('The run failed with ValueError')
    for attempt in range(2):
        await expect(seen.page.locator('.bubble')).to_have_text(['write, then fail later'])
        await expect(seen.calls).to_have_text(['Write/report.md✓'])
        await seen.page.reload()
        await expect(seen.page.locator('.failure')).to_contain_text('The last turn failed')
        if attempt == 0:
            await seen.page.click('text=Try again')
            await expect(seen.page.locator('.failure')).to_contain_text('The run failed with ValueError')
    await seen.say('better', until='You said: better')
    await expect(seen.page.locator('.failure')).to_have_count(0)
    await expect(seen.page.locator('.note')).to_have_text('This turn failed. What was done is kept.')
    assert seen.problems == []


async def test_failed_prompt_is_tried_again_with_its_loaded_skill(open_page: OpenPage):
    """The page shows what was typed. What it sends again is the prompt with the text of the skill, also after a reload."""
    prompt = '<skill name="haiku">\nThree lines.\n</skill>\n\nfail now'
    seen = await open_page()
    await seen.send(prompt)
    await expect(seen.page.locator('.failure')).to_contain_text('The run failed with ValueError')
    await seen.page.reload()
    await expect(seen.turns.last.locator('.bubble')).to_have_text('/haiku fail now')
    await seen.page.click('text=Change the prompt')
    await expect(seen.page.locator('#prompt')).to_have_value(prompt)


async def test_conversation_is_titled_by_its_first_prompt_and_can_be_reopened(open_page: OpenPage):
    """A conversation is created with its first prompt."""
    seen = await open_page()
    await seen.say('Hello there', until='You said: Hello there')
    await seen.press('c')
    await expect(seen.page.locator('.welcome')).to_be_visible()
    await seen.say('Another', until='You said: Another')
    await expect(seen.page.locator('#conversations a')).to_contain_text(['Another', 'Hello there'])

    await seen.page.click('#conversations a >> nth=1')
    await expect(seen.turns).to_contain_text(['Hello there'])
    await expect(seen.turns).to_have_count(1)
    assert seen.problems == []


async def test_run_started_on_another_page_can_be_watched_and_stopped(open_page: OpenPage, gate: Gate):
    """A second page shows the run with its prompt, and stops it by a key. That is no error, and no call is pending."""
    first = await open_page()
    await first.send('wait for me')
    await gate.reached.wait()

    second = await open_page()
    await second.page.click('#conversations a')
    await expect(second.page.locator('#stop')).to_be_visible()
    await expect(second.turns.last.locator('.bubble')).to_have_text('wait for me')
    await second.press('s')
    for seen in (first, second):
        await expect(seen.page.locator('#stop')).to_be_hidden()
        await expect(seen.calls).to_have_text(['holdinterrupted'])
        await expect(seen.page.locator('.note')).to_have_text('This turn was interrupted. What was done is kept.')
        await expect(seen.page.locator('[data-live], .failure')).to_have_count(0)
        await seen.show_versions()
        await expect(seen.page.locator('#graph circle.interrupted')).to_have_count(1)
        await expect(seen.page.locator('.version-pane .call > summary')).to_have_text(['holdinterrupted'])


async def test_reopened_conversation_follows_its_active_run(open_page: OpenPage, gate: Gate):
    """A conversation that is opened while it runs shows the events of the run."""
    seen = await open_page()
    await seen.send('wait for me')
    await gate.reached.wait()
    await seen.page.wait_for_url('**/#/c/*')  # the page knows the id of the conversation it created
    await seen.page.reload()

    await expect(seen.calls).to_have_text(['holdrunning'])
    await expect(seen.turns.locator('.bubble')).to_have_text(['wait for me'])
    gate.opened.set()
    await expect(seen.turns.last.locator('.markdown')).to_have_text('Done: success.')
    await expect(seen.page.locator('#stop')).to_be_hidden()
    assert seen.problems == []


async def test_prompt_is_enabled_after_run_events_are_gone(open_page: OpenPage, gate: Gate):
    """A run that cannot be watched any more does not block the composer."""
    seen = await open_page()
    gone = {'error': {'type': 'not_found', 'message': 'Gone.'}}
    await seen.page.route('**/api/runs/*/events*', lambda route: route.fulfill(status=404, json=gone))
    await seen.send('wait for me')

    await expect(seen.page.locator('#problem')).to_contain_text('Gone.')
    gate.opened.set()


async def test_lost_connection_is_reported_and_restored(open_page: OpenPage, gate: Gate):
    """While the connection is lost, the page says so; afterwards the run is shown on."""
    seen = await open_page()
    events = '**/api/runs/*/events*'
    await seen.page.route(events, lambda route: route.fulfill(status=503, json={}))
    await seen.send('wait for me')
    await expect(seen.page.locator('.working')).to_contain_text('The connection is lost')

    await seen.page.unroute(events)
    await expect(seen.page.locator('.working')).to_have_text('Working')
    gate.opened.set()
    await expect(seen.turns.last.locator('.markdown')).to_have_text('Done: success.')


async def test_suspended_run_can_be_resumed_or_discarded(
    open_page: OpenPage, served: Served, monkeypatch: pytest.MonkeyPatch
):
    """A run whose end could not be stored is resumed or discarded above the composer."""
    seen = await open_page()
    await seen.say('first', until='You said: first')
    commit = served.store.commit

    async def lose_ends(batch: Commit) -> Committed:
        if batch.ends:
            raise StoreUnavailableError('The disk is full.')
        return await commit(batch)

    for act, left in (('Discard', 0), ('Resume', 0)):
        with monkeypatch.context() as full:  # simulates a disk that fills up during the run
            full.setattr(served.store, 'commit', lose_ends)
            await seen.send('second')
            await expect(seen.page.locator('#suspended li')).to_contain_text('is suspended')
        await expect(seen.page.locator('.failure')).to_contain_text('suspended')
        await seen.page.click(f'#suspended button:text-is("{act}")')
        await expect(seen.page.locator('#suspended li')).to_have_count(left)
    await expect(seen.turns.last.locator('.markdown')).to_have_text('You said: second')


async def create_long_dialogue(served: Served) -> None:
    """Create a conversation of 2,000 messages in 1,000 turns."""
    history: list[ModelMessage] = []
    for number in range(1000):
        history += [
            ModelRequest(parts=[UserPromptPart(f'question {number}')]),
            ModelResponse(parts=[TextPart(f'**answer** {number}')]),
        ]
    root = await served.state.agents['analyst'].create(name='Long', metadata={OWNER: 'ada'}, backend=StateBackend())
    await root.with_messages(history, moves_head=True)


async def test_busy_page_renders_earlier_turns(open_page: OpenPage, served: Served):
    """If the browser reports several positions of the upper end at once, the last one counts."""
    await create_long_dialogue(served)
    seen = await open_page()
    await seen.page.add_init_script("""window.IntersectionObserver = class extends IntersectionObserver {
        constructor(callback, options) {
            super((entries, observer) => callback([{ isIntersecting: false }, ...entries], observer), options);
        }
    }""")
    await seen.page.reload()
    await seen.page.click('#conversations a')
    await expect(seen.turns.last).to_contain_text('answer 999')
    await seen.page.evaluate("document.querySelector('.scroller').scrollTop = 0")
    await expect(seen.page.locator('text=question 945')).to_have_count(1)


async def test_long_dialogue_shows_its_end_first(open_page: OpenPage, served: Served):
    """Of 2,000 messages, only the last turns are rendered; reading upwards renders more, and moves nothing."""
    await create_long_dialogue(served)
    seen = await open_page()
    await seen.page.click('#conversations a')
    await expect(seen.turns.last).to_contain_text('answer 999')
    await expect(seen.turns).to_have_count(30)
    assert await seen.page.evaluate("document.querySelector('.scroller').scrollTop") > 0

    await seen.page.evaluate("document.querySelector('.scroller').scrollTop = 0")
    await expect(seen.page.locator('text=question 945')).to_have_count(1)
    assert await seen.page.evaluate("document.querySelector('.scroller').scrollTop") > 0
    count = await seen.page.evaluate("""async () => {
        const field = document.getElementById('prompt');
        let changes = 0;
        new MutationObserver((all) => { changes += all.length; }).observe(document.getElementById('dialogue'), { subtree: true, childList: true });
        for (const letter of 'typing') { field.value += letter; field.dispatchEvent(new Event('input', { bubbles: true })); }
        await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
        return changes;
    }""")
    assert count == 0  # typing renders nothing of the dialogue


async def test_earlier_turns_are_removed_again_at_the_end(open_page: OpenPage, served: Served):
    """After a person has read up through a long dialogue, its end shows only the last turns, so that it stays fast."""
    await create_long_dialogue(served)
    seen = await open_page()
    await seen.page.click('#conversations a')
    await expect(seen.turns.last).to_contain_text('answer 999')
    for shown in (60, 90, 120, 150):
        await seen.page.evaluate("document.querySelector('.scroller').scrollTop = 0")
        await expect(seen.turns).to_have_count(shown)

    await seen.page.evaluate("document.querySelector('.scroller').scrollTop = 1e9")
    await expect(seen.turns).to_have_count(30)
    await expect(seen.turns.last).to_be_in_viewport()


async def test_only_the_end_of_a_growing_answer_is_parsed_again(open_page: OpenPage):
    """Markdown that arrives in pieces has the blocks of the whole text, and complete blocks are not parsed again."""
    seen = await open_page()
    text = (
        MARKDOWN
        + '- a\n\n- b\n\nText\n---\n2. two\n- [ ] three\n\n| a |\n|---|\n\n[link]\n\n' * 9
        + '[link]: https://example.com/'
    )
    checked = await seen.page.evaluate(
        """async (text) => {
        const { parseBlocks } = await import('/static/blocks.js');
        let before = null, different = 0, again = 0;
        for (let end = 1; end <= text.length; end += 7) {
            const now = parseBlocks(text.slice(0, end), before);
            if (JSON.stringify(now.blocks) !== JSON.stringify(parseBlocks(text.slice(0, end), null).blocks)) different += 1;
            if (end < text.indexOf('[link]:')) again = Math.max(again, now.blocks.filter((block) => !before?.blocks.includes(block)).length);
            before = now;
        }
        const whole = parseBlocks(text, before);
        return [different, again < 12, before.blocks.length > 60, whole.blocks.some((block) => block.tokens?.some((each) => each.type === 'link'))];
    }""",
        text,
    )
    assert checked == [0, True, True, True]


async def test_long_code_is_divided_into_blocks_of_lines(open_page: OpenPage):
    """Long code is highlighted in blocks of lines, so that new lines lay out only the last one. Its text remains the same."""
    seen = await open_page()
    await seen.send('code')
    code = seen.page.locator('#dialogue .code code')
    await expect(code.locator('.hljs-number')).to_have_count(100)
    await expect(seen.page.locator('#dialogue > [data-live]')).to_have_count(0)

    await expect(code.locator('.hljs-number')).to_have_count(100)
    assert await code.locator('.lines').count() > 3
    assert await code.evaluate('(code) => code.textContent') == LONG_CODE.strip()
    assert (
        await code.evaluate('(code) => { getSelection().selectAllChildren(code); return String(getSelection()); }')
        == LONG_CODE.strip()
    )
    assert seen.problems == []


async def test_prompt_with_a_loaded_skill_is_shown_as_it_was_typed(open_page: OpenPage, served: Served):
    """A skill that a person loads by its name in another client is a part of the prompt for the model. The dialogue and
    each version show the name instead. A change of the prompt keeps the skill."""
    skill = '<skill name="pdf">\nRead *pages*.\n</skill>\n\n'
    async with served.client(await served.key('run')) as client:
        path = (await client.post('/api/conversations', json={'agent': 'analyst'})).headers['location']
        await client.post(f'{path}/turns', json={'prompt': f'{skill}Find <skill> in a.pdf'})
    seen = await open_page(at=path.replace('/api/conversations', '#/c'))
    await expect(seen.turns.locator('.bubble')).to_have_text('/pdf Find <skill> in a.pdf')
    await seen.show_versions()
    await expect(seen.page.locator('.version-pane .bubble')).to_have_text('/pdf Find <skill> in a.pdf')
    await seen.page.fill('.search input', '/PDF find <skill> in')
    await expect(seen.page.locator('#conversations a')).to_have_count(1)
    await seen.page.click('.views a >> nth=0')
    await seen.turns.hover()
    await seen.turns.get_by_role('button', name='Edit').click()
    await expect(seen.page.get_by_label('Change the prompt')).to_have_value(f'{skill}Find <skill> in a.pdf')
    assert seen.problems == []
