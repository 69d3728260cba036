"""Capabilities of `pydantic-ai-harness` together with our capabilities and backends.

The harness works on `ctx.workspace`, which is `deps.backend`; every test runs in memory and in a real directory.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

pytest.importorskip('pydantic_ai_harness', reason='the harness pins pydantic-ai to an older release than this one')

from pydantic_ai import RunContext
from pydantic_ai.capabilities import PrefixTools
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai_harness import (
    ClearToolResults,
    DeduplicateFileReads,
    FileSystem,
    GuardrailResult,
    InputGuardrail,
    Memory,
    OutputGuardrail,
    Planning,
    RepoContext,
    Skills,
    SlidingWindowCompaction,
    SpendLimits,
    StepPersistence,
    SystemReminders,
    ToolGuardrail,
    ToolOutputLimits,
)
from pydantic_ai_harness.guardrails import ToolCallInfo, ToolResultInfo
from pydantic_ai_harness.memory import FileStore
from pydantic_ai_harness.planning import InMemoryPlanStore
from pydantic_ai_harness.repair_tool_arguments import RepairToolArguments
from pydantic_ai_harness.spend import Budget, SpendLimitExceeded
from pydantic_ai_harness.step_persistence import InMemoryStepStore, continue_run
from pydantic_ai_harness.system_reminders import Reminder
from pydantic_ai_harness.tool_output_limits import Band, Spill

from pydantic_deep import DeepAgentDeps, LocalBackend, StateBackend, Todo, create_deep_agent
from pydantic_deep.testing import ScriptedModel, call

pytestmark = pytest.mark.anyio


@pytest.fixture(params=['state', 'local'])
def deps(request: pytest.FixtureRequest, tmp_path: Path) -> DeepAgentDeps:
    """Deps on an empty backend, once in memory and once in a directory."""
    return DeepAgentDeps(backend=StateBackend() if request.param == 'state' else LocalBackend(tmp_path))


async def path_of(deps: DeepAgentDeps, name: str) -> str:
    """Return the absolute path of a file of the workspace."""
    return f'{(await deps.backend.working_dir()).rstrip("/")}/{name}'


async def write(deps: DeepAgentDeps, name: str, text: str) -> str:
    path = await path_of(deps, name)
    await deps.backend.write_bytes(path, text.encode())
    return path


async def read(deps: DeepAgentDeps, name: str) -> str:
    return (await deps.backend.read_bytes(await path_of(deps, name))).decode()


def texts(messages: list[ModelMessage]) -> str:
    """Return the prompts of a conversation as one text, without tool results."""
    parts = [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]
    return '\n'.join(str(part.content) for part in parts if isinstance(part, (UserPromptPart, SystemPromptPart)))


def sent(model: ScriptedModel) -> str:
    """Return the instructions and prompts of the model's last request, without tool results."""
    return f'{model.requests[-1].instructions}\n{texts(model.requests[-1].messages)}'


def results(model: ScriptedModel) -> list[object]:
    """Return the results of all tool calls in the model's last request."""
    return [part.content for part in model.requests[-1].tool_returns]


async def test_harness_file_tools_and_ours_use_the_same_files(deps: DeepAgentDeps) -> None:
    path = await path_of(deps, 'notes.md')
    # Only tools that we do not have: pydantic-ai refuses tools whose instructions name them under another name
    # (https://github.com/pydantic/pydantic-ai/issues/10927), so `PrefixTools` does not help here.
    tools = ['list_directory', 'search_files']
    model = ScriptedModel(
        call('write_file', path=path, content='alpha\nbeta\n'),
        [call('search_files', pattern='bet.'), call('list_directory')],
        call('edit_file', path=path, old_string='alpha', new_string='gamma'),
        call('search_files', pattern='gamma'),
        'Done.',
    )
    await create_deep_agent(model, capabilities=[FileSystem(tools=tools)]).run('Go', deps=deps)
    _, searched, listed, _, searched_again = map(str, results(model))
    assert 'notes.md:2' in searched
    assert 'beta' in searched
    assert 'notes.md' in listed
    assert 'gamma' in searched_again


async def test_prefixed_harness_tools_work_beside_ours(deps: DeepAgentDeps) -> None:
    path = await path_of(deps, 'notes.md')
    theirs = PrefixTools(FileSystem(tools=['read_file', 'write_file']), prefix='fs')
    model = ScriptedModel(
        call('fs_write_file', path='notes.md', content='alpha\n'),
        call('edit_file', path=path, old_string='alpha', new_string='beta'),
        [call('fs_read_file', path='notes.md'), call('read_file', path=path)],
        'Done.',
    )
    await create_deep_agent(model, capabilities=[theirs]).run('Go', deps=deps)
    assert await read(deps, 'notes.md') == 'beta\n'
    assert ['beta' in str(result) for result in results(model)[-2:]] == [True, True]


async def test_colliding_tool_names_raise_at_the_start(deps: DeepAgentDeps) -> None:
    model = ScriptedModel('Done.')
    with pytest.raises(UserError, match='read_file'):
        await create_deep_agent(model, capabilities=[FileSystem()]).run('Go', deps=deps)
    assert model.requests == []


async def test_harness_file_system_replaces_ours_on_our_backend(deps: DeepAgentDeps) -> None:
    model = ScriptedModel(
        call('write_file', path='notes.md', content='alpha\n'),
        call('edit_file', path='notes.md', old_text='alpha', new_text='beta'),
        call('read_file', path='notes.md'),
        'Done.',
    )
    agent = create_deep_agent(model, capabilities=[FileSystem()], include_filesystem=False)
    await agent.run('Go', deps=deps)
    assert await read(deps, 'notes.md') == 'beta\n'
    assert 'beta' in str(results(model)[-1])


async def test_harness_planning_works_beside_our_todos(deps: DeepAgentDeps) -> None:
    store = InMemoryPlanStore()
    model = ScriptedModel(
        [
            call('write_plan', items=[{'content': 'Measure twice', 'status': 'in_progress'}]),
            call('write_todos', todos=[{'content': 'Cut once', 'status': 'pending'}]),
        ],
        'Done.',
    )
    await create_deep_agent(model, capabilities=[Planning(store=store)]).run('Go', deps=deps)
    assert [item.content for item in await store.get_items()] == ['Measure twice']
    assert deps.todos == [Todo(content='Cut once')]
    assert 'Measure twice' in sent(model)


async def test_tool_output_limits_spill_into_our_backend(deps: DeepAgentDeps) -> None:
    def dump() -> str:
        """Return a lot."""
        return '\n'.join(f'line {n}' for n in range(1000))

    limits = ToolOutputLimits(bands=[Band(over=1000, action=Spill())], tool_filter=['dump'])
    model = ScriptedModel(call('dump'), read_the_spill, 'Done.')
    await create_deep_agent(model, tools=[dump], capabilities=[limits]).run('Go', deps=deps)
    spilled, slice_of_it = map(str, results(model))
    assert len(spilled) < 2500
    assert 'line 777' not in spilled
    assert 'line 777' in slice_of_it


def read_the_spill(messages: list[ModelMessage], info: object) -> ToolCallPart:
    """Call `read_tool_result` with the handle from the metadata of the spill."""
    metadata = [part.metadata for message in messages for part in message.parts if part.part_kind == 'tool-return']
    return call('read_tool_result', handle=metadata[-1]['overflow_handle'], pattern='line 777')


async def test_harness_memory_is_stored_in_our_backend_across_runs(deps: DeepAgentDeps) -> None:
    memory = Memory(FileStore('.memory'))
    first = ScriptedModel(call('write_memory', content='The user likes tea.'), 'Noted.')
    await create_deep_agent(first, capabilities=[memory]).run('Remember', deps=deps)
    files = [entry.path for entry in await deps.backend.list_dir(await path_of(deps, '.memory/main'))]
    assert [path.rpartition('/')[2] for path in files] == ['MEMORY.md']
    assert b'The user likes tea.' in await deps.backend.read_bytes(files[0])

    second = ScriptedModel('Tea?')
    await create_deep_agent(second, capabilities=[memory]).run('What do I drink?', deps=deps)
    assert 'The user likes tea.' in texts(second.requests[0].messages)


async def test_input_guardrail_answers_instead_of_the_model(deps: DeepAgentDeps) -> None:
    def no_keys(prompt: str) -> GuardrailResult:
        return GuardrailResult.block('No keys, please.') if 'sk-' in prompt else GuardrailResult.allow()

    model = ScriptedModel('Hello.')
    agent = create_deep_agent(model, capabilities=[InputGuardrail(guard=no_keys)])
    assert (await agent.run('My key is sk-1', deps=deps)).output == 'No keys, please.'
    assert model.requests == []
    assert (await agent.run('Hi', deps=deps)).output == 'Hello.'


async def test_output_guardrail_replaces_the_answer(deps: DeepAgentDeps) -> None:
    def redact(output: object) -> GuardrailResult:
        return GuardrailResult.replace(str(output).replace('1234', '****'))

    agent = create_deep_agent(ScriptedModel('The code is 1234.'), capabilities=[OutputGuardrail(guard=redact)])
    assert (await agent.run('Code?', deps=deps)).output == 'The code is ****.'


async def test_tool_guardrail_blocks_our_tools_and_redacts_their_results(deps: DeepAgentDeps) -> None:
    def only_drafts(info: ToolCallInfo) -> GuardrailResult:
        blocked = info.name == 'write_file' and 'draft' not in str(info.args['path'])
        return GuardrailResult.block('Write drafts only.') if blocked else GuardrailResult.allow()

    def redact(info: ToolResultInfo) -> GuardrailResult:
        return GuardrailResult.replace(str(info.result).replace('hunter2', '*******'))

    draft, final = await path_of(deps, 'draft.md'), await path_of(deps, 'final.md')
    model = ScriptedModel(
        [call('write_file', path=final, content='x'), call('write_file', path=draft, content='password: hunter2')],
        call('read_file', path=draft),
        'Done.',
    )
    guardrail = ToolGuardrail(guard=only_drafts, result_guard=redact)
    await create_deep_agent(model, capabilities=[guardrail]).run('Go', deps=deps)
    assert not await deps.backend.exists(final)
    assert await read(deps, 'draft.md') == 'password: hunter2'
    refused, _, redacted = map(str, results(model))
    assert 'Write drafts only.' in refused
    assert 'password: *******' in redacted


async def test_sliding_window_shortens_a_history_with_our_tool_calls(deps: DeepAgentDeps) -> None:
    path = await write(deps, 'a.txt', 'alpha')
    model = ScriptedModel(*[call('read_file', path=path)] * 6, 'Done.')
    window = SlidingWindowCompaction(max_messages=6, keep_messages=3)
    result = await create_deep_agent(model, capabilities=[window]).run('Read it six times', deps=deps)
    assert result.output == 'Done.'
    assert max(len(request.messages) for request in model.requests) <= 7
    for request in model.requests:
        assert 'Read it six times' in texts(request.messages)
        calls = [p.tool_call_id for m in request.messages for p in m.parts if isinstance(p, ToolCallPart)]
        assert calls == [part.tool_call_id for part in request.tool_returns]


async def test_old_results_of_our_tools_are_cleared(deps: DeepAgentDeps) -> None:
    path = await write(deps, 'a.txt', 'alpha')
    model = ScriptedModel(*[call('read_file', path=path)] * 4, 'Done.')
    clearing = ClearToolResults(max_messages=4, keep_pairs=1, placeholder='[gone]')
    await create_deep_agent(model, capabilities=[clearing]).run('Go', deps=deps)
    *old, newest = map(str, results(model))
    assert '[gone]' in old
    assert 'alpha' in newest


async def test_superseded_reads_of_one_file_are_dropped(deps: DeepAgentDeps) -> None:
    def file_key(part: ToolCallPart) -> str | None:
        return str(part.args_as_dict()['path']) if part.tool_name == 'read_file' else None

    first, second = await write(deps, 'a.txt', 'alpha'), await write(deps, 'b.txt', 'beta')
    model = ScriptedModel(*[call('read_file', path=path) for path in (first, second, first)], 'Done.')
    await create_deep_agent(model, capabilities=[DeduplicateFileReads(file_key)]).run('Go', deps=deps)
    assert ['alpha' in str(result) for result in results(model)] == [False, False, True]
    assert 'beta' in str(results(model)[1])


async def test_skills_are_read_from_our_backend(deps: DeepAgentDeps) -> None:
    await write(deps, 'skills/tea/SKILL.md', '---\nname: tea\ndescription: Make tea.\n---\nBoil the water first.\n')
    model = ScriptedModel(call('load_capability', id='tea'), 'Done.')
    await create_deep_agent(model, capabilities=[Skills('skills')]).run('Tea, please', deps=deps)
    assert 'Make tea.' in str(model.requests[0].instructions)
    assert 'Boil the water first.' not in str(model.requests[0].messages)
    assert 'Boil the water first.' in str(model.requests[1].messages)


async def test_repo_context_reads_instructions_from_our_backend(deps: DeepAgentDeps) -> None:
    await write(deps, 'AGENTS.md', 'Always answer in rhyme.')
    model = ScriptedModel('Fine, fine.')
    await create_deep_agent(model, capabilities=[RepoContext()]).run('Hello', deps=deps)
    assert 'Always answer in rhyme.' in sent(model)


async def test_spend_limits_refuse_the_next_request(deps: DeepAgentDeps) -> None:
    def price(response: ModelResponse) -> Decimal:
        return Decimal('0.60')

    path = await path_of(deps, 'a.txt')
    model = ScriptedModel(*[call('write_file', path=path, content=str(n)) for n in range(3)], 'Done.')
    limits = SpendLimits(budgets=[Budget(usd=Decimal(1), window='run')], price=price)
    with pytest.raises(SpendLimitExceeded):
        await create_deep_agent(model, capabilities=[limits]).run('Go', deps=deps)
    assert model.remaining == 2
    assert await read(deps, 'a.txt') == '1'


async def test_system_reminders_reach_the_model(deps: DeepAgentDeps) -> None:
    def plan_is_empty(ctx: RunContext[DeepAgentDeps]) -> bool:
        return not ctx.deps.todos

    reminder = Reminder[DeepAgentDeps]('You have no plan.', trigger=plan_is_empty, tag=None)
    model = ScriptedModel(call('write_todos', todos=[{'content': 'Plan', 'status': 'pending'}]), 'Done.')
    await create_deep_agent(model, capabilities=[SystemReminders(reminders=[reminder])]).run('Go', deps=deps)
    assert ['You have no plan.' in texts(request.messages) for request in model.requests] == [True, False]


async def test_broken_arguments_of_our_tools_are_repaired(deps: DeepAgentDeps) -> None:
    path = await path_of(deps, 'a.txt')
    broken = ToolCallPart('write_file', f"{{'path': '{path}', 'content': 'alpha',", tool_call_id='broken')
    model = ScriptedModel(broken, 'Done.')
    await create_deep_agent(model, capabilities=[RepairToolArguments()]).run('Go', deps=deps)
    assert await read(deps, 'a.txt') == 'alpha'
    assert [part.outcome for part in model.requests[-1].tool_returns] == ['success']


async def test_persisted_run_continues_with_the_same_files(deps: DeepAgentDeps) -> None:
    store = InMemoryStepStore()
    path = await path_of(deps, 'a.txt')
    first = ScriptedModel(call('write_file', path=path, content='alpha'), 'Written.')
    before = await create_deep_agent(first, capabilities=[StepPersistence(store=store)]).run('Go', deps=deps)

    history = await continue_run(store, run_id=before.run_id)
    assert [type(message) for message in history] == [type(message) for message in before.all_messages()]
    second = ScriptedModel(call('edit_file', path=path, old_string='alpha', new_string='beta'), 'Edited.')
    agent = create_deep_agent(second, capabilities=[StepPersistence(store=store)])
    await agent.run('Change it', deps=replace(deps, todos=[]), message_history=history)
    assert await read(deps, 'a.txt') == 'beta'
    assert len(await store.list_runs()) == 2
