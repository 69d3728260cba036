"""One run of a tree of agents in a separate process, which shares only files with other runs.

`python three_levels_program.py DIRECTORY` starts, or resumes `conversation.json` with the decisions in
`decisions.json` of the directory. It prints the answer and the pending calls as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
from pydantic_ai import Agent, ConversationTypeAdapter, DeferredToolRequests, models
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.usage import UsageLimits

from pydantic_deep import (
    Approve,
    DeepAgentDeps,
    Deny,
    Edit,
    LocalBackend,
    Respond,
    Subagent,
    Subagents,
    answer_approvals,
    create_deep_agent,
    pending_approvals,
)
from pydantic_deep.testing import ScriptedModel

models.ALLOW_MODEL_REQUESTS = False

DIRECTORY = Path(sys.argv[1])
WORK = DIRECTORY / 'work'
CONVERSATION = DIRECTORY / 'conversation.json'
DECISIONS = DIRECTORY / 'decisions.json'

PLAN: dict[str, list[tuple[str, dict[str, str]]]] = {
    'root': [
        ('task', {'subagent': 'north', 'description': 'north'}),
        ('send', {'text': 'root'}),
        ('note', {'text': 'root'}),
        ('task', {'subagent': 'south', 'description': 'south'}),
        ('write_file', {'path': 'report.md', 'content': 'new\n'}),
    ],
    'north': [
        ('note', {'text': 'north'}),
        ('send', {'text': 'north'}),
        ('task', {'subagent': 'worker', 'description': 'north/worker'}),
        ('edit_file', {'path': 'plan.md', 'old_string': 'draft', 'new_string': 'final'}),
    ],
    'north/worker': [
        ('execute', {'command': 'echo execute north/worker >> ../ran.txt'}),
        ('note', {'text': 'north/worker'}),
        ('task', {'subagent': 'helper', 'description': 'north/worker/helper'}),
    ],
    'north/worker/helper': [('send', {'text': 'north/worker/helper'}), ('note', {'text': 'north/worker/helper'})],
    'south': [
        ('task', {'subagent': 'worker', 'description': 'south/worker'}),
        ('note', {'text': 'south'}),
        ('send', {'text': 'south'}),
    ],
    'south/worker': [
        ('send', {'text': 'south/worker'}),
        ('task', {'subagent': 'helper', 'description': 'south/worker/helper'}),
        ('note', {'text': 'south/worker'}),
    ],
    'south/worker/helper': [('note', {'text': 'south/worker/helper'}), ('send', {'text': 'south/worker/helper'})],
}
"""Calls of each agent in its first response, by its task; ids start at 0 in every agent."""


def append(name: str, line: str) -> None:
    with (DIRECTORY / name).open('a') as file:
        file.write(f'{line}\n')


def send(text: str) -> str:
    """Send it."""
    append('ran.txt', f'send {text}')
    return f'sent {text}'


def note(text: str) -> str:
    """Write it down."""
    append('ran.txt', f'note {text}')
    return f'noted {text}'


def answer(messages: list[ModelMessage], _: AgentInfo) -> str | list[ToolCallPart]:
    """Make the planned calls, and then record their results."""
    first = messages[0]
    assert isinstance(first, ModelRequest)
    name = next(str(part.content) for part in first.parts if isinstance(part, UserPromptPart))
    step = sum(isinstance(message, ModelResponse) for message in messages)
    append('asked.txt', f'{name} {step}')
    if step == 0:
        return [ToolCallPart(tool, args, tool_call_id=f'c{n}') for n, (tool, args) in enumerate(PLAN[name])]
    returns = [
        part
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]
    for part in returns:
        append('told.txt', f'{name} {part.tool_name} {part.outcome}: {part.model_response_str()!r}')
    for message in messages[2:]:
        for part in message.parts if isinstance(message, ModelRequest) else ():
            if isinstance(part, UserPromptPart):
                append('told.txt', f'{name} besides: {part.content!r}')
    return f'{name} is done'


def model() -> ScriptedModel:
    return ScriptedModel(then=answer)


def build() -> Agent[DeepAgentDeps, str | DeferredToolRequests]:
    tools = [send, note]
    helper = Subagent('helper', 'Helps.', model=model(), tools=tools)
    worker = Subagent('worker', 'Works.', model=model(), tools=tools, subagents=[helper])
    ready = create_deep_agent(model(), name='worker', tools=tools, subagents=[helper])
    plain = Agent[Any, str](
        model(),
        name='south',
        deps_type=DeepAgentDeps,
        tools=tools,
        capabilities=[Subagents([Subagent('worker', 'Works.', agent=ready)])],
    )
    return create_deep_agent(
        model(),
        tools=tools,
        subagents=[
            Subagent('north', 'Goes north.', model=model(), tools=tools, subagents=[worker]),
            Subagent('south', 'Goes south.', agent=plain),
        ],
        interrupt_on={'send': True, 'write_file': True, 'edit_file': True, 'execute': True},
    )


KINDS = {'approve': Approve, 'edit': Edit, 'deny': Deny, 'respond': Respond}


async def main() -> None:
    limits = UsageLimits(request_limit=None)
    deps = DeepAgentDeps(backend=LocalBackend(WORK, allow_commands=True), max_depth=3)
    if CONVERSATION.exists():
        conversation = ConversationTypeAdapter.validate_json(CONVERSATION.read_bytes())
        given = json.loads(DECISIONS.read_text())
        decisions = {key: KINDS[kind](*rest) for key, (kind, *rest) in given.items()}
        results = answer_approvals(conversation.deferred_tool_requests, decisions)
        result = await build().run(
            conversation=conversation, deferred_tool_results=results, deps=deps, usage_limits=limits
        )
    else:
        result = await build().run('root', deps=deps, usage_limits=limits)
    CONVERSATION.write_bytes(ConversationTypeAdapter.dump_json(result.conversation))
    waiting = [
        {
            'id': each.id,
            'path': each.path,
            'tool': each.tool,
            'arguments': each.arguments,
            'preview': each.preview and str(each.preview),
        }
        for each in pending_approvals(result.output)
    ]
    output = None if waiting else result.output
    print(json.dumps({'output': output, 'waiting': waiting, 'requests': result.usage.requests}))


if __name__ == '__main__':
    anyio.run(main)
