"""Versions on the page: the graph, what a version contains, comparisons, rewinding, branches and merges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import pytest
from playwright.async_api import Route, expect
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import create_deep_agent
from pydantic_deep.server import AnyAgent
from pydantic_deep.store import VersionFilter
from pydantic_deep.testing import ScriptedModel, call
from tests.server.conftest import Gate, Served
from tests.server.static.conftest import Held, OpenPage, Seen, page_marks

pytestmark = page_marks

TODOS = [{'content': 'Write it', 'status': 'completed'}]


def answer(messages: Sequence[ModelMessage], info: AgentInfo) -> Any:
    """Write the prompt into `/report.md`, and on `aside` into another file; hold on `wait`."""
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    said = [str(part.content) for part in last.parts if isinstance(part, UserPromptPart)]
    if any(isinstance(part, ToolReturnPart) for part in last.parts):
        return 'Done.'
    if said[-1] == 'wait':
        return [call('hold')]
    path = '/aside.md' if 'aside' in said[-1] else '/report.md'
    return [call('write_todos', todos=TODOS), call('write_file', path=path, content=f'# Sales\n\n{said[-1]}\n')]


@pytest.fixture
def agents(gate: Gate) -> Mapping[str, AnyAgent]:
    return {'analyst': create_deep_agent(ScriptedModel(then=answer), tools=[gate.hold])}


async def with_two_turns(open_page: OpenPage) -> Seen:
    """Open the page, run two turns, and show the versions."""
    seen = await open_page()
    await seen.say('write one', until='Done.')
    await seen.say('write two', until='Done.')
    await seen.show_versions()
    return seen


async def choose(seen: Seen, at: int) -> None:
    """Click a version of the graph, counted from the newest."""
    await seen.page.click(f'#graph .version >> nth={at}')
    await expect(seen.page.locator('#graph .version').nth(at)).to_have_attribute('aria-current', 'true')


async def branch(seen: Seen, at: int, prompt: str) -> None:
    """Start a branch from a version with a prompt, and show the versions again."""
    await choose(seen, at)
    await seen.page.click('text=Branch from here')
    await seen.page.fill('.branch-form textarea', prompt)
    await seen.page.click('.branch-form button[type=submit]')
    await expect(seen.turns.last.locator('.bubble')).to_have_text(prompt)
    await expect(seen.turns.last.locator('.markdown')).to_have_text('Done.')
    await expect(seen.page.locator('#dialogue > [data-live]')).to_have_count(0)
    await seen.show_versions()


async def test_rewind_and_branch_from_the_graph(open_page: OpenPage):
    """The graph names turns by their prompts. Rewinding moves the head and can be undone; a branch has a lane."""
    seen = await with_two_turns(open_page)
    await expect(seen.versions).to_have_text(['write two', 'write one', 'Beginning'])

    await choose(seen, 1)
    await seen.page.click('text=Rewind to here')
    await expect(seen.page.locator('#toast')).to_contain_text('Rewound to “write one”.')
    await expect(seen.page.locator('#graph .version >> nth=1')).to_contain_text('current')
    await seen.page.click('#toast button:has-text("Undo")')
    await expect(seen.page.locator('#graph .version >> nth=0')).to_contain_text('current')

    await branch(seen, 1, 'write three')
    await expect(seen.versions).to_have_text(['write three', 'write two', 'write one', 'Beginning'])
    await expect(seen.page.locator('#graph circle.head')).to_have_count(1)
    await expect(seen.page.locator('#graph path')).to_have_count(3)
    assert seen.problems == []


async def test_branch_is_undone(open_page: OpenPage):
    """A prompt that is sent on a branch can be undone: the head is where it was, and the branch remains."""
    seen = await with_two_turns(open_page)
    await branch(seen, 1, 'write three')
    await expect(seen.page.locator('#toast')).to_contain_text('Sent on a new branch.')
    await seen.page.click('#toast button:has-text("Undo")')
    await expect(seen.page.locator('#graph .version >> nth=1')).to_contain_text('current')
    await expect(seen.versions).to_have_text(['write three', 'write two', 'write one', 'Beginning'])
    await seen.page.click('text=Dialogue')
    await expect(seen.page.locator('#dialogue .bubble')).to_have_text(['write one', 'write two'])
    assert seen.problems == []


async def test_undo_of_a_branch_stops_its_run(open_page: OpenPage, gate: Gate):
    seen = await open_page()
    await seen.say('write one', until='Done.')
    await seen.turns.first.hover()
    await seen.turns.first.get_by_role('button', name='Edit').click()
    await seen.page.fill('.prompt-form textarea', 'wait')
    await seen.page.press('.prompt-form textarea', 'Enter')
    await gate.reached.wait()
    await seen.page.click('#toast button:has-text("Undo")')
    await expect(seen.page.locator('#dialogue .bubble')).to_have_text(['write one'])
    await expect(seen.page.locator('#stop')).to_have_count(0)
    await seen.say('write two', until='Done.')
    await expect(seen.page.locator('#dialogue .bubble')).to_have_text(['write one', 'write two'])
    assert seen.problems == []


async def test_next_turn_ends_the_offer_to_undo(open_page: OpenPage):
    """Undoing a rewind would be in the way of a turn that has started since."""
    seen = await with_two_turns(open_page)
    await choose(seen, 1)
    await seen.page.click('text=Rewind to here')
    await expect(seen.page.locator('#toast')).to_contain_text('Rewound to “write one”.')
    await seen.page.click('text=Dialogue')
    await seen.say('write three', until='Done.')
    await expect(seen.page.locator('.toast')).to_have_count(0)


@pytest.mark.parametrize(('act', 'path'), [('Rewind to here', 'head'), ('Merge into current', 'merge')])
async def test_undo_is_not_offered_while_the_head_moves(open_page: OpenPage, act: str, path: str):
    """A click on the offer to undo a branch, meant for the merge, would undo the branch."""
    seen = await with_two_turns(open_page)
    await branch(seen, 1, 'write aside')
    await choose(seen, 1)
    await expect(seen.page.locator('#toast')).to_contain_text('Sent on a new branch.')
    held = Held()
    await seen.page.route(f'**/{path}', held)
    await seen.page.click(f'text={act}')
    await held.arrived.wait()
    await expect(seen.page.locator('.toast')).to_have_count(0)
    held.released.set()
    await seen.page.unroute_all(behavior='wait')
    await expect(seen.page.locator('#toast button:has-text("Undo")')).to_be_visible()


@pytest.mark.parametrize('width', [1280, 390])
async def test_names_are_read_beside_many_branches(open_page: OpenPage, client: httpx.AsyncClient, width: int):
    path = (await client.post('/api/conversations', json={'agent': 'analyst'})).headers['location']
    root = (await client.get(path)).json()['head']
    for number in range(30):
        await client.post(f'{path}/head', json={'version': root})
        await client.post(f'{path}/turns', json={'prompt': f'write {number}'})
    seen = await open_page(width=width, at=f'#/c/{path.rpartition("/")[2]}/versions')
    await expect(seen.versions).to_have_count(31)
    assert await seen.page.locator('#graph').evaluate('(graph) => graph.scrollWidth <= graph.clientWidth')
    name = await seen.versions.first.bounding_box()
    assert name is not None
    assert name['width'] > 180


async def test_version_shows_its_dialogue_changes_files_plan_and_cost(open_page: OpenPage):
    """A click on a version shows what it contains, without moving the head."""
    seen = await with_two_turns(open_page)
    await choose(seen, 1)
    panel = seen.page.locator('[role=tabpanel]')

    await expect(panel.locator('.bubble')).to_have_text(['write one'])
    await seen.page.click('[role=tab]:text-is("Changes")')
    await expect(panel.locator('.diff td.added')).to_have_text(['# Sales', '', 'write one'])
    await seen.page.click('[role=tab]:text-is("Files")')
    await expect(panel.locator('.file')).to_have_text(['/report.md'])
    await seen.page.click('[role=tab]:text-is("Plan")')
    await expect(panel.locator('.what')).to_have_text(['Write it'])
    await seen.page.click('[role=tab]:text-is("Cost")')
    await expect(panel.locator('tbody tr')).to_have_count(2)
    await expect(panel.locator('tfoot')).to_contain_text('unknown')  # a scripted model has no price
    await expect(seen.page.locator('#graph .version >> nth=0')).to_contain_text('current')
    assert seen.problems == []


async def test_two_versions_are_compared(open_page: OpenPage):
    """A comparison shows files side by side, the dialogues, the plans, the usage and the cost."""
    seen = await with_two_turns(open_page)
    await choose(seen, 1)
    await seen.page.select_option('.compare select', label='write two (current)')
    found = seen.page.locator('#difference')

    row = found.locator('.diff tr', has=seen.page.locator('.removed'))
    await expect(row.locator('td')).to_have_text(['3', 'write one', '3', 'write two'])
    await expect(found.locator('.two').first.locator('.before')).to_have_text('No messages.')
    await expect(found.locator('.two').first.locator('.after .bubble')).to_have_text(['write two'])
    await expect(found.locator('.two').last.locator('.what')).to_have_text(['Write it', 'Write it'])
    await expect(found.locator('tbody tr', has_text='Requests').last.locator('td')).to_have_text(['2', '4', '+2'])
    await expect(found.locator('tbody tr').last.locator('td')).to_have_text(['unknown', 'unknown', ''])
    await seen.page.click('text=Swap')
    await expect(row.locator('td')).to_have_text(['3', 'write two', '3', 'write one'])
    assert seen.problems == []


async def test_branches_are_merged_and_the_merge_is_undone(open_page: OpenPage):
    """Another branch is merged into the head without conflicts, and the merge is undone."""
    seen = await with_two_turns(open_page)
    await branch(seen, 1, 'write aside')
    await choose(seen, 1)
    await seen.page.click('text=Merge into current')

    await expect(seen.versions.first).to_have_text('Merged')
    await expect(seen.page.locator('#graph path')).to_have_count(5)
    await seen.page.click('#toast button:has-text("Undo")')
    await expect(seen.page.locator('#graph .version >> nth=1')).to_contain_text('current')


async def test_version_that_the_current_one_contains_is_not_merged(open_page: OpenPage):
    """Merging an ancestor, or a version again, would add a version without a change."""
    seen = await with_two_turns(open_page)
    merge = seen.page.get_by_role('button', name='Merge into current')
    await expect(merge).to_be_disabled()
    await choose(seen, 1)
    await expect(merge).to_be_disabled()
    await expect(merge).to_have_attribute('title', 'The current version contains this one.')
    await branch(seen, 1, 'write aside')
    await choose(seen, 1)
    await merge.click()
    await expect(seen.versions.first).to_have_text('Merged')
    await choose(seen, 2)
    await expect(merge).to_be_disabled()


@pytest.mark.parametrize(('side', 'text'), [('Keep the current file', 'write three'), ('Take the file', 'write two')])
async def test_conflicts_are_resolved_on_the_page(open_page: OpenPage, side: str, text: str):
    """If both versions changed a file, the person sees the difference and chooses which file to keep."""
    seen = await with_two_turns(open_page)
    await branch(seen, 1, 'write three')
    await choose(seen, 1)
    await seen.page.click('text=Merge into current')
    dialog = seen.page.locator('dialog')
    await expect(dialog).to_contain_text('Both versions changed the same file.')
    await expect(dialog.locator('legend')).to_contain_text('/report.md')
    await expect(dialog.locator('.diff')).to_contain_text('write two')
    await expect(dialog.get_by_role('button', name='Merge')).to_be_disabled()

    await dialog.get_by_text(side).click()
    await dialog.get_by_role('button', name='Merge').click()
    await expect(seen.versions.first).to_have_text('Merged')
    await seen.page.click('text=Dialogue >> nth=0')
    await seen.page.click('#files button >> nth=0')
    await expect(dialog.locator('pre')).to_contain_text(text)


async def test_answer_that_comes_late_opens_no_dialog(open_page: OpenPage):
    """A person who goes elsewhere before the server has sent a file or the conflicts of a merge is not interrupted there."""
    seen = await with_two_turns(open_page)
    await branch(seen, 1, 'write three')
    await choose(seen, 1)
    for pattern, opener in [('**/merge', 'text=Merge into current'), ('**/files/report.md', '.file')]:
        held = Held()
        await seen.page.route(pattern, held)
        await seen.page.click(opener)
        await held.arrived.wait()
        await seen.page.evaluate("location.hash = '#/'")
        await expect(seen.page.locator('.welcome')).to_be_visible()
        async with seen.page.expect_response(pattern) as sent:
            held.released.set()
        await (await sent.value).finished()
        await seen.page.evaluate('new Promise((paint) => requestAnimationFrame(() => requestAnimationFrame(paint)))')
        await expect(seen.page.locator('dialog')).to_have_count(0)
        await seen.page.go_back()
        await seen.page.click('[role=tab]:text-is("Files")')


async def test_versions_are_usable_by_keyboard(open_page: OpenPage):
    """`v` shows the versions, `j` and `k` go through them, Enter chooses, and the tabs follow the arrow keys."""
    seen = await open_page()
    await seen.say('write one', until='Done.')
    await seen.press('v')
    await expect(seen.versions.first).to_be_visible()
    await seen.page.keyboard.press('j')
    await seen.page.keyboard.press('j')
    await seen.page.keyboard.press('Enter')
    await expect(seen.page.locator('.version-pane h2')).to_have_text('Beginning')
    await seen.page.focus('[role=tab][aria-selected=true]')
    await seen.page.keyboard.press('ArrowRight')
    await expect(seen.page.locator('[role=tab]:text-is("Changes")')).to_be_focused()
    await seen.press('v')
    await expect(seen.page.locator('#dialogue')).to_be_visible()


async def test_steps_have_addresses(open_page: OpenPage, served: Served):
    """A step is not in the graph. Its address opens it, and can be compared with a version."""
    seen = await with_two_turns(open_page)
    last, first = await served.store.versions(VersionFilter(kinds=['step']))
    again = await open_page(at=f'#/v/{last.id}')
    await expect(again.page.locator('.version-pane h2')).to_have_text('write two')
    await expect(again.page.locator('.version-pane button:has-text("Rewind to here")')).to_be_enabled()
    other = await open_page(at=f'#/v/{last.id}/{first.id}')
    await expect(other.page.locator('.sides a')).to_have_text(['write two', 'write one'])
    await expect(other.page.locator('#difference .diff')).to_be_visible()
    assert seen.problems == []


async def test_cost_fits_on_a_phone(open_page: OpenPage):
    """The table of requests is not wider than the phone."""
    seen = await open_page(width=390, height=780)
    await seen.say('write one', until='Done.')
    await seen.show_versions()
    await seen.page.click('#graph .version >> nth=0')
    await seen.page.click('[role=tab]:text-is("Cost")')
    table = seen.page.locator('.cost')
    await expect(table).to_be_visible()
    assert await table.evaluate('(box) => box.scrollWidth - box.clientWidth') == 0


async def test_versions_have_addresses(open_page: OpenPage, served: Any):
    """The address of a version or a comparison opens it, with its conversation."""
    seen = await with_two_turns(open_page)
    await choose(seen, 1)
    version = seen.page.url.split('#')[1]
    await seen.page.select_option('.compare select', label='write two (current)')
    comparison = seen.page.url.split('#')[1]

    again = await open_page(at=f'#{version}')
    await expect(again.page.locator('.version-pane h2')).to_have_text('write one')
    other = await open_page(at=f'#{comparison}')
    await expect(other.page.locator('#difference .diff')).to_contain_text('write two')


async def test_changed_lines_and_choices_are_known_without_colors(open_page: OpenPage):
    """Signs, also for screen readers, mark the added and removed lines of a diff. In high contrast, which has no
    backgrounds, outlines mark the chosen version, view and tab."""
    seen = await with_two_turns(open_page)
    await choose(seen, 0)
    await seen.page.click('[role=tab]:text-is("Changes")')
    lines = seen.page.locator('.changes .diff .lines')
    await expect(lines).to_match_aria_snapshot('- row /removed write one .* added write two/')
    await expect(lines.locator('.added')).to_have_text('write two')

    await seen.page.emulate_media(forced_colors='active')
    chosen = seen.page.locator(
        '.current, .views [aria-current=page], .version[aria-current=true], [role=tab][aria-selected=true]'
    )
    widths = await chosen.evaluate_all('(all) => all.map((each) => getComputedStyle(each).outlineStyle)')
    assert widths == ['solid'] * 4
    others = seen.page.locator(
        '.views :not([aria-current]), .version[aria-current=false], [role=tab][aria-selected=false]'
    )
    assert set(await others.evaluate_all('(all) => all.map((each) => getComputedStyle(each).outlineStyle)')) == {'none'}


async def test_old_versions_are_listed_once(open_page: OpenPage, client: httpx.AsyncClient):
    """Their pages are loaded one after the other, and the conversation may be loaded again in the meantime."""
    path = (await client.post('/api/conversations', json={'agent': 'analyst'})).headers['location']
    for prompt in 'abcd':
        await client.post(f'{path}/turns', json={'prompt': prompt})
    seen = await open_page()
    held = Held()

    async def two_on_a_page(route: Route) -> None:
        if 'cursor=' in route.request.url:
            held.arrived.set()
            await held.released.wait()
        await route.continue_(url=route.request.url.replace('limit=200', 'limit=2'))

    await seen.page.route('**/versions?limit=200*', two_on_a_page)
    await seen.page.evaluate(f"location.hash = '#/c/{path.rpartition('/')[2]}/versions'")
    await held.arrived.wait()
    await client.post(f'{path}/turns', json={'prompt': 'e'})
    await seen.page.evaluate("window.dispatchEvent(new Event('focus'))")
    await expect(seen.versions.first).to_have_text('e')
    held.released.set()

    await expect(seen.versions).to_have_text(['e', 'd', 'c', 'b', 'a', 'Beginning'])
