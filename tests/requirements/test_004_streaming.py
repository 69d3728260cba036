"""The streaming proxy through its public API: decoding, relaying, recording and persistence."""

from __future__ import annotations

import ast
import asyncio
import json
import tomllib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import httpx
import httpx2
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from pydantic import BaseModel
from pydantic_ai import Agent, BinaryImage, RunContext, models
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.usage import RequestUsage, UsageLimits

from pydantic_deep import Subagent, create_deep_agent, open_store
from pydantic_deep.audit import AUDIT_FIELDS, Audit, AuditRecord, audit_of_run, rehydrate
from pydantic_deep.repository import MemoryRepository, Repository, RowNotFoundError, open_repository
from pydantic_deep.repository.duckdb import DuckdbRepository
from pydantic_deep.repository.iceberg import IcebergRepository
from pydantic_deep.server import create_api_key, create_app, list_api_keys, revoke_api_key
from pydantic_deep.server.routes._routers import ROUTERS
from pydantic_deep.streaming import (
    NOTICE,
    AnthropicDecoder,
    Decoder,
    EndEvent,
    Frame,
    FrameReader,
    GoogleDecoder,
    HybridResponse,
    OpenaiDecoder,
    StreamEvent,
    TextEvent,
    ToolCallDeltaEvent,
    ToolCallEvent,
    WindowedBuffer,
    current_session_id,
    session_scope,
    stream_agent,
)
from pydantic_deep.testing import ScriptedModel, call, deps_for_test
from pydantic_deep.versions import VersionedAgent

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / 'pydantic_deep'
STREAMS = ROOT / 'tests/streaming/streams'
DECODERS: dict[str, Callable[[], Decoder]] = {
    'openai': OpenaiDecoder,
    'anthropic': AnthropicDecoder,
    'google': GoogleDecoder,
}


# The layout


def modules(pattern: str) -> dict[str, ast.Module]:
    return {str(path.relative_to(PACKAGE)): ast.parse(path.read_bytes()) for path in PACKAGE.glob(pattern)}


def test_layout_is_modular() -> None:
    """004-01: The layout has an API on FastAPI with modular routes (authentication, entities, tasks, tools,
    integrations), models, services and utilities, a command line and a programmatic interface, scripts, and examples
    that run in the place of notebooks.
    """
    by_module: dict[str, set[str]] = {}
    for router in ROUTERS:
        for route in router.routes:
            assert isinstance(route, APIRoute)
            by_module.setdefault(route.endpoint.__module__.rpartition('._')[2], set()).add(route.path)
    kinds = {
        'authentication': ('admin', '/api/me'),
        'entities': ('conversations', '/api/conversations/{conversation}'),
        'tasks': ('turns', '/api/conversations/{conversation}/turns'),
        'tools': ('approvals', '/api/approvals/{approval}'),
        'integrations': ('compat', '/v1/chat/completions'),
    }
    assert all(path in by_module[module] for module, path in kinds.values())
    assert len({module for module, _ in kinds.values()}) == len(kinds)
    assert max(len(paths) for paths in by_module.values()) <= 12

    for part in (
        'server/schemas/_runs.py',
        'server/runs/_pool.py',
        'server/_run_start.py',
        '_text/encodings.py',
        'cli/_app.py',
        'agent.py',
    ):
        assert (PACKAGE / part).is_file(), part
    scripts = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']['scripts']
    assert scripts['pydantic-deep'].startswith('pydantic_deep.cli')
    assert callable(create_app)
    examples = [each.read_text() for each in (ROOT / 'examples').glob('*.py')]
    assert len([text for text in examples if 'async def main(' in text]) > 10
    assert list((ROOT / 'scripts').glob('*.py'))


def test_layers_import_downwards_and_units_are_small() -> None:
    """004-02: There are layers of routes, services, repositories and models, made of small units with a single purpose."""
    contracts = tomllib.loads((ROOT / 'pyproject.toml').read_text())['tool']['importlinter']['contracts']
    layers = next(each['layers'] for each in contracts if each['name'] == 'Imports point down')
    level_by_module = {module: level for level, layer in enumerate(layers) for module in layer.split(' | ')}
    order = [level_by_module[f'pydantic_deep.{name}'] for name in ('server', 'versions', 'repository', 'store')]
    assert order == sorted(order)

    for name in modules('server/routes/*.py'):
        text = (PACKAGE / name).read_text()
        assert not [word for word in ('.execute(', 'sqlite3', 'psycopg', 'SELECT ') if word in text], name
    for name, tree in (modules('server/**/*.py') | modules('repository/*.py')).items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = cast('int', node.end_lineno) - node.body[0].lineno
                assert lines <= 80, f'{name}: {node.name}'


def test_public_api_has_docstrings_types_and_schemas() -> None:
    """004-03: There are docstrings, type hints and validation of input, and pydantic schemas for requests and
    responses.
    """
    tools = tomllib.loads((ROOT / 'pyproject.toml').read_text())['tool']
    assert (tools['pyright']['typeCheckingMode'], 'D' in tools['ruff']['lint']['select']) == ('strict', True)
    for name, tree in (modules('server/**/*.py') | modules('repository/*.py') | modules('streaming/*.py')).items():
        assert ast.get_docstring(tree), name
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != '_':
                arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                untyped = [each.arg for each in arguments if each.annotation is None]
                assert (untyped, node.returns is None, ast.get_docstring(node) is None) == ([], False, False), node.name

    checked = 0
    for router in ROUTERS:
        for route in router.routes:
            assert isinstance(route, APIRoute)
            assert route.endpoint.__doc__, route.path
            if route.body_field is not None:
                kind: Any = route.body_field.field_info.annotation
                assert issubclass(kind, BaseModel), route.path
                checked += 1
    assert checked >= 10


class User(BaseModel):
    id: str
    email: str
    age: int = 0


class Order(BaseModel):
    number: str
    lines: list[str] = []


class Users:
    """A repository of one entity: the generic methods and one of its own."""

    def __init__(self, rows: Repository[User]) -> None:
        self.rows = rows

    async def adults(self) -> list[str]:
        found = await self.rows.list({'age': 18}, order_by='email')
        return [user.email for user in found.items]


async def crud(rows: Repository[User]) -> None:
    """Create, read, list, count, update and delete."""
    ann, bob = User(id='a', email='ann@x'), User(id='b', email='bob@x', age=18)
    await rows.create(ann)
    await rows.create(bob)
    assert (await rows.get('a'), await rows.count()) == (ann, 2)
    assert [user.id for user in (await rows.list({'email': 'bob@x'})).items] == ['b']
    await rows.upsert(older := ann.model_copy(update={'age': 18}))
    assert await rows.get('a') == older
    assert await Users(rows).adults() == ['ann@x', 'bob@x']
    await rows.delete('b')
    with pytest.raises(RowNotFoundError):
        await rows.get('b')
    assert await rows.count() == 1


async def test_repository_works_for_any_model(tmp_path: Path) -> None:
    """004-04: The generic repository has CRUD for any pydantic model, a base interface, and is extended per entity."""
    await crud(MemoryRepository(User, fields=('email', 'age')))
    async with open_repository('memory:', Order, key='number', fields=()) as orders:
        await orders.create(Order(number='7', lines=['a']))
        assert isinstance(orders, Repository)
        assert (await orders.get('7')).lines == ['a']


@pytest.mark.parametrize('kind', ['sqlite', 'duckdb', 'iceberg'])
async def test_each_store_has_a_repository_adapter(kind: str, tmp_path: Path) -> None:
    """004-08: There are adapters of the repository for each store: SQL, DuckDB and Iceberg."""
    fields = ('email', 'age')
    opened: AbstractAsyncContextManager[Repository[User]]
    match kind:
        case 'duckdb':
            opened = await DuckdbRepository.open(tmp_path / 'rows.duckdb', User, fields=fields)
        case 'iceberg':
            opened = await IcebergRepository.open(tmp_path, User, fields=fields)
        case _:
            opened = open_repository(f'sqlite:///{tmp_path}/rows.db', User, fields=fields)
    async with opened as rows:
        await crud(rows)


def test_api_works_with_the_fastapi_test_client(tmp_path: Path) -> None:
    """004-05: There are unit tests for services, repositories and utilities, integration tests of the API with FastAPI's
    `TestClient`, and fixtures that set databases up and tear them down.
    """

    keys: list[str] = []

    @asynccontextmanager
    async def lifespan(above: FastAPI) -> AsyncGenerator[None]:
        async with open_store(f'sqlite:///{tmp_path}/agents.db') as store:
            app = create_app({'analyst': create_deep_agent(ScriptedModel('Hello.'))}, store)
            keys.append(await create_api_key(store, name='test', scopes=['run']))
            above.mount('/', app)
            async with app.router.lifespan_context(app):
                yield

    with TestClient(FastAPI(lifespan=lifespan), base_url='http://localhost') as client:
        headers = {'authorization': f'Bearer {keys[0]}'}
        path = client.post('/api/conversations', json={'agent': 'analyst'}, headers=headers).headers['location']
        turn = client.post(f'{path}/turns', json={'prompt': 'Hi'}, headers=headers)
        assert (turn.status_code, turn.json()['output']) == (200, 'Hello.')
        assert client.get(path).status_code == 401

    for layer in ('server', 'repository', 'store', 'streaming', 'audit', 'versions', 'fluent'):
        assert len(list((ROOT / 'tests' / layer).glob('test_*.py'))) >= 3
    for utility in (
        '_text/test_encodings',
        '_text/test_line_diff',
        '_text/test_escapes',
        '_requests/test_prices',
        'test_tokens',
    ):
        assert (ROOT / f'tests/{utility}.py').is_file()
    for layer in ('server', 'repository', 'audit', 'fluent', 'store'):
        tree = ast.parse((ROOT / f'tests/{layer}/conftest.py').read_bytes())
        fixtures = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        assert any(isinstance(each, ast.Yield) for node in fixtures for each in ast.walk(node)), layer


# Authentication and authorization


async def test_authentication_and_authorization() -> None:
    """004-09: There are flows for authentication and authorization.

    The matrix of all routes is in `tests/server/access/test_ownership.py`.
    """
    agents = {name: create_deep_agent(ScriptedModel(then=lambda messages, info: 'Hi.')) for name in ('one', 'two')}
    async with open_store('memory:') as store:
        app = create_app(agents, store)
        http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url='http://localhost')
        async with app.router.lifespan_context(app), http as client:

            async def key(*scopes: Any, **options: Any) -> dict[str, str]:
                made = await create_api_key(store, name='test', scopes=scopes, **options)
                return {'authorization': f'Bearer {made}'}

            ada, bob = await key('run', owner='ada'), await key('run', owner='bob')
            reads, other = await key('audit', owner='ada'), await key('run', owner='ada', agents=['two'])
            begun = await client.post('/api/conversations', json={'agent': 'one'}, headers=ada)
            path = begun.headers['location']
            asked: list[tuple[int, dict[str, str]]] = [
                (200, ada), (401, {}), (401, {'authorization': 'Bearer pd_wrong'}), (403, reads), (404, bob), (404, other),
            ]  # fmt: skip
            for status, headers in asked:
                assert (await client.get(path, headers=headers)).status_code == status, headers
                turn = await client.post(f'{path}/turns', json={'prompt': 'x'}, headers=headers)
                assert turn.status_code == status, headers
            assert (await client.get('/api/me', headers=ada)).json()['owner'] == 'ada'

            [mine] = [each for each in await list_api_keys(store) if each.owner == 'bob']
            await revoke_api_key(store, mine.id)
            assert (await client.get('/api/me', headers=bob)).status_code == 401


# One experience for all schemes


def looking(*capabilities: Any) -> Agent[Any, Any]:
    """Return an agent that says a few words, calls `look`, and answers."""

    def script(messages: list[ModelMessage], info: object) -> Any:
        last = messages[-1].parts[-1]
        return 'A cat.' if isinstance(last, ToolReturnPart) else ['Let me look. ', call('look')]

    agent: Agent[Any, Any] = create_deep_agent(ScriptedModel(then=script), capabilities=capabilities)
    agent.tool_plain(name='look')(lambda: 'CANARY of the tool')
    return agent


async def test_one_agent_streams_calls_and_is_audited_in_every_scheme() -> None:
    """004-12: Streaming by server-sent events with tool calls, auditing and the schemes of several models is one
    experience.
    """
    said: list[object] = [{'role': 'user', 'content': 'What is it?'}]
    schemes: dict[str, tuple[str, dict[str, Any]]] = {
        'openai': ('/v1/chat/completions', {'model': 'a', 'messages': said, 'stream': True}),
        'anthropic': ('/v1/messages', {'model': 'a', 'max_tokens': 99, 'messages': said, 'stream': True}),
        'google': (
            '/v1beta/models/a:streamGenerateContent?alt=sse',
            {'contents': [{'role': 'user', 'parts': [{'text': 'What is it?'}]}]},
        ),
    }
    async with open_store('memory:') as store:
        app = create_app({'a': looking()}, store)
        key = await create_api_key(store, name='test', scopes=['run', 'audit'])
        headers = {'authorization': f'Bearer {key}', 'accept': 'text/event-stream'}
        http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url='http://localhost', headers=headers)
        async with app.router.lifespan_context(app), http as client:
            for name, (path, body) in schemes.items():
                async with client.stream('POST', path, json=body) as upstream:
                    events = [event async for event in HybridResponse(upstream, DECODERS[name]())]
                text = ''.join(each.text for each in events if isinstance(each, TextEvent))
                assert (name, text.split()) == (name, ['Let', 'me', 'look.', 'A', 'cat.'])
                assert isinstance(events[-1], EndEvent)
                assert 'CANARY' not in str(events)
            begun = await client.post('/api/conversations', json={'agent': 'a'}, headers={'accept': '*/*'})
            own = await client.post(f'{begun.headers["location"]}/turns', json={'prompt': 'What is it?'})
            frames = FrameReader().feed(own.content)
            texts = [json.loads(frame.data)['text'] for frame in frames if frame.event == 'text']
            assert ''.join(texts) == 'Let me look. A cat.'
            assert 'CANARY' not in own.text
            records = (await client.get('/api/audit')).json()['items']

    assert [(each['status'], each['question'], each['output']) for each in records] == [
        ('success', 'What is it?', 'A cat.')
    ] * 4
    assert [[made['name'] for made in each['tool_calls']] for each in records] == [['look']] * 4


# HybridResponse


def stream(name: str) -> bytes:
    return (STREAMS / f'{name}.sse').read_bytes()


async def chunks_of(body: bytes, size: int) -> AsyncGenerator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


class AnyClient:
    """The response of an unknown HTTP client."""

    status_code = 200

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.is_closed = False

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        return chunks_of(self._body, 5)

    async def aclose(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize('size', [1, 7, 100_000])
@pytest.mark.parametrize('name', ['openai_tools_interleaved', 'anthropic_interleaved', 'google_tools'])
async def test_hybrid_response_reads_any_stream(name: str, size: int) -> None:
    """A provider's stream in chunks of any size, from three HTTP clients and from none.

    004-13: `HybridResponse` wraps any streaming HTTP response and buffers its chunks of `data: …` until a frame is
    whole.

    004-14: `HybridResponse` detects and collects the deltas of tool calls.

    004-15: `HybridResponse` optionally emits `event: function_call`.

    004-16: `HybridResponse` accumulates the text in `.content()` and parsed calls in `.tool_calls` (`FunctionCall`).

    004-31: Interleaved calls are put back in order.
    """
    body = stream(name)
    decoder = DECODERS[name.partition('_')[0]]
    expected = {
        'openai_tools_interleaved': ('Let me look.', [('get_weather', 'Paris'), ('get_weather', 'Rome')]),
        'anthropic_interleaved': ('Both.', [('get_weather', 'Paris'), ('get_weather', 'Rome')]),
        'google_tools': ('Let me look.', [('get_weather', 'Paris'), ('get_weather', 'Rome'), ('get_time', None)]),
    }[name]

    def one_answers(_: object) -> httpx.Response:
        return httpx.Response(200, content=chunks_of(body, size))

    def two_answers(_: object) -> httpx2.Response:
        return httpx2.Response(200, content=chunks_of(body, size))

    any_client = AnyClient(body)
    for function_calls in (False, True):
        async with (
            httpx.AsyncClient(transport=httpx.MockTransport(one_answers)) as one,
            httpx2.AsyncClient(transport=httpx2.MockTransport(two_answers)) as two,
        ):
            sources: list[Any] = [
                await one.send(one.build_request('POST', 'http://x.test'), stream=True),
                await two.send(two.build_request('POST', 'http://x.test'), stream=True),
                any_client,
                chunks_of(body, size),
            ]
            for source in sources:
                response = HybridResponse(source, decoder())
                lines = [line async for line in response.iter_lines(function_calls=function_calls)]
                assert all(line.endswith('\n\n') for line in lines)
                frames = FrameReader().feed(''.join(lines).encode())
                told = [json.loads(frame.data) for frame in frames if frame.event == 'function_call']
                calls = [(each.name, each.parsed().get('city')) for each in response.tool_calls]
                assert (await response.content(), calls) == expected
                wanted = [(each.id, each.name, each.arguments) for each in response.tool_calls]
                assert [(each['id'], each['name'], each['arguments']) for each in told] == wanted * function_calls
                rest = [frame for frame in frames if frame.event != 'function_call']
                again = [event for frame in rest for event in DECODERS[name.partition('_')[0]]().decode(frame)]
                assert not [each for each in again if isinstance(each, ToolCallEvent | ToolCallDeltaEvent)]
    assert any_client.is_closed


# The loop


class Verdict(BaseModel):
    is_good: bool


async def test_loop_streams_text_hides_results_and_ends_with_an_answer() -> None:
    """A run in which the model emits text, calls a tool twice, and answers.

    004-17: The loop builds the context of a streamed run: deps, session id, settings of the model and limits.

    004-18: The loop builds the stack of messages: system prompt, question, and data that were loaded before.

    004-21: On interception the loop yields a placeholder (`I'm working on it…`).

    004-22: The loop runs each call, appends results to the messages, does not show them to the user by default, and
    repeats.

    004-23: When no calls are left, the loop drains the text, parses it to a structured answer, and exits.
    """
    seen: list[object] = []
    model = ScriptedModel(
        ['Let me look. ', call('look', at=1)], call('look', at=2), ['It is good.', call('final_result', is_good=True)]
    )
    agent = Agent(model, instructions='Be kind.', output_type=Verdict, deps_type=str, system_prompt='SYSTEM')

    @agent.tool
    def look(ctx: RunContext[str], at: int) -> str:
        seen.append((ctx.deps, current_session_id()))
        return f'CANARY {at}'

    loaded: list[ModelMessage] = [ModelRequest([UserPromptPart('LOADED')]), ModelResponse([TextPart('Yes.')])]
    options: dict[str, Any] = {
        'deps': 'DEPS',
        'session_id': 's-1',
        'message_history': loaded,
        'model_settings': {'temperature': 0.5},
        'usage_limits': UsageLimits(request_limit=9),
    }
    async with stream_agent(agent, 'Go', **options) as run:
        lines = [line async for line in run.iter_lines()]
    frames = FrameReader().feed(''.join(lines).encode())

    assert seen == [('DEPS', 's-1')] * 2
    first, _, third = model.requests
    assert (first.instructions, first.settings) == ('Be kind.', {'temperature': 0.5})
    said = [getattr(part, 'content', None) for message in first.messages for part in message.parts]
    assert said == ['LOADED', 'Yes.', 'Go']
    results = [part for message in third.messages for part in message.parts if isinstance(part, ToolReturnPart)]
    assert [part.content for part in results] == ['CANARY 1', 'CANARY 2']

    shown = [(frame.event, json.loads(frame.data)) for frame in frames]
    assert ''.join(data['text'] for event, data in shown if event == 'text') == 'Let me look. It is good.'
    assert [data['text'] for event, data in shown if event == 'notice'] == [NOTICE] * 3  # the output is a call too
    assert 'CANARY' not in ''.join(lines)
    assert (shown[0][1]['session_id'], shown[-1][0], shown[-1][1]['output']) == ('s-1', 'end', '{"is_good":true}')
    assert run.result.output == Verdict(is_good=True)

    async with stream_agent(agent, 'Go', deps='', usage_limits=UsageLimits(request_limit=0)) as refused:
        assert [event.type for event in [each async for each in refused]][-2:] == ['error', 'end']


async def test_text_reaches_the_user_before_the_model_has_ended() -> None:
    """004-20: The loop reads until the first function call or the end, and yields text to the user as chunks of `data:`."""
    goes_on, asked = asyncio.Event(), list[int]()

    async def speak(messages: list[ModelMessage], info: object) -> AsyncGenerator[Any]:
        asked.append(len(messages))
        yield 'Hel'
        await goes_on.wait()  # blocks forever if the previous text were buffered
        yield 'lo'

    read: list[str] = []
    with anyio.fail_after(30):
        async with stream_agent(Agent(FunctionModel(stream_function=speak)), 'Go') as run:
            async for line in run.iter_lines():
                (frame,) = FrameReader().feed(line.encode())
                assert line.split('\n')[1].startswith('data: ')
                if frame.event == 'text':
                    read.append(json.loads(frame.data)['text'])
                    goes_on.set()
    assert (read, run.content, asked) == (['Hel', 'lo'], 'Hello', [1])


@pytest.mark.parametrize('most', [1, 3])
async def test_loop_is_bounded(most: int) -> None:
    """004-19: The loop makes at most `max_iterations` calls to a model.

    Those of subagents count too.
    """
    model = ScriptedModel(then=lambda messages, info: call('ls'))
    delegates = ScriptedModel(
        then=lambda messages, info: call('task', subagent='scout', description='Look.'), model_name='boss'
    )
    scout = Subagent('scout', 'Looks.', model=model)
    for agent, asked in (
        (create_deep_agent(model), [model]),
        (create_deep_agent(delegates, subagents=[scout]), [model, delegates]),
    ):
        for each in asked:
            each.requests.clear()
        async with stream_agent(agent, 'Go', deps=deps_for_test(), max_iterations=most) as run:
            events = [event async for event in run]
        assert sum(len(each.requests) for each in asked) == most
        assert [event.type for event in events][-2:] == ['error', 'end']
        assert cast('Any', events[-2]).kind == 'limit_exceeded'


# The audit


async def test_audit_record_contains_the_run_and_its_context() -> None:
    """A run with tools, one without and one that fails; then an agent continues from the records.

    004-24: On completion, with or without tools, the answer is recorded: tokens, status, and results of tools.

    004-25: It is recorded together with the original question, the full message history, the streaming context
    (session id, settings of the model), and the id of the agent.

    004-26: The audit enables persisted exchanges, records to evaluate tools by, and rehydration of conversation and use
    of tools.
    """
    rows = MemoryRepository(AuditRecord, fields=AUDIT_FIELDS)
    usage = RequestUsage(input_tokens=100, output_tokens=7)
    model = ScriptedModel(call('look', at='box'), 'A cat.', 'Sure.', call('fail'), usage=usage)

    def look(at: str) -> str:
        return f'a cat in the {at}'

    def fail() -> str:
        raise LookupError('CANARY')

    agent = Agent(model, name='seer', tools=[look, fail], capabilities=[Audit(rows)])
    history: list[ModelMessage] = []
    for question in ('What is it?', 'Sure?', 'And now?'):
        options: Any = {'model_settings': {'temperature': 0.5}, 'session_id': 's-1', 'message_history': history}
        async with stream_agent(agent, question, **options) as run:
            async for _ in run:
                pass
        history = run.result.all_messages() if question != 'And now?' else history

    records = [AuditRecord.model_validate_json(each.model_dump_json()) for each in (await rows.list(order_by='started_at')).items]  # fmt: skip
    with_tools, without, failed = records
    for record, question in zip(records, ('What is it?', 'Sure?', 'And now?'), strict=True):
        assert (record.question, record.session_id, record.agent_name) == (question, 's-1', 'seer')
        assert record.model_settings == {'temperature': 0.5}
    assert [(each.status, each.output) for each in records] == [('success', 'A cat.'), ('success', 'Sure.'), ('failed', None)]  # fmt: skip
    assert [each.usage.input_tokens for each in records] == [200, 100, 100]
    assert [each.usage.output_tokens for each in records] == [14, 7, 7]
    [tool] = with_tools.tool_calls
    assert (tool.name, tool.arguments.value, tool.outcome) == ('look', {'at': 'box'}, 'success')
    assert tool.result is not None
    assert tool.result.value == 'a cat in the box'
    assert tool.started_at is not None
    assert (without.tool_calls, [each.outcome for each in failed.tool_calls]) == ([], ['failed'])
    assert failed.error is not None

    messages = await rehydrate(without)
    assert [part.part_kind for each in messages for part in each.parts] == [
        'user-prompt', 'tool-call', 'tool-return', 'text', 'user-prompt', 'text',
    ]  # fmt: skip
    other = ScriptedModel('Yes.')
    again = await Agent(other, tools=[look]).run('Still?', message_history=messages)
    assert again.output == 'Yes.'
    assert str(other.requests[0].messages).count('a cat in the box') == 1


# Adapters


@pytest.mark.parametrize('provider', DECODERS)
async def test_each_provider_has_an_adapter(provider: str) -> None:
    """Text, calls and finish reasons of recorded streams.

    004-27: There are adapters for the streams of OpenAI, Anthropic and Google.

    004-28: It is tested that function calls of Anthropic are detected and buffered, and that Google's
    `candidates/parts` are read.
    """
    names = {'openai': 'openai_tools_interleaved', 'anthropic': 'anthropic_tools', 'google': 'google_tools'}
    response = HybridResponse(chunks_of(stream(names[provider]), 3), DECODERS[provider]())
    events = [event async for event in response]
    if provider == 'google':
        assert b'"candidates"' in stream('google_tools')
        assert b'"parts"' in stream('google_tools')
    assert await response.content() == 'Let me look.'
    assert response.tool_calls[0].parsed() == {'city': 'Paris'}
    assert len(response.tool_calls) == (3 if provider == 'google' else 2)
    # Calls are detected as they arrive and buffered until complete.
    first = next(place for place, event in enumerate(events) if isinstance(event, ToolCallDeltaEvent))
    whole = next(place for place, event in enumerate(events) if isinstance(event, ToolCallEvent))
    assert first < whole
    assert (response.finish_reason, response.error) == ('tool_call', None)
    assert response.usage is not None


class Lines:
    """The decoder of an unknown provider."""

    def decode(self, frame: Frame) -> Sequence[StreamEvent]:
        if frame.data == 'bye':
            return [EndEvent()]
        name, _, text = frame.data.partition(' ')
        return [TextEvent(text=text)] if name == 'say' else [ToolCallEvent(id='1', name=name, args=text, index=0)]

    def finish(self) -> Sequence[StreamEvent]:
        return []


async def test_new_provider_is_a_new_adapter() -> None:
    """004-29: A new SSE provider is a new adapter."""
    response = HybridResponse(chunks_of(b'data: say hi\n\ndata: look {"a": 1}\n\ndata: bye\n\n', 4), Lines())
    assert isinstance(Lines(), Decoder)
    assert [event.type async for event in response] == ['text', 'tool_call', 'end']
    assert (await response.content(), response.tool_calls[0].parsed()) == ('hi', {'a': 1})
    names = ('openai', 'anthropic', 'google')
    imported = [
        node.module
        for node in ast.walk(
            modules('streaming/providers/_hybrid_response.py')['streaming/providers/_hybrid_response.py']
        )
        if isinstance(node, ast.ImportFrom)
    ]
    assert not [module for module in imported if module and module.endswith(names)]


class Counted:
    """A spill target that counts its writes."""

    def __init__(self) -> None:
        self.writes: list[int] = []
        self.data = b''

    async def write(self, data: bytes) -> None:
        self.writes.append(len(data))
        self.data += data

    async def read(self) -> bytes:
        return self.data

    async def aclose(self) -> None: ...


async def test_large_response_spills_and_is_read_back_completely() -> None:
    """004-30: For very large responses the buffer is bounded or windowed, or spills to disk.

    The part of a megabyte that exceeds a window of 1,000 bytes is written, in few writes; without a spill target, to a
    file.
    """
    text = ''.join(f'{number:06d} 北' for number in range(100_000))
    spill = Counted()
    for buffer in (WindowedBuffer(window_bytes=1000, spill=spill), WindowedBuffer(window_bytes=1000)):
        for start in range(0, len(text), 997):
            await buffer.append(text[start : start + 997])
            assert buffer.memory_bytes <= 1000
        assert await buffer.read() == text
    assert len(spill.data) + 1000 + 3000 > len(text.encode())

    body = ''.join(f'data: {json.dumps({"choices": [{"delta": {"content": "x" * 900}}]})}\n\n' for _ in range(500))
    response = HybridResponse(
        chunks_of(f'{body}data: [DONE]\n\n'.encode(), 4096),
        OpenaiDecoder(),
        window_bytes=2000,
        spill=(kept := Counted()),
    )
    assert [line async for line in response.iter_lines()]
    assert await response.content() == 'x' * 450_000
    assert len(kept.data) >= 445_000


@pytest.mark.parametrize(
    ('body', 'status', 'kind'),
    [
        (b'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\ndata: {"choices":[{"del\n\n', 200, 'malformed'),
        (b'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\ndata: {"choices":[{"del', 200, 'truncated'),
        (b'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\n', 200, 'truncated'),
        (b'{"error": {"message": "Slow down."}}', 429, 'http_error'),
        (b'<html>Bad gateway</html>', 502, 'http_error'),
        (b'', 500, 'http_error'),
    ],
)
async def test_errors_are_relayed_as_events(body: bytes, status: int, kind: str) -> None:
    """004-32: Partial JSON and HTTP errors are relayed as SSE (`event: error`)."""
    response = HybridResponse(chunks_of(body, 6), OpenaiDecoder(), status=status)
    frames = FrameReader().feed(''.join([line async for line in response.iter_lines()]).encode())
    assert [frame.event for frame in frames] == [None, 'error'] if status == 200 else ['error']
    error = json.loads(frames[-1].data)
    assert error['kind'] == kind
    assert error['message']
    assert status == 200 or error['status'] == status
    assert (response.finish_reason, await response.content()) == (None, 'Hi' if status == 200 else '')


# Sessions


@pytest.mark.parametrize('given', ['stream_agent', 'session_scope', 'neither'])
@pytest.mark.parametrize('is_stored', [False, True])
async def test_session_id_reaches_every_run_below(given: str, is_stored: bool) -> None:
    """004-33: `session_id` and context propagate through recursion and overrides: they are in events, in tools, and in
    the audit records of the run and of all runs below it.
    """
    seen: list[str | None] = []

    def note() -> str:
        seen.append(current_session_id())
        return 'noted'

    rows = MemoryRepository(AuditRecord, fields=AUDIT_FIELDS)
    leaf = Subagent('leaf', 'Leaf.', model=ScriptedModel(call('note'), 'leaf'), tools=[note])
    middle = ScriptedModel([call('note'), call('task', subagent='leaf', description='Go')], 'middle')
    mid = Subagent('mid', 'Middle.', model=middle, subagents=[leaf], tools=[note])
    top = ScriptedModel([call('note'), call('task', subagent='mid', description='Go')], 'Done.')
    agent: Agent[Any, Any] = create_deep_agent(top, tools=[note], subagents=[mid], capabilities=[Audit(rows)])
    expected = None if given == 'neither' else 'mine'

    async with open_store('memory:') as store:
        with session_scope('outer' if given == 'stream_agent' else expected):  # the nearer scope overrides it
            if is_stored and given != 'stream_agent':
                turn = await (await VersionedAgent(agent, store).create()).advance('Go')
                runs = [run.id for run in await store.runs()]
                assert turn.run_id in runs
                assert [(await audit_of_run(store, run)).session_id for run in runs] == [expected] * 3
            elif given == 'stream_agent':
                async with stream_agent(agent, 'Go', session_id='mine') as run:
                    events = [event async for event in run]
                assert cast('Any', events[0]).session_id == 'mine'
                assert current_session_id() == 'outer'
            else:
                await agent.run('Go')

    records = (await rows.list()).items
    assert {record.agent_name for record in records} >= {'mid', 'leaf'}
    assert [record.session_id for record in records] == [expected] * 3
    assert seen == [expected] * 3
    assert current_session_id() is None


# Tool results in the schemes of providers


PIXEL = b'\x89PNG\r\n\x1a\n\x00'


@pytest.fixture
def transport_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow model requests: the mock transport does not reach the network."""
    monkeypatch.setattr(models, 'ALLOW_MODEL_REQUESTS', True)


@pytest.mark.usefixtures('transport_only')
async def test_tool_results_have_the_form_of_each_scheme() -> None:
    """004-34: Results of tools are formatted per scheme (JSON or a list of blocks), which is checked for Anthropic and
    Google.
    """
    sent: list[dict[str, Any]] = []
    usage: dict[str, object] = {'input_tokens': 1, 'output_tokens': 1}
    message: dict[str, object] = {
        'id': 'm', 'type': 'message', 'role': 'assistant', 'model': 'claude', 'stop_reason': 'end_turn',
        'stop_sequence': None, 'usage': usage, 'content': [{'type': 'text', 'text': 'Done.'}],
    }  # fmt: skip
    candidate: dict[str, object] = {'content': {'role': 'model', 'parts': [{'text': 'Done.'}]}, 'finishReason': 'STOP'}

    def transport(body: dict[str, object]) -> Any:
        def answer(request: httpx2.Request) -> httpx2.Response:
            sent.append(json.loads(request.content))
            return httpx2.Response(200, json=body)

        return httpx2.AsyncClient(transport=httpx2.MockTransport(answer), timeout=60)

    image = BinaryImage(data=PIXEL, media_type='image/png')
    history: list[ModelMessage] = [
        ModelRequest([UserPromptPart('Look.')]),
        ModelResponse([ToolCallPart('rows', {}, 'one'), ToolCallPart('picture', {}, 'two')]),
        ModelRequest(
            [ToolReturnPart('rows', {'n': [1, None]}, 'one'), ToolReturnPart('picture', ['a cat', image], 'two')]
        ),
    ]
    claude = AnthropicModel('claude', provider=AnthropicProvider(api_key='x', http_client=transport(message)))
    gemini = GoogleModel('gemini', provider=GoogleProvider(api_key='x', http_client=transport({'candidates': [candidate]})))  # fmt: skip
    for model in (claude, gemini):
        assert (await Agent(model).run('And?', message_history=history)).output == 'Done.'
    to_anthropic, to_google = sent

    blocks = [block for each in to_anthropic['messages'] if isinstance(each['content'], list) for block in each['content']]  # fmt: skip
    rows, picture = [block for block in blocks if block['type'] == 'tool_result']
    assert rows['tool_use_id'] == 'one'
    assert [(block['type'], json.loads(block['text'])) for block in rows['content']] == [('text', {'n': [1, None]})]
    assert [block['type'] for block in picture['content']] == ['text', 'image']
    parts = [part for each in to_google['contents'] for part in each['parts']]
    answers = [part['functionResponse'] for part in parts if 'functionResponse' in part]
    assert [answer['name'] for answer in answers] == ['rows', 'picture']
    assert answers[0]['response'] == {'n': [1, None]}
    assert isinstance(answers[1]['response'], dict)
    assert 'a cat' in json.dumps(answers[1])
    assert 'image/png' in json.dumps(to_google)
