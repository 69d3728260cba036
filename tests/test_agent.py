"""The factory `create_deep_agent`: its agents, validation and replacement of capabilities."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from inline_snapshot import snapshot
from pydantic import BaseModel
from pydantic_ai import Agent, DeferredToolRequests, ModelRetry, RunContext
from pydantic_ai.exceptions import UnexpectedModelBehavior, UsageLimitExceeded, UserError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.toolsets import AbstractToolset
from pydantic_ai.usage import RequestUsage
from pydantic_ai.workspaces import LocalWorkspaceBackend, WorkspaceUnavailableError

from pydantic_deep import (
    Approve,
    DeepAgentDeps,
    LocalBackend,
    LoopDetection,
    Skill,
    StateBackend,
    Subagent,
    Summarization,
    Todos,
    ToolFailures,
    answer_approvals,
    create_deep_agent,
    default_capabilities,
    pending_approvals,
)

pytestmark = pytest.mark.anyio


def play(*steps: ToolCallPart | str | list[ToolCallPart], seen: list[AgentInfo] | None = None) -> FunctionModel:
    left = list(steps)

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if seen is not None:
            seen.append(info)
        step = left.pop(0)
        parts = [TextPart(step)] if isinstance(step, str) else step if isinstance(step, list) else [step]
        return ModelResponse(parts=list(parts), usage=RequestUsage(input_tokens=1, output_tokens=1))

    return FunctionModel(respond)


def returned(messages: list[ModelMessage], tool: str) -> list[tuple[str, object]]:
    parts = [p for m in messages for p in m.parts if isinstance(p, ToolReturnPart) and p.tool_name == tool]
    return [(p.outcome, p.content) for p in parts]


def test_factory_returns_a_plain_agent() -> None:
    agent = create_deep_agent('test')
    assert type(agent) is Agent
    assert agent.name == 'deep-agent'


def test_summarization_flag_removes_the_capability() -> None:
    assert 'summarization' in {capability.id for capability in default_capabilities()}
    assert 'summarization' not in {capability.id for capability in default_capabilities(summarization=False)}


@pytest.mark.parametrize(
    ('flags', 'tools'),
    [
        (
            {},
            snapshot(['ls', 'read_file', 'write_file', 'edit_file', 'glob', 'grep', 'task', 'write_todos']),
        ),
        (
            {'include_todo': False},
            snapshot(['ls', 'read_file', 'write_file', 'edit_file', 'glob', 'grep', 'task']),
        ),
        ({'include_filesystem': False}, snapshot(['task', 'write_todos'])),
        ({'include_todo': False, 'include_filesystem': False}, snapshot(['task'])),
        (
            {'include_subagents': False},
            snapshot(['ls', 'read_file', 'write_file', 'edit_file', 'glob', 'grep', 'write_todos']),
        ),
        (
            {'skills': [Skill('a', 'Use it.', body='Do it.')]},
            snapshot(
                [
                    'ls',
                    'read_file',
                    'write_file',
                    'edit_file',
                    'glob',
                    'grep',
                    'load_skill',
                    'task',
                    'write_todos',
                ]
            ),
        ),
        (
            {'skills': [], 'include_skills': False},
            snapshot(['ls', 'read_file', 'write_file', 'edit_file', 'glob', 'grep', 'task', 'write_todos']),
        ),
    ],
)
async def test_flags_select_the_capabilities(flags: dict[str, Any], tools: list[str]) -> None:
    seen: list[AgentInfo] = []
    await create_deep_agent(play('ok', seen=seen), **flags).run('hi', deps=DeepAgentDeps())
    assert [t.name for t in seen[0].function_tools] == tools


async def test_capability_replaces_the_default_one_with_the_same_id() -> None:
    seen: list[AgentInfo] = []
    agent = create_deep_agent(play('ok', seen=seen), capabilities=[Todos(instructions='Plan in French.')])
    await agent.run('hi', deps=DeepAgentDeps())
    assert (seen[0].instructions or '').count('write_todos') == 0
    assert 'Plan in French.' in (seen[0].instructions or '')


async def test_default_capabilities_make_the_same_agent() -> None:
    seen: list[AgentInfo] = []
    await create_deep_agent(play('ok', seen=seen)).run('hi', deps=DeepAgentDeps())
    await Agent(play('ok', seen=seen), deps_type=DeepAgentDeps, capabilities=default_capabilities()).run(
        'hi', deps=DeepAgentDeps()
    )
    assert seen[0].function_tools == seen[1].function_tools
    assert seen[0].instructions == seen[1].instructions


async def test_run_without_deps_uses_fresh_deps() -> None:
    agent = create_deep_agent()
    todos = ToolCallPart('write_todos', {'todos': [{'content': 'a', 'status': 'pending'}]})
    write = ToolCallPart('write_file', {'path': 'a.txt', 'content': 'hello'})
    read = ToolCallPart('read_file', {'path': 'a.txt'})

    @agent.tool
    async def peek(ctx: RunContext[DeepAgentDeps]) -> str:
        files = (await ctx.workspace.read_bytes('/a.txt')).decode()
        return f'{files} {ctx.deps.todos[0].content}'

    # pydantic-ai's types require deps if an agent has a deps type. They are optional at run time.
    no_deps: Any = None
    first = await agent.run('go', model=play(todos, write, read, ToolCallPart('peek', {}), 'ok'), deps=no_deps)
    assert returned(first.all_messages(), 'peek') == [('success', 'hello a')]
    second = await agent.run('again', model=play(read, 'ok'), message_history=first.all_messages(), deps=no_deps)
    assert returned(second.new_messages(), 'read_file')[0][0] != 'success'


async def test_run_workspace_is_the_backend_of_deps() -> None:
    agent = create_deep_agent()
    found: list[object] = []

    @agent.tool
    async def look(ctx: RunContext[DeepAgentDeps]) -> str:
        found.append((await ctx.workspace.read_text('a.txt'), ctx.workspace.ref))
        return 'seen'

    deps = DeepAgentDeps(backend=StateBackend({'/a.txt': 'hello'}))
    result = await agent.run('go', model=play(ToolCallPart('look', {}), 'ok'), deps=deps)
    assert found == [('hello', None)]
    other = DeepAgentDeps(backend=StateBackend({'/a.txt': 'moved'}))
    await agent.run('go', model=play(ToolCallPart('look', {}), 'ok'), deps=other, message_history=result.all_messages())
    assert found[1] == ('moved', None)


async def test_run_without_deps_uses_the_given_workspace(tmp_path: Path) -> None:
    no_deps: Any = None
    agent = create_deep_agent(play(ToolCallPart('write_file', {'path': 'a.txt', 'content': 'hello'}), 'ok'))
    await agent.run('go', deps=no_deps, workspace=LocalWorkspaceBackend(tmp_path))
    assert (tmp_path / 'a.txt').read_text() == 'hello'


def test_toolsets_of_default_capabilities_have_ids() -> None:
    assert [
        t.id for capability in default_capabilities() if isinstance(t := capability.get_toolset(), AbstractToolset)
    ] == [
        'filesystem',
        'summarization',
        'subagents',
        'todos',
    ]


@dataclass(kw_only=True)
class CountedDeps(DeepAgentDeps):
    counter: int = 7


async def test_fresh_deps_have_the_deps_type_of_the_agent() -> None:
    agent = create_deep_agent(play(ToolCallPart('count', {}), 'ok'), deps_type=CountedDeps)

    @agent.tool
    async def count(ctx: RunContext[CountedDeps]) -> int:
        return ctx.deps.counter

    no_deps: Any = None
    result = await agent.run('go', deps=no_deps)
    assert returned(result.all_messages(), 'count') == [('success', 7)]


async def test_deps_type_with_required_fields_needs_explicit_deps() -> None:
    no_deps: Any = None
    with pytest.raises(UserError, match=r"TenantDeps\(\) cannot make them: .*'tenant'.* Pass `deps=`"):
        await create_deep_agent(play('ok'), deps_type=TenantDeps).run('go', deps=no_deps)


@pytest.mark.parametrize(
    ('deps', 'message'),
    [
        (StateBackend(), '`deps` is StateBackend, and this agent needs CountedDeps. Pass an object of it.'),
        (DeepAgentDeps(), '`deps` is DeepAgentDeps, and this agent needs CountedDeps. Pass an object of it.'),
        (
            DeepAgentDeps,
            '`deps` is the class DeepAgentDeps, and this agent needs an object of CountedDeps. '
            'Call the class: `deps=CountedDeps()`.',
        ),
        (
            CountedDeps,
            '`deps` is the class CountedDeps, and this agent needs an object of CountedDeps. '
            'Call the class: `deps=CountedDeps()`.',
        ),
    ],
)
async def test_deps_of_another_type_are_refused_before_the_run(deps: Any, message: str) -> None:
    with pytest.raises(UserError) as refused:
        await create_deep_agent(play('ok'), deps_type=CountedDeps).run('go', deps=deps)
    assert str(refused.value) == message


async def test_missing_directory_raises_before_the_first_request(tmp_path: Path) -> None:
    seen: list[AgentInfo] = []
    deps = DeepAgentDeps(backend=LocalBackend(tmp_path / 'gone'))
    with pytest.raises(WorkspaceUnavailableError, match='Create it'):
        await create_deep_agent(play('ok', seen=seen)).run('go', deps=deps)
    assert seen == []


class Boom(Exception):
    pass


@pytest.mark.parametrize(
    'error', [Boom('it broke'), AssertionError('no'), KeyError('k'), RecursionError('deep'), OSError(28, 'No space')]
)
async def test_any_exception_in_a_tool_is_a_failed_result(error: Exception) -> None:
    agent = create_deep_agent(play(ToolCallPart('risky', {}), 'recovered'))

    @agent.tool_plain
    def risky() -> str:
        raise error

    result = await agent.run('go', deps=DeepAgentDeps())
    assert result.output == 'recovered'
    assert returned(result.all_messages(), 'risky') == [('failed', f'{type(error).__name__}: {error}')]


async def test_failure_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    agent = create_deep_agent(play(ToolCallPart('risky', {}), 'ok'))

    @agent.tool_plain
    def risky() -> str:
        raise Boom('it broke')

    await agent.run('go', deps=DeepAgentDeps())
    (record,) = [r for r in caplog.records if r.name == 'pydantic_deep']
    assert (record.levelname, record.getMessage()) == ('WARNING', "Tool 'risky' failed with Boom")
    assert record.exc_info is not None
    assert record.exc_info[0] is Boom


async def test_failing_tool_does_not_affect_its_siblings() -> None:
    agent = create_deep_agent(play([ToolCallPart('risky', {}), ToolCallPart('fine', {})], 'ok'))

    @agent.tool_plain
    def risky() -> str:
        raise Boom

    @agent.tool_plain
    def fine() -> str:
        return 'done'

    result = await agent.run('go', deps=DeepAgentDeps())
    assert returned(result.all_messages(), 'fine') == [('success', 'done')]


async def test_exhausted_retries_are_a_failed_result() -> None:
    agent = create_deep_agent(play(*[ToolCallPart('picky', {})] * 14, 'gave up'), loop_detection=False)

    @agent.tool_plain
    def picky() -> str:
        raise ModelRetry('not like this')

    result = await agent.run('go', deps=DeepAgentDeps())
    assert result.output == 'gave up'
    outcomes = [o for o, _ in returned(result.all_messages(), 'picky')]
    assert outcomes == ['retried'] * 10 + ['failed'] * 4


async def test_persistently_invalid_arguments_are_a_failed_result() -> None:
    agent = create_deep_agent(play(*[ToolCallPart('typed', {'n': 'x'})] * 12, 'gave up'), loop_detection=False)

    @agent.tool_plain
    def typed(n: int) -> str:
        return str(n)

    result = await agent.run('go', deps=DeepAgentDeps())
    assert [o for o, _ in returned(result.all_messages(), 'typed')] == ['retried'] * 10 + ['failed'] * 2


async def test_unknown_tool_does_not_end_the_run() -> None:
    result = await create_deep_agent(play(*[ToolCallPart('nope', {})] * 3, 'ok')).run('go', deps=DeepAgentDeps())
    assert result.output == 'ok'


async def test_programming_errors_propagate_on_request() -> None:
    agent = create_deep_agent(play(ToolCallPart('risky', {})), capabilities=[ToolFailures(propagate=(AssertionError,))])

    @agent.tool_plain
    def risky() -> str:
        raise AssertionError('a bug')

    with pytest.raises(AssertionError, match='a bug'):
        await agent.run('go', deps=DeepAgentDeps())


async def test_exceeded_usage_limit_is_not_a_tool_failure() -> None:
    agent = create_deep_agent(play(ToolCallPart('nested', {})))

    @agent.tool_plain
    def nested() -> str:
        raise UsageLimitExceeded('spent')

    with pytest.raises(UsageLimitExceeded):
        await agent.run('go', deps=DeepAgentDeps())


class City(BaseModel):
    name: str
    population: int


async def test_structured_output_is_validated() -> None:
    agent = create_deep_agent(output_type=City)
    good = ToolCallPart('final_result', {'name': 'Graz', 'population': 300_000})
    bad = ToolCallPart('final_result', {'name': 'Graz', 'population': 'many'})
    assert (await agent.run('go', model=play(bad, good), deps=DeepAgentDeps())).output == City(
        name='Graz', population=300_000
    )
    with pytest.raises(UnexpectedModelBehavior):
        await agent.run('go', model=play(bad, bad, bad), deps=DeepAgentDeps())


@dataclass(kw_only=True)
class TenantDeps(DeepAgentDeps):
    tenant: str


@pytest.mark.slow
async def test_two_hundred_users_of_one_agent_share_nothing() -> None:
    """Each run plans, writes, reads and edits under the same path of its own backend, and must not see data of
    others."""
    agent = create_deep_agent(deps_type=TenantDeps)

    @agent.tool
    async def whoami(ctx: RunContext[TenantDeps]) -> str:
        await asyncio.sleep(0)
        return ctx.deps.tenant

    async def one(number: int) -> TenantDeps:
        tenant = f'tenant-{number}'
        deps = TenantDeps(tenant=tenant)
        model = play(
            ToolCallPart('write_todos', {'todos': [{'content': tenant, 'status': 'pending'}]}),
            [ToolCallPart('write_file', {'path': '/a.txt', 'content': f'I am {tenant}\n'}), ToolCallPart('whoami', {})],
            ToolCallPart('edit_file', {'path': '/a.txt', 'old_string': 'I am', 'new_string': 'We are'}),
            ToolCallPart('read_file', {'path': '/a.txt'}),
            'ok',
        )
        result = await agent.run('go', model=model, deps=deps)
        text = str(result.all_messages())
        assert not [n for n in range(200) if n != number and f"'{f'tenant-{n}'}'" in text]
        return deps

    everyone = await asyncio.gather(*(one(n) for n in range(200)))
    for number, deps in enumerate(everyone):
        assert [t.content for t in deps.todos] == [f'tenant-{number}']
        assert await deps.backend.read_bytes('/a.txt') == f'We are tenant-{number}\n'.encode()


def test_options_of_an_excluded_capability_are_refused() -> None:
    with pytest.raises(ValueError, match='`subagents` is passed, but `include_subagents` is False'):
        create_deep_agent(subagents=[Subagent('a', 'Does a.')], include_subagents=False)
    with pytest.raises(ValueError, match='`skills` is passed, but `include_skills` is False'):
        create_deep_agent(skills=['.'], include_skills=False)


def test_subagent_with_approvals_requires_approvals_in_its_parent() -> None:
    waiting = Subagent('a', 'Does a.', interrupt_on={'write_file': True})
    with pytest.raises(ValueError, match="The subagent 'a' has `interrupt_on`"):
        create_deep_agent(subagents=[waiting])
    with pytest.raises(ValueError, match="The subagent 'a' has `interrupt_on`"):
        create_deep_agent(subagents=[Subagent('b', 'Does b.', subagents=[waiting])])
    create_deep_agent(subagents=[waiting], interrupt_on={})


@pytest.mark.parametrize(
    'output_type',
    [[str, DeferredToolRequests], str | DeferredToolRequests],
)
async def test_an_output_type_with_deferred_requests_can_pause(output_type: Any) -> None:
    agent = create_deep_agent(play(ToolCallPart('deploy', {}), 'ok'), output_type=output_type)

    @agent.tool_plain(requires_approval=True)
    def deploy() -> str:
        return 'deployed'

    result = await agent.run('go', deps=DeepAgentDeps())
    assert [pending.tool for pending in pending_approvals(result.output)] == ['deploy']
    again = await agent.run(
        message_history=result.all_messages(),
        deferred_tool_results=answer_approvals(
            result.output, {pending.id: Approve() for pending in pending_approvals(result.output)}
        ),
        deps=DeepAgentDeps(),
        output_type=[str, DeferredToolRequests],
    )
    assert returned(again.all_messages(), 'deploy') == [('success', 'deployed')]


@pytest.mark.parametrize(
    ('flag', 'capability'), [('summarization', Summarization()), ('loop_detection', LoopDetection())]
)
def test_capability_instead_of_a_flag_is_refused(flag: str, capability: object) -> None:
    name = type(capability).__name__
    with pytest.raises(TypeError, match=rf'Pass a bool; for options, pass a `{name}\(…\)` in `capabilities`\.$'):
        create_deep_agent('test', **cast('dict[str, Any]', {flag: capability}))


@pytest.mark.parametrize('instructions', [len, [len], 5])
def test_instructions_that_are_not_texts_are_refused(instructions: Any) -> None:
    with pytest.raises(TypeError, match=r'decorate a function with `@agent\.instructions`'):
        create_deep_agent(instructions=instructions)
