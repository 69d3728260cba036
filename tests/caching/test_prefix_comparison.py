"""Why a request does not begin with all of the one before it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, cast

import pytest
from pydantic_ai import Agent, ModelRequestContext, RunContext, ToolDefinition
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import CompactionPart, InstructionPart, ModelMessage, ModelRequest, ModelResponse, TextPart
from pydantic_ai.native_tools import WebSearchTool
from pydantic_ai.settings import ModelSettings

from pydantic_deep.caching import CacheWatch, _prefix_comparison
from pydantic_deep.testing import ScriptedModel, call

from .conftest import Change, broken_by, events_of, nothing, prompt

pytestmark = pytest.mark.anyio


async def test_model_change_is_reported() -> None:
    def change(ctx: RunContext[Any], request_context: ModelRequestContext) -> None:
        request_context.model = ScriptedModel('done', model_name='other')

    assert await broken_by(change) == [('model', 'scripted:scripted, then scripted:other')]


def add_instruction(ctx: RunContext[Any], request_context: ModelRequestContext) -> None:
    parameters = request_context.model_request_parameters
    parameters.instruction_parts = [InstructionPart('Be brief, now.')]


async def test_instruction_change_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger='pydantic_deep'):
        events = await broken_by(add_instruction, instructions='Be brief.')

    assert events == [('instructions', '8 of 9 characters are as before')]
    assert caplog.messages == [
        'A request breaks the prefix that its provider has cached: instructions (8 of 9 characters are as before).'
    ]


async def test_appended_instructions_are_not_reported() -> None:
    counted = iter(range(9))

    class State(AbstractCapability[Any]):
        id = 'state'

        def get_instructions(self) -> Any:
            def state(ctx: RunContext[Any]) -> InstructionPart:
                return InstructionPart(f'State {next(counted)}', name='state', on_change='append')

            return state

    agent = Agent(ScriptedModel(call('look'), call('look'), 'done'), capabilities=[State(), CacheWatch()])

    @agent.tool_plain
    def look() -> str:
        return 'seen'

    assert await events_of(agent, 'go') == []


def tool(name: str, description: str = '') -> ToolDefinition:
    return ToolDefinition(name=name, description=description, parameters_json_schema={'type': 'object'})


OLD = [tool('look'), tool('stare')]


@pytest.mark.parametrize(
    ('tools', 'detail'),
    [
        ([*OLD, tool('more')], 'added: more'),
        (OLD[1:], 'gone: look'),
        ([tool('look', 'Otherwise.'), OLD[1]], 'changed: look'),
        ([tool('more'), tool('less')], 'added: more, less; gone: look, stare'),
        (OLD[::-1], 'in another order'),
    ],
)
async def test_tool_change_is_reported(tools: list[ToolDefinition], detail: str) -> None:
    shown = iter([OLD, tools, tools])

    class Shows(AbstractCapability[Any]):
        async def before_model_request(
            self, ctx: RunContext[Any], request_context: ModelRequestContext
        ) -> ModelRequestContext:
            request_context.model_request_parameters.function_tools = next(shown)
            return request_context

    agent = Agent(ScriptedModel(call('look'), call('look'), 'done'), capabilities=[Shows(), CacheWatch()])

    @agent.tool_plain
    def look() -> str:
        return 'seen'

    assert await events_of(agent, 'go') == [('tools', detail)]


async def test_output_and_native_tools_count_as_tools() -> None:
    def add_output(ctx: RunContext[Any], request_context: ModelRequestContext) -> None:
        request_context.model_request_parameters.output_tools = [tool('answer')]

    def add_native(ctx: RunContext[Any], request_context: ModelRequestContext) -> None:
        request_context.model_request_parameters.native_tools = [WebSearchTool()]

    assert await broken_by(add_output) == [('tools', 'added: answer')]
    assert await broken_by(add_native) == [('tools', 'added: web_search')]


def settings(**changed: Any) -> Change:
    def change(ctx: RunContext[Any], request_context: ModelRequestContext) -> None:
        request_context.model_settings = cast('ModelSettings', {**(request_context.model_settings or {}), **changed})

    return change


async def test_settings_that_affect_the_prompt_are_reported() -> None:
    events = await broken_by(settings(thinking='high', tool_choice='none', temperature=0.5))

    assert events == [('settings', 'changed: thinking, tool_choice')]


async def test_settings_that_do_not_affect_the_prompt_are_not_reported() -> None:
    assert await broken_by(settings(temperature=0.5, max_tokens=9, extra_headers={'a': 'b'}, seed=1)) == []


def rewrite(change: Callable[[list[ModelMessage]], list[ModelMessage]]) -> Change:
    def change_messages(ctx: RunContext[Any], request_context: ModelRequestContext) -> None:
        ctx.messages[:] = request_context.messages = change(list(request_context.messages))

    return change_messages


async def test_changed_message_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger='pydantic_deep'):
        events = await broken_by(rewrite(lambda messages: [prompt('other'), *messages[1:]]))

    assert events[0] == ('history', 'message 1 of 1 changed')
    assert len(caplog.messages) == len(events)


async def test_removed_message_is_reported() -> None:
    agent = Agent(ScriptedModel('done'), capabilities=[CacheWatch(), Cut()])
    history = [prompt('a'), ModelResponse([TextPart('b')]), prompt('c'), ModelResponse([TextPart('d')])]

    assert await events_of(agent, 'more', message_history=history) == [('history', 'message 2 of 3 is gone')]


class Cut(AbstractCapability[Any]):
    """Sends only the first message and the new prompt."""

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        ctx.messages[:] = request_context.messages = [request_context.messages[0]]
        return request_context


async def test_summary_is_reported_as_intended_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    summary = ModelRequest([CompactionPart(content='what was')])
    done = False

    def summarize(messages: list[ModelMessage]) -> list[ModelMessage]:
        nonlocal done
        done, was_done = True, done
        return messages if was_done else [summary, *messages[1:]]

    with caplog.at_level(logging.INFO, logger='pydantic_deep'):
        events = await broken_by(rewrite(summarize))

    assert events == [('summarized', 'message 1 of 1 is replaced by a summary')]
    assert caplog.messages == []


async def test_a_summary_equal_to_the_previous_one_is_detected() -> None:
    def summary(count: int) -> ModelMessage:
        return ModelRequest([CompactionPart(content='what was', metadata={'count': count})])

    answer = ModelResponse([TextPart('b')])
    history = [summary(1), ModelResponse([TextPart('a')]), prompt('more'), answer]
    agent = Agent(
        ScriptedModel('done'), capabilities=[Replace([summary(2), answer]), CacheWatch()], instructions='Be brief.'
    )

    assert await events_of(agent, 'again', message_history=history) == [
        ('summarized', 'message 1 of 3 is replaced by a summary')
    ]


class Replace(AbstractCapability[Any]):
    """Replaces all messages but the last."""

    def __init__(self, messages: list[ModelMessage]) -> None:
        self.messages = messages

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        ctx.messages[:] = request_context.messages = [*self.messages, request_context.messages[-1]]
        return request_context


async def test_summary_by_the_provider_is_reported_as_one() -> None:
    compacted = ModelResponse([CompactionPart(content=None, id='c', provider_name='openai'), TextPart('ok')])
    agent = Agent(ScriptedModel('done'), capabilities=[CacheWatch()])

    events = await events_of(agent, 'more', message_history=[prompt('a'), compacted])

    assert events == [('summarized', 'by the provider, which is sent nothing from before it')]


async def test_identical_messages_are_not_compared_in_detail(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[object] = []
    monkeypatch.setattr(_prefix_comparison, 'canonical_message', looked.append)
    monkeypatch.setattr(_prefix_comparison, 'canonical_request', looked.append)

    assert await broken_by(nothing) == []
    assert looked == []
