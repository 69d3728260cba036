"""The web page in Chromium: a browser, and functions that open the page and talk to an agent on it."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import httpx
import pytest
from playwright.async_api import Browser, Locator, Page, Route, async_playwright, expect
from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from tests.server.conftest import Listen, MakeClient, Served

CHROMIUM = shutil.which('chromium')

page_marks = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason='Chromium is missing: see scripts/install-chromium.sh'),
]
"""The marks of tests that open the page."""

expect.set_options(timeout=60_000)  # the default of five seconds can be too short on a busy machine

REPOSITORY = Path(__file__).parents[3]

AXE = REPOSITORY / 'web/node_modules/axe-core/axe.min.js'

SLOW_FRAMES = """
const request = window.requestAnimationFrame.bind(window);
window.requestAnimationFrame = (callback) => setTimeout(() => request(callback), 200);
"""
"""Delays the frames. With slow answers, it finds races: SLOW_PAGE=1 make test-slow ARGS=tests/server/static"""

SIZES: list[dict[str, Any]] = [{}, {'width': 390, 'height': 780}]
"""Options of `open_page`: a desktop and a phone."""


@dataclass(frozen=True)
class Seen:
    """The page and the errors of its console."""

    page: Page
    problems: list[str]

    @property
    def turns(self) -> Locator:
        """The turns of the dialogue."""
        return self.page.locator('#dialogue > .turn')

    @property
    def calls(self) -> Locator:
        """The lines of tool calls, with their states."""
        return self.page.locator('#dialogue .call > summary')

    @property
    def versions(self) -> Locator:
        """The names in the graph, newest first."""
        return self.page.locator('#graph .version .name')

    async def send(self, text: str) -> None:
        """Send a prompt."""
        await self.page.fill('#prompt', text)
        await self.page.press('#prompt', 'Enter')

    async def say(self, text: str, *, until: str) -> None:
        """Send a prompt, and wait for the end of its answer, as stored."""
        await self.send(text)
        await expect(self.turns.last.locator('.bubble')).to_contain_text(text)
        await expect(self.turns.last.locator('.answer > :last-child')).to_have_text(until)
        await expect(self.page.locator('#dialogue > [data-live]')).to_have_count(0)

    async def press(self, key: str) -> None:
        """Press a key without a focused element."""
        await self.page.evaluate('document.activeElement.blur()')
        await self.page.keyboard.press(key)

    async def show_versions(self) -> None:
        """Show the versions of the open conversation."""
        await self.page.click('#to-versions')
        await expect(self.versions.first).to_be_visible()


OpenPage: TypeAlias = Callable[..., Awaitable[Seen]]


class Held:
    """Requests that wait until the test releases them."""

    def __init__(self) -> None:
        self.arrived, self.released = anyio.Event(), anyio.Event()

    async def __call__(self, route: Route) -> None:
        self.arrived.set()
        await self.released.wait()
        await route.continue_()


class Script:
    """A model with a settable next response to a prompt. Results of tools are answered with `Done.`"""

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


@pytest.fixture(scope='module')
def anyio_backend() -> str:
    """The tests of a module have one event loop, as they share a browser."""
    return 'asyncio'


@pytest.fixture(scope='module')
async def chromium(anyio_backend: str) -> AsyncGenerator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=['--no-sandbox'])
        yield browser
        await browser.close()


@pytest.fixture
async def browser(chromium: Browser) -> AsyncGenerator[Browser]:
    """A browser without open pages and without storage of earlier tests."""
    yield chromium
    await close_pages(chromium)


async def close_pages(browser: Browser) -> None:
    """Close all pages, with their storage."""
    for context in browser.contexts:
        await context.close()


@pytest.fixture
async def url(served: Served, listen: Listen) -> AsyncGenerator[str]:
    """The address of the page."""
    async with listen(served.app) as url:
        yield url


@pytest.fixture
async def open_page(browser: Browser, served: Served, url: str) -> AsyncGenerator[OpenPage]:
    """Return a function that opens the page with a key and a viewport size."""

    async def open(
        *, key: str | None = None, width: int = 1280, height: int = 800, dark: bool = False, at: str = ''
    ) -> Seen:
        key = await served.key('run', 'approve') if key is None else key
        scheme = 'dark' if dark else 'light'
        context = await browser.new_context(viewport={'width': width, 'height': height}, color_scheme=scheme)
        context.set_default_timeout(60_000)
        if 'SLOW_PAGE' in os.environ:
            await context.route('**/api/**', answer_slowly)
            await context.add_init_script(SLOW_FRAMES)
        page = await context.new_page()
        problems: list[str] = []
        page.on('pageerror', lambda error: problems.append(str(error)))
        page.on('console', lambda message: problems.append(message.text) if message.type == 'error' else None)
        page.on('request', lambda request: problems.append(request.url) if is_foreign(request.url, url) else None)
        if at:
            await context.add_init_script(f"sessionStorage.setItem('key', '{key}')")
            await page.goto(f'{url}/{at}')
        else:
            await page.goto(f'{url}/#key={key}')
        return Seen(page, problems)

    yield open
    await close_pages(browser)  # before their server stops


async def answer_slowly(route: Route) -> None:
    """Let a request wait for up to half a second, so that later ones can overtake it."""
    await anyio.sleep(random.choice([0, 0.15, 0.5]))
    await route.continue_()


def is_foreign(requested: str, url: str) -> bool:
    """Return whether a request leaves the server."""
    return not requested.startswith((f'{url}/', f'blob:{url}/', 'data:'))


@pytest.fixture
async def client(make_client: MakeClient) -> httpx.AsyncClient:
    return await make_client('run', 'approve')


async def ask(client: httpx.AsyncClient, script: Script, *calls: Any, agent: str = 'careful') -> dict[str, Any]:
    """Make an agent call tools in a new conversation, and return the run."""
    script.next = list(calls)
    path = (await client.post('/api/conversations', json={'agent': agent})).headers['location']
    run = (await client.post(f'{path}/turns', json={'prompt': 'go'})).json()
    return run | {'path': path}


@pytest.fixture(scope='session')
def axe() -> str:
    """The script of axe-core, which is installed if it is missing."""
    if not AXE.exists():
        subprocess.run(['bash', 'scripts/build-page.sh', '--check'], cwd=REPOSITORY, check=True)
    return AXE.read_text()


async def check(page: Page, axe: str, state: str) -> None:
    """Check the page as it is, in both color schemes."""
    if await page.evaluate('typeof axe') == 'undefined':
        await page.evaluate(f'() => {{ {axe} }}')
    for scheme in ('light', 'dark'):
        await page.emulate_media(color_scheme=scheme)
        found = await page.evaluate("async () => (await axe.run({resultTypes: ['violations']})).violations")
        told = [
            (each['id'], [(node['html'][:200], node['failureSummary']) for node in each['nodes'][:3]]) for each in found
        ]
        assert told == [], (state, scheme)
