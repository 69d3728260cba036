"""The server for the tests of JavaScript clients. It prints its address and two keys as one line of JSON.

The prompts of the user determine the actions of its agents: see `answer`.
"""

from __future__ import annotations

import json
import socket
from collections import defaultdict

import anyio
import uvicorn
from pydantic_ai import DeferredToolRequests, ToolDefinition
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.toolsets import ExternalToolset

from pydantic_deep import create_deep_agent
from pydantic_deep.server import ServerSettings, create_api_key, create_app
from pydantic_deep.store import open_store
from pydantic_deep.subagents import Subagent
from pydantic_deep.testing import Answer, ScriptedModel, call

SECRET = 'the inside of the server'
"""Text of an internal error, which no client may receive."""


WEATHER = ToolDefinition(
    name='weather',
    description='The weather of a city.',
    parameters_json_schema={'type': 'object', 'properties': {'city': {'type': 'string'}}, 'required': ['city']},
)
"""A tool that the browser runs."""


def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
    """Perform the action that the first word of the prompt names, then answer with its result."""
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    results = [part.model_response_str() for part in last.parts if isinstance(part, ToolReturnPart)]
    forced = (info.model_settings or {}).get('tool_choice')
    if info.output_tools or isinstance(forced, list):  # some clients describe the answer by a function
        key = info.output_tools[0].outer_typed_dict_key if info.output_tools else None
        report: dict[str, object] = {'city': 'Rome', 'degrees': 40}
        name = forced[0] if isinstance(forced, list) else 'final_result'
        return call(name, **report if key is None else {key: report})
    if results:
        return f'Done: {results[-1]}'
    prompt = [str(part.content) for part in last.parts if isinstance(part, UserPromptPart)][-1]
    word, _, rest = prompt.partition(' ')
    match word:
        case 'write':
            return ['I write.', call('write_file', path='/a.txt', content=rest)]
        case 'plan':
            return call('write_todos', todos=[{'content': rest, 'status': 'in_progress'}])
        case 'hold' | 'open':
            return ['I wait.', call(word, gate=rest)]
        case 'weather':
            return ['I look.', *(call('weather', city=city) for city in rest.split())]
        case 'delegate':
            return call('task', subagent='scribe', description=f'write {rest}')
        case 'fail':
            raise ValueError(SECRET)
        case _:
            return f'You said: {prompt}, after {len(messages) - 1} messages.'


class Gates:
    """Tools that block a run until another run releases it."""

    def __init__(self) -> None:
        self._gates: defaultdict[str, anyio.Event] = defaultdict(anyio.Event)

    async def hold(self, gate: str) -> str:
        """Wait at a gate."""
        await self._gates[gate].wait()
        return 'held'

    async def open(self, gate: str) -> str:
        """Open a gate."""
        self._gates[gate].set()
        return 'opened'


async def main() -> None:
    """Serve until stopped."""
    gates, model = Gates(), ScriptedModel(then=answer)
    scribe = Subagent(name='scribe', description='Writes.', instructions='Write.')
    agents = {
        'writer': create_deep_agent(model, tools=[gates.hold, gates.open]),
        'careful': create_deep_agent(model, subagents=[scribe], interrupt_on={'write_file': True}),
        'outside': create_deep_agent(
            model, toolsets=[ExternalToolset([WEATHER])], output_type=[str, DeferredToolRequests]
        ),
    }
    async with open_store('memory:') as store:
        keys = {
            owner: await create_api_key(store, name='js', scopes=['run', 'approve'], owner=owner)
            for owner in ('ada', 'bob')
        }
        settings = ServerSettings(requests_per_second=1000, request_burst=10_000, shutdown_seconds=1)
        app = create_app(agents, store, settings)
        with socket.create_server(('127.0.0.1', 0)) as listener:
            url = f'http://127.0.0.1:{listener.getsockname()[1]}'
            print(json.dumps({'url': url, **keys}), flush=True)
            await uvicorn.Server(uvicorn.Config(app, log_config=None)).serve(sockets=[listener])


if __name__ == '__main__':
    anyio.run(main)
