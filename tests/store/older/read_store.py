"""Reads everything in a store through the public API, as JSON: the same program in the release that made it and today.

Only data are read. Histories, contents and rows shared by many versions are stored once, under `contents`, and are
referred to by a digest prefix.
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import hashlib
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Final, cast
from uuid import UUID

from pydantic import AwareDatetime, BaseModel
from pydantic_ai import Agent, BinaryContent, FunctionToolset, RunContext
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import ApprovalRule, DeepAgentDeps, Subagent, create_deep_agent
from pydantic_deep.audit import AUDIT_FIELDS, AuditRecord, audit_of_run, rehydrate
from pydantic_deep.repository import SqlRepository
from pydantic_deep.store import SqlStore, VersionFilter
from pydantic_deep.testing import Answer, ScriptedModel, call
from pydantic_deep.versions import AgentVersion, ApprovalInbox, VersionedAgent

ALL: Final = 1_000_000
MAX_CHARS: Final = 1_000
"""Longer texts are compared by their prefix, length and SHA-256."""


class Fruit(BaseModel):
    """What one agent answers with."""

    # The docstring is sent to the model, so a replay compares it with the recorded one: do not reword it.

    name: str
    grams: int


class Sample(BaseModel):
    """A row of a repository, with fields of every supported kind and some unsupported ones."""

    id: str
    text: str
    number: int
    real: float
    is_on: bool
    moment: AwareDatetime
    uuid: UUID
    maybe: int | None
    color: str
    notes: list[object]


SAMPLE_FIELDS: Final = ('text', 'number', 'real', 'is_on', 'moment', 'uuid', 'maybe', 'color')

AnyAgent = VersionedAgent[Any, Any]
Crash = Callable[[], str]

CRASHES: Final = ('request', 'read', 'send', 'parallel', 'write', 'subagent', 'resume', 'left', 'attempt')
"""What the crashed processes were doing. Each left a run of a separate agent."""


def agents(
    store: SqlStore, *, plain: object = None, fruit: object = None, crash: Crash = lambda: 'it ran'
) -> dict[str, AnyAgent]:
    """Return the agents that made the store, as far as reading needs them.

    Args:
        store: The store.
        plain: Model of the agent without tools.
        fruit: Model of the agent with a typed output.
        crash: Body of the tools that crashed their process.
    """

    def weigh(name: str) -> int:
        """Weigh a fruit."""
        return 120

    weighing = FunctionToolset[Any]()
    weighing.add_function(weigh, metadata={'effect': 'read'})
    found: dict[str, AnyAgent] = {
        'plain': VersionedAgent(Agent[Any, Any](cast('Any', plain or ScriptedModel()), name='plain'), store),
        'fruit': VersionedAgent(
            Agent[Any, Any](
                cast('Any', fruit or ScriptedModel()), name='fruit', output_type=Fruit, instructions='Weigh.',
                toolsets=[weighing],
            ),
            store,
        ),
    }  # fmt: skip
    return found | {f'crash {how}': VersionedAgent(_crashing(how, crash), store) for how in CRASHES}


def _crashing(how: str, crash: Crash) -> Agent[DeepAgentDeps, Any]:
    tools = FunctionToolset[Any]()

    @tools.tool_plain(metadata={'effect': 'read'})
    async def look() -> str:
        """Look."""
        return crash() if how == 'read' else 'seen'

    @tools.tool_plain
    async def note() -> str:
        """Note."""
        return 'noted'

    @tools.tool_plain
    async def send() -> str:
        """Send."""
        await asyncio.sleep(0.3)  # the calls beside it are done by then
        return crash()

    @tools.tool(metadata={'effect': 'write'})
    async def draft(ctx: RunContext[DeepAgentDeps]) -> str:
        """Draft."""
        await ctx.deps.backend.write_bytes('/draft.md', b'a draft\n')
        return 'drafted'

    first: dict[str, Answer] = {
        'read': call('look'),
        'send': call('send'),
        'attempt': call('look'),
        'parallel': [call('look'), call('note'), call('send')],
        'write': call('write_file', path='/kept.md', content='kept\n'),
        'subagent': call('task', description='below', subagent='below'),
        'resume': call('send'),
        'left': [call('write_file', path='/left.md', content='left\n'), call('draft'), call('send')],
    }

    def speak(messages: list[ModelMessage], info: AgentInfo) -> Answer:
        count = sum(isinstance(message, ModelResponse) for message in messages)
        words = str([getattr(part, 'content', None) for part in messages[0].parts])
        if 'below' in words:
            return call('send') if not count else 'done below'
        if how == 'request' or (how == 'write' and count) or how == 'attempt':
            crash()
        return first[how] if not count and how in first else f'done after {count}'

    return create_deep_agent(
        ScriptedModel(then=speak),
        name=f'crash {how}',
        toolsets=[tools],
        subagents=[Subagent('below', 'Sends.', toolsets=[tools])],
        interrupt_on={'send': ApprovalRule()} if how == 'resume' else {},
    )


def plain(value: object) -> Any:
    """Convert a value to JSON: records and rows to objects, timestamps to text, bytes to text or Base64."""
    fields = getattr(value, '_asdict', None)
    if fields is not None:
        return {name: plain(each) for name, each in fields().items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, BaseModel):
        return plain(value.model_dump(mode='json'))
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in cast('Mapping[object, object]', value).items()}
    if isinstance(value, bytes):
        try:
            return plain(value.decode())
        except UnicodeDecodeError:
            return f'base64:{base64.b64encode(value).decode()}'
    if isinstance(value, str) and len(value) > MAX_CHARS:
        return f'{value[:60]}… {len(value)} characters, {hashlib.sha256(value.encode()).hexdigest()}'
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, (Decimal, UUID)):
        return str(value)
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(each) for each in cast('Sequence[object]', value)]
    return value


class Contents(dict[str, Any]):
    """Values that are stored once and referred to several times."""

    def refer(self, value: object) -> str:
        """Return the key of a value."""
        known = plain(value)
        name = hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:12]
        self[name] = known
        return name


def _told(message: ModelMessage) -> Any:
    """Return the contents of a message, in fields that every release of pydantic-ai has."""
    parts: list[dict[str, Any]] = []
    for part in message.parts:
        said: dict[str, Any] = {'kind': part.part_kind}
        for name in ('tool_name', 'tool_call_id', 'outcome'):
            if getattr(part, name, None) is not None:
                said[name] = getattr(part, name)
        if hasattr(part, 'args'):
            said['args'] = plain(cast('Any', part).args)
        if hasattr(part, 'content'):
            said['content'] = _content(cast('Any', part).content)
        parts.append(said)
    said = {'kind': message.kind, 'run_id': message.run_id, 'parts': parts}
    if isinstance(message, ModelRequest):
        return {**said, 'instructions': message.instructions}
    return {**said, 'model': message.model_name, 'input_tokens': message.usage.input_tokens}


def _content(content: object) -> Any:
    if isinstance(content, BinaryContent):
        return {'media_type': content.media_type, 'sha256': hashlib.sha256(content.data).hexdigest()}
    if isinstance(content, list):
        return [_content(each) for each in cast('list[object]', content)]
    return plain(content)


def _usage(usage: object) -> dict[str, int]:
    names = ('requests', 'tool_calls', 'input_tokens', 'output_tokens', 'cache_read_tokens', 'cache_write_tokens')
    return {name: getattr(usage, name) for name in names}


async def read_store(store: SqlStore) -> dict[str, Any]:
    """Return everything that the public API reads from a store."""
    contents = Contents()
    conversations = await store.conversations(limit=ALL)
    records = await store.versions(VersionFilter(), limit=ALL)
    runs = await store.runs(limit=ALL)
    found: dict[str, Any] = {
        'conversations': plain(conversations),
        'branches': {each.id: plain(await store.branches(each.id)) for each in conversations},
        'records': plain(records),
        'runs': plain(runs),
        'orphans': [run.id for run in await store.orphans(ALL)],
        'approvals': plain(await store.approvals(status=None, limit=ALL)),
        'requests': {run.id: plain(await store.requests(run.id)) for run in runs},
        'calls': {run.id: plain(await store.calls([run.id])) for run in runs},
        'delegations': {run.id: plain(await store.delegations(parent_run_id=run.id)) for run in runs},
        'counts': {
            kind: await store.count(VersionFilter(kinds=[cast('Any', kind)]))
            for kind in ('root', 'step', 'turn', 'pause', 'edit', 'merge')
        },
        'workspaces': {},
    }
    keys = {each.backend for each in records if each.backend is not None}
    places = {_place(each) for each in keys} | {f'{{"id":"/srv/{name}","provider":"directory"}}' for name in PLACES}
    for place in sorted(places):
        found['workspaces'][place] = plain(await store.workspace(place))
    stored: dict[str, Any] = {}
    for branches in found['branches'].values():
        for branch in branches:
            rows = await store.messages(branch['id'], branch['tip_seq'])
            stored[branch['id']] = [[row.id, row.seq, contents.refer(json.loads(row.body))] for row in rows]
    found['messages'] = stored
    found['versions'] = await _versions(store, contents)
    found['inbox'] = [
        {name: plain(getattr(item, name)) for name in INBOX}
        for item in await ApprovalInbox(store).list(status=None, limit=ALL)
    ]
    found['audit'] = {run.id: plain(await audit_of_run(store, run.id)) for run in runs}
    found['repositories'] = await _repositories(store, contents)
    found['sql'] = await _sql(store, contents)
    found['contents'] = dict(sorted(contents.items()))
    return found


PLACES: Final = ('report', 'unknown', 'cut-off')
"""Keys of the workspaces that the program adds to the store by hand."""

INBOX: Final = (
    'id', 'version_id', 'pending_id', 'conversation_id', 'agent_name', 'path', 'tool', 'arguments', 'preview', 'status',
    'decision', 'decided_by', 'reason', 'decided_at', 'expires_at', 'created_at',
)  # fmt: skip
FILE: Final = ('path', 'kind', 'diff', 'size_before', 'size_after')
PENDING: Final = ('id', 'path', 'tool', 'arguments', 'preview')
THREAD: Final = ('conversation_id', 'subagent', 'intent', 'arguments', 'tool_call_id', 'run_id', 'state', 'version_id')


def _place(description: str) -> str:
    """Return the key under which a store has the workspace of a backend."""
    said = json.loads(description)
    provider = 'directory' if said['provider'] in ('local', 'sandbox') else said['provider']
    return json.dumps({'id': said['id'], 'provider': provider}, separators=(',', ':'))


def _threads(threads: Sequence[Any]) -> list[Any]:
    return [
        {**{name: plain(getattr(thread, name)) for name in THREAD}, 'subagents': _threads(thread.subagents)}
        for thread in threads
    ]


async def _versions(store: SqlStore, contents: Contents) -> dict[str, Any]:
    """Return each version by id, and the lists of versions of each agent."""
    built = agents(store)
    found: dict[str, Any] = {}
    listed: dict[str, Any] = {}
    names = sorted({each.agent_name for each in await store.versions(VersionFilter(), limit=ALL)})
    for name in names:
        agent = built.get(name) or VersionedAgent(
            Agent[Any, Any](ScriptedModel(), name=name, deps_type=DeepAgentDeps), store
        )
        every = await agent.list(limit=ALL, steps=True)
        named = [each.name for each in every if each.name]
        listed[name] = {
            'list': [each.id for each in await agent.list(limit=ALL)],
            'page': [each.id for each in await agent.list(limit=2, offset=1)],
            'count': await agent.count(steps=True),
            'named': {each: await _newest(agent, each) for each in sorted(set(named))},
            'ada': [each.id for each in await agent.list(metadata={'owner': 'ada'}, limit=ALL)],
        }
        for version in every:
            found[version.id] = await _version(version, contents)
        for id in sorted({each.conversation_id for each in every}):
            listed[name][f'events of {id}'] = plain(await agent.events(id))
            listed[name][f'thread of {id}'] = [contents.refer(_told(each)) for each in await agent.thread(id)]
            try:
                listed[name][f'head of {id}'] = (await agent.conversation(id).head()).id
            except LookupError:
                listed[name][f'head of {id}'] = None
    return {'by_agent': listed, 'by_id': found}


async def _newest(agent: AnyAgent, name: str) -> str:
    found: Any = await agent.find_by_name(name)
    return cast('Any', found)[0].id if isinstance(found, list) else found.id


async def _version(version: AgentVersion[Any, Any], contents: Contents) -> dict[str, Any]:
    files = {path: each async for path, each in _read_files(version)}
    lineage = await version.lineage()
    shown: dict[str, Any] = {
        'cloned_from': version.cloned_from,
        'merged_from': version.merged_from,
        'branch': version.branch,
        'name': version.name,
        'metadata': plain(version.metadata),
        'model': version.model,
        'model_settings': plain(version.model_settings),
        'usage': _usage(version.usage),
        'output': plain(version.output),
        'pending': [{name: plain(getattr(each, name)) for name in PENDING} for each in version.pending],
        'todos': plain(version.todos),
        'uploads': plain(version.uploads),
        'created_at': plain(version.created_at),
        'messages': [contents.refer(_told(each)) for each in await version.messages()],
        'lineage': [each.id for each in lineage],
        'truncated_at': lineage.truncated_at,
        'children': [each.id for each in await version.children(steps=True)],
        'steps': [each.id for each in await version.steps()],
        'files': files,
        'requests': [[each.run_id, each.number] for each in await version.requests()],
        'parameters': contents.refer(await version.request_parameters()),
        'subagents': _threads(await version.subagents()),
    }
    parent = lineage[-2] if len(lineage) > 1 else None
    if parent is not None:
        diff = await parent.diff(version)
        shown['diff'] = {
            'messages_common': diff.messages_common,
            'removed': [contents.refer(_told(each)) for each in diff.messages_removed],
            'added': [contents.refer(_told(each)) for each in diff.messages_added],
            'files': [contents.refer({name: getattr(each, name) for name in FILE}) for each in diff.files],
            'todos': contents.refer([diff.todos_before, diff.todos_after]),
            'usage': _usage(diff.usage),
        }
    if version.agent_name in ('plain', 'fruit') and version.kind == 'turn':
        replay = await version.replay()
        shown['replay'] = [bool(replay), replay.requests, plain(replay.difference), plain(replay.output)]
    return shown


async def _read_files(version: AgentVersion[Any, Any]) -> AsyncGenerator[tuple[str, list[object]]]:
    backend = await version.files()
    for path, file in (await version.file_tree()).items():
        data = await backend.read_bytes(path)
        assert len(data) == file.size
        is_short = len(data) < MAX_CHARS and b'\0' not in data and data.isascii()
        yield path, [oct(file.mode), file.size, data.decode() if is_short else hashlib.sha256(data).hexdigest()]


async def _repositories(store: SqlStore, contents: Contents) -> dict[str, Any]:
    samples = await SqlRepository.open(store, Sample, fields=SAMPLE_FIELDS)
    audited = await SqlRepository.open(store, AuditRecord, fields=AUDIT_FIELDS, name='audit_of_agents')
    served = await SqlRepository.open(store, AuditRecord, fields=AUDIT_FIELDS, name='server_audit')
    found: dict[str, Any] = {
        'samples': plain((await samples.list()).items),
        'samples on': [each.id for each in (await samples.list({'is_on': True})).items],
        'samples by': {
            field: [each.id for each in (await samples.list(order_by=f'-{field}')).items]
            for field in SAMPLE_FIELDS
            if field != 'maybe'
        },
        'samples none': [each.id for each in (await samples.list({'maybe': None})).items],
        'audited': plain((await audited.list()).items),
        'served': plain((await served.list()).items),
        'histories': {},
    }
    for rows in (audited, served):
        for record in (await rows.list()).items:
            history = await rehydrate(record, store=store)
            found['histories'][record.id] = [contents.refer(_told(each)) for each in history]
    for rows in (samples, audited, served):
        await rows.aclose()
    return found


TABLES: Final = (
    'versions', 'messages', 'runs', 'requests', 'tool_calls', 'conversations', 'branches', 'delegations', 'approvals',
    'file_changes', 'todos',
)  # fmt: skip
MACROS: Final = (
    'cost_per_agent_and_day()', 'cost_per_model()', 'slowest_tools(n := 100)', 'failure_rates()', 'tokens_per_turn()',
    'approval_waits()', 'failed_runs(n := 100)', 'files_changed_most(n := 100)',
)  # fmt: skip


async def _sql(store: SqlStore, contents: Contents) -> dict[str, Any]:
    """Return the tables and macros of `store.sql`, each row as an object."""
    return {
        name: [plain(row) for row in (await store.sql(f'SELECT * FROM {name} ORDER BY ALL')).to_dicts()]
        for name in (*TABLES, *MACROS)
    }


async def read_recovered(store: SqlStore) -> dict[str, Any]:
    """Recover the crashed runs and return the results, without values that differ each time."""
    built = agents(store)
    found: dict[str, Any] = {}
    for how in CRASHES:
        name = f'crash {how}'
        versions = await built[name].recover()
        found[name] = [await _recovered(version) for version in versions]
        runs = [run for run in await store.runs(limit=ALL) if run.agent_name == name]
        found[f'runs of {name}'] = [[run.state, run.attempt_of is not None] for run in runs]
        found[f'calls of {name}'] = sorted(
            [call.tool_name, call.status] for call in await store.calls([run.id for run in runs])
        )
    found['orphans left'] = len(await store.orphans(ALL))
    return found


async def _recovered(version: AgentVersion[Any, Any]) -> dict[str, Any]:
    files = await version.files()
    return {
        'kind': version.kind,
        'state': version.state,
        'output': plain(version.output),
        'pending': [[each.tool, plain(each.arguments)] for each in version.pending],
        'files': {path: plain(await files.read_bytes(path)) for path in await version.file_tree()},
        'messages': [
            [message.kind, *([part.part_kind, _content(getattr(part, 'content', None))] for part in message.parts)]
            for message in await version.messages()
        ],
    }
