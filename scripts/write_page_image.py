"""Takes the screenshots of the web page for the server guide: `.venv/bin/python scripts/write_page_image.py`.

It needs Chromium (`scripts/install-chromium.sh`) and pydantic-ai-harness. A scripted model answers, so that the
screenshots are always the same except for the time of day.
"""

from __future__ import annotations

import shutil
import socket
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

import anyio
import uvicorn
from playwright.async_api import Browser, Page, async_playwright, expect
from pydantic_ai.messages import ModelMessage, ModelRequest, ThinkingPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import create_deep_agent, open_store
from pydantic_deep.server import AnyAgent, ServerSettings, create_api_key, create_app
from pydantic_deep.testing import ScriptedModel, call

IMAGES = Path(__file__).parents[1] / 'docs' / 'images' / 'page'

SIZES: Final = {'desktop': (1280, 860), 'phone': (390, 844)}
"""Width and height of the page in pixels."""

TODOS = [
    {'content': 'Read the sales of April and May', 'status': 'completed'},
    {'content': 'Write the report', 'status': 'in_progress'},
    {'content': 'Check the figures', 'status': 'pending'},
]

REPORT = '# Sales\n\n| month | sales |\n|---|---|\n| April | 12 |\n| May | 14 |\n'

ANSWER = """Sales grew by **17 %** from April to May. The report is in `/report.md`.

| Month | Orders | Revenue |
|---|--:|--:|
| April | 12 | $ 1,204 |
| May | 14 | $ 1,409 |

I computed the growth like this:

```python
def growth(before: float, after: float) -> float:
    return (after - before) / before * 100  # 16.7
```
"""


NOTE_BY_PROMPT = {
    'Remember how I like reports': '- Reports: a table first, then one paragraph.\n',
    'Remember our fiscal year': '- The fiscal year begins in April.\n',
}


def answer(messages: Sequence[ModelMessage], info: AgentInfo) -> Any:
    """Plan and write the requested file."""
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    if any(isinstance(part, ToolReturnPart) for part in last.parts):
        return ANSWER
    prompt = [str(part.content) for part in last.parts if isinstance(part, UserPromptPart)][-1]
    if 'board' in prompt:
        return [
            'I write it for them.',
            call('write_file', path='/board.md', content='# For the board\n\nSales grew by 17 %.\n'),
        ]
    report = REPORT if 'bold' not in prompt else REPORT.replace('May', '**May**')
    thinking = ThinkingPart('The report needs a plan first.')
    return [
        thinking,
        'I plan first.',
        call('write_todos', todos=TODOS),
        call('write_file', path='/report.md', content=report),
    ]


async def say(page: Page, text: str) -> None:
    """Send a prompt, and wait for the end of its turn."""
    await page.fill('#prompt', text)
    await page.press('#prompt', 'Enter')
    await expect(page.locator('#dialogue .bubble').last).to_have_text(text)
    await expect(page.locator('#dialogue .answer').last).to_contain_text('I ')
    await expect(page.locator('#dialogue > [data-live]')).to_have_count(0)


async def talk(page: Page) -> None:
    """Run two conversations: one with a branch, and one with a pending call."""
    await say(page, 'Write a report on the sales')
    await say(page, 'Put the best month in bold')
    await page.locator('.turn').last.hover()
    await page.locator('.turn .edit').last.click()
    await page.fill('.prompt-form textarea', 'Put the growth in bold')
    await page.press('.prompt-form textarea', 'Enter')
    await expect(page.locator('.picker')).to_contain_text('2 / 2')
    await expect(page.locator('#dialogue > [data-live]')).to_have_count(0)
    await page.click('#new')
    await page.click('.choice >> nth=1')
    await say(page, 'Write a summary for the board')


async def take_pictures(browser: Browser, url: str, size: str, scheme: Any) -> None:
    """Take a screenshot of each view."""
    width, height = SIZES[size]
    context = await browser.new_context(viewport={'width': width, 'height': height}, color_scheme=scheme)
    page = await context.new_page()
    await page.goto(url)

    async def take(name: str) -> None:
        await page.evaluate('document.activeElement.blur()')
        await page.mouse.move(width / 2, height - 4)
        await page.screenshot(path=IMAGES / f'{name}-{size}-{scheme}.png')

    await expect(page.locator('.welcome')).to_be_visible()
    await take('new')
    if size == 'phone':
        await page.click('.only-narrow')
    await page.click('#conversations a >> nth=1')
    await expect(page.locator('.hljs-keyword').first).to_be_visible()
    await take('dialogue')
    await page.click('#to-versions')
    if size == 'desktop':
        await page.click('#graph .version >> nth=0')
        await page.click('[role=tab]:text-is("Changes")')
        await expect(page.locator('.diff')).to_be_visible()
    await take('versions')
    await page.evaluate("location.hash = '#/a'")
    await expect(page.locator('.card')).to_be_visible()
    await take('approvals')
    await page.keyboard.press(',')
    await expect(page.locator('.settings')).to_be_visible()
    await take('settings')
    await context.close()


def remember(messages: Sequence[ModelMessage], info: AgentInfo) -> Any:
    """Write the note that the prompt asks for."""
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    if any(isinstance(part, ToolReturnPart) for part in last.parts):
        return 'I will remember it.'
    prompts = [str(part.content) for part in last.parts if isinstance(part, UserPromptPart)]
    return [call('write_memory', content=NOTE_BY_PROMPT[prompts[0]])]


async def take_memory_picture(browser: Browser, url: str, size: str, scheme: Any) -> None:
    """Take a screenshot of what an agent remembers, with the revisions."""
    width, height = SIZES[size]
    context = await browser.new_context(viewport={'width': width, 'height': height}, color_scheme=scheme)
    page = await context.new_page()
    await page.goto(url)
    await expect(page.locator('.welcome')).to_be_visible()
    await page.evaluate('document.activeElement.blur()')
    await page.keyboard.press(',')
    await page.click('#to-memory')
    await page.click('.memory summary')
    await expect(page.locator('.memory li')).to_have_count(3)
    await page.evaluate('document.activeElement.blur()')
    await page.locator('dialog').screenshot(path=IMAGES / f'memory-{size}-{scheme}.png')
    await context.close()


@asynccontextmanager
async def serve(agents: Mapping[str, AnyAgent], settings: ServerSettings) -> AsyncGenerator[str]:
    """Serve agents, and yield the address of the page with a key."""
    async with open_store('memory:') as store:
        app = create_app(agents, store, settings)
        key = await create_api_key(store, name='picture', scopes=['run', 'approve'], owner='ada')
        with socket.create_server(('127.0.0.1', 0)) as listener:
            server = uvicorn.Server(uvicorn.Config(app, log_config=None))
            async with anyio.create_task_group() as group:
                group.start_soon(partial(server.serve, sockets=[listener]))
                yield f'http://127.0.0.1:{listener.getsockname()[1]}/#key={key}'
                server.should_exit = True


async def main() -> None:
    """Serve the page, and take the screenshots."""
    model = ScriptedModel(then=answer)
    agents = {
        'analyst': create_deep_agent(model),
        'careful': create_deep_agent(model, interrupt_on={'write_file': True}),
    }
    agents['analyst'].description = 'Reads tables, compares figures, and writes reports.'
    agents['careful'].description = 'Asks before it writes a file.'
    remembering = {'analyst': create_deep_agent(ScriptedModel(then=remember))}
    IMAGES.mkdir(parents=True, exist_ok=True)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shutil.which('chromium'), args=['--no-sandbox'])
        page = await browser.new_page(viewport={'width': SIZES['desktop'][0], 'height': SIZES['desktop'][1]})
        async with serve(agents, ServerSettings()) as url:
            await page.goto(url)
            await talk(page)
            for size, scheme in product(SIZES, ('light', 'dark')):
                await take_pictures(browser, url, size, scheme)
        async with serve(remembering, ServerSettings(memory=True)) as url:
            await page.goto(url)
            for prompt in NOTE_BY_PROMPT:
                await page.click('#new')
                await say(page, prompt)
            for size, scheme in product(SIZES, ('light', 'dark')):
                await take_memory_picture(browser, url, size, scheme)
        await browser.close()


if __name__ == '__main__':
    sys.exit(anyio.run(main))
