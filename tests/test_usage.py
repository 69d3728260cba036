"""Token usage of a conversation, by category."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from decimal import Decimal
from typing import Any

import pytest
from pydantic import TypeAdapter
from pydantic_ai import Agent, Conversation, ModelRequestContext, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    CompactionPart,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.usage import RequestUsage, RunUsage

from pydantic_deep import DeepAgentDeps, create_deep_agent
from pydantic_deep._messages.summary_metadata import SummaryMetadata
from pydantic_deep.filesystem._toolset import function_toolset
from pydantic_deep.skills import Skill
from pydantic_deep.store import open_store
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.tokens import IMAGE_TOKENS, PART_TOKENS
from pydantic_deep.usage import FILE_TOOLS, UsageReport, usage_report
from pydantic_deep.versions import VersionedAgent

pytestmark = pytest.mark.anyio

SKILL = Skill(name='pdf', description='Read PDF files.', body='Read it page by page.')


class Spy(AbstractCapability[Any]):
    """Records the parameters of the last request."""

    parameters: ModelRequestParameters | None = None

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        self.parameters = request_context.model_request_parameters
        return request_context


def request(*parts: Any, instructions: str | None = None) -> ModelRequest:
    return ModelRequest(list(parts), instructions=instructions)


def response(*parts: Any, model: str = 'gpt-5', provider: str = 'openai', **usage: int) -> ModelResponse:
    request_usage = RequestUsage(**usage) if usage else RequestUsage()  # pyright: ignore[reportArgumentType] - numbers only
    return ModelResponse(list(parts), usage=request_usage, model_name=model, provider_name=provider)


async def counted(*messages: ModelMessage) -> UsageReport:
    return await usage_report(messages, counter=len)


@pytest.mark.parametrize(
    ('message', 'kind', 'tokens'),
    [
        (request(SystemPromptPart('be kind')), 'system', 7),
        (request(SystemPromptPart('Uploads:\n/uploads/a.csv')), 'files', 23),
        (request(SystemPromptPart('Files:\na.csv')), 'files', 12),
        (request(SystemPromptPart('Todos:\nnone')), 'history', 11),
        (request(UserPromptPart('hello')), 'history', 5),
        (request(UserPromptPart([ImageUrl('https://example.com/a.png')])), 'files', IMAGE_TOKENS),
        (request(ToolReturnPart('grep', 'found', tool_call_id='1')), 'files', 5),
        (request(ToolReturnPart('load_skill', 'text', tool_call_id='1')), 'skills', 4),
        (request(ToolReturnPart('search', 'found', tool_call_id='1')), 'history', 5),
        (request(CompactionPart(content='what was')), 'summary', 8),
        (response(ToolCallPart('write_file', {'content': 'x'})), 'files', len('write_file{"content":"x"}')),
        (response(ToolCallPart('load_skill', {'name': 'pdf'})), 'skills', len('load_skill{"name":"pdf"}')),
        (response(TextPart('hi')), 'history', 2),
        (response(NativeToolCallPart('web_search', {})), 'history', len('web_search{}')),
    ],
)
async def test_each_part_counts_in_its_category(message: ModelMessage, kind: str, tokens: int) -> None:
    report = await counted(message)

    kinds = ('system', 'skills', 'files', 'summary', 'history')
    assert {name: getattr(report, name) for name in kinds if getattr(report, name)} == {kind: tokens + PART_TOKENS}
    assert report.counted == tokens + PART_TOKENS


async def test_prompt_with_an_image_counts_as_history_and_files() -> None:
    report = await counted(request(UserPromptPart(['look', ImageUrl('https://example.com/a.png')])))

    assert (report.history, report.files) == (4 + PART_TOKENS, IMAGE_TOKENS + PART_TOKENS)


async def test_file_tools_are_those_of_the_filesystem_capability() -> None:
    assert set(function_toolset().tools) == FILE_TOOLS


async def test_unknown_values_are_none_instead_of_zero() -> None:
    report = await counted(request(UserPromptPart('hello')))

    assert (report.system, report.skills, report.tools) == (None, None, None)
    assert (report.context_window, report.last, report.cost) == (None, None, None)
    assert (report.files, report.summary) == (0, 0)


async def test_only_instructions_of_the_last_request_count() -> None:
    report = await counted(
        request(UserPromptPart('a'), instructions='much longer before'),
        request(UserPromptPart('b'), instructions='short'),
    )

    assert (report.system, report.skills) == (5, 0)


async def test_parameters_provide_instructions_skills_and_tools() -> None:
    spy = Spy()
    agent = create_deep_agent(ScriptedModel('done'), instructions='Be brief.', skills=[SKILL], capabilities=[spy])
    result = await agent.run('go', deps=DeepAgentDeps())

    report = await usage_report(result, parameters=spy.parameters, counter=len)

    sent = result.all_messages()[0]
    assert isinstance(sent, ModelRequest)
    instructions = sent.instructions or ''
    assert report.system is not None
    assert report.skills is not None
    assert report.system + report.skills + len('\n\n') == len(instructions)
    assert report.skills == len(next(block for block in instructions.split('\n\n') if 'pdf' in block))
    assert report.tools is not None
    assert report.tools > 2_500


async def test_empty_parameters_count_as_zero() -> None:
    report = await usage_report([request(UserPromptPart('a'))], parameters=ModelRequestParameters())

    assert (report.system, report.skills, report.tools) == (0, 0, 0)


async def test_output_schemas_count_as_tools() -> None:
    plain, typed = Spy(), Spy()
    await Agent(ScriptedModel('done'), capabilities=[plain]).run('go')
    await Agent(ScriptedModel(call('final_result', response=[1])), output_type=list[int], capabilities=[typed]).run(
        'go'
    )

    assert (await usage_report([], parameters=plain.parameters)).tools == 0
    assert ((await usage_report([], parameters=typed.parameters)).tools or 0) > 20


async def test_reported_usage_is_shown_beside_the_counts() -> None:
    report = await counted(
        request(UserPromptPart('a')),
        response(TextPart('b'), input_tokens=1_000_000, cache_read_tokens=600_000, output_tokens=10),
        request(UserPromptPart('c')),
        response(TextPart('d'), model='unheard-of', provider='nobody', input_tokens=7, output_tokens=3),
        request(UserPromptPart('e')),
        response(TextPart('f'), input_tokens=0),
    )

    assert report.last == RequestUsage(input_tokens=7, output_tokens=3)
    assert report.total == RunUsage(requests=3, input_tokens=1_000_007, cache_read_tokens=600_000, output_tokens=13)
    assert report.cost == Decimal('0.5751')  # 0.4 at 1.25, 0.6 at a tenth of it, and the output at 10 a million
    assert report.unpriced_requests == 1


async def test_summarized_requests_in_a_store_are_in_the_total_but_unpriced() -> None:
    used = RunUsage(requests=9, input_tokens=900)
    gone = SummaryMetadata(reason='limit', is_plain=False, goal='', carried={}, usage=used, messages=None)

    report = await counted(request(gone.part('what was')), response(TextPart('b'), input_tokens=100))

    assert (report.total.requests, report.total.input_tokens) == (10, 1_000)
    assert report.unpriced_requests == 9


async def test_summarized_requests_with_their_messages_are_priced() -> None:
    summarized = [response(TextPart('b'), input_tokens=1_000_000)]
    used = RunUsage(requests=1, input_tokens=1_000_000)
    gone = SummaryMetadata(reason='limit', is_plain=False, goal='', carried={}, usage=used, messages=summarized)

    report = await counted(request(gone.part('what was')))

    assert (report.cost, report.unpriced_requests) == (Decimal('1.25'), 0)


async def test_conversation_provides_its_own_usage() -> None:
    conversation = Conversation(messages=[request(UserPromptPart('hello'))], usage=RunUsage(requests=4, tool_calls=2))

    report = await usage_report(conversation, counter=len, context_window=200_000)

    assert (report.total.requests, report.total.tool_calls) == (4, 2)
    assert (report.history, report.context_window) == (5 + PART_TOKENS, 200_000)
    assert report.total is not conversation.usage


async def test_version_knows_the_parameters_of_its_last_request() -> None:
    agent = create_deep_agent(ScriptedModel(call('ls'), 'done'), instructions='Be brief.', skills=[SKILL])
    async with open_store('memory:') as store:
        root = await VersionedAgent(agent, store).create()
        version = await root.advance('go')
        renamed = await version.with_metadata({'a': 1})

        before, after = await usage_report(root), await usage_report(version)

        assert await root.request_parameters() is None
        assert await renamed.request_parameters() == await version.request_parameters()
    assert (before.tools, before.system, before.counted) == (None, None, 0)
    assert after.tools is not None
    assert after.tools > 600
    assert after.system is not None
    assert after.files > 0
    assert after.total.requests == 2


async def test_report_is_frozen_and_json_serializable() -> None:
    report = await counted(request(UserPromptPart('a')), response(TextPart('b'), input_tokens=5))
    adapter = TypeAdapter(UsageReport)

    assert adapter.validate_json(adapter.dump_json(report)) == report
    assert 'history=10' in repr(report)
    with pytest.raises(FrozenInstanceError):
        report.history = 0  # type: ignore[misc]


@pytest.mark.parametrize('nothing', [None, 'text', b'bytes', object()])
async def test_object_without_a_conversation_is_refused(nothing: Any) -> None:
    with pytest.raises(TypeError, match=f'^There is no conversation in {type(nothing).__name__}'):
        await usage_report(nothing)


async def test_run_with_a_given_history_counts_all_its_requests() -> None:
    agent = Agent(ScriptedModel('one', 'two'))
    first = await agent.run('a')
    second = await agent.run('b', message_history=first.all_messages())
    assert (await usage_report(second)).total.requests == 2
    assert (await usage_report(second.all_messages())).total.requests == 2
