"""simonw's `llm` with its OpenAI plugin, configured like any compatible server in `extra-openai-models.yaml`."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import llm
from llm.default_plugins.openai_models import AsyncChat, Chat
from run import Server


def _model(server: Server) -> Chat:
    model = Chat('writer', model_name='writer', api_base=server.openai, supports_tools=True, supports_schema=True)
    model.key = server.key
    return model


def weather(city: str) -> str:
    """Return the weather of a city."""
    return f'sunny in {city}'


def check_prompt(server: Server) -> None:
    assert _model(server).prompt('Hi').text() == 'You said: Hi, after 0 messages.'
    assert _model(server).prompt('Hi', system='Be brief.', stream=False).text().startswith('You said: Hi')


def check_stream(server: Server) -> None:
    assert ''.join(_model(server).prompt('Hi')) == 'You said: Hi, after 0 messages.'


async def check_async(server: Server) -> None:
    model = AsyncChat('writer', model_name='writer', api_base=server.openai)
    model.key = server.key
    assert await model.prompt('Hi').text() == 'You said: Hi, after 0 messages.'


def check_conversation(server: Server) -> None:
    conversation = _model(server).conversation()
    conversation.prompt('One').text()
    assert conversation.prompt('Two').text() == 'You said: Two, after 2 messages.'


def check_tools(server: Server) -> None:
    for stream in (True, False):
        chain = _model(server).chain('weather Paris', tools=[weather], stream=stream)
        assert chain.text().endswith('Done: sunny in Paris')


def check_schema(server: Server) -> None:
    found = _model(server).prompt('Report', schema=llm.schema_dsl('city, degrees int')).text()
    assert json.loads(found) == {'city': 'Rome', 'degrees': 40}, found


def check_command_line(server: Server) -> None:
    with tempfile.TemporaryDirectory() as home:
        listed = f'- model_id: clerk\n  model_name: writer\n  api_base: {server.openai}\n  api_key_name: clerk\n'
        (Path(home) / 'extra-openai-models.yaml').write_text(listed)
        command = [sys.executable, '-m', 'llm', '-m', 'clerk', '--key', server.key, 'Hi']
        found = subprocess.run(
            command, env={'LLM_USER_PATH': home}, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        assert found.stdout.strip() == 'You said: Hi, after 0 messages.', found
