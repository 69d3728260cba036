"""Errors of a provider over HTTP with the real SDK, and a local model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

pytestmark = pytest.mark.slow


class Provider(BaseHTTPRequestHandler):
    """Answers requests for the model `local`, and refuses other models and the key `wrong-key`."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers['content-length'])))
        if self.headers['authorization'] == 'Bearer wrong-key':
            self._refuse(401, 'Incorrect API key provided: wrong-key.', 'invalid_api_key')
        elif request['model'] != 'local':
            self._refuse(404, 'The model does not exist.', 'model_not_found')
        else:
            chunk = {'id': '1', 'object': 'chat.completion.chunk', 'created': 1, 'model': 'local'}
            delta = {'index': 0, 'delta': {'role': 'assistant', 'content': 'Hello.'}, 'finish_reason': 'stop'}
            body = f'data: {json.dumps({**chunk, "choices": [delta]})}\n\ndata: [DONE]\n\n'
            self._answer(200, 'text/event-stream', body)

    def _refuse(self, status: int, message: str, code: str) -> None:
        self._answer(status, 'application/json', json.dumps({'error': {'message': message, 'code': code}}))

    def _answer(self, status: int, media_type: str, body: str) -> None:
        self.send_response(status)
        self.send_header('content-type', media_type)
        self.send_header('content-length', str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def provider() -> Generator[str]:
    """The base URL of a server with the API of OpenAI."""
    server = HTTPServer(('127.0.0.1', 0), Provider)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f'http://127.0.0.1:{server.server_port}/v1'
    server.shutdown()
    thread.join()
    server.server_close()


def run(work: Path, model: str, **variables: str) -> subprocess.CompletedProcess[str]:
    program = 'import sys, pydantic_deep.cli; sys.exit(pydantic_deep.cli.main())'
    return subprocess.run(
        [sys.executable, '-c', program, 'run', 'Hi', '--dir', str(work), '--model', model],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )


def test_local_server_requires_no_key(work: Path, provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv('OPENAI_API_KEY', raising=False)
    done = run(work, 'openai-chat:local', OPENAI_BASE_URL=provider)
    assert (done.returncode, done.stdout) == (0, 'Hello.\n')


def test_unknown_model_exits_with_3(work: Path, provider: str) -> None:
    done = run(work, 'openai-chat:loacl', OPENAI_BASE_URL=provider)
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1] == "'loacl' answered with HTTP 404: The model does not exist."


def test_refused_key_exits_with_3(work: Path, provider: str) -> None:
    done = run(work, 'openai-chat:local', OPENAI_BASE_URL=provider, OPENAI_API_KEY='wrong-key')
    assert done.returncode == 3
    assert "The provider refuses the key. 'local' answered with HTTP 401: Incorrect API key provided" in done.stderr
    assert 'Traceback' not in done.stderr


def test_unreachable_server_exits_with_1(work: Path) -> None:
    done = run(work, 'openai-chat:local', OPENAI_BASE_URL='http://127.0.0.1:9/v1')
    assert done.returncode == 1
    assert "'local' cannot be reached: " in done.stderr.splitlines()[-1]
