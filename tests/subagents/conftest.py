"""Fixtures for subagent tests: runs with `DeepAgentDeps`, and conversations restored from JSON."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic_ai import (
    Agent,
    Conversation,
    ConversationTypeAdapter,
    DeferredToolRequests,
    DeferredToolResults,
    ToolDenied,
)
from pydantic_ai.messages import ModelMessage, ToolReturnPart

from pydantic_deep import DeepAgentDeps
from pydantic_deep._messages.deferred_metadata import (
    DelegationAnswers,
    DelegationRequest,
    StillPending,
    dump,
    parse_request,
)
from pydantic_deep.subagents import Subagent, Subagents
from pydantic_deep.testing import Answer, ScriptedModel, call

Ask = Callable[..., Awaitable[ToolReturnPart]]


@pytest.fixture
def ask() -> Ask:
    """Let a parent call `task` once, and return the result."""

    async def run(
        *subagents: Subagent, deps: Any = None, capability: Subagents | None = None, **options: Any
    ) -> ToolReturnPart:
        model = ScriptedModel(call('task', subagent=subagents[0].name, description='work'), 'done')
        parent = Agent[Any, Any](model, capabilities=[capability or Subagents(subagents)])
        await parent.run('go', deps=DeepAgentDeps() if deps is None else deps, **options)
        return model.requests[-1].tool_returns[-1]

    return run


@pytest.fixture
def parent() -> Callable[..., Agent[Any, Any]]:
    """Make a parent that plays a script."""

    def make(*steps: Answer, subagents: list[Subagent] | None = None, **options: Any) -> Agent[Any, Any]:
        capabilities = [Subagents(subagents or []), *options.pop('capabilities', ())]
        return Agent[Any, Any](ScriptedModel(*steps), capabilities=capabilities, **options)

    return make


@pytest.fixture
def reload() -> Callable[[Conversation], Conversation]:
    """Copy a conversation through JSON, like another process."""

    def through_json(conversation: Conversation) -> Conversation:
        return ConversationTypeAdapter.validate_json(ConversationTypeAdapter.dump_json(conversation))

    return through_json


Ids = tuple[str, ...]


@pytest.fixture
def flatten() -> Callable[[DeferredToolRequests], dict[Ids, str]]:
    """List pending calls at any depth: the ids of the calls that lead to each, and its description."""

    def calls(requests: DeferredToolRequests, ids: Ids = ()) -> Iterator[tuple[Ids, str]]:
        for each in requests.approvals:
            request = parse_request(requests.metadata.get(each.tool_call_id))
            if isinstance(request, DelegationRequest):
                yield from calls(request.requests, (*ids, each.tool_call_id))
            else:
                yield (*ids, each.tool_call_id), f'{each.tool_name}{each.args_as_json_str()}'

    return lambda requests: dict(calls(requests))


Answers = Mapping[Ids, bool | ToolDenied]


@pytest.fixture
def answer() -> Callable[[DeferredToolRequests, Answers], DeferredToolResults]:
    """Answer some of the pending calls, addressed by the ids that lead to them. The others are held."""

    def results(requests: DeferredToolRequests, answers: Answers, ids: Ids = ()) -> DeferredToolResults:
        approvals = dict[str, Any]()
        metadata = dict[str, dict[str, Any]]()
        for each in requests.approvals:
            key = (*ids, each.tool_call_id)
            given = requests.metadata.get(each.tool_call_id, {})
            request = parse_request(given)
            approvals[each.tool_call_id] = answers.get(key, True)
            if isinstance(request, DelegationRequest):
                below = results(request.requests, answers, key)
                metadata[each.tool_call_id] = dump(DelegationAnswers(request=request, results=below))
            elif key not in answers:
                metadata[each.tool_call_id] = dump(StillPending(request=given))
        return requests.build_results(approvals=approvals, metadata=metadata)

    return results


def worker(*steps: Answer, **options: Any) -> Subagent:
    return Subagent('worker', 'Works.', model=ScriptedModel(*steps), **options)


@dataclass
class Theirs:
    name: str


def returns(messages: list[ModelMessage]) -> list[ToolReturnPart]:
    return [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]


def nested(*names: str, leaf: ScriptedModel, **options: Any) -> Subagent:
    """Return a chain of subagents, each of which delegates everything to the next."""
    name, *rest = names
    if not rest:
        return Subagent(name, 'x', model=leaf)
    model = ScriptedModel(then=lambda m, i: 'no task' if not i.function_tools else hand_on(m, rest[0]))
    return Subagent(name, 'x', model=model, subagents=[nested(*rest, leaf=leaf)], **options)


def hand_on(messages: list[ModelMessage], name: str) -> Answer:
    found = returns(messages)
    return str(found[-1].content) if found else call('task', subagent=name, description='on')
