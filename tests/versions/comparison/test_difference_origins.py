"""Replays with capabilities that rewrite requests are exact, or the difference names the responsible capability."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pydantic_ai import Agent, ModelRetry, Tool
from pydantic_ai.capabilities import (
    AbstractCapability,
    PrefixTools,
    PrepareTools,
    ProcessHistory,
    WrapModelRequestHandler,
)
from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextContent,
    TextPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import RunContext, ToolDefinition
from pydantic_ai.toolsets import FunctionToolset

from pydantic_deep import Approve, Subagent
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.versions import AgentVersion, InstructionsWarning, RequestDifference, VersionedAgent
from tests.versions.conftest import MakeAgent, SpyStore

pytestmark = pytest.mark.anyio

WRITE = call('write_file', path='/a.txt', content='a')


async def turns_of(make: MakeAgent, *steps: Any, **options: Any) -> list[AgentVersion[Any, Any]]:
    """Play two turns with all calls approved, and return the versions at their ends."""
    version = await make(*steps, **options).create()
    found: list[AgentVersion[Any, Any]] = []
    for prompt in ('one', 'two'):
        version = await version.advance(prompt)
        found.append(version)
        while version.state == 'awaiting_approval':
            version = await version.resume({each.id: Approve() for each in version.pending})
            found.append(version)
    return found


async def differences(versions: Sequence[AgentVersion[Any, Any]]) -> list[RequestDifference | None]:
    return [(await version.replay()).difference for version in versions]


def changed(messages: Sequence[ModelMessage], change: Callable[[Any], Any]) -> list[ModelMessage]:
    """Return messages with changed request parts."""
    return [
        replace(each, parts=[change(part) for part in each.parts]) if isinstance(each, ModelRequest) else each
        for each in messages
    ]


@dataclass
class Counts(AbstractCapability[Any]):
    """Provides a different value each time, like a clock."""

    numbers: Any = field(default_factory=itertools.count, kw_only=True)

    @property
    def next(self) -> str:
        return f'It is {next(self.numbers)}.'


@dataclass
class Stamps(Counts):
    def get_instructions(self) -> Any:
        def now() -> str:
            return self.next

        return ['Mind the time.', now]


@dataclass
class NamedStamps(Stamps):
    id: str | None = 'stamps'


@dataclass
class RewritesInstructions(Counts):
    async def before_model_request(self, ctx: RunContext[Any], request_context: ModelRequestContext) -> Any:
        parameters = request_context.model_request_parameters
        parts = [*(parameters.instruction_parts or ()), InstructionPart(self.next)]
        parameters = replace(parameters, instruction_parts=parts)
        return replace(request_context, model_request_parameters=parameters)


@dataclass
class Wraps(Counts):
    async def wrap_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, handler: WrapModelRequestHandler
    ) -> ModelResponse:
        *before, last = request_context.messages
        last = replace(last, parts=[*last.parts, UserPromptPart(self.next)])
        return await handler(replace(request_context, messages=[*before, last]))


@dataclass
class Enqueues(Counts):
    async def before_model_request(self, ctx: RunContext[Any], request_context: ModelRequestContext) -> Any:
        ctx.enqueue(UserPromptPart(self.next))
        return request_context


@dataclass
class Drops(Counts):
    async def before_model_request(self, ctx: RunContext[Any], request_context: ModelRequestContext) -> Any:
        if next(self.numbers) > 2:
            request_context.messages = request_context.messages[-1:]
        return request_context


@dataclass
class Reorders(Counts):
    async def prepare_tools(self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]) -> list[ToolDefinition]:
        place = next(self.numbers) % 5
        return [*tool_defs[place:], *tool_defs[:place]]


@dataclass
class Shuffles(Counts):
    """Sends the tools in a different order."""

    async def before_model_request(self, ctx: RunContext[Any], request_context: ModelRequestContext) -> Any:
        parameters, place = request_context.model_request_parameters, next(self.numbers) % 5
        tools = [*parameters.function_tools[place:], *parameters.function_tools[:place]]
        return replace(request_context, model_request_parameters=replace(parameters, function_tools=tools))


@dataclass
class Warms(Counts):
    def get_model_settings(self) -> Any:
        def settings(_: RunContext[Any]) -> Any:
            return {'seed': next(self.numbers)}

        return settings


@dataclass
class Offers(Counts):
    """Provides a different toolset in each run."""

    def get_toolset(self) -> Any:
        def offer(_: RunContext[Any]) -> FunctionToolset[Any]:
            def extra() -> None:
                """Do nothing."""

            return FunctionToolset([Tool(extra, name=f'extra_{next(self.numbers)}')])

        return offer


@dataclass
class RewritesResults(Counts):
    async def before_model_request(self, ctx: RunContext[Any], request_context: ModelRequestContext) -> Any:
        def change(part: Any) -> Any:
            return replace(part, content=self.next) if _is_result(part) else part

        request_context.messages = changed(request_context.messages, change)
        return request_context


@dataclass
class Untouched(AbstractCapability[Any]):
    """Has instructions and hooks, and changes nothing."""

    def get_instructions(self) -> Any:
        return 'Be brief.'

    async def before_model_request(self, ctx: RunContext[Any], request_context: ModelRequestContext) -> Any:
        return request_context


@pytest.mark.parametrize(
    ('capability', 'part'),
    [
        (Stamps, 'instructions'),
        (NamedStamps, 'instructions'),
        (RewritesInstructions, 'instructions'),
        (Wraps, 'messages'),
        (Enqueues, 'messages'),
        (Drops, 'messages'),
        (RewritesResults, 'messages'),
        (Reorders, 'tools'),
        (Shuffles, 'tools'),
        (Offers, 'tools'),
        (Warms, 'settings'),
    ],
)
async def test_difference_names_the_responsible_capability(make: MakeAgent, capability: type[Counts], part: str):
    """If a capability sends something different in each run, the difference of a replay names it and no other."""
    versions = await turns_of(make, WRITE, 'done', 'two', capabilities=[Untouched(), capability(), Untouched()])

    [difference, *_] = [each for each in await differences(versions) if each is not None]

    assert (difference.part, difference.capabilities) == (part, (capability.__name__,))
    name = 'NamedStamps (stamps)' if capability is NamedStamps else capability.__name__
    assert f'made by {name}.' in difference.detail.splitlines()[-1].replace('Made', 'made')
    assert f'{part} ({capability.__name__}): ' in str(difference)


async def test_dynamic_toolset_is_named_by_its_function(store: SpyStore):
    """Tools of a toolset function of the agent are attributed to that function."""
    agent = Agent[Any, Any](ScriptedModel('done'), capabilities=[Untouched()])
    numbers = itertools.count()

    @agent.toolset
    def tools_of_today(ctx: RunContext[Any]) -> FunctionToolset[Any]:
        def extra() -> None:
            """Do nothing."""

        return FunctionToolset([Tool(extra, name=f'extra_{next(numbers)}')])

    turn = await (await VersionedAgent[Any, Any](agent, store).create()).advance('go')
    difference = (await turn.replay()).difference

    assert difference is not None
    assert (difference.part, difference.capabilities) == ('tools', ('the toolset of tools_of_today',))
    assert difference.detail.splitlines()[-1] == 'Possibly made by the toolset of tools_of_today.'


async def test_wrapped_capability_is_named_itself(make: MakeAgent):
    versions = await turns_of(make, 'done', 'two', capabilities=[PrefixTools(Offers(), prefix='their')])
    [difference, *_] = [each for each in await differences(versions) if each is not None]
    assert difference.capabilities == ('Offers',)


async def test_prepare_tools_is_named_instead_of_the_capability_of_the_tools(make: MakeAgent):
    numbers = itertools.count()

    async def describe(_: RunContext[Any], tools: list[ToolDefinition]) -> list[ToolDefinition]:
        return [replace(tool, description=f'{next(numbers)}') for tool in tools]

    versions = await turns_of(make, 'done', 'two', capabilities=[PrepareTools(describe)])
    [difference, *_] = [each for each in await differences(versions) if each is not None]
    assert difference.capabilities == ('PrepareTools',)


@dataclass
class Remembers(AbstractCapability[Any]):
    """Has state that its own tool changes."""

    id: str | None = 'remembers'
    noted: list[str] = field(default_factory=list[str])

    async def for_run(self, ctx: RunContext[Any]) -> Remembers:
        return Remembers()

    def get_toolset(self) -> FunctionToolset[Any]:
        def note(ctx: RunContext[Any], text: str) -> str:
            run: Any = ctx.capabilities['remembers']
            run.noted.append(text)
            return 'Noted.'

        return FunctionToolset([note])

    async def before_model_request(self, ctx: RunContext[Any], request_context: ModelRequestContext) -> Any:
        if self.noted:
            *before, last = request_context.messages
            last = replace(last, parts=[*last.parts, UserPromptPart(f'remembers: {self.noted}')])
            request_context.messages = [*before, last]
        return request_context


async def test_content_missing_from_the_replay_names_possible_sources(make: MakeAgent):
    """A replay calls no tools, so the state that a capability gets from its tools is missing: the difference shows the
    recorded content and names the capability."""
    versions = await turns_of(
        make, call('note', text='tea'), WRITE, 'done', 'two', capabilities=[Untouched(), Remembers()],
        interrupt_on={'write_file': True},
    )  # fmt: skip
    first, *rest = await differences(versions)
    assert first is not None
    assert (first.number, first.part, first.capabilities) == (2, 'messages', ('Remembers',))
    assert '-   "content": "remembers: [\'tea\']"' in first.detail
    assert 'Possibly made by Remembers (remembers).' in first.detail
    assert rest == [None, None]


async def test_additional_replayed_requests_name_the_possible_cause(make: MakeAgent):
    @dataclass
    class Picky(AbstractCapability[Any]):
        is_content: bool = True

        async def after_model_request(
            self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
        ) -> ModelResponse:
            if not self.is_content:
                raise ModelRetry('again')
            return response

    picky = Picky()
    [first, _] = await turns_of(make, 'done', 'two', capabilities=[Untouched(), picky])
    picky.is_content = False
    [difference] = await differences([first])
    assert difference is not None
    assert (difference.part, difference.capabilities) == ('count', ('Picky',))


async def test_capability_that_answers_more_often_is_named(make: MakeAgent):
    @dataclass
    class Prolongs(AbstractCapability[Any]):
        async def wrap_model_request(
            self, ctx: RunContext[Any], *, request_context: ModelRequestContext, handler: WrapModelRequestHandler
        ) -> ModelResponse:
            return ModelResponse(parts=[call('ls')])

    [first, _] = await turns_of(make, 'done', 'two')
    [difference] = await differences([await make(capabilities=[Prolongs()]).load(first.id)])
    assert difference is not None
    assert (difference.number, difference.part, difference.capabilities) == (2, 'count', ('Prolongs',))


async def test_request_held_back_by_a_capability_is_not_replayed(make: MakeAgent):
    @dataclass
    class HoldsBack(AbstractCapability[Any]):
        async def wrap_model_request(
            self, ctx: RunContext[Any], *, request_context: ModelRequestContext, handler: WrapModelRequestHandler
        ) -> ModelResponse:
            if ctx.run_step == 1:
                raise ModelRetry('Not yet.')
            return await handler(request_context)

    turns = await turns_of(make, 'done', 'two', capabilities=[HoldsBack()])
    assert await differences(turns) == [None, None]


async def test_change_of_the_agent_itself_names_no_capability(make: MakeAgent):
    [first, _] = await turns_of(make, 'done', 'two', instructions='Be brief.', capabilities=[Untouched()])
    other = make(instructions='Be long.', capabilities=[Untouched()])
    with pytest.warns(InstructionsWarning):
        loaded = await other.load(first.id)
    [difference] = await differences([loaded])
    assert difference is not None
    assert (difference.part, difference.capabilities) == ('instructions', ())
    assert str(difference).startswith('request 1, instructions: ')


def _quoted(messages: list[ModelMessage]) -> list[ModelMessage]:
    return changed(messages, lambda part: replace(part, content=f'> {part.content}') if _is_prompt(part) else part)


def _is_prompt(part: object) -> bool:
    return isinstance(part, UserPromptPart)


def _without_results(messages: list[ModelMessage]) -> list[ModelMessage]:
    return changed(messages[:-1], _cleared) + messages[-1:]


def _is_result(part: object) -> bool:
    return isinstance(part, ToolReturnPart)


def _cleared(part: Any) -> Any:
    return replace(part, content='[gone]') if _is_result(part) else part


def _without_middle(messages: list[ModelMessage]) -> list[ModelMessage]:
    return [messages[0], *messages[-2:]] if len(messages) > 4 else messages


@dataclass
class Adds(AbstractCapability[Any]):
    """Adds a user prompt part to a request, like `Memory` of the harness."""

    async def before_model_request(self, ctx: RunContext[Any], request_context: ModelRequestContext) -> Any:
        if ctx.run_step == 1:
            ctx.enqueue(UserPromptPart([TextContent('<memory>tea</memory>')]))
        return request_context


@dataclass
class Appends(AbstractCapability[Any]):
    """Appends a user prompt part to the user's own request."""

    async def before_model_request(self, ctx: RunContext[Any], request_context: ModelRequestContext) -> Any:
        if ctx.run_step == 1:
            *before, last = ctx.messages
            last = replace(last, parts=[*last.parts, UserPromptPart('<memory>tea</memory>')])
            ctx.messages[:] = [*before, last]
            request_context.messages = list(ctx.messages)
        return request_context


@dataclass
class Answers(AbstractCapability[Any]):
    """Answers a request itself."""

    async def wrap_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, handler: WrapModelRequestHandler
    ) -> ModelResponse:
        return ModelResponse(parts=[call('ls')]) if ctx.run_step == 2 else await handler(request_context)


@pytest.mark.parametrize(
    'capability',
    [
        ProcessHistory(_quoted),
        ProcessHistory(_without_results),
        ProcessHistory(_without_middle),
        Adds(),
        Appends(),
        Answers(),
    ],
)
async def test_replay_with_a_history_rewriting_capability_is_exact(
    make: MakeAgent, capability: AbstractCapability[Any]
):
    """Prompts are distinguished from rewritten or added content, results are those of the calls and not of the
    shortened history, and history replaced within a turn is replayed too."""
    read = call('read_file', path='/a.txt')
    versions = await turns_of(
        make, WRITE, read, call('ls'), [TextPart('…'), read], 'done', read, 'two', capabilities=[capability],
        interrupt_on={'write_file': True},
    )  # fmt: skip
    assert await differences(versions) == [None] * len(versions)


async def test_rewritten_long_prompt_is_replayed_as_rewritten(make: MakeAgent):
    def shortened(messages: list[ModelMessage]) -> list[ModelMessage]:
        return changed(messages, lambda part: replace(part, content=part.content[:100]) if _is_prompt(part) else part)

    turn = await (await make('done', capabilities=[ProcessHistory(shortened)]).create()).advance('x' * 100_000)
    assert (await turn.replay()).difference is None


async def test_media_of_a_prompt_are_found_beside_added_content(make: MakeAgent):
    turn = await (await make('done', capabilities=[Appends()]).create()).advance(['Look.', TextContent('x')])
    assert (await turn.replay()).difference is None


class TestHarness:
    """Replays with capabilities of `pydantic-ai-harness`."""

    @pytest.fixture
    def harness(self) -> Any:
        return pytest.importorskip('pydantic_ai_harness', reason='the harness pins an older pydantic-ai than this')

    async def test_planning(self, make: MakeAgent, harness: Any):
        plan = call('write_plan', items=[{'content': 'Measure', 'status': 'in_progress'}])
        versions = await turns_of(
            make, plan, WRITE, 'done', 'two', capabilities=[harness.Planning()], interrupt_on={'write_file': True}
        )
        first, *rest = await differences(versions)
        assert first is not None
        assert (first.capabilities, rest) == (('Planning',), [None, None])

    async def test_memory(self, make: MakeAgent, harness: Any):
        write = call('write_memory', content='tea')
        versions = await turns_of(make, write, WRITE, 'done', 'two', capabilities=[harness.Memory()])
        first, second = await differences(versions)
        assert first is not None
        assert (first.capabilities, second) == (('Memory',), None)
        assert 'Made by Memory (memory).' in first.detail

    async def test_background_tools_beside_others(self, make: MakeAgent, harness: Any):
        def slow() -> str:
            return 'slow'

        tool = Tool(slow, metadata={'background': True})
        versions = await turns_of(
            make, call('slow'), call('ls'), 'mid', *['end'] * 4, tools=[tool],
            capabilities=[harness.Planning(), harness.BackgroundTools()],
        )  # fmt: skip
        for difference in await differences(versions):
            assert difference is None or difference.capabilities == ('BackgroundTools',)

    async def test_coder_and_windows(self, make: MakeAgent, harness: Any):
        window = harness.SlidingWindowCompaction(max_messages=6, keep_messages=3)
        clearing = harness.ClearToolResults(max_messages=4, keep_pairs=1)
        for capabilities, options in (
            ([harness.Coder()], {'include_filesystem': False}),
            ([window], {}),
            ([clearing], {}),
        ):
            versions = await turns_of(
                make, *[call('write_todos', todos=[])] * 4, 'done', 'two', capabilities=capabilities, **options
            )
            assert await differences(versions) == [None, None]

    async def test_subagents_and_approvals(self, make: MakeAgent, harness: Any):
        versions = await turns_of(
            make, call('task', subagent='writer', description='write'), WRITE, 'written', 'done', 'two',
            capabilities=[harness.Planning(), harness.Memory()], interrupt_on={'write_file': True},
            subagents=[Subagent('writer', 'Writes.')],
        )  # fmt: skip
        assert await differences(versions) == [None, None, None]
