"""How long the web page takes with 2,000 messages in a conversation: `python benchmarks/page.py`.

It needs Chromium (`scripts/install-chromium.sh`). The conversation has 1,000 turns in one version; every tenth answer has a
table and code. Each figure is the median of several rounds, each in a new browser context
without a cache; the time to a key's paint is that of the browser's Event Timing, whose resolution is 8 ms.
These times grow with the load of the machine. The CPU time of the page's main thread, from the browser's trace, does not: the
longest task is what a key waits for at most on an idle machine, in addition to its own task.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import statistics
import sys
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

import anyio
import anyio.lowlevel
import uvicorn
from playwright.async_api import Browser, Page, async_playwright
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_deep import create_deep_agent, open_store
from pydantic_deep.server import ServerSettings, create_api_key, create_app
from pydantic_deep.server._state import OWNER

TURNS: Final = 1_000
"""Turns of the conversation, of a prompt and an answer each."""

ROUNDS: Final = 3
"""Repetitions of each measurement."""

KEYS: Final = 50
"""Keys that are pressed in each round."""

PIECES: Final = 400
"""Pieces of an answer that are streamed while keys are pressed, 20 ms apart."""

LENGTH: Final = 40_000
"""Characters of a long answer that are there before."""

RICH: Final = """Sales grew by **17 %**, see `/report.md`.

| Month | Orders | Revenue |
|---|--:|--:|
| April | 12 | $ 1,204 |
| May | 14 | $ 1,409 |

```python
def growth(before: float, after: float) -> float:
    return (after - before) / before * 100  # 16.7
```
"""

CODE: Final = RICH[RICH.index('```') : RICH.rindex('```')]

ANSWERS: Final = {
    'a short answer': 'words ' * (LENGTH // 8),
    'long Markdown': RICH * (2 * LENGTH // len(RICH)),
    'long code': '```python\n' + '\n'.join(CODE.splitlines()[1:] * (2 * LENGTH // len(CODE))),
}
"""The answers by their prompts."""

NOTE_TIMES: Final = """
window.times = { keys: [] };
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (entry.name === 'keydown') window.times.keys.push(entry.duration);
}).observe({ type: 'event', durationThreshold: 16 });
new MutationObserver((_, observer) => {
  if (!document.querySelector('#dialogue > .turn:last-child .markdown')) return;
  observer.disconnect();
  requestAnimationFrame(() => setTimeout(() => { window.times.dialogue = performance.now(); }));
}).observe(document, { childList: true, subtree: true });
"""
"""Records when the last turn was painted, and how long each key took to its paint. Shorter ones than 16 ms are not
reported."""


async def answer(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
    """Stream an answer slowly, a long one from its middle."""
    text = ANSWERS[str(getattr(messages[-1].parts[-1], 'content', None))]
    begin = LENGTH if len(text) > LENGTH else 0
    if begin:
        yield text[:begin]
    for number in range(PIECES):
        yield text[begin + 20 * number : begin + 20 * number + 20]
        await asyncio.sleep(0.02)


def make_history() -> list[ModelMessage]:
    """Return the messages of the conversation."""
    history: list[ModelMessage] = []
    for number in range(TURNS):
        text = RICH if number % 10 == 0 else f'Answer {number} in **one** sentence.'
        history += [ModelRequest([UserPromptPart(f'Question {number}')]), ModelResponse([TextPart(text)])]
    return history


@dataclass(frozen=True, kw_only=True)
class Served:
    """The address of the page, a key for it, and the long conversation."""

    url: str
    key: str
    conversation_id: str


@asynccontextmanager
async def serving() -> AsyncGenerator[Served]:
    """Serve the page, and store the long conversation."""
    agent = create_deep_agent(FunctionModel(stream_function=answer), summarization=False)
    async with open_store('memory:') as store:
        app = create_app({'analyst': agent}, store, ServerSettings(requests_per_second=1000, request_burst=10_000))
        key = await create_api_key(store, name='benchmark', scopes=['run', 'approve'], owner='ada')
        with socket.create_server(('127.0.0.1', 0)) as listener:
            server = uvicorn.Server(uvicorn.Config(app, log_config=None))
            async with anyio.create_task_group() as group:
                group.start_soon(partial(server.serve, sockets=[listener]))
                while not server.started:
                    await anyio.lowlevel.checkpoint()
                root = await app.state.server.agents['analyst'].create(name='Long', metadata={OWNER: 'ada'})
                version = await root.with_messages(make_history(), moves_head=True)
                url = f'http://127.0.0.1:{listener.getsockname()[1]}'
                yield Served(url=url, key=key, conversation_id=version.conversation_id)
                server.should_exit = True


async def open_dialogue(browser: Browser, served: Served, found: dict[str, list[float]]) -> Page:
    """Open the conversation in a browser that has nothing cached."""
    page = await browser.new_page(viewport={'width': 1280, 'height': 860})
    await page.add_init_script(f"sessionStorage.setItem('key', '{served.key}');{NOTE_TIMES}")
    async with traced(page, found, 'until the last turns are painted'):
        await page.goto(f'{served.url}/#/c/{served.conversation_id}')
        await page.wait_for_function('() => window.times.dialogue')
    return page


@dataclass(frozen=True, kw_only=True)
class MainThread:
    """The CPU time of the main thread of a page, in ms."""

    total: float
    longest: float
    """That of its longest task."""


@asynccontextmanager
async def traced(page: Page, found: dict[str, list[float]], name: str) -> AsyncGenerator[None]:
    """Add the CPU times of the page's main thread during the block."""
    browser = page.context.browser
    assert browser is not None
    await browser.start_tracing(page=page, categories=['toplevel', 'devtools.timeline', '__metadata'])
    try:
        yield
    finally:
        times = read_trace(await browser.stop_tracing())
    found[f'{name}, CPU of the longest task, ms'].append(times.longest)
    found[f'{name}, CPU of all tasks, ms'].append(times.total)


def read_trace(trace: bytes) -> MainThread:
    """Return the CPU times of the busiest main thread of a trace, which is that of the page."""
    events = json.loads(trace)['traceEvents']
    main = {
        (event['pid'], event['tid'])
        for event in events
        if event['name'] == 'thread_name' and event['args'].get('name') == 'CrRendererMain'
    }
    tasks: dict[tuple[int, int], list[float]] = defaultdict(list)
    for event in events:
        if event['name'].endswith('RunTask') and (event['pid'], event['tid']) in main:
            tasks[event['pid'], event['tid']].append(event.get('tdur', 0) / 1000)
    busiest = max(tasks.values(), key=sum)
    return MainThread(total=sum(busiest), longest=max(busiest))


async def type_keys(page: Page) -> list[float]:
    """Press keys in the prompt, and return the milliseconds to the paint of each."""
    await page.evaluate('window.times.keys = []')
    await page.focus('#prompt')
    for _ in range(KEYS):
        await page.keyboard.press('x')
        await page.wait_for_timeout(30)
    await page.wait_for_timeout(200)
    slow: list[float] = await page.evaluate('window.times.keys')
    return [*slow, *[0.0] * (KEYS - len(slow))]


async def measure(browser: Browser, served: Served, found: dict[str, list[float]]) -> None:
    """Measure one round."""
    page = await open_dialogue(browser, served, found)
    paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    found['first contentful paint, ms'].append(await page.evaluate(paint))
    found['last turns are painted, ms'].append(await page.evaluate('window.times.dialogue'))
    await press_keys(page, found, 'key, idle')
    for prompt in ANSWERS:
        await page.fill('#prompt', prompt)
        await page.press('#prompt', 'Enter')
        await page.wait_for_selector('[data-live=true] .markdown')
        await page.wait_for_timeout(1000)
        await press_keys(page, found, f'key, while {prompt} is streamed')
        await page.fill('#prompt', '')
        await page.wait_for_selector('[data-live]', state='detached', timeout=60_000)
    while await page.locator('.note.center').count():
        await page.evaluate("document.querySelector('.scroller').scrollTop = 0")
        await page.wait_for_timeout(20)
    await press_keys(page, found, f'key, after reading up to the first of {TURNS:,} turns')
    await page.context.close()


async def press_keys(page: Page, found: dict[str, list[float]], name: str) -> None:
    """Press keys, and add the 95th percentile and the maximum of a round, and the CPU times of the page."""
    async with traced(page, found, name):
        times = await type_keys(page)
    found[f'{name}, 95th percentile, ms'].append(statistics.quantiles(times, n=20)[-1])
    found[f'{name}, maximum, ms'].append(max(times))


async def main() -> None:
    """Measure, and print the medians."""
    found: dict[str, list[float]] = defaultdict(list)
    async with serving() as served, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shutil.which('chromium'), args=['--no-sandbox'])
        for _ in range(ROUNDS):
            await measure(browser, served, found)
        await browser.close()
    for name, times in found.items():
        print(f'{statistics.median(times):8.0f}  {name}')


if __name__ == '__main__':
    sys.exit(anyio.run(main))
