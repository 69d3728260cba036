"""Fixtures for tests of `store.sql`: a dialogue in a store, and a store that counts its statements."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

from pydantic_deep.store import (
    Append,
    BranchRecord,
    CallRecord,
    CallStatus,
    Commit,
    ConversationRecord,
    HeadMove,
    NewAsset,
    NewMessage,
    RequestRecord,
    RunEnd,
    RunRecord,
    SqlStore,
    VersionKind,
    VersionRecord,
    new_id,
    open_store,
)
from pydantic_deep.store.engine import Engine, Operation
from pydantic_deep_backends import FileVersion, Tree, digest_of

SECOND = 1_000_000


@pytest.fixture(params=['memory', 'sqlite', 'postgresql'])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SqlStore]:
    urls = {'memory': 'memory:', 'sqlite': f'sqlite:///{tmp_path}/agents.db'}
    url = urls.get(request.param) or request.getfixturevalue('postgres_url')
    async with open_store(url) as opened:
        yield opened


class Dialogue:
    """One conversation with one run at a time, written like the recorder does."""

    def __init__(self, store: SqlStore, agent_name: str = 'analyst', started_at: int = SECOND) -> None:
        self.store = store
        self.agent_name = agent_name
        self.conversation_id = new_id()
        self.branch_id = new_id()
        self.run_id = new_id()
        self.head: str | None = None
        self.length = 0
        self.started_at = started_at

    async def begin(self) -> None:
        conversation = ConversationRecord(self.conversation_id, self.agent_name, None, self.started_at)
        branch = BranchRecord(self.branch_id, self.conversation_id, 'main', None, 0, 0, None, None, self.started_at)
        await self.store.commit(Commit(conversations=[conversation], branches=[branch], runs=[self.run()]))

    def run(self) -> RunRecord:
        return RunRecord(
            id=self.run_id, conversation_id=self.conversation_id, base_id=self.head, agent_name=self.agent_name,
            attempt_of=None, parent_run_id=None, state='running', owner=None, prompt=None, options='{}', usage='{}',
            cost=None, error=None, trace_id=None, started_at=self.started_at, ended_at=None,
        )  # fmt: skip

    def version(self, kind: VersionKind = 'step', count: int = 0, *, deps: str | None = None, tree: str | None = None):
        return VersionRecord(
            id=new_id(), number=0, parent_id=self.head, cloned_from=None, merged_from=None, kind=kind,
            state='complete', conversation_id=self.conversation_id, branch_id=self.branch_id, branch='main',
            message_count=self.length + count, run_id=self.run_id, agent_name=self.agent_name, name=None,
            metadata='{"team":"red"}', model='m', model_settings='{}', usage='{}', output=None, pending=None,
            deps=deps, tree=tree, backend=None, created_at=self.started_at,
        )  # fmt: skip

    async def step(
        self,
        *bodies: object,
        kind: VersionKind = 'step',
        requests: Sequence[RequestRecord] = (),
        calls: Sequence[CallRecord] = (),
        settled: Sequence[tuple[str, str, str]] = (),
        deps: str | None = None,
        tree: Tree | None = None,
    ) -> list[str]:
        """Append messages with a version after them, which becomes the head, and return the messages' ids."""
        messages = [NewMessage(id=new_id(), body=json.dumps(body).encode()) for body in bodies]
        digest = None if deps is None else digest_of(deps.encode())
        version = self.version(kind, len(messages), deps=digest, tree=None if tree is None else tree.digest)
        append = Append(branch_id=self.branch_id, at=self.length, messages=messages, fork_id=new_id())
        await self.store.commit(
            Commit(
                assets=[] if deps is None else [NewAsset(digest=str(digest), data=deps.encode())],
                nodes=None if tree is None else dict(tree.nodes()),
                append=append if messages else None,
                settled_calls=settled,
                versions=[version],
                requests=requests,
                calls=calls,
                heads=[HeadMove(conversation_id=self.conversation_id, expected_id=self.head, version_id=version.id)],
            )
        )
        self.head = version.id
        self.length += len(messages)
        return [message.id for message in messages]

    async def end(self, *, cost: str | None = '0.25', error: str | None = None) -> None:
        usage = json.dumps({'requests': 1, 'tool_calls': 2, 'input_tokens': 30, 'output_tokens': 4})
        state = 'complete' if error is None else 'failed'
        await self.store.commit(
            Commit(ends=[RunEnd(run_id=self.run_id, state=state, usage=usage, cost=cost, error=error)])
        )

    def request(self, number: int, response_id: str, *, cost: str | None = '0.1') -> RequestRecord:
        return RequestRecord(
            run_id=self.run_id, number=number, response_id=response_id, model='m', model_settings='{"temperature":0}',
            parameters=None, digest='d', message_digests=None, input_tokens=10, output_tokens=2, cache_read_tokens=5,
            cache_write_tokens=1, cost=cost, duration_us=1500, started_at=self.started_at,
        )  # fmt: skip

    def call(self, response_id: str, status: CallStatus, *, tool: str = 'ls', result: str | None = None) -> CallRecord:
        return CallRecord(
            run_id=self.run_id, response_id=response_id, tool_call_id='call', tool_name=tool,
            arguments='{"path": "/"}', effect='read', status=status, result=result, tree=None,
            error='OSError' if status == 'failed' else None, started_at=self.started_at,
            ended_at=None if status == 'started' else self.started_at + 2500,
        )  # fmt: skip


def user(text: str) -> object:
    return {'kind': 'request', 'parts': [{'part_kind': 'user-prompt', 'content': text}]}


def asks(tool: str) -> object:
    part = {'part_kind': 'tool-call', 'tool_name': tool, 'args': '{}', 'tool_call_id': 'call'}
    return {'kind': 'response', 'parts': [part], 'model_name': 'm', 'usage': {'input_tokens': 10, 'output_tokens': 2}}


def answers(content: object) -> object:
    return {'kind': 'request', 'parts': [{'part_kind': 'tool-return', 'tool_call_id': 'call', 'content': content}]}


async def value(store: SqlStore, query: str) -> object:
    [(found,)] = (await store.sql(query)).rows
    return found


@pytest.fixture
async def dialogue(store: SqlStore) -> Dialogue:
    begun = Dialogue(store)
    await begun.begin()
    return begun


def file(data: bytes) -> FileVersion:
    return FileVersion(digest=digest_of(data), size=len(data))


class CountingEngine:
    """Counts the statements of another engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.statements: list[str] = []
        self.read_calls = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._engine, name)

    async def read(self, operation: Callable[[], Operation[object]]) -> object:
        self.read_calls += 1
        return await self._engine.read(lambda: self._counted(operation()))

    def _counted(self, operation: Operation[object]) -> Operation[object]:
        statement = next(operation)
        while True:
            self.statements.append(statement.sql)
            rows = yield statement
            try:
                statement = operation.send(rows)
            except StopIteration as stop:
                return stop.value


class Counted:
    """A store that counts its statements."""

    def __init__(self, store: SqlStore) -> None:
        self.counting = CountingEngine(store.engine)
        self.trees_read = 0
        self._store = store

    @property
    def engine(self) -> Engine:
        engine: object = self.counting
        assert isinstance(engine, CountingEngine)
        return engine  # pyright: ignore[reportReturnType] - the rest it has by `__getattr__`

    async def nodes(self, digest: str) -> dict[str, bytes]:
        self.trees_read += 1
        return await self._store.nodes(digest)
