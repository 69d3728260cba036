"""An agent that writes the files of its prompt, and a client that talks to it."""

from __future__ import annotations

from typing import Any

from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep.testing import Answer, call
from tests.server.conftest import Client


def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
    """Write files as in the prompt `path=text path=text`, or call `hold`."""
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    said = [str(part.content) for part in last.parts if isinstance(part, UserPromptPart)]
    if not said:
        return 'Written.'
    if said[-1] == 'hold':
        return call('hold')
    pairs = [word.partition('=') for word in said[-1].split() if '=' in word]
    return [call('write_file', path=path, content=f'{text}\n') for path, _, text in pairs] or 'Nothing.'


async def begin(client: Client) -> str:
    return (await client.post('/api/conversations', json={'agent': 'analyst'})).headers['location']


async def say(client: Client, path: str, prompt: str, **more: Any) -> str:
    """Run a turn and return the id of its version."""
    return (await client.post(f'{path}/turns', json={'prompt': prompt, **more})).json()['version_id']
