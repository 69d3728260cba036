"""A web of two hosts on loopback, and a search engine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from ddgs.ddgs import DDGS
from ddgs.exceptions import DDGSException

PAGE = b'<html><head><title>Tea</title></head><body><h1>Green</h1><p>Steep <b>once</b>.</p></body></html>'


@dataclass
class Site:
    """A server whose pages are those that a test adds, by path."""

    port: int = 0
    pages: dict[str, tuple[int, dict[str, str], bytes]] = field(
        default_factory=dict[str, tuple[int, dict[str, str], bytes]]
    )
    requested: list[str] = field(default_factory=list[str])
    """The hosts and paths of all requests."""
    may_answer: threading.Event = field(default_factory=threading.Event)

    def url(self, path: str = '/tea', host: str = '127.0.0.1') -> str:
        return f'http://{host}:{self.port}{path}'

    def redirect(self, path: str, target: str) -> None:
        self.pages[path] = (302, {'Location': target}, b'')


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site(pages={'/tea': (200, {'Content-Type': 'text/html'}, PAGE)})
    site.may_answer.set()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.requested.append(f'{self.headers["Host"].split(":")[0]}{self.path}')
            site.may_answer.wait()
            status, headers, body = site.pages.get(self.path, (404, {}, b''))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None: ...

    with ThreadingHTTPServer(('127.0.0.1', 0), Handler) as server:
        site.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield site
        site.may_answer.set()
        server.shutdown()
        thread.join()


@dataclass
class Engine:
    """The results of all searches, and their queries."""

    results: list[dict[str, str]] | None = None
    """`None`: the search fails."""
    queries: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    engine = Engine()

    def text(self: DDGS, query: str, *, max_results: int) -> list[dict[str, str]]:
        engine.queries.append((query, max_results))
        if engine.results is None:
            raise DDGSException('No results found.')
        return engine.results

    monkeypatch.setattr(DDGS, 'text', text)
    return engine
