"""Arguments are validated before they are used, and equally by every entry point."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest
from pydantic_ai import Agent, BinaryContent, NativeOutput, PromptedOutput
from pydantic_ai.messages import CachePoint, ModelRequest, TextContent, UserPromptPart
from pydantic_ai.toolsets import FunctionToolset
from pydantic_evals import Dataset

from pydantic_deep import (
    Audit,
    BackendSkills,
    Conversation,
    DeepAgentDeps,
    Deny,
    Filesystem,
    LoopDetection,
    MessageList,
    PlanMode,
    ProjectContext,
    Retries,
    Shared,
    SkillDirectory,
    Subagent,
    Subagents,
    Summarization,
    Todo,
    Todos,
    ToolFailures,
    UntrustedContent,
    VersionedAgent,
    as_workspace,
    create_deep_agent,
    default_capabilities,
    discover_skills,
    open_store,
    prompt,
    render_approval,
)
from pydantic_deep.approvals import Approve, Edit, InvalidDecisionError, answer_approvals
from pydantic_deep.audit import AuditRecord, Redactor, audit_of_run, audit_response
from pydantic_deep.client import Client
from pydantic_deep.dispatch import Worker, submit
from pydantic_deep.errors import DeepAgentError, ValidationError
from pydantic_deep.evals import compare, record_case
from pydantic_deep.mcp import McpServers
from pydantic_deep.plan_mode import with_plan_mode
from pydantic_deep.repository import MemoryRepository, SqlRepository
from pydantic_deep.repository.sql import open_repository
from pydantic_deep.server import create_api_key, create_app, revoke_api_key, run_worker
from pydantic_deep.skills import Skill, Skills
from pydantic_deep.store import Decision, SqlStore, Store, VersionFilter
from pydantic_deep.streaming import session_scope, stream_agent
from pydantic_deep.testing import RecordedModel, ScriptedModel, call
from pydantic_deep.versions import ApprovalInbox, TurnOptions
from pydantic_deep.web import Web
from pydantic_deep_backends import StateBackend

pytestmark = pytest.mark.anyio

EMPTY_PROMPTS: list[Any] = [
    '',
    ' \n\t',
    [],
    [''],
    [' ', TextContent(' ')],
    [CachePoint()],
    'a \ud83d b',
    ['\udc00'],
    None,
    5,
    '\u200b\u2060',
    ['\ufeff', '\x00'],
    b'Go',
    ['Go', None],
]
BLANK: list[Any] = ['', '  ', '\ud83d', 7]
WRONG_SETTINGS: list[tuple[str, Any]] = [
    ('temperature', 'hot'), ('temperature', -0.1), ('temperature', math.nan), ('temperature', True),
    ('max_tokens', -1), ('max_tokens', 0), ('max_tokens', 1.5), ('max_tokens', 10**30), ('max_tokens', '5'),
    ('timeout', 0), ('timeout', -1), ('timeout', 'long'), ('timeout', math.inf),
    ('top_p', 2), ('top_p', -1), ('seed', 1.5), ('seed', 'x'), ('presence_penalty', 'x'),
    ('parallel_tool_calls', 'yes'), ('stop_sequences', 'x'), ('stop_sequences', 7), ('stop_sequences', ['']),
    ('stop_sequences', ['\ud83d']),
]  # fmt: skip
UNREAD: Any = object()
"""Marks an argument that is not validated."""
WRONG_NUMBERS: list[Any] = [-1, 10**30, -(10**30), 1.5, True, '5', None]


async def raised(action: Callable[[], Any]) -> str:
    """Return the `field` of the error raised by an action."""

    async def act() -> None:
        result = action()
        if isinstance(result, Awaitable):
            await cast('Awaitable[Any]', result)

    with pytest.raises(ValidationError) as error:
        await act()
    assert isinstance(error.value, DeepAgentError)
    assert len(str(error.value)) < 400
    return error.value.field


@pytest.fixture
def agent() -> Agent[Any, Any]:
    return Agent(ScriptedModel(), name='worker')


@pytest.mark.parametrize('words', EMPTY_PROMPTS)
async def test_empty_or_invalid_prompt_is_refused(agent: Agent[Any, Any], words: Any) -> None:
    """Empty and blank prompts and lone surrogates are refused as `prompt` by versions, their streams, conversations and
    builders, before any model request or write to the store.

    """
    async with open_store('memory:') as store:
        versioned = VersionedAgent(agent, store)
        root = await versioned.create()
        conversation = versioned.conversation(root.conversation_id)
        assert await raised(lambda: root.advance(words)) == 'prompt'
        assert await raised(lambda: root.advance_stream(words)) == 'prompt'
        assert await raised(lambda: conversation.advance(words)) == 'prompt'
        assert await raised(lambda: prompt(agent).user(words)) == 'prompt'
        assert await raised(lambda: prompt(versioned).request(words)) == 'prompt'
        assert await raised(lambda: Conversation(agent=agent).continuation.user(words)) == 'prompt'
        if words is not None:
            assert await raised(lambda: stream_agent(agent, words)) == 'prompt'
        if words and (isinstance(words, str) or (isinstance(words, list) and None not in words)):
            for handle in (Conversation(agent=agent), Conversation(agent=versioned)):
                handle.messages.append(ModelRequest([UserPromptPart(cast('Any', words))]))
                assert await raised(handle.run) == 'prompt'
        assert [version.kind for version in await store.versions()] == ['root']
        assert await store.runs() == []


@pytest.mark.parametrize('text', [*BLANK, '\u200b\x00'])
async def test_blank_names_and_models_are_refused(agent: Agent[Any, Any], text: Any) -> None:
    """Blank or non-string names, models and ids are refused with the name of the argument."""
    async with open_store('memory:') as store:
        versioned = VersionedAgent(agent, store)
        root = await versioned.create()
        assert await raised(lambda: versioned.create(name=text)) == 'name'
        assert await raised(lambda: versioned.create(conversation_id=text)) == 'conversation_id'
        assert await raised(lambda: root.with_metadata(name=text)) == 'name'
        assert await raised(lambda: root.advance('Go', branch=text)) == 'branch'
        assert await raised(lambda: versioned.create(instructions=[text])) == 'instructions'
        assert await raised(lambda: root.with_metadata(instructions=[text])) == 'instructions'
        assert await raised(lambda: prompt(agent).model(text)) == 'model'
        assert await raised(lambda: create_deep_agent('test', name=text)) == 'name'
        assert await raised(lambda: prompt(agent, conversation_id=text)) == 'conversation_id'
        assert await raised(lambda: prompt(agent).instructions(text)) == 'instructions'
        assert await raised(lambda: prompt(agent).assistant(text)) == 'assistant'
        if isinstance(text, str):
            assert await raised(lambda: versioned.create(model=text)) == 'model'
            assert await raised(lambda: root.advance('Go', model=text)) == 'model'
            assert await raised(lambda: DeepAgentDeps().upload(text, b'')) == 'name'
            assert await raised(lambda: prompt(text)) == 'model'
            assert await raised(lambda: create_deep_agent(text)) == 'model'


def entries(agent: Agent[Any, Any], versioned: VersionedAgent[Any, Any]) -> dict[str, list[Callable[[Any], Any]]]:
    """Return the functions that accept an id or a name, by the name of the argument."""
    store, inbox, deps = versioned.store, ApprovalInbox(versioned.store), DeepAgentDeps()
    assert isinstance(store, SqlStore)

    def scoped(id: Any) -> None:
        with session_scope(id):
            raise AssertionError('entered')

    async def upload(name: Any) -> None:
        await (await versioned.create(backend=StateBackend())).upload(name, b'')

    async def stream(**given: Any) -> None:
        (await versioned.create()).advance_stream('Go', **given)

    async def resume(**given: Any) -> None:
        await (await versioned.create()).resume({'a': Approve()}, **given)

    async def resume_stream(**given: Any) -> None:
        (await versioned.create()).resume_stream(**given)

    async def audited(**given: Any) -> None:
        await audit_response(UNREAD, MemoryRepository(AuditRecord), **given)

    async def row(name: Any) -> None:
        await SqlRepository[AuditRecord].open(store, AuditRecord, name=name)

    return {
        'session_id': [scoped, lambda id: stream_agent(agent, 'Go', session_id=id), lambda id: audited(session_id=id)],
        'id': [
            versioned.load, versioned.conversation, inbox.get, lambda id: inbox.answer(id, Approve()),
            lambda id: revoke_api_key(store, id), versioned.delete,
        ],
        'head_id': [versioned.delete_line],
        'run_id': [
            versioned.cancel, versioned.recover, lambda id: audit_of_run(store, id), lambda id: stream(run_id=id),
            lambda id: resume_stream(run_id=id),
        ],
        'parent_run_id': [lambda id: audited(parent_run_id=id)],
        'conversation_id': [
            versioned.thread, versioned.events, versioned.suspended, lambda id: versioned.list(conversation_id=id),
            lambda id: versioned.count(conversation_id=id), lambda id: audited(conversation_id=id),
            lambda id: Conversation(agent=agent, conversation_id=id),
            lambda id: Conversation(agent=versioned, conversation_id=id),
        ],
        'name': [
            versioned.find_by_name, lambda name: versioned.list(name=name), lambda name: versioned.count(name=name),
            versioned.conversation('c').rename, prompt(agent).provider, row, upload, deps.remove_upload,
            lambda name: deps.upload(name, b''), lambda name: Subagent(name, 'Works.'),
            lambda name: Skills([Skill(name, 'Greets.', body='Hi.')]),
            lambda name: create_api_key(store, name=name, scopes=['run']),
        ],
        'model': [lambda model: versioned.list(model=model)],
        'agents': [lambda name: create_api_key(store, name='k', scopes=['run'], agents=[name])],
        'owner': [lambda name: create_api_key(store, name='k', scopes=['run'], owner=name)],
        'agent_name': [lambda name: inbox.list(agent_name=name), lambda name: audited(agent_name=name)],
        'provider': [lambda name: audited(provider=name)],
        'by': [
            lambda name: inbox.answer('a' * 36, Approve(), by=name), lambda name: resume(by=name),
            lambda name: resume_stream(by=name),
        ],
        'branch': [lambda name: stream(branch=name)],
        'description': [
            lambda text: Subagent('worker', text), lambda text: Skills([Skill('greeting', text, body='Hi.')]),
        ],
        'instructions': [
            lambda text: versioned.create(instructions=text), lambda text: versioned.create(instructions=['Be.', text]),
        ],
    }  # fmt: skip


def entries_of_store(store: SqlStore) -> dict[str, list[Callable[[Any], Any]]]:
    """Return the store functions that accept an id or a name. A blank one is simply not found there."""

    def decision(id: Any, by: Any = None) -> Decision:
        return Decision(approval_id=id, status='approved', decision='{}', arguments_digest='d', by=by)

    return {
        'id': [
            store.version, store.lineage, store.children, store.conversation, store.run, store.approval, store.delete,
            lambda id: store.decide([decision(id)]),
        ],
        'head_id': [store.delete_line],
        'run_id': [
            store.requests, store.claim_run, lambda id: store.claim_approvals('v', id),
            lambda id: store.claim_workspace('b', id, None), lambda id: store.versions(VersionFilter(run_id=id)),
        ],
        'run_ids': [lambda id: store.calls([id])],
        'parent_run_id': [lambda id: store.runs(parent_run_id=id), lambda id: store.delegations(parent_run_id=id)],
        'child_conversation_id': [lambda id: store.delegations(child_conversation_id=id)],
        'version_id': [
            lambda id: store.claim_approvals(id, 'r'), lambda id: store.approvals(version_id=id),
            lambda id: store.claim_workspace('b', 'r', id),
        ],
        'branch_id': [lambda id: store.messages(id, 1)],
        'conversation_id': [store.branches, lambda id: store.runs(conversation_id=id)],
        'exact_name': [lambda name: store.count(VersionFilter(exact_name=name))],
        'agent_name': [lambda name: store.approvals(agent_name=name)],
        'by': [lambda name: store.decide([decision('a', by=name)])],
        'backend': [store.workspace, lambda name: store.claim_workspace(name, 'r', None)],
        'digest': [store.asset, store.read_asset, store.nodes],
    }  # fmt: skip


@pytest.mark.parametrize('text', [*BLANK, 'a\0b', ['a']], ids=ascii)
async def test_ids_and_names_are_validated_by_every_entry_point(agent: Agent[Any, Any], text: Any) -> None:
    """Ids and names that are blank, not strings, or contain a lone surrogate or a NUL are refused with the name of the
    argument, before anything is read or stored.

    """
    async with open_store('memory:') as store:
        versioned = VersionedAgent(agent, store, make_deps=DeepAgentDeps)
        is_blank = isinstance(text, str) and not text.strip()
        of_store = {} if is_blank else entries_of_store(store)
        for field, calls in [*entries(agent, versioned).items(), *of_store.items()]:
            # Model-facing text may contain a NUL, and several instructions are a list of strings.
            if (text == 'a\0b' and field in {'description', 'instructions'}) or (
                text == ['a'] and field == 'instructions'
            ):
                continue
            for index, each in enumerate(calls):
                assert await raised(lambda each=each: each(text)) == field, (field, index)
        assert [version.kind for version in await store.versions() if version.kind != 'root'] == []
        assert await store.runs() == []


@pytest.mark.parametrize('text', ['', ' ', '\ud83d'])
def test_model_of_a_subagent_must_be_a_name(text: str) -> None:
    with pytest.raises(ValidationError) as error:
        Subagent('worker', 'Works.', model=text)
    assert error.value.field == 'model'


OTHER_DEPS_TYPES: list[Any] = [object, dict, 'DeepAgentDeps', DeepAgentDeps(), None, list[int], DeepAgentDeps | None]


@pytest.mark.parametrize('deps_type', OTHER_DEPS_TYPES)
async def test_deps_type_is_a_class_of_deps(deps_type: Any) -> None:
    """Other types are refused when the agent is created: the capabilities of each run use the fields of the deps."""
    assert await raised(lambda: create_deep_agent('test', deps_type=deps_type)) == 'deps_type'
    assert await raised(lambda: default_capabilities(deps_type=deps_type)) == 'deps_type'


TEXT: Any = 'x'
OTHER_OUTPUT_TYPES: list[Any] = [
    'str', b'x', {}, {'city': str}, ['x', int], [str, [int, 'x']], NativeOutput(TEXT), PromptedOutput([int, TEXT]),
]  # fmt: skip


@pytest.mark.parametrize('output_type', OTHER_OUTPUT_TYPES)
async def test_output_type_has_types_and_no_texts(output_type: Any) -> None:
    """pydantic-ai iterates over the characters of a text, each of which is a text again."""
    assert await raised(lambda: create_deep_agent('test', output_type=output_type)) == 'output_type'
    assert await raised(lambda: Subagent('worker', 'Works.', output_type=output_type)) == 'output_type'


OTHER_PARTS: list[tuple[str, Any]] = [
    ('tools', print), ('tools', None), ('tools', ['ls']), ('tools', [list]), ('tools', 'ls'), ('tools', iter([print])),
    ('toolsets', FunctionToolset()), ('toolsets', [FunctionToolset]), ('toolsets', 'x'), ('toolsets', {}),
    ('capabilities', Todos()), ('capabilities', [Todos]), ('capabilities', ['todos']), ('capabilities', 'todos'),
    ('capabilities', None), ('capabilities', (Todos() for _ in 'a')),
    ('output_type', 'str'),
]  # fmt: skip
OTHER_MODELS: list[Any] = [ScriptedModel, [], {}, 5, True, b'test', Agent('test'), print]


@pytest.mark.parametrize(('name', 'value'), OTHER_PARTS)
async def test_parts_of_an_agent_are_lists_of_objects(name: str, value: Any) -> None:
    """A text has characters, a class is no object, and a generator could be read only once."""
    options: dict[str, Any] = {name: value}
    assert await raised(lambda: create_deep_agent('test', **options)) == name
    assert await raised(lambda: Subagent('worker', 'Works.', **options)) == name


@pytest.mark.parametrize('instructions', [0, b'Be.', ['Be.', None], print, (text for text in 'ab')])
def test_instructions_of_an_agent_are_texts(instructions: Any) -> None:
    for create in (create_deep_agent, partial(Subagent, 'worker', 'Works.')):
        with pytest.raises(TypeError, match=r'`instructions` is .*\. Pass a text or a list of texts'):
            create(instructions=instructions)


@pytest.mark.parametrize('flag', ['include_todo', 'include_filesystem', 'include_subagents', 'include_skills'])
def test_flags_of_an_agent_are_bools(flag: str) -> None:
    options: dict[str, Any] = {flag: 'no'}
    with pytest.raises(TypeError, match=f"`{flag}` is 'no'. Pass a bool"):
        create_deep_agent(**options)


@pytest.mark.parametrize('model', OTHER_MODELS)
async def test_a_model_is_an_object_or_a_name(agent: Agent[Any, Any], model: Any) -> None:
    assert await raised(lambda: create_deep_agent(model)) == 'model'
    assert await raised(lambda: Subagent('worker', 'Works.', model=model)) == 'model'
    assert await raised(lambda: prompt(agent).model(model)) == 'model'
    async with open_store('memory:') as store:
        root = await VersionedAgent(agent, store).create()
        assert await raised(lambda: root.advance('Go', model=model)) == 'model'


@pytest.mark.parametrize('settings', ['', 'x', [], [('temperature', 0)], 0, print])
async def test_model_settings_are_a_mapping(agent: Agent[Any, Any], settings: Any) -> None:
    assert await raised(lambda: create_deep_agent('test', model_settings=settings)) == 'model_settings'
    assert await raised(lambda: stream_agent(agent, 'Go', model_settings=settings)) == 'model_settings'
    async with open_store('memory:') as store:
        versioned = VersionedAgent(agent, store)
        assert await raised(lambda: versioned.create(model_settings=settings)) == 'model_settings'


async def test_arguments_of_other_types_are_refused_at_once(agent: Agent[Any, Any]) -> None:
    other: Any = 'x'
    upload: Any = {'a.txt': b'a'}
    flag: Any = True
    async with open_store('memory:') as store:
        worker = VersionedAgent(agent, store)
        deep = VersionedAgent(create_deep_agent('test'), store)
        calls: dict[str, list[Callable[[], Any]]] = {
            'make_deps': [lambda: VersionedAgent(agent, store, make_deps=other), lambda: create_app({'a': agent}, store, make_deps=other)],
            'make_backend': [lambda: create_app({'a': agent}, store, make_backend=other), lambda: Worker({'worker': worker}, store, make_backend=other)],
            'authenticate': [lambda: create_app({'a': agent}, store, authenticate=other)],
            'on_event': [lambda: Worker({'worker': worker}, store, on_event=other)],
            'agent': [lambda: Conversation(agent=other)],
            'deps': [lambda: deep.create(deps=other), lambda: deep.create(deps=cast('Any', DeepAgentDeps))],
            'todos': [lambda: DeepAgentDeps(todos=other), lambda: DeepAgentDeps(todos=[other])],
            'uploads': [lambda: DeepAgentDeps(uploads=other), lambda: DeepAgentDeps(uploads=upload)],
            'subagents': [lambda: DeepAgentDeps(subagents=other)],
            'wrapped': [lambda: Shared(other)],
            'api_key': [lambda: Client('http://127.0.0.1', cast('Any', None))],
            'tools': [lambda: prompt(agent).tools(other), lambda: prompt(agent).tools(cast('Any', list))],
            'trusted': [lambda: SkillDirectory('a', trusted=other)],
            'grants': [lambda: SkillDirectory('a', grants=other)],
            'private_addresses': [lambda: Web(private_addresses=other)],
            'asks': [lambda: Web(asks=other)],
            'content': [lambda: Todo(content=cast('Any', 5))],
            'status': [lambda: Todo(content='Look.', status=other), lambda: Todo(content='Look.', status=cast('Any', []))],
            'pending': [lambda: render_approval(other), lambda: render_approval(cast('Any', []))],
            'match': [lambda: RecordedModel('a.json', match=other)],
            'repository': [lambda: Audit(other), lambda: Audit(cast('Any', None))],
            'redact': [
                lambda: Audit(MemoryRepository(AuditRecord), redact=other),
                lambda: Audit(MemoryRepository(AuditRecord), redact=cast('Any', None)),
            ],
            'host_directory': [lambda: ProjectContext(host_directory=cast('Any', 5))],
            'general_purpose': [lambda: Subagents(general_purpose=other)],
            'starts_on': [lambda: PlanMode(starts_on=other)],
            'is_on': [lambda: with_plan_mode('Go', is_on=other)],
            'build': [lambda: Subagents(build=other)],
            'search': [lambda: Web(search=other)],
            'counter': [lambda: Summarization(counter=other)],
            'skills': [lambda: Subagent('worker', 'Works.', skills=cast('Any', 5))],
            'interrupt_on': [lambda: Subagent('worker', 'Works.', interrupt_on=other)],
        }  # fmt: skip
        for field, each in [(field, each) for field, several in calls.items() for each in several]:
            assert await raised(each) == field
    with pytest.raises(ValueError, match=r'DeepAgentDeps\(max_depth=True\)'):
        DeepAgentDeps(max_depth=flag)


async def test_an_agent_with_deps_of_a_generic_type_gets_none() -> None:
    """Such a type is no class."""
    agent = Agent(ScriptedModel(then='Fine.'), deps_type=dict[str, int])
    async with open_store('memory:') as store:
        assert (await (await VersionedAgent(agent, store).create()).advance('Go')).output == 'Fine.'
    assert await prompt(agent).user('Go').prompt() == 'Fine.'


@pytest.mark.parametrize('names', ['x', b'x', 5, ['x', 5], (name for name in 'ab')])
def test_lists_of_strings_are_lists(names: Any) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: LoopDetection(exclude=names), lambda: UntrustedContent(trusted_paths=names),
        lambda: UntrustedContent(trusted_tools=names), lambda: ProjectContext(filenames=names),
        lambda: Redactor(names=names), lambda: Web(allow=names), lambda: Web(deny=names),
        lambda: McpServers(servers={}, allow=names), lambda: Retries(finish_reason_from=names),
    ]  # fmt: skip
    for each in calls:
        with pytest.raises(TypeError, match=r'`\w+` is .*\. Pass a list'):
            each()


@pytest.mark.parametrize('number', ['5', None, math.nan, 0, -1, True])
def test_positive_options_are_numbers(number: Any) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: Web(max_chars=number),
        lambda: McpServers(servers={}, direct_chars=number),
        lambda: Client('http://127.0.0.1', 'pd_key', timeout_seconds=number),
    ]
    for each in calls:
        with pytest.raises(ValueError, match=r'`\w+` is .*\. Use a positive number'):
            each()


async def test_mcp_servers_are_a_mapping_of_servers() -> None:
    servers: Any = {'shop': {'url': 'https://example.com/mcp'}}
    assert await raised(lambda: McpServers(servers=cast('Any', '.mcp.json'))) == 'servers'
    assert await raised(lambda: McpServers(servers=servers)) == "servers['shop']"


@pytest.mark.parametrize(('name', 'value'), WRONG_SETTINGS)
async def test_invalid_settings_are_refused_by_name(agent: Agent[Any, Any], name: str, value: Any) -> None:
    """`temperature='hot'`, `max_tokens=-1`, `timeout=0` and similar settings are refused with the name of the
    setting."""
    settings: Any = {name: value}
    async with open_store('memory:') as store:
        versioned = VersionedAgent(agent, store)
        root = await versioned.create()
        assert await raised(lambda: versioned.create(model_settings=settings)) == name
        assert await raised(lambda: root.with_metadata(model_settings=settings)) == name
        assert await raised(lambda: root.advance('Go', **settings)) == name
        assert await raised(lambda: root.advance_stream('Go', **settings)) == name
        assert await raised(lambda: prompt(agent).settings(**settings)) == name
        assert await raised(lambda: create_deep_agent('test', model_settings=settings)) == name
        assert await raised(lambda: stream_agent(agent, 'Go', model_settings=settings)) == name


async def test_metadata_with_a_lone_surrogate_is_refused(agent: Agent[Any, Any]) -> None:
    """A lone surrogate in a key or a value of metadata is refused, since databases cannot store it."""
    async with open_store('memory:') as store:
        versioned = VersionedAgent(agent, store)
        assert await raised(lambda: versioned.create(metadata={'\ud83d': 1})) == 'metadata'
        assert await raised(lambda: versioned.create(metadata={'a': ['\ud83d']})) == 'metadata'
        assert (await versioned.create(metadata={'a': '😀'})).metadata == {'a': '😀'}


async def test_valid_arguments_are_accepted() -> None:
    async with open_store('memory:') as store:
        versioned = VersionedAgent(Agent(ScriptedModel(then=lambda messages, info: 'Fine.')), store)
        settings: Any = {'temperature': 0, 'max_tokens': 1, 'timeout': 0.5, 'top_p': 1, 'seed': -3, 'thinking': 'high'}
        settings |= {'parallel_tool_calls': True, 'stop_sequences': ['\n']}
        unset: Any = {'timeout': None, 'parallel_tool_calls': None, 'stop_sequences': None}
        root = await versioned.create(name='a', model_settings=unset)
        assert (await root.advance('Go', **settings)).output == 'Fine.'
        picture = BinaryContent(b'\x89PNG', media_type='image/png')
        assert (await root.advance([picture])).output == 'Fine.'
        timeout: Any = httpx2.Timeout(5)
        assert await prompt(versioned.agent).settings(timeout=timeout).user([CachePoint(), 'Go']).prompt() == 'Fine.'


@pytest.fixture(params=['memory', 'sqlite'])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return 'memory:' if request.param == 'memory' else f'sqlite:///{tmp_path}/a.db'


@pytest.mark.parametrize('number', WRONG_NUMBERS)
async def test_invalid_page_limits_are_refused_by_every_engine(url: str, agent: Agent[Any, Any], number: Any) -> None:
    """Negative limits or offsets, `10**30` and non-integers are refused above the engine, so equally by all: by the
    store, by
    versions, by the inbox and by repositories.

    """
    async with open_store(url) as store:
        versioned = VersionedAgent(agent, store)
        await versioned.create(name='a')
        lists: list[Callable[..., Any]] = [
            versioned.list, partial(versioned.find_by_name, 'a'), store.versions, store.conversations,
        ]  # fmt: skip
        for each in lists:
            assert await raised(lambda each=each: each(limit=number)) == 'limit'
            assert await raised(lambda each=each: each(offset=number)) == 'offset'
        limited: list[Callable[..., Any]] = [
            store.runs, store.approvals, store.orphans, ApprovalInbox(store).list, MemoryRepository(AuditRecord).list,
        ]  # fmt: skip
        for each in limited:
            assert await raised(lambda each=each: each(limit=number)) == 'limit'
        assert await versioned.list(limit=0) == await versioned.list(offset=2**63 - 1) == []
        assert len(await versioned.list(limit=2**63 - 1)) == 1
        await _unchanged(store)


async def _unchanged(store: Store) -> None:
    assert len(await store.versions()) == 1


async def test_integer_with_too_many_digits_is_refused() -> None:
    async with open_store('memory:') as store:
        assert await raised(lambda: store.versions(limit=10**5000)) == 'limit'


@pytest.mark.parametrize('number', [each for each in WRONG_NUMBERS if each is not None])
async def test_message_range_must_be_nonnegative(url: str, agent: Agent[Any, Any], number: Any) -> None:
    """`messages(start=-1)` is a usage error, not a damaged store."""
    async with open_store(url) as store:
        root = await VersionedAgent(agent, store).create()
        assert await raised(lambda: root.messages(start=number)) == 'start'
        assert await raised(lambda: root.messages(stop=number)) == 'stop'


@pytest.mark.parametrize('seconds', [-1, 10**30, math.nan, math.inf, True, '5', None])
async def test_grace_of_a_collection_must_be_a_duration(url: str, agent: Agent[Any, Any], seconds: Any) -> None:
    async with open_store(url) as store:
        assert await raised(lambda: store.gc(seconds)) == 'grace_seconds'
        assert await raised(lambda: VersionedAgent(agent, store).gc(seconds)) == 'grace_seconds'


WRONG_OBJECTS: dict[str, tuple[str, str, str]] = {
    'agent': ('str', 'AbstractAgent', 'Pass an agent'),
    'limits of a stream': ('int', 'UsageLimits', 'UsageLimits(request_limit=10)'),
    'agent of a stream': ('str', 'AbstractAgent', 'Pass an agent'),
    'store': ('str', 'Store', 'open_store'),
    'agent of a prompt': ('list', 'AbstractAgent` or `VersionedAgent` or `Model` or `str', 'Pass an agent'),
    'store of a prompt': ('str', 'Store', 'open_store'),
    'store of an inbox': ('str', 'Store', 'open_store'),
    'agents of a server': ('str', 'Mapping', '{"analyst": agent}'),
    'agent of a server': ('str', 'AbstractAgent` or `VersionedAgent', 'Pass an agent'),
    'store of a server': ('str', 'Store', 'open_store'),
    'settings of a server': ('str', 'ServerSettings', 'ServerSettings(port=8000)'),
    'agents of a worker': ('str', 'Mapping', 'VersionedAgent(agent, store)'),
    'agent of a worker': ('str', 'VersionedAgent', 'VersionedAgent(agent, store)'),
    'store of a worker': ('str', 'Store', 'open_store'),
    'settings of a worker': ('list', 'ServerSettings', 'ServerSettings(work_dir="files")'),
    'url of a store': ('NoneType', 'str', 'sqlite:///agents.db'),
    'url of rows': ('PosixPath', 'str', 'sqlite:///agents.db'),
    'run': ('str', 'TurnOptions', 'advance'),
    'stream': ('NoneType', 'TurnOptions', 'advance'),
    'submit': ('str', 'TurnOptions', 'TurnOptions(prompt=prompt)'),
    'usage limits': ('int', 'UsageLimits', 'UsageLimits(request_limit=10)'),
    'diff': ('str', 'AgentVersion', 'load(id)'),
    'diff of files': ('NoneType', 'AgentVersion', 'load(id)'),
    'merge': ('str', 'AgentVersion', 'load(id)'),
    'todos': ('str', 'Todo', 'list of `Todo`'),
    'limits of deps': ('int', 'UsageLimits', 'UsageLimits(request_limit=10)'),
    'metadata of deps': ('list', 'Mapping', 'dictionary'),
}


@pytest.mark.parametrize('case', WRONG_OBJECTS)
async def test_object_of_another_type_is_refused_with_advice(agent: Agent[Any, Any], case: str) -> None:
    """The error names the argument, both types, and what to pass. It does not show the value, which may be a secret."""
    secret: Any = 'postgresql://ada:secret@host/db'
    given, wanted, advice = WRONG_OBJECTS[case]
    values: dict[str, Any] = {'str': secret, 'NoneType': None, 'int': 5, 'list': [], 'PosixPath': Path(secret)}
    wrong = values[given]
    async with open_store('memory:') as store:
        versions = VersionedAgent(agent, store)
        version = await versions.create()

        async def attempt() -> object:
            match case:
                case 'agent':
                    return VersionedAgent(wrong, store)
                case 'limits of a stream':
                    return stream_agent(agent, 'Hi', usage_limits=wrong)
                case 'agent of a stream':
                    return stream_agent(wrong, 'Hi')
                case 'store':
                    return VersionedAgent(agent, wrong)
                case 'agent of a prompt':
                    return prompt(wrong)
                case 'store of a prompt':
                    return prompt(agent, store=wrong)
                case 'store of an inbox':
                    return ApprovalInbox(wrong)
                case 'agents of a server':
                    return create_app(wrong, store)
                case 'agent of a server':
                    return create_app({'analyst': wrong}, store)
                case 'store of a server':
                    return create_app({'analyst': agent}, wrong)
                case 'settings of a server':
                    return create_app({'analyst': agent}, store, wrong)
                case 'agents of a worker':
                    return Worker(wrong, store)
                case 'agent of a worker':
                    return Worker({'analyst': wrong}, store)
                case 'store of a worker':
                    return Worker({'analyst': versions}, wrong)
                case 'settings of a worker':
                    return await run_worker({'analyst': agent}, store, wrong)
                case 'url of a store':
                    async with open_store(wrong) as opened:
                        return opened
                case 'url of rows':
                    async with open_repository(wrong, AuditRecord) as rows:
                        return rows
                case 'run':
                    return await version.run(wrong)
                case 'stream':
                    return version.stream(wrong)
                case 'submit':
                    return await submit(version, wrong, store)
                case 'usage limits':
                    return await version.advance('Hi', usage_limits=wrong)
                case 'diff':
                    return await version.diff(wrong)
                case 'diff of files':
                    return await version.diff_files(wrong)
                case 'merge':
                    return await version.merge(wrong)
                case 'todos':
                    return DeepAgentDeps(todos=[wrong])
                case 'limits of deps':
                    return DeepAgentDeps(usage_limits=wrong)
                case _:
                    return DeepAgentDeps(metadata=wrong)

        with pytest.raises(ValidationError) as caught:
            await attempt()
        assert f'it is of type `{given}`, and must be of type `{wanted}`.' in str(caught.value)
        assert advice in str(caught.value)
        assert 'secret' not in str(caught.value)
        assert await versions.count() == 1


async def test_contents_of_answers_have_their_types() -> None:
    agent = create_deep_agent(
        ScriptedModel(then=call('write_file', path='/a', content='b')), interrupt_on={'write_file': True}
    )
    async with open_store('memory:') as store:
        paused = await (await VersionedAgent(agent, store).create()).advance('Write.')
        [item] = await ApprovalInbox(store).list()
        edit = Edit(cast('Any', '{"path": "/a"}'))
        with pytest.raises(InvalidDecisionError, match=r'str is not an object\. Pass all arguments in a dictionary'):
            await ApprovalInbox(store).answer(item.id, edit)
        number: Any = 5
        assert await raised(lambda: ApprovalInbox(store).answer(item.id, Approve(), reason=number)) == 'reason'
        assert await raised(lambda: paused.answer({item.pending_id: Approve()}, reason=number)) == 'reason'
        assert [each.status for each in await ApprovalInbox(store).list()] == ['pending']


@pytest.mark.parametrize('backend', [5, '/work', Path('/work'), StateBackend])
async def test_backend_of_another_type_is_refused_at_once(agent: Agent[Any, Any], backend: Any) -> None:
    """A value that is no backend is refused by the call that got it, and nothing is stored."""
    async with open_store('memory:') as store:
        versions = VersionedAgent(agent, store)
        version = await versions.create(backend=StateBackend())
        attempts: list[Callable[[], Any]] = [
            lambda: Filesystem(backend=backend),
            lambda: as_workspace(backend),
            lambda: versions.create(backend=backend),
            lambda: versions.load(version.id, backend=backend),
            lambda: versions.conversation(version.conversation_id, backend=backend),
            lambda: version.checkout(backend=backend),
        ]
        for attempt in attempts:
            assert await raised(attempt) == 'backend'
        assert await versions.count() == 1
    assert Filesystem(backend=lambda ctx: StateBackend()).backend is not None


@pytest.mark.parametrize('messages', [None, 5, 'Hi', b'[]', ['Hi'], {'a': 1}])
async def test_histories_are_lists_of_messages(agent: Agent[Any, Any], messages: Any) -> None:
    """A history of anything else is refused before it is stored or sent; bytes were stored as numbers."""
    async with open_store('memory:') as store:
        versions = VersionedAgent(agent, store)
        version = await versions.create()
        conversation = versions.conversation(version.conversation_id)
        assert await raised(lambda: version.with_messages(messages)) == 'messages'
        assert await raised(lambda: conversation.set(messages)) == 'messages'
        assert await versions.count() == 1
    with pytest.raises(TypeError, match='is not a message'):
        MessageList(messages)
    wrong = messages or [messages]
    assert await raised(lambda: stream_agent(agent, 'Hi', message_history=wrong)) == 'message_history'


async def test_queries_refuse_values_that_match_nothing(agent: Agent[Any, Any]) -> None:
    """A text in place of a list, an unknown state, and a time that is no `datetime` are refused; most found nothing."""
    wrong = cast('Any', 'running')
    async with open_store('memory:') as store:
        versions = VersionedAgent(agent, store)
        version = await versions.create()
        attempts: dict[str, list[Callable[[], Any]]] = {
            'states': [
                lambda: store.runs(states=wrong),
                lambda: store.runs(states=cast('Any', ['done'])),
                lambda: store.versions(VersionFilter(states=wrong)),
                lambda: store.versions(VersionFilter(states=cast('Any', 5))),
            ],
            'kinds': [lambda: store.versions(VersionFilter(kinds=cast('Any', 'turn')))],
            'metadata_keys': [lambda: store.versions(VersionFilter(metadata_keys='project'))],
            'metadata': [lambda: versions.list(metadata=wrong), lambda: versions.create(metadata=wrong)],
            'run_ids': [lambda: store.calls('a')],
            'status': [
                lambda: store.approvals(status=cast('Any', 'open')),
                lambda: ApprovalInbox(store).list(status=cast('Any', 'open')),
            ],
            'since': [lambda: versions.list(since=cast('Any', '2026-01-01'))],
            'until': [lambda: versions.count(until=cast('Any', date(2026, 1, 1)))],
            'version': [lambda: versions.conversation(version.conversation_id).move_to(cast('Any', version.id))],
            'model': [lambda: version.replay(model=cast('Any', 5))],
            "metadata['owner']": [lambda: versions.count(metadata=cast('Any', {'owner': {'name': 'Ada'}}))],
            'external_tools': [lambda: version.run(TurnOptions(prompt='Hi', external_tools=cast('Any', 'look')))],
            'tool_choice': [lambda: version.run(TurnOptions(prompt='Hi', tool_choice='look'))],
        }
        for field, calls in attempts.items():
            for attempt in calls:
                assert await raised(attempt) == field
        assert await store.runs(states=['running']) == []


async def test_protocols_are_not_replaced_by_their_urls(agent: Agent[Any, Any], tmp_path: Path) -> None:
    wrong: Any = tmp_path

    async def open_with_blobs() -> None:
        async with open_store('memory:', blobs=wrong):
            pass

    async with open_store('memory:') as store:
        worker = partial(Worker, {'worker': VersionedAgent(agent, store)}, store)
        assert await raised(lambda: worker(dispatcher=cast('Any', 'memory:'))) == 'dispatcher'
        assert await raised(open_with_blobs) == 'blobs'
        assert await raised(lambda: create_api_key(store, name='ci', scopes=cast('Any', 5))) == 'scopes'
        assert await raised(lambda: create_api_key(store, name='ci', scopes=cast('Any', 'run'))) == 'scopes'
        hour: Any = timedelta(hours=1)
        assert await raised(lambda: create_api_key(store, name='ci', scopes=['run'], expires_in_seconds=hour))
    results: Any = {'id': Approve()}
    assert await raised(lambda: stream_agent(agent, 'Hi', deferred_tool_results=results)) == 'deferred_tool_results'


async def test_cases_agents_and_versions_of_evaluations(agent: Agent[Any, Any]) -> None:
    dataset: Any = Dataset(name='none', cases=[])
    assert await raised(lambda: compare(cast('Any', []), {})) == 'cases'
    assert await raised(lambda: compare(dataset, cast('Any', [agent]))) == 'agents'
    assert await raised(lambda: compare(dataset, {}, max_concurrency=0)) == 'max_concurrency'
    assert await raised(lambda: record_case(cast('Any', agent), 'id')) == 'versions'


async def test_sources_of_skills_have_paths() -> None:
    wrong: Any = 5
    assert await raised(lambda: SkillDirectory(wrong)) == 'path'
    assert await raised(lambda: BackendSkills(cast('Any', Path('/skills')))) == 'path'
    assert await raised(lambda: BackendSkills('/skills', trusted=cast('Any', 'no'))) == 'trusted'
    for source in (SkillDirectory, BackendSkills):
        assert await raised(partial(source, '/skills', scope=cast('Any', 'mine'))) == 'scope'
    assert await raised(lambda: Skills([Skill('git', 'Commits.', body='Hi.', scope=cast('Any', 'mine'))])) == 'scope'
    with pytest.raises(TypeError, match=r'`allowed_tools` is .* Pass a list'):
        Skills([Skill('git', 'Commits.', body='Hi.', allowed_tools=cast('Any', 'execute(git *)'))])
    with pytest.raises(TypeError, match=r'`paths` is 5\. Pass a sequence of directories'):
        discover_skills(wrong)


@pytest.mark.parametrize('kinds', [[ValueError], ('ValueError',), (ValueError('x'),)])
def test_exceptions_of_tools_to_propagate_are_a_tuple_of_classes(kinds: Any) -> None:
    """A list failed in the run, when a tool did."""
    with pytest.raises(TypeError, match=r'`propagate` is .*\. Pass a tuple of exceptions: `\(AssertionError,\)`\.'):
        ToolFailures(propagate=kinds)
    assert ToolFailures(propagate=(ValueError,)).propagate == (ValueError,)


@pytest.mark.parametrize('wrong', ['yes', ['yes'], 5])
async def test_answers_must_be_a_mapping(wrong: Any) -> None:
    """Answers of another type are refused by every entry point, and none is stored."""
    script = ScriptedModel(call('write_file', path='/a', content='b'), 'Done.')
    agent = create_deep_agent(script, interrupt_on={'write_file': True})
    message = r'answers: it is of type `\w+`, and must be of type `Mapping`\. .*`{id: Approve\(\)}`'
    async with open_store('memory:') as store:
        paused = await (await VersionedAgent(agent, store).create()).advance('Write.')
        for attempt in (paused.resume, paused.answer):
            with pytest.raises(ValidationError, match=message):
                await attempt(wrong)
        with pytest.raises(ValidationError, match=message):
            answer_approvals(paused.deferred_tool_requests, wrong)
        with pytest.raises(ValidationError, match='usage_limits: it is of type `int`'):
            await paused.resume({paused.pending[0].id: Approve()}, usage_limits=cast('Any', 5))
        done = await paused.resume({paused.pending[0].id: Deny('No.')})
    assert done.output == 'Done.'


LIMITS: dict[str, tuple[Callable[..., object], str]] = {
    'attempts': (Retries, '`attempts` is {}. Use a whole number, at least 1.'),
    'max_seconds': (Retries, '`max_seconds` is {}. Use at least 0.'),
    'max_chars': (ProjectContext, '`max_chars` is {}. Use a whole number, at least 1.'),
    'max_catalog_tokens': (partial(Skills, []), '`max_catalog_tokens` is {}. Use a whole number, at least 50.'),
    'offload_chars': (Filesystem, '`offload_chars` is {}. Use a whole number, at least 3000, or `None`.'),
    'timeout_seconds': (Summarization, '`timeout_seconds` is {}. Pass a number above 0.'),
}


@pytest.mark.parametrize('option', LIMITS)
@pytest.mark.parametrize('value', ['x', -1, math.nan])
def test_limits_of_capabilities_must_be_numbers(option: str, value: Any) -> None:
    """An invalid limit is refused with its name and value when the capability is created."""
    create, text = LIMITS[option]
    with pytest.raises(ValueError, match=r'^`') as caught:
        create(**{option: value})
    assert str(caught.value).translate(str.maketrans('', '', '\'"')) == text.format(value)


@pytest.mark.parametrize('option', ['attempts', 'max_chars', 'max_catalog_tokens', 'offload_chars'])
@pytest.mark.parametrize('value', [5000.5, math.inf, True])
def test_counts_of_capabilities_are_whole_numbers(option: str, value: Any) -> None:
    with pytest.raises(ValueError, match='Use a whole number, at least'):
        LIMITS[option][0](**{option: value})


@pytest.mark.parametrize('model', ['AuditRecord', dict, None])
def test_rows_need_a_pydantic_model(model: Any) -> None:
    with pytest.raises(TypeError, match=r'`model` is .*\. Pass a pydantic model: a subclass of `BaseModel`\.'):
        MemoryRepository(model)


@pytest.mark.parametrize('value', ['x', 0, 1.5])
def test_maximum_of_requests_must_be_a_positive_integer(agent: Agent[Any, Any], value: Any) -> None:
    with pytest.raises(ValueError, match=rf'max_iterations={value!r}: .* Pass 1 or more\.'):
        stream_agent(agent, 'Hi', max_iterations=value)


@pytest.mark.parametrize('seconds', ['x', -1, math.nan])
async def test_time_for_an_answer_must_be_a_duration(agent: Agent[Any, Any], seconds: Any) -> None:
    async with open_store('memory:') as store:
        with pytest.raises(ValidationError, match='approval_timeout_seconds: it is'):
            VersionedAgent(agent, store, approval_timeout_seconds=seconds)
