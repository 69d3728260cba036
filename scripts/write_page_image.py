"""Takes the screenshot of the web page for the server guide: `.venv/bin/python scripts/write_page_image.py`.

It needs Chromium (`scripts/install-chromium.sh`). A scripted model answers, so that the screenshot is always the same
except for the time of day.
"""

from __future__ import annotations

import shutil
import socket
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import uvicorn
from playwright.async_api import Page, async_playwright, expect
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import create_deep_agent, open_store
from pydantic_deep.server import create_api_key, create_app
from pydantic_deep.testing import ScriptedModel, call

IMAGE = Path(__file__).parents[1] / 'docs' / 'images' / 'server.png'

SIZE: Final = (1280, 860)
"""Width and height of the page in pixels."""

TODOS = [{'content': 'Read the table', 'status': 'completed'}, {'content': 'Write the report', 'status': 'completed'}]

REPORT = '# Sales\n\n| month | sales |\n|---|---|\n| April | 12 |\n| May | 14 |\n'


def answer(messages: Sequence[ModelMessage], info: AgentInfo) -> Any:
    """Plan and write the requested file."""
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    if any(isinstance(part, ToolReturnPart) for part in last.parts):
        return 'The report is in /report.md.'
    prompt = [str(part.content) for part in last.parts if isinstance(part, UserPromptPart)][-1]
    if 'board' in prompt:
        return [
            'I write it for them.',
            call('write_file', path='/board.md', content='# For the board\n\nSales grew.\n'),
        ]
    report = REPORT if 'bold' not in prompt else REPORT.replace('May', '**May**')
    return ['I plan first.', call('write_todos', todos=TODOS), call('write_file', path='/report.md', content=report)]


async def say(page: Page, text: str, versions: int) -> None:
    """Send a prompt, and wait until the page shows this many versions."""
    await page.fill('#prompt', text)
    await page.press('#prompt', 'Control+Enter')
    await expect(page.locator('#graph .version')).to_have_count(versions)


async def take_picture(page: Page) -> None:
    """Run two conversations, and take a screenshot of the first, with the pending call of the second."""
    await page.select_option('#agents', 'careful')
    await say(page, 'Write a summary for the board', 2)
    await page.keyboard.press('Escape')
    await page.click('#new button')
    await page.select_option('#agents', 'analyst')
    await say(page, 'Write a report on the sales', 2)
    await say(page, 'Put the best month in bold', 3)
    await page.evaluate('document.activeElement.blur()')
    await page.screenshot(path=IMAGE)


async def main() -> None:
    """Serve the page, and take the screenshot."""
    model = ScriptedModel(then=answer)
    gate = {'write_file': True}
    agents = {'analyst': create_deep_agent(model), 'careful': create_deep_agent(model, interrupt_on=gate)}
    async with open_store('memory:') as store, async_playwright() as playwright:
        app = create_app(agents, store)
        key = await create_api_key(store, name='picture', scopes=['run', 'approve'], owner='ada')
        with socket.create_server(('127.0.0.1', 0)) as listener:
            server = uvicorn.Server(uvicorn.Config(app, log_config=None))
            async with anyio.create_task_group() as group:
                group.start_soon(partial(server.serve, sockets=[listener]))
                browser = await playwright.chromium.launch(
                    executable_path=shutil.which('chromium'), args=['--no-sandbox']
                )
                page = await browser.new_page(viewport={'width': SIZE[0], 'height': SIZE[1]})
                await page.goto(f'http://127.0.0.1:{listener.getsockname()[1]}/#key={key}')
                await take_picture(page)
                await browser.close()
                server.should_exit = True


if __name__ == '__main__':
    sys.exit(anyio.run(main))
