"""The deep agent through its public API: factory, deps, backends, skills, summaries, approvals and uploads."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, DeferredToolRequests, RunContext, UnexpectedModelBehavior, UserError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.toolsets import AbstractToolset

import pydantic_deep_backends as backends
from pydantic_deep import DeepAgentDeps, StateBackend, Subagent, create_deep_agent
from pydantic_deep.approvals import Approve, answer_approvals, pending_approvals
from pydantic_deep.skills import discover_skills
from pydantic_deep.summarization import Messages, Summarization, Tokens
from pydantic_deep.testing import ScriptedModel, SeenRequest, call
from pydantic_deep.todos import Todo, Todos
from pydantic_deep.tokens import count_tokens_approximately
from pydantic_deep_backends import BackendProtocol, SandboxProtocol

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parent.parent.parent
FLAGS = ('include_todo', 'include_filesystem', 'include_subagents', 'include_skills')
TOOLS = {
    'include_todo': {'write_todos'},
    'include_filesystem': {'ls', 'read_file', 'write_file', 'edit_file', 'glob', 'grep'},
    'include_subagents': {'task'},
    'include_skills': {'load_skill'},
}
PLAN = [{'content': 'Look', 'status': 'pending'}]


def sent(request: SeenRequest) -> str:
    """Return all text of a request that the model receives, without times and ids, which always differ."""
    texts = [
        [getattr(part, name, None) for name in ('content', 'tool_name', 'args')]
        for message in request.messages
        for part in message.parts
    ]
    return repr((texts, [(tool.name, tool.description, tool.parameters_json_schema) for tool in request.tools]))


def test_backends_are_a_separate_distribution() -> None:
    """003-01: Backends are a distribution of their own with its own version, usable without the framework, and Docker is
    not needed.
    """
    project = tomllib.loads((ROOT / 'backends/pyproject.toml').read_text())['project']
    program = (
        'import asyncio, sys; from pydantic_deep_backends import StateBackend; b = StateBackend(); '
        'asyncio.run(b.write_bytes("/a", b"x")); print(asyncio.run(b.read_bytes("/a")), '
        'sorted({name.partition(".")[0] for name in sys.modules} & {"pydantic_deep", "pydantic_ai", "pydantic", "docker"}))'
    )
    done = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True, check=True)

    assert (project['name'], 'version' in project) == ('pydantic-deep-backends', True)
    assert not [name for name in project['dependencies'] if 'pydantic' in name or 'docker' in name]
    assert done.stdout == "b'x' []\n"


def test_backends_implement_the_protocols(tmp_path: Path) -> None:
    """003-02: Backends implement `BackendProtocol`, and those that run commands `SandboxProtocol`; all of them are in the
    distribution of the backends.
    """
    state, local = StateBackend(), backends.LocalBackend(tmp_path)
    plain = [state, local, backends.CompositeBackend(state, {'/m': local}), backends.ReadOnlyBackend(state)]
    running = [backends.SandboxBackend(tmp_path), backends.LocalBackend(tmp_path, allow_commands=True)]

    assert all(isinstance(each, BackendProtocol) for each in plain + running)
    assert all(isinstance(each, SandboxProtocol) for each in running)
    assert not isinstance(state, SandboxProtocol)
    assert {type(each).__module__.partition('.')[0] for each in plain + running} == {'pydantic_deep_backends'}


async def test_todos_work_on_any_agent() -> None:
    """003-03: The todo tools are a capability of their own that any pydantic-ai agent can use, with deps of any type."""
    for deps in (None, 3, {'a': 1}):
        model = ScriptedModel(call('write_todos', todos=PLAN), 'done')
        agent = Agent(model, capabilities=[Todos()], deps_type=type(deps))
        result = await agent.run('go', deps=deps)
        assert result.output == 'done'
        [answer] = [part for part in model.requests[1].messages[-1].parts if isinstance(part, ToolReturnPart)]
        assert answer.outcome == 'success'
    assert set(model.requests[0].tool_names) == {'write_todos'}


async def test_todos_are_a_toolset_and_stored_in_deps() -> None:
    """003-04: The todo tools are a pydantic-ai toolset, and with `DeepAgentDeps` the list is `deps.todos`."""
    deps = DeepAgentDeps()
    await create_deep_agent(ScriptedModel(call('write_todos', todos=PLAN), 'done')).run('go', deps=deps)

    assert isinstance(Todos().get_toolset(), AbstractToolset)
    assert [(todo.content, todo.status) for todo in deps.todos] == [('Look', 'pending')]


async def test_users_of_one_agent_share_nothing_in_deps() -> None:
    """003-05: All state of a run is in the dataclass `DeepAgentDeps`; the agent object is stateless and shared by sessions
    and users; there are no globals.
    """

    def script(messages: list[ModelMessage], info: object) -> Any:
        words = str(messages)
        name = 'ada' if 'I am ada' in words else 'bob'
        if len(messages) == 1:
            return [
                call('write_file', path=f'/{name}.txt', content=f'secret of {name}'),
                call('write_todos', todos=PLAN),
            ]
        return 'done' if len(messages) > 3 else call('ls', path='/')

    model = ScriptedModel(then=script)
    agent = create_deep_agent(model)
    everyone = {'ada': DeepAgentDeps(), 'bob': DeepAgentDeps()}
    for name, deps in everyone.items():
        before = {key: repr(value) for key, value in vars(agent).items()}
        await agent.run(f'I am {name}', deps=deps)
        assert {key: repr(value) for key, value in vars(agent).items()} == before
    fresh = DeepAgentDeps()

    assert [entry.name for entry in await everyone['bob'].backend.list_dir('/')] == ['bob.txt']
    assert [entry.name for entry in await everyone['ada'].backend.list_dir('/')] == ['ada.txt']
    assert 'ada' not in ''.join(sent(request) for request in model.requests[len(model.requests) // 2 :])
    assert (fresh.todos, await fresh.backend.list_dir('/')) == ([], [])
    assert {field.name for field in fields(fresh) if field.init} >= {
        'backend',
        'todos',
        'uploads',
        'subagents',
        'metadata',
    }


async def test_tools_get_deps_and_subagents_get_clones() -> None:
    """003-06: `deps` are passed to every `agent.run()` and tools read them from `RunContext`; subagents get cloned deps of
    their own; a test makes deps without any service.
    """
    seen: list[DeepAgentDeps] = []

    def look(ctx: RunContext[DeepAgentDeps]) -> str:
        seen.append(ctx.deps)
        return 'seen'

    model = ScriptedModel(call('look'), call('task', subagent='helper', description='look'), call('look'), 'ok', 'done')
    agent = create_deep_agent(model, tools=[look], subagents=[Subagent('helper', 'Helps.', tools=[look])])
    deps = DeepAgentDeps(metadata={'user': 'ada'})
    await agent.run('go', deps=deps)

    assert seen[0] is deps
    assert seen[1] is not deps
    assert (seen[1].todos, seen[1].metadata, seen[1].backend is deps.backend) == ([], {'user': 'ada'}, True)


class DuckBackend:
    """A backend without a base class."""

    def __init__(self) -> None:
        self._files = StateBackend()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)


for _name in ('ref', 'working_dir', 'read_bytes', 'write_bytes', 'stat', 'list_dir', 'make_dir', 'remove', 'exists', 'realpath'):  # fmt: skip

    def _forward(self: DuckBackend, *args: Any, _name: str = _name, **options: Any) -> Any:
        return getattr(self._files, _name)(*args, **options)  # pyright: ignore[reportPrivateUsage]

    setattr(DuckBackend, _name, _forward)


async def test_any_class_with_the_methods_is_a_backend() -> None:
    """003-07: Backends are protocols: a class that inherits from nothing of ours works, can be swapped in, and can be a
    fake.
    """
    duck: Any = DuckBackend()
    for backend in (duck, StateBackend()):
        agent = create_deep_agent(ScriptedModel(call('write_file', path='/a.txt', content='hello'), 'done'))
        await agent.run('go', deps=DeepAgentDeps(backend=backend))
        assert await backend.read_bytes('/a.txt') == b'hello'
    assert DuckBackend.__mro__ == (DuckBackend, object)


async def test_incomplete_backend_is_refused_and_backends_share_no_base_class() -> None:
    """003-08: A backend must have the methods of the protocol, an incomplete one is refused when the run starts, and
    backends share no base class.
    """

    class Half:
        async def read_bytes(self, path: str) -> bytes:
            return b''

    half: Any = Half()
    model = ScriptedModel('never asked')
    with pytest.raises(UserError, match='Half'):
        await create_deep_agent(model).run('go', deps=DeepAgentDeps(backend=half))
    assert model.requests == []
    kinds = (
        StateBackend,
        backends.LocalBackend,
        backends.CompositeBackend,
        backends.ReadOnlyBackend,
        backends.OverlayBackend,
    )
    bases = [{base for base in kind.__mro__ if base.__module__.startswith('pydantic_deep')} - {kind} for kind in kinds]
    protocols = {base for each in bases for base in each if getattr(base, '_is_protocol', False)}
    assert set[type].intersection(*(each - protocols for each in bases)) == set()


@pytest.fixture
def skill(tmp_path: Path) -> Path:
    folder = tmp_path / 'greeting'
    folder.mkdir()
    (folder / 'SKILL.md').write_text(
        '---\nname: greeting\ndescription: Use this skill when you greet.\n---\n\nSay hello to BODY-CANARY.\n'
    )
    (folder / 'names.txt').write_text('FILE-CANARY')
    return tmp_path


@pytest.mark.parametrize('off', FLAGS)
async def test_each_flag_disables_its_toolset(off: str, skill: Path) -> None:
    """003-09: Each of `include_todo`, `include_filesystem`, `include_subagents` and `include_skills` enables or disables
    its toolset.
    """
    model = ScriptedModel('done')
    options: dict[str, Any] = {off: False}
    if off != 'include_skills':
        options['skills'] = [skill]
    await create_deep_agent(model, **options).run('go')

    on = set[str]().union(*(tools for flag, tools in TOOLS.items() if flag != off))
    shown = set(model.requests[0].tool_names)
    assert on <= shown
    assert not TOOLS[off] & shown


async def test_any_mix_of_toolsets_works_and_fewer_are_smaller(skill: Path) -> None:
    """003-10: All toolsets are on by default, any mix of them works, each brings its own instructions, and fewer tools are
    fewer characters sent.
    """
    size_by_mix: dict[frozenset[str], int] = {}
    for mix in product((True, False), repeat=len(FLAGS)):
        options: dict[str, Any] = dict(zip(FLAGS, mix, strict=True))
        model = ScriptedModel('done')
        await create_deep_agent(model, skills=[skill] if options['include_skills'] else (), **options).run('go')
        on = frozenset(flag for flag, is_on in options.items() if is_on)
        shown = set(model.requests[0].tool_names)
        assert {flag for flag, tools in TOOLS.items() if tools & shown} == on
        parts = model.requests[0].parameters.instruction_parts or []
        assert len(parts) == len(on), parts
        size_by_mix[on] = len(sent(model.requests[0]))
    default = ScriptedModel('done')
    await create_deep_agent(default, skills=[skill]).run('go', deps=DeepAgentDeps())

    assert len(sent(default.requests[0])) == size_by_mix[frozenset(FLAGS)]
    for more, fewer in product(size_by_mix, repeat=2):
        assert not fewer < more or size_by_mix[fewer] < size_by_mix[more]


async def test_prompt_reflects_uploads_todos_and_files() -> None:
    """003-11: The prompt reflects current uploads, todos and files, and contains only relevant ones."""

    def told(request: SeenRequest, word: str) -> int:
        return str(request.messages).count(word)

    model = ScriptedModel('nothing there', call('write_file', path='made.md', content='x'), 'made', 'seen', 'same')
    agent = create_deep_agent(model)
    deps = DeepAgentDeps()
    first = await agent.run('go', deps=deps)
    await deps.backend.write_bytes('/canary-dir/below.txt', b'x')
    await deps.backend.write_bytes('/.hidden-canary', b'x')
    await deps.upload('sales.csv', b'a\n1\n')
    deps.todos.append(Todo(content='Plan CANARY'))
    second = await agent.run('and', deps=deps, message_history=first.all_messages())
    third = await agent.run('now', deps=deps, message_history=second.all_messages())
    await agent.run('and now', deps=deps, message_history=third.all_messages())

    assert [told(request, 'Files:') for request in model.requests] == [0, 1, 1, 2, 2]
    assert [told(request, 'canary-dir/') for request in model.requests] == [0, 1, 1, 2, 2]
    assert [told(request, 'made.md, ') + told(request, ', made.md') for request in model.requests] == [0, 0, 0, 1, 1]
    assert [min(told(request, 'sales.csv'), 1) for request in model.requests] == [0, 1, 1, 1, 1]
    assert [min(told(request, 'Plan CANARY'), 1) for request in model.requests] == [0, 1, 1, 1, 1]
    assert not any(told(request, word) for request in model.requests for word in ('hidden-canary', 'below.txt'))


async def test_instructions_have_sections_and_changes_are_sent_in_every_run() -> None:
    """003-12: Instructions come from pydantic-ai's instructions, with a section for each toolset; changes are sent in
    every run.
    """
    model = ScriptedModel('one', 'two', 'three')
    agent = create_deep_agent(model, instructions='You are CANARY.')
    deps = DeepAgentDeps()
    first = await agent.run('go', deps=deps)
    await deps.upload('sales.csv', b'a\n1\n')
    second = await agent.run('and now', deps=deps, message_history=first.all_messages())
    await agent.run('and then', deps=deps, message_history=second.all_messages())

    texts = [part.content for part in model.requests[0].parameters.instruction_parts or []]
    assert len(texts) >= 4
    assert len([text for text in texts if 'CANARY' in text]) == 1
    told = [str(request.messages).count('sales.csv') for request in model.requests]
    assert told[0] == 0
    assert told[1] == told[2] > 0
    assert [request.parameters.instruction_parts for request in model.requests[1:]] == [model.requests[0].parameters.instruction_parts] * 2  # fmt: skip


async def test_subagent_has_its_own_deps_and_cannot_delegate() -> None:
    """003-13: A subagent gets cloned deps with empty todos and without subagents, and cannot delegate unless it is allowed
    to.
    """
    seen: list[DeepAgentDeps] = []

    def look(ctx: RunContext[DeepAgentDeps]) -> str:
        seen.append(ctx.deps)
        return 'seen'

    model = ScriptedModel(
        call('write_todos', todos=PLAN), call('task', subagent='helper', description='look'), call('look'), 'ok', 'done'
    )
    agent = create_deep_agent(model, subagents=[Subagent('helper', 'Helps.', tools=[look])])
    deps = DeepAgentDeps()
    await agent.run('go', deps=deps)

    [own] = seen
    assert (own.todos, own.subagents) == ([], {})
    assert len(deps.todos) == 1
    assert 'task' in model.requests[0].tool_names
    assert 'task' not in model.requests[2].tool_names


async def test_subagent_shares_files_but_not_histories() -> None:
    """003-14: `clone_for_subagent()` shares the backend and the uploads, so that files coordinate; message histories are
    not shared.
    """
    deps = DeepAgentDeps()
    await deps.upload('sales.csv', b'a\n1\n')
    clone = deps.clone_for_subagent()
    model = ScriptedModel(
        call('task', subagent='helper', description='write it'),
        call('write_file', path='/a.txt', content='hello'),
        'CHILD-ANSWER',
        call('read_file', path='/a.txt'),
        'done',
    )
    agent = create_deep_agent(model, subagents=[Subagent('helper', 'Helps.')])
    result = await agent.run('PARENT-CANARY', deps=deps)

    assert clone.backend is deps.backend
    assert clone.uploads is deps.uploads
    assert 'PARENT-CANARY' not in str([request.messages for request in model.requests[1:3]])
    assert 'write_file' not in str(result.all_messages())
    assert 'hello' in str(model.requests[4].messages[-1])


async def test_subagent_is_built_once_on_first_use() -> None:
    """Creation and caching of subagents.

    003-15: A subagent is created on first use and then cached.

    003-16: A subagent is created inside `task`, cached in `deps.subagents`, taken from there if it was put there before,
    and created again if it is gone.
    """

    def script(messages: list[ModelMessage], info: object) -> Any:
        asked = str(messages[0].parts[-1].content)  # type: ignore[union-attr] - a prompt
        if asked != 'go':
            return 'built here'
        return 'done' if len(messages) > 1 else call('task', subagent='helper', description='help')

    agent = create_deep_agent(ScriptedModel(then=script), subagents=[Subagent('helper', 'Helps.')])
    deps = DeepAgentDeps()
    assert deps.subagents == {}
    await agent.run('go', deps=deps)
    built = dict(deps.subagents)
    await agent.run('go', deps=deps)
    kept = dict(deps.subagents)
    deps.subagents.clear()
    await agent.run('go', deps=deps)
    again = dict(deps.subagents)

    assert list(built) == list(kept) == list(again) == ['helper']
    assert kept['helper'] is built['helper']
    assert again['helper'] is not built['helper']

    ready = DeepAgentDeps(subagents={'helper': Agent(ScriptedModel('from the one that was there'))})
    result = await agent.run('go', deps=ready)
    assert 'from the one that was there' in str(result.all_messages())


async def test_skill_is_disclosed_step_by_step(skill: Path) -> None:
    """Progressive disclosure of a skill.

    003-17: The model is shown the frontmatter of a skill first, and the full instructions when it asks for them.

    003-18: `discover_skills()` reads only frontmatter, `load_skill` everything, and `frontmatter_loaded` says so.

    003-19: A skill is a file `SKILL.md` with YAML frontmatter and Markdown.

    003-20: Frontmatter is `key: value` in YAML, the instructions come after it, and the resources are the files in the
    skill's folder.
    """
    [found] = discover_skills([skill]).skills.values()
    model = ScriptedModel(
        call('load_skill', name='greeting'), call('load_skill', name='greeting', file='names.txt'), 'done'
    )
    await create_deep_agent(model, skills=[skill]).run('go', deps=DeepAgentDeps())

    assert (found.name, found.description) == ('greeting', 'Use this skill when you greet.')
    assert (found.frontmatter_loaded, found.body, found.files) == (True, None, None)
    texts = [sent(request) + str(request.parameters.instruction_parts) for request in model.requests]
    assert ['Use this skill when you greet.' in text for text in texts] == [True, True, True]
    assert ['Say hello to BODY-CANARY.' in text for text in texts] == [False, True, True]
    assert ['names.txt' in text for text in texts] == [False, True, True]
    assert ['FILE-CANARY' in text for text in texts] == [False, False, True]


def history(turns: int, chars: int) -> list[ModelMessage]:
    """Return turns with a call and its result, with texts of this length."""
    messages: list[ModelMessage] = []
    for number in range(turns):
        messages += [
            ModelRequest.user_text_prompt(f'question {number} ' + 'x' * chars),
            _response(ToolCallPart('ls', {'path': '/'}, tool_call_id=f'c{number}')),
            ModelRequest(parts=[ToolReturnPart('ls', 'y' * chars, tool_call_id=f'c{number}')]),
            _response(f'answer {number}'),
        ]
    return messages


def _response(part: Any) -> Any:
    return ModelResponse(parts=[TextPart(part) if isinstance(part, str) else part])


async def summarized(given: list[ModelMessage], **options: Any) -> tuple[ScriptedModel, list[ModelMessage]]:
    """Run a turn with this history and summarization, and return the model and the messages of its last request."""
    model = ScriptedModel(then=lambda messages, info: 'SUMMARY or answer')
    agent = create_deep_agent(model, capabilities=[Summarization(**options)])
    await agent.run('go', message_history=given, deps=DeepAgentDeps())
    return model, model.requests[-1].messages


async def test_tokens_are_counted_by_characters_unless_a_counter_is_given() -> None:
    """Triggers of a summary.

    003-21: A token is about 4 characters, without a tokenizer, for any model.

    003-22: `count_tokens_approximately` divides the characters by 4, another counter can be passed, and its count
    triggers the summary.
    """
    given = history(10, 400)  # about 8,000 characters: 2,000 tokens

    assert [count_tokens_approximately('x' * n) for n in (0, 4, 400, 4_000)] == [0, 1, 100, 1_000]
    above, _ = await summarized(given, trigger=Tokens(1_500), keep=Messages(4))
    below, _ = await summarized(given, trigger=Tokens(6_000), keep=Messages(4))
    own, _ = await summarized(given, trigger=Tokens(6_000), keep=Messages(4), counter=len)
    assert [len(model.requests) for model in (above, below, own)] == [2, 1, 2]


async def test_summarization_never_separates_a_call_from_its_result() -> None:
    """The cut of a history.

    003-23: Summarization never separates a tool call from its result, and retains more than requested if this is
    necessary.

    003-24: The position of a cut is checked for pairs, and moved to a safe one near it.
    """
    given = history(6, 40)
    kept_by_wish: dict[int, int] = {}
    for wish in range(2, 10):
        _, messages = await summarized(given, trigger=Messages(10), keep=Messages(wish))
        parts = [part for message in messages for part in message.parts]
        called = [part.tool_call_id for part in parts if isinstance(part, ToolCallPart)]
        returned = [part.tool_call_id for part in parts if isinstance(part, ToolReturnPart)]
        assert called == returned
        kept_by_wish[wish] = len(messages) - 1  # without the summary

    # Of two calls of one response, one was answered later, like a call that needed approval.
    late = [
        ModelRequest.user_text_prompt('question'),
        ModelResponse([ToolCallPart('ls', {}, tool_call_id='now'), ToolCallPart('ls', {}, tool_call_id='late')]),
        ModelRequest([ToolReturnPart('ls', 'y', tool_call_id='now')]),
        ModelResponse([ToolCallPart('ls', {}, tool_call_id='next')]),
        ModelRequest([ToolReturnPart('ls', 'y', tool_call_id=id) for id in ('next', 'late')]),
    ]
    for wish in range(2, 8):
        _, messages = await summarized([*given, *late, _response('a')], trigger=Messages(10), keep=Messages(wish))
        parts = [part for message in messages for part in message.parts]
        called = {part.tool_call_id for part in parts if isinstance(part, ToolCallPart)}
        assert called == {part.tool_call_id for part in parts if isinstance(part, ToolReturnPart)}
        assert wish == 2 or {'now', 'late', 'next'} <= called  # a late result keeps its call in the history

    assert all(kept >= wish for wish, kept in kept_by_wish.items())
    assert any(kept > wish for wish, kept in kept_by_wish.items())
    assert all(kept <= wish + 2 for wish, kept in kept_by_wish.items())


class Report(BaseModel):
    """A structured answer."""

    lines: int


async def test_gated_calls_surface_and_are_answered() -> None:
    """Pending calls from the caller's view.

    003-25: Tools that need approval surface as `DeferredToolRequests`, also with structured output.

    003-26: With `interrupt_on`, the output type becomes a union; the caller checks
    `isinstance(result.output, DeferredToolRequests)`, and decisions return as `deferred_tool_results`.
    """
    model = ScriptedModel(call('write_file', path='/a.txt', content='hello'), call('final_result', lines=1))
    agent = create_deep_agent(model, output_type=Report, interrupt_on={'write_file': True})
    deps = DeepAgentDeps()
    result = await agent.run('go', deps=deps)

    assert isinstance(result.output, DeferredToolRequests)
    assert not await deps.backend.exists('/a.txt')
    [waiting] = pending_approvals(result.output)
    answers = answer_approvals(result.output, {waiting.id: Approve()})
    done = await agent.run(deps=deps, message_history=result.all_messages(), deferred_tool_results=answers)
    assert done.output == Report(lines=1)
    assert await deps.backend.read_bytes('/a.txt') == b'hello'


async def test_uploads_are_described_to_the_model() -> None:
    """003-27: Size, encoding, line count and media type of an upload are stored and sent to the model."""
    deps = DeepAgentDeps()
    upload = await deps.upload('größen.csv', 'a;ä\n1;2\n'.encode())
    model = ScriptedModel('done')
    await create_deep_agent(model).run('go', deps=deps)

    assert (upload.size_bytes, upload.encoding, upload.line_count, upload.media_type) == (9, 'utf-8', 2, 'text/csv')
    told = str(model.requests[0].messages)
    for fact in ('größen.csv', '9 bytes', 'utf-8', '2 lines', 'text/csv'):
        assert fact in told


async def test_uploads_of_any_content_succeed() -> None:
    """003-28: An upload succeeds where no encoding is found, only text has a line count, and the media type comes from the
    name, which may be wrong.
    """
    deps = DeepAgentDeps()
    noise = await deps.upload('noise', bytes(range(256)) * 8)
    wrong = await deps.upload('picture.png', b'no picture\n')
    text = await deps.upload('a.txt', b'one\ntwo\n')

    assert (noise.encoding, noise.line_count) == (None, None)
    assert wrong.media_type == 'image/png'
    assert (text.line_count, text.media_type) == (2, 'text/plain')


async def test_structured_output_is_validated() -> None:
    """003-29: `output_type` takes pydantic models and other types, which are validated at run time; an invalid output
    is a validation error that the model can correct.
    """

    @dataclass
    class Point:
        x: int

    for output_type, args, expected in ((Report, {'lines': 3}, Report(lines=3)), (Point, {'x': 1}, Point(1))):
        model = ScriptedModel(call('final_result', **dict.fromkeys(args, 'many')), call('final_result', **args))
        agent: Agent[DeepAgentDeps, Any] = create_deep_agent(model, output_type=output_type)
        result = await agent.run('go', deps=DeepAgentDeps())
        assert result.output == expected
        assert 'valid integer' in str(model.requests[1].messages[-1])
    never = ScriptedModel(then=lambda messages, info: call('final_result', lines='many'))
    with pytest.raises(UnexpectedModelBehavior):
        await create_deep_agent(never, output_type=Report).run('go', deps=DeepAgentDeps())


def test_accepted_costs_are_documented() -> None:
    """003-30: The accepted costs are documented: two distributions, deps on each call, protocols without shared code,
    flags, instructions that can disagree, stale caches of subagents, drift of frontmatter and body, late or early summaries,
    and unions.
    """
    page = (ROOT / 'docs/decisions/trade-offs.md').read_text()

    for cost in (
        'Two distributions',
        'Deps on each call',
        'Protocols share no code',
        'Flags',
        'can disagree',
        'Stale caches of subagents',
        "drift between a skill's frontmatter and its body",
        'too early or too late',
        'Unions',
    ):
        assert cost in page
