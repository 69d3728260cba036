"""The order of instructions and notices: requests begin with what all conversations share."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from pydantic_ai import Agent, models
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelRequest, SystemPromptPart, UserPromptPart
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider

from pydantic_deep import DeepAgentDeps, create_deep_agent
from pydantic_deep.filesystem import Filesystem
from pydantic_deep.plan_mode import PlanMode
from pydantic_deep.project_context import ProjectContext
from pydantic_deep.summarization import Messages, Summarization
from pydantic_deep.testing import ScriptedModel, SeenRequest, call
from pydantic_deep_backends import StateBackend

pytestmark = pytest.mark.anyio

FILES = {'/AGENTS.md': 'Use tabs.'}


def contents(request: SeenRequest) -> tuple[list[str], list[str]]:
    """Return the first lines of the last instructions, those that are notices, and the parts of the first message."""
    instructions = [part.content.partition('\n')[0] for part in request.parameters.instruction_parts or []]
    notices = [text for text in instructions if text.endswith(':')]
    assert instructions[len(instructions) - len(notices) :] == notices
    return notices, [str(getattr(part, 'content', '')) for part in request.messages[0].parts]


@pytest.mark.parametrize('streams', [False, True])
async def test_notices_before_the_first_prompt_are_the_last_instructions(streams: bool) -> None:
    """The history has them before the prompt, where a later run finds them."""
    model = ScriptedModel(call('ls'), 'done')
    agent = create_deep_agent(
        model, instructions='Be brief.', capabilities=[ProjectContext(), PlanMode()], interrupt_on={'write_file': True}
    )
    deps = DeepAgentDeps(backend=StateBackend(FILES))
    if streams:
        async with agent.run_stream_events('go', deps=deps) as events:
            async for _ in events:
                pass
    else:
        result = await agent.run('go', deps=deps)
        stored = result.all_messages()[0].parts
        assert [isinstance(part, SystemPromptPart) for part in stored] == [True, True, True, False]
    for request in model.requests:
        notices, parts = contents(request)
        assert sorted(notices) == ['Files:', 'Instructions of the project:', 'Plan mode:']
        assert parts == ['go']


async def test_system_prompts_of_the_agent_stay_before_the_instructions() -> None:
    model = ScriptedModel('done')
    agent = Agent(model, system_prompt='You are kind.', capabilities=[Filesystem(backend=StateBackend(FILES))])
    await agent.run('go')
    assert contents(model.requests[0]) == (['Files:'], ['You are kind.', 'go'])


async def test_notices_remain_system_prompts_without_instructions() -> None:
    model = ScriptedModel('done')
    agent = Agent(model, deps_type=DeepAgentDeps, capabilities=[ProjectContext()])
    await agent.run('go', deps=DeepAgentDeps(backend=StateBackend(FILES)))
    assert contents(model.requests[0]) == ([], ['Instructions of the project:\nAGENTS.md:\nUse tabs.', 'go'])


async def test_later_notices_stay_where_they_are() -> None:
    """Moving them would change the beginning of the request, which the provider has cached."""
    model = ScriptedModel('one', 'two')
    agent = create_deep_agent(model)
    deps = DeepAgentDeps(backend=StateBackend(FILES))
    history = (await agent.run('go', deps=deps)).all_messages()
    await deps.backend.write_bytes('/new.py', b'')
    await agent.run('more', deps=deps, message_history=history)
    first, second = model.requests
    assert second.parameters.instruction_parts == first.parameters.instruction_parts
    last = second.messages[-1]
    assert isinstance(last, ModelRequest)
    assert [type(part) for part in last.parts] == [SystemPromptPart, UserPromptPart]


async def test_request_for_a_summary_has_the_same_beginning() -> None:
    model = ScriptedModel(*[call('write_file', path='a.txt', content=str(number)) for number in range(4)], 'x', 'done')
    summarization = Summarization(trigger=Messages(8), keep=Messages(2))
    agent = create_deep_agent(model, capabilities=[summarization])
    await agent.run('go', deps=DeepAgentDeps(backend=StateBackend(FILES)))
    assert len({str(request.parameters.instruction_parts) for request in model.requests}) == 1
    *asked, after = model.requests
    assert {contents(request)[1][0] for request in asked} == {'go'}
    assert contents(after)[1][0].startswith('The user asked first:\ngo\n\nx')


async def test_conversations_share_the_cached_instructions_at_anthropic(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache point is before the list of files, so another conversation reads tools and instructions from the cache."""
    monkeypatch.setattr(models, 'ALLOW_MODEL_REQUESTS', True)  # the mock transport does not reach the network
    requests: list[dict[str, Any]] = []

    def refuse(request: httpx2.Request) -> httpx2.Response:
        requests.append(json.loads(request.content))
        return httpx2.Response(400, json={'type': 'error', 'error': {'type': 'invalid_request_error', 'message': 'no'}})

    client = httpx2.AsyncClient(transport=httpx2.MockTransport(refuse))
    model = AnthropicModel('claude-opus-5-5', provider=AnthropicProvider(api_key='none', http_client=client))
    agent = create_deep_agent(model, instructions='Be brief.')
    for name in ('/one.py', '/two.py'):
        with pytest.raises(ModelHTTPError):
            await agent.run('go', deps=DeepAgentDeps(backend=StateBackend({name: ''})))
    one, two = requests
    cached = [
        next(at for at, block in enumerate(request['system']) if 'cache_control' in block) for request in requests
    ]
    assert [block['text'] for block in one['system'][cached[0] + 1 :]] == ['Files:\none.py']
    assert (one['tools'], one['system'][:-1]) == (two['tools'], two['system'][:-1])
