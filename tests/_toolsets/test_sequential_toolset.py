"""Toolsets listed sequentially: the same requests and results as in pydantic-ai, with fewer tasks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import pytest
from pydantic_ai import Agent, FunctionToolset, InstructionPart, RunContext, Tool, ToolDefinition
from pydantic_ai.capabilities import Capability
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.toolsets import AbstractToolset, CombinedToolset, PrefixedToolset, ToolsetTool, WrapperToolset

from pydantic_deep import DeepAgentDeps, ToolFailures, create_deep_agent
from pydantic_deep._toolsets.run_toolset import RunToolset
from pydantic_deep._toolsets.sequential_toolset import SequentialToolset, with_sequential_toolsets
from pydantic_deep.testing import ScriptedModel, call

pytestmark = pytest.mark.anyio


def leaf(name: str) -> RunToolset[object]:
    """Return a toolset with one tool that is named and answers like the toolset."""
    functions = FunctionToolset[object](id=name)

    def answer() -> str:
        return name

    functions.add_function(answer, name=name)
    return RunToolset(functions, lambda ctx: ctx.deps)


def agent_with(*toolsets: AbstractToolset[object]) -> Agent[object, str]:
    return Agent(ScriptedModel('done'), deps_type=object, toolsets=toolsets, capabilities=[ToolFailures()])


def mine() -> str:
    return 'mine'


def theirs() -> str:
    return 'theirs'


def yours() -> str:
    return 'yours'


async def sent(agent: Agent[Any, Any], **arguments: Any) -> ModelRequestParameters:
    """Return the request parameters of a run."""
    seen: list[ModelRequestParameters] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        assert info.model_request_parameters is not None
        seen.append(info.model_request_parameters)
        return ModelResponse(parts=[TextPart('done')])

    await agent.run('go', model=FunctionModel(answer), **arguments)
    return seen[0]


@pytest.fixture
def side_by_side(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Disable sequential listing until `undo()`, so that a run has the structure of plain pydantic-ai."""

    def unchanged(toolset: AbstractToolset[object]) -> AbstractToolset[object]:
        return toolset

    monkeypatch.setattr('pydantic_deep.failures.with_sequential_toolsets', unchanged)
    return monkeypatch


def speaking() -> Capability[Any]:
    return Capability(id='speaks', toolsets=[FunctionToolset([theirs], id='theirs', instructions='Say it.')])


def deferred() -> Capability[Any]:
    return Capability(id='hidden', toolsets=[leaf('later')], defer_loading=True, description='Later.')


@pytest.mark.parametrize('capabilities', [[], [speaking()], [deferred()]], ids=['none', 'speaking', 'deferred'])
@pytest.mark.parametrize('toolsets', [[], [FunctionToolset([yours], id='yours')]], ids=['alone', 'with more'])
async def test_request_has_the_same_tools_in_the_same_order(
    side_by_side: pytest.MonkeyPatch, capabilities: list[Capability[Any]], toolsets: list[FunctionToolset[Any]]
) -> None:
    agent = create_deep_agent(tools=[mine], capabilities=capabilities)
    expected = await sent(agent, deps=DeepAgentDeps(), toolsets=toolsets)
    side_by_side.undo()
    assert await sent(agent, deps=DeepAgentDeps(), toolsets=toolsets) == expected
    assert {each.capability_id for each in expected.function_tools} >= {None, 'todos', 'filesystem', 'subagents'}
    assert ('yours' in {each.name for each in expected.function_tools}) is bool(toolsets)


async def test_overrides_of_tools_and_toolsets_apply() -> None:
    agent = create_deep_agent(tools=[mine])
    with agent.override(tools=[yours], toolsets=[FunctionToolset([theirs])]):
        assert [each.name for each in (await sent(agent)).function_tools] == ['yours', 'theirs']


@pytest.mark.parametrize('taken', ['write_todos', 'task'])
async def test_tool_name_conflict_has_the_same_error(side_by_side: pytest.MonkeyPatch, taken: str) -> None:
    agent = create_deep_agent(ScriptedModel('done'), tools=[Tool(mine, name=taken)])
    with pytest.raises(UserError) as expected:
        await agent.run('go', deps=DeepAgentDeps())
    side_by_side.undo()
    with pytest.raises(UserError, match='conflicts with existing tool') as refused:
        await agent.run('go', deps=DeepAgentDeps())
    assert str(refused.value) == str(expected.value)


async def test_conflict_that_disappears_on_retry_hides_no_tool() -> None:
    names = iter(['one', 'two'])

    async def renamed(ctx: RunContext[object], tool_def: ToolDefinition) -> ToolDefinition:
        return replace(tool_def, name=next(names, 'two'))

    model = ScriptedModel(call('two'), 'done')
    tools = [Tool(mine, prepare=renamed)]
    await Agent(model, tools=tools, toolsets=[leaf('one')], capabilities=[ToolFailures()]).run('go')
    assert [part.content for part in model.requests[-1].tool_returns] == ['mine']


async def test_nonblocking_toolsets_are_listed_in_the_task_of_the_run() -> None:
    tasks: list[int] = []

    async def noted(ctx: RunContext[object], tool_def: ToolDefinition) -> ToolDefinition:
        tasks.append(anyio.get_current_task().id)
        return tool_def

    def state_of(ctx: RunContext[object]) -> object:
        tasks.append(anyio.get_current_task().id)
        return None

    ours = Capability[object](id='ours', toolsets=[RunToolset(FunctionToolset[object]([yours]), state_of)])
    agent = Agent(ScriptedModel('done'), tools=[Tool(mine, prepare=noted)], capabilities=[ToolFailures(), ours])
    await agent.run('go')
    assert len(tasks) == 2
    assert len(set(tasks)) == 1


@dataclass
class WaitsForTheOther(WrapperToolset[object]):
    """A toolset that lists its tools only when another one does."""

    is_asked: anyio.Event
    other_is_asked: anyio.Event

    async def get_tools(self, ctx: RunContext[object]) -> dict[str, ToolsetTool[object]]:
        self.is_asked.set()
        await self.other_is_asked.wait()
        return await super().get_tools(ctx)


async def test_blocking_toolsets_are_listed_concurrently() -> None:
    one, two = anyio.Event(), anyio.Event()
    waiting = [
        WaitsForTheOther(FunctionToolset([mine]), one, two),
        WaitsForTheOther(FunctionToolset([yours]), two, one),
    ]
    with anyio.fail_after(60):
        assert (await agent_with(leaf('ours'), *waiting).run('go')).output == 'done'


@dataclass
class Watched(WrapperToolset[object]):
    """A wrapper toolset with its own instructions, which is replaced at each step if requested."""

    seen: list[str] = field(default_factory=list[str])
    says: str = ''
    is_replaced: bool = False

    @property
    def id(self) -> str | None:
        return self.wrapped.id

    async def for_run_step(self, ctx: RunContext[object]) -> AbstractToolset[object]:
        return replace(self) if self.is_replaced else self

    async def __aenter__(self) -> Watched:
        self.seen.append(f'enter {self.id}')
        await super().__aenter__()
        return self

    async def __aexit__(self, *args: object) -> bool | None:
        self.seen.append(f'exit {self.id}')
        return await super().__aexit__(*args)

    async def get_instructions(self, ctx: RunContext[object]) -> list[str | InstructionPart] | None:
        return [self.says] if self.says else None

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[object], tool: ToolsetTool[object]
    ) -> Any:
        self.seen.append(f'call {name}')
        return await super().call_tool(name, tool_args, ctx, tool)


@pytest.mark.parametrize('is_replaced', [False, True])
async def test_toolsets_are_entered_called_and_exited_in_order(is_replaced: bool) -> None:
    seen: list[str] = []
    agent = agent_with(*(Watched(leaf(name), seen, is_replaced=is_replaced) for name in ('a', 'b')))
    await agent.run('go', model=ScriptedModel(call('b'), 'done'))
    assert seen == ['enter a', 'enter b', 'call b', 'exit b', 'exit a']


async def test_toolset_instructions_have_the_id_of_their_toolset(side_by_side: pytest.MonkeyPatch) -> None:
    agent = agent_with(leaf('a'), Watched(leaf('b'), says='Think.'))
    expected = (await sent(agent)).instruction_parts
    side_by_side.undo()
    assert expected is not None
    assert [(part.content, str(part.id)) for part in expected] == [('Think.', 'toolset:b')]
    assert (await sent(agent)).instruction_parts == expected


def test_visitors_find_every_toolset_and_can_replace_it() -> None:
    toolsets = [leaf('a'), leaf('b'), FunctionToolset([mine], id='c')]
    grouped = with_sequential_toolsets(CombinedToolset(toolsets))
    visited: list[AbstractToolset[object]] = []
    grouped.apply(visited.append)
    assert visited == toolsets
    other = grouped.visit_and_replace(lambda each: leaf('other') if each is toolsets[1] else each)
    visited.clear()
    other.apply(visited.append)
    assert [each.id for each in visited] == ['a', 'other', 'c']


class Special(CombinedToolset[object]):
    """A combination that may behave differently from that of pydantic-ai."""


@pytest.mark.parametrize('is_prefixed', [False, True])
def test_unknown_toolset_is_unchanged(is_prefixed: bool) -> None:
    toolsets = [leaf('a'), leaf('b')]
    unknown = PrefixedToolset(CombinedToolset(toolsets), 'p') if is_prefixed else Special(toolsets)
    assert with_sequential_toolsets(unknown) is unknown


def test_only_adjacent_toolsets_are_grouped() -> None:
    other = FunctionToolset([mine])
    nested = CombinedToolset([leaf('b'), leaf('c')])
    grouped = with_sequential_toolsets(CombinedToolset([leaf('a'), other, nested, leaf('d')]))
    assert isinstance(grouped, CombinedToolset)
    assert [type(each) for each in grouped.toolsets] == [RunToolset, FunctionToolset, SequentialToolset]
