"""Makes `b578597.db.gz` and `b578597.json.gz`: a SQLite store with every kind of record, and everything read from it.

Made with version 0.1.0 at commit b578597. The program runs on that commit only, in a checkout with its environment:
`python make_store.py DIRECTORY`, with `read_store.py` in the same directory. No test imports it.

At the end it checks that each table has a row, each enumeration in the schema has each of its values, and each nullable
column has both a NULL and a value. `NEVER` lists the impossible cases.
"""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
import sys
import warnings
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import get_args
from uuid import UUID

import anyio
import httpx
from pydantic_ai import Agent, BinaryContent, CancellationToken, ModelRetry
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.usage import RequestUsage

from pydantic_deep import Approve, DeepAgentDeps, Deny, Edit, StateBackend, Subagent, create_deep_agent, open_store
from pydantic_deep.approvals import Respond
from pydantic_deep.audit import AUDIT_FIELDS, Audit, AuditRecord
from pydantic_deep.failures import ToolFailed
from pydantic_deep.fluent import prompt
from pydantic_deep.repository import SqlRepository
from pydantic_deep.server import create_api_key, create_app
from pydantic_deep.store import (
    Append,
    ApprovalStatus,
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
    RunState,
    VersionConflictError,
    VersionKind,
    VersionRecord,
    VersionState,
    WorkspaceRecord,
    checkout_claim,
    new_id,
)
from pydantic_deep.summarization import Messages, Summarization
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.versions import ApprovalInbox, VersionedAgent
from pydantic_deep_backends import FileVersion, Tree, digest_of

sys.path.insert(0, str(Path(__file__).parent))
from read_store import CRASHES, SAMPLE_FIELDS, Sample, agents, read_recovered, read_store

PNG = bytes.fromhex(
    '89504e470d0a1a0a0000000d4948445200000001000000010804000000b51c0c020000000b4944415478da6364f80f00010501012718e3660000'
    '000049454e44ae426082'
)


def priced(*parts: object, cached: int = 0) -> ModelResponse:
    """Return a response with a known price."""
    return ModelResponse(
        parts=[TextPart(part) if isinstance(part, str) else part for part in parts],
        usage=RequestUsage(
            input_tokens=1200, output_tokens=80, cache_read_tokens=cached, cache_write_tokens=cached // 2
        ),
        model_name='gpt-4o',
        provider_name='openai',
    )


def deep(store, *steps, then=None, name='analyst', **options):
    ours = {key: options.pop(key) for key in ('approval_timeout_seconds', 'make_deps') if key in options}
    return VersionedAgent(create_deep_agent(ScriptedModel(*steps, then=then), name=name, **options), store, **ours)


def die(*_: object) -> str:
    os._exit(9)


async def report(store) -> None:
    """A named conversation with a fixed id, files, uploads, todos, branches, merges, edits and deletions."""
    deps = DeepAgentDeps(
        backend=StateBackend({'/report.md': '# Sales\n\nNorth: 120\n\nSouth: 80\n', '/data/north.csv': 'cake,70\n'}),
        metadata={'owner': 'ada', 'tenant': 'bakery'},
    )
    await deps.upload('2026/sales.csv', 'día,total\nlunes,3\n'.encode('latin-1'))
    await deps.upload('blob.bin', bytes(range(256)))

    def noisy() -> str:
        """Return much."""
        return 'one line of a long result\n' * 20_000

    def fails(why: str) -> str:
        """Fail."""
        raise ToolFailed(why)

    def insists(n: int) -> str:
        """Want another argument."""
        if n < 2:
            raise ModelRetry('Pass 2.')
        return f'got {n}'

    todos = [
        {'content': 'Read', 'status': 'completed'},
        {'content': 'Write', 'status': 'in_progress'},
        {'content': 'Check', 'status': 'pending'},
    ]
    analyst = deep(
        store,
        priced(call('write_todos', todos=todos)),
        priced(
            'Two at once.',
            call('write_file', path='/notes/a.md', content='# Notes\n'),
            call('read_file', path='/none'),
            cached=900,
        ),
        priced(call('noisy'), call('fails', why='No such region.'), call('insists', n=1)),
        priced(call('insists', n=2)),
        priced('The first turn is done.'),
        priced(call('write_file', path='/large.txt', content='a large file, line by line\n' * 8_000)),
        'The picture is small.',
        priced(call('edit_file', path='/report.md', old_string='# Sales', new_string='# Sales 2026')),
        'Dated.',
        call('edit_file', path='/report.md', old_string='South: 80\n', new_string='South: 80\n\nTotal: 200\n'),
        'Summed.',
        RuntimeError('the provider is gone'),
        'On the head.',
        'Another answer on the head.',
        'A turn to delete.',
        'A line to delete.',
        'A second one.',
        'After the edit.',
        tools=[noisy, fails, insists],
    )
    root = await analyst.create(
        name='Sales report',
        metadata={
            'owner': 'ada',
            'session_id': 'desk 7',
            'priority': 3,
            'is_urgent': True,
            'nested': {'list': [1, None, 'x']},
        },
        deps=deps,
        model_settings={'temperature': 0.5, 'max_tokens': 500},
        conversation_id='sales-2026',
    )
    handle = analyst.conversation('sales-2026')
    first = await handle.advance('Plan, and read the files.')
    second = await first.advance(
        ['What is in this picture?', BinaryContent(PNG, media_type='image/png')], temperature=0.9
    )
    dated = await second.advance('Put the year into the title.', branch='dated')
    summed = await second.advance('Add the total.', branch='summed')
    await dated.merge(summed)
    with suppress(RuntimeError):
        await second.advance('Fail.')
    early = await handle.head()
    await handle.advance('Move the head.')
    late = await early.advance('Lose the race.')
    lost = HeadMove(conversation_id='sales-2026', expected_id=early.id, version_id=late.id)
    with suppress(VersionConflictError):
        await store.commit(Commit(heads=[lost]))
    await late.clone()
    await late.with_metadata({'owner': 'ada', 'reviewed': None}, name='Reviewed', model_settings={'temperature': 0.0})
    await late.upload('later.txt', b'later\n')
    gone = await late.advance('To be deleted.', branch='gone')
    await gone.with_metadata(name='Left behind')
    await analyst.delete(gone)
    one = await root.advance('A line.', branch='line')
    two = await one.advance('And its end.')
    await analyst.delete_line(two)
    current = await handle.head()
    await handle.set((await current.messages())[:2])
    await handle.advance('After the edit.')


async def typed(store) -> None:
    """Agents without deep-agent deps: typed output, tools of each effect, an unnamed conversation, and a replay."""
    built = agents(store, fruit=ScriptedModel(call('weigh', name='pear'), call('final_result', name='pear', grams=120)))
    await (await built['fruit'].create()).advance('Weigh a pear.')
    built = agents(store, plain=ScriptedModel('one', 'two'))
    root = await built['plain'].create()
    turn = await root.advance('Say one.')
    await turn.advance('Say two.')
    await built['plain'].create(name='Never used', model='test:other')
    deleted = await built['plain'].create(name='Without a head')
    await built['plain'].delete(deleted)


async def stopped(store) -> None:
    """An abandoned turn and a cancelled one."""
    agent = VersionedAgent(Agent(ScriptedModel('a b c d e f g', 'h i j k'), name='stopped'), store)
    root = await agent.create(name='Stopped')
    async with root.advance_stream('Speak slowly.', moves_head=True) as stream:
        async for _ in stream:
            break
    token = CancellationToken()
    try:
        async with root.advance_stream('Be cancelled.', cancellation_token=token) as stream:
            async for _ in stream:
                token.cancel()
    except BaseException as error:
        if type(error).__name__ != 'RunCancelled':
            raise


ASKS = {'write_file': True, 'edit_file': True, 'publish': True}


def publish(title: str) -> str:
    """Publish."""
    return f'published {title}'


def asker(store, *steps, **options):
    return deep(store, *steps, name='asker', interrupt_on=ASKS, tools=[publish], **options)


async def approvals(store) -> None:
    """Pauses: answered in each way, partly, only in the inbox, expired, and pending with and without a timeout."""
    inbox = ApprovalInbox(store)
    four = [
        call('write_file', path='/a.md', content='A\n'),
        call('publish', title='Old title'),
        call('publish', title='Secret'),
        call('publish', title='By hand'),
    ]
    agent = asker(store, four, 'All are answered.')
    paused = await (await agent.create(name='Four answers')).advance('Do four things.')
    ids = [each.id for each in paused.pending]
    answers = dict(
        zip(
            ids, [Approve(), Edit({'title': 'New title'}), Deny('Not that.'), Respond('published by hand')], strict=True
        )
    )
    await paused.resume(answers, by='ada', reason='reviewed')

    agent = asker(store, four[:2], 'never')
    paused = await (await agent.create(name='One of two')).advance('Do two things.')
    held = await paused.resume({paused.pending[0].id: Approve()}, by='ben')
    await held.clone()

    agent = asker(store, four[1], 'never')
    paused = await (await agent.create(name='Answered in the inbox')).advance('Publish.')
    await inbox.answer((await store.approvals(version_id=paused.id))[0].id, Deny('Later.'), by='eve', reason='busy')

    for seconds, name in ((0.000_001, 'Expired'), (4_000_000_000.0, 'Expires in a century')):
        agent = asker(store, four[1], approval_timeout_seconds=seconds)
        await (await agent.create(name=name)).advance('Publish.')
    agent = asker(store, four[0])
    await (
        await agent.create(name='Pending with a diff', deps=DeepAgentDeps(backend=StateBackend({'/a.md': 'before\n'})))
    ).advance('Write.')

    # An answer claimed by a run that failed before it stored anything is free again, and used by the next run.
    agent = asker(store, four[1], 'Published after all.')
    paused = await (await agent.create(name='Moved by its resume')).advance('Publish.')
    async with paused.resume_stream({paused.pending[0].id: Approve()}, by='ada', moves_head=True) as stream:
        async for _ in stream:
            pass


async def delegations(store) -> None:
    """Subagents at two levels: a merged fork, a failed one, one with structured data, and a suspended one."""

    def speak(messages, info):
        said = ' '.join(str(getattr(part, 'content', '')) for part in messages[0].parts)
        done = sum(isinstance(message, ModelResponse) for message in messages)
        if 'top' in said and not done:
            return [
                call('task', description='middle: look', subagent='middle'),
                call('task', description='forked: write', subagent='forked'),
                call('task', description='broken: fail', subagent='broken'),
                call('task', description='nobody', subagent='nobody'),
            ]
        if 'middle' in said and not done:
            return call('task', description='lowest: look', subagent='lowest')
        if 'forked' in said and not done:
            return call('write_file', path='/forked.md', content='from a fork\n')
        if 'broken' in said:
            raise RuntimeError('the subagent broke')
        if 'asks' in said and not done:
            return call('publish', title='From below')
        if 'wait' in said and not done:
            return call('task', description='asks: publish', subagent='asks')
        return f'done: {said[-30:]}'

    subagents = [
        Subagent('middle', 'Delegates.', subagents=[Subagent('lowest', 'Looks.')]),
        Subagent('forked', 'Writes on a view.', isolation='fork'),
        Subagent('broken', 'Fails.'),
        Subagent('asks', 'Publishes.', tools=[publish]),
    ]
    lead = deep(
        store,
        then=speak,
        name='lead',
        subagents=subagents,
        interrupt_on={'publish': True},
        make_deps=lambda: DeepAgentDeps(max_depth=3),
    )
    await (await lead.create(name='Delegated')).advance('top: go')
    await (await lead.create(name='A subagent waits')).advance('wait: go')


async def summarized(store) -> None:
    """A history that is summarized twice."""
    steps = []
    for index in range(8):
        steps.append(call('write_file', path=f'/{index}.md', content=f'file {index}\n'))
    room = Summarization(
        trigger=Messages(6),
        keep=Messages(2),
        summarizer=ScriptedModel(then=lambda m, i: 'Files were written.', model_name='summarizer'),
    )
    agent = deep(store, *steps, 'Written.', 'And more.', name='writer', capabilities=[room])
    root = await agent.create(name='Summarized')
    turn = await root.advance('Write eight files.')
    await turn.advance('What did you write?')


async def by_hand(store) -> None:
    """Rows that programs can commit but agents do not: workspaces, executables, large directories, traces."""
    at = 1_767_225_600_000_000
    conversation, branch, root_id = 'by-hand', new_id(), new_id()
    data = b'#!/bin/sh\necho hello\n'
    files = {'/bin/run': FileVersion(digest=digest_of(data), size=len(data), mode=0o755)}
    files |= {f'/many/file {index:03}.txt': FileVersion(digest=digest_of(data), size=len(data)) for index in range(70)}
    tree = Tree.of(files)
    run = RunRecord(
        id=new_id(),
        conversation_id=conversation,
        base_id=root_id,
        agent_name='by-hand',
        attempt_of=None,
        parent_run_id=None,
        state='running',
        owner=None,
        prompt=b'"hello"',
        options='{}',
        usage='{}',
        cost=None,
        error=None,
        trace_id='0af7651916cd43dd8448eb211c80319c',
        started_at=at,
        ended_at=None,
    )
    root = VersionRecord(
        id=root_id,
        number=0,
        parent_id=None,
        cloned_from=None,
        merged_from=None,
        kind='root',
        state='complete',
        conversation_id=conversation,
        branch_id=branch,
        branch='main',
        message_count=0,
        run_id=None,
        agent_name='by-hand',
        name='By hand',
        metadata='{"owner":"zoë"}',
        model=None,
        model_settings='{}',
        usage='{}',
        output=None,
        pending=None,
        deps=None,
        tree=tree.digest,
        backend='{"id":"/srv/report","provider":"local"}',
        created_at=at,
    )
    await store.commit(
        Commit(
            assets=[NewAsset(digest=digest_of(data), data=data, media_type='text/x-shellscript')],
            nodes=dict(tree.nodes()),
            conversations=[ConversationRecord(conversation, 'by-hand', None, at)],
            branches=[BranchRecord(branch, conversation, 'main', None, 0, 0, None, None, at)],
            versions=[root],
            heads=[HeadMove(conversation_id=conversation, expected_id=None, version_id=root_id)],
        )
    )
    response_id = new_id()
    digests = json.dumps([digest_of(b'one'), digest_of(b'two')]).encode()
    await store.commit(
        Commit(
            assets=[NewAsset(digest=digest_of(digests), data=digests, media_type='application/json')],
            runs=[run, run._replace(id=new_id(), base_id=None, state='complete', prompt=None, ended_at=at + 5)],
            append=Append(
                branch_id=branch,
                at=0,
                fork_id=new_id(),
                messages=[
                    NewMessage(
                        id=new_id(), body=b'{"kind":"request","parts":[{"part_kind":"user-prompt","content":"hello"}]}'
                    ),
                    NewMessage(
                        id=response_id,
                        body=b'{"kind":"response","parts":[{"part_kind":"tool-call","tool_name":"send","args":"{}","tool_call_id":"c1"}]}',
                    ),
                ],
            ),
            clears_prompt_of=run.id,
            versions=[
                root._replace(
                    id=new_id(),
                    parent_id=root_id,
                    kind='turn',
                    state='failed',
                    message_count=2,
                    run_id=run.id,
                    model='test:model',
                )
            ],
            requests=[
                RequestRecord(
                    run_id=run.id,
                    number=1,
                    response_id=response_id,
                    model='test:model',
                    model_settings='{"temperature":0}',
                    parameters=None,
                    digest=digest_of(b'request'),
                    message_digests=digest_of(digests),
                    input_tokens=10,
                    output_tokens=20,
                    cache_read_tokens=3,
                    cache_write_tokens=4,
                    cost='0.25',
                    duration_us=1500,
                    started_at=at,
                )
            ],
            calls=[
                CallRecord(
                    run_id=run.id,
                    response_id=response_id,
                    tool_call_id=f'c{index}',
                    tool_name='send',
                    arguments='{}',
                    effect=effect,
                    status=status,
                    result='{"failure":"ToolFailed","message":"no"}' if status == 'failed' else None,
                    tree=tree.digest if status == 'done' else None,
                    error='ToolFailed' if status == 'failed' else None,
                    started_at=at,
                    ended_at=None if status == 'started' else at + 9,
                )
                for index, (effect, status) in enumerate(
                    [('read', 'done'), ('write', 'failed'), ('external', 'started'), ('external', 'deferred')], start=1
                )
            ],
            ends=[
                RunEnd(
                    run_id=run.id,
                    state='failed',
                    usage='{"requests":1}',
                    cost='0.25',
                    error='{"type":"OSError","message":"disk full"}',
                )
            ],
            workspaces=[
                WorkspaceRecord('{"id":"/srv/report","provider":"directory"}', root_id, None),
                WorkspaceRecord('{"id":"/srv/unknown","provider":"directory"}', None, None),
                WorkspaceRecord('{"id":"/srv/cut-off","provider":"directory"}', root_id, checkout_claim(root_id)),
            ],
        )
    )
    await store.claim_workspace('{"id":"/srv/unknown","provider":"directory"}', run.id, None)


async def garbage(store) -> None:
    """Unreachable data, marked by a first collection and not removed yet."""
    agent = deep(store, call('write_file', path='/x.md', content='not reached any more\n'), 'x', name='forgotten')
    root = await agent.create(name='Forgotten')
    await agent.delete_line(await root.advance('Write.'))
    await agent.gc(grace_seconds=3600)


async def served(store) -> None:
    """Data of a server: keys and their use, audit records, threads of other APIs, owners and sessions."""

    def echo(messages, info):
        words = [str(part.content) for message in messages for part in message.parts if part.part_kind == 'user-prompt']
        if words[-1] == 'write it' and len(messages) == 1:
            return call('write_file', path='/served.md', content='served\n')
        if words[-1] == 'fail':
            raise RuntimeError('it fails')
        return f'You said: {words[-1]}'

    app = create_app(
        {'clerk': create_deep_agent(ScriptedModel(then=echo), name='clerk', interrupt_on={'write_file': True})}, store
    )
    key = await create_api_key(store, name='desk', scopes=['run', 'approve', 'audit', 'admin'], owner='ada')
    await create_api_key(store, name='narrow', scopes=['run'], owner='ben', agents=['clerk'], expires_in_seconds=10)
    http = httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url='http://localhost', headers={'authorization': f'Bearer {key}'}
    )
    async with app.router.lifespan_context(app), http:
        for say in ('write it', 'hello', 'fail'):
            made = await http.post(
                '/api/conversations',
                json={'agent': 'clerk', 'name': f'Served: {say}', 'metadata': {'tenant': 'bakery'}},
            )
            turns = f'/api/conversations/{made.json()["id"]}/turns'
            await http.post(turns, json={'prompt': say, 'session_id': 'tab 1'})
        chat = {'model': 'clerk', 'messages': [{'role': 'user', 'content': 'good day'}], 'user': 'ada'}
        answer = (await http.post('/v1/chat/completions', json=chat)).json()['choices'][0]['message']
        chat['messages'] += [{'role': 'assistant', 'content': answer['content']}, {'role': 'user', 'content': 'again'}]
        assert (await http.post('/v1/chat/completions', json=chat)).status_code == 200
        keys = app.state.server.keys
        await create_api_key(store, name='revoked', scopes=['audit'])
        await keys.revoke((await keys.list())[-1].id)
    audited = await SqlRepository.open(store, AuditRecord, fields=AUDIT_FIELDS, name='audit_of_agents')
    agent = create_deep_agent(ScriptedModel('Yes.'), name='audited', capabilities=[Audit(audited)])
    await agent.run('Is it safe?', deps=DeepAgentDeps(metadata={'owner': 'ben', 'tenant': 'bakery', 'session_id': 's'}))
    await audited.aclose()


async def rows(store) -> None:
    """A repository with fields of every supported kind."""
    samples = await SqlRepository.open(store, Sample, fields=SAMPLE_FIELDS)
    moment = datetime(2026, 2, 28, 23, 59, 59, 999_999, UTC)
    for index in range(3):
        await samples.create(
            Sample(
                id=f'row {index}',
                text='héllo 😀',
                number=2**53 * index,
                real=0.1 * index,
                is_on=bool(index % 2),
                moment=moment + timedelta(days=index),
                uuid=UUID(int=index),
                color='red' if index else 'blue',
                maybe=None if index else 7,
                notes=['x', None, {'y': 1.5}],
            )
        )
    await samples.aclose()


async def conversed(store) -> None:
    """A conversation of `pydantic_deep.fluent` with its own instructions, and a continued one."""
    agent = create_deep_agent(ScriptedModel('Hello.', 'Again.'), name='fluent')
    conversation = prompt(agent, store=store, conversation_id='fluent').instructions('Be brief.').user('Hi').start()
    async for _ in conversation:
        pass
    async for _ in conversation.continuation.user('And again').start():
        pass


async def crash(store, how: str) -> None:
    """Do the work of a process that crashes in the middle of it."""
    built = agents(store, crash=die)
    agent = built[f'crash {how}']
    if how == 'resume':
        root = await agent.create(name='Crashed in its resume')
        paused = await root.advance('Publish.')
        await paused.resume({paused.pending[0].id: Approve()}, by='ada')
    elif (
        how == 'attempt'
        and await store.runs(states=['running'])
        and any(run.agent_name == agent.name for run in await store.orphans())
    ):
        await agent.recover()
    else:
        root = await agent.create(name=f'Crashed in {how}')
        async with root.advance_stream(
            f'Crash in {how}.', moves_head=True, branch='crashed' if how == 'request' else None
        ) as stream:
            async for _ in stream:
                pass
    raise AssertionError('The process lives.')


async def make(path: Path) -> None:
    url = f'sqlite:///{path}'
    async with open_store(url) as store:
        for part in (
            report,
            typed,
            stopped,
            approvals,
            delegations,
            summarized,
            by_hand,
            garbage,
            conversed,
            rows,
            served,
        ):
            print(part.__name__)
            await part(store)


def crash_all(path: Path) -> None:
    """Crash a separate process for each case."""

    async def dying(how: str) -> None:
        async with open_store(f'sqlite:///{path}') as store:
            await crash(store, how)

    for how in (*CRASHES, 'attempt'):  # the second time in the recovery of the first
        print('crash', how, flush=True)
        pid = os.fork()
        if not pid:
            try:
                anyio.run(dying, how)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9, how


NEVER = {"approval.status: no 'expired'"}
"""Cases that no store contains: expiry of an approval is computed when it is read."""


def check(database: sqlite3.Connection) -> None:
    """Check that every case is covered."""
    missing = []
    tables = [
        row[0]
        for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    ]
    for table in tables:
        if not database.execute(f'SELECT COUNT(*) FROM {table}').fetchone()[0]:
            missing.append(f'{table}: no row')
        if table.startswith('rows_'):
            continue
        for _, column, _, notnull, _, pk in database.execute(f'PRAGMA table_info({table})').fetchall():
            if notnull or pk:
                continue
            for kind in ('NULL', 'NOT NULL'):
                if not database.execute(f'SELECT 1 FROM {table} WHERE {column} IS {kind} LIMIT 1').fetchone():
                    missing.append(f'{table}.{column}: never {kind}')
    enumerations = {
        ('version', 'kind'): get_args(VersionKind),
        ('version', 'state'): get_args(VersionState),
        ('run', 'state'): get_args(RunState),
        ('tool_call', 'status'): get_args(CallStatus),
        ('tool_call', 'effect'): ('read', 'write', 'external'),
        ('approval', 'status'): get_args(ApprovalStatus),
        ('edge', 'kind'): (0, 1),
        ('reference', 'kind'): (0, 2),
        ('condemned', 'kind'): (0, 1, 2, 3, 4),
    }
    for (table, column), wanted in enumerations.items():
        found = {row[0] for row in database.execute(f'SELECT DISTINCT {column} FROM {table}')}
        missing += [f'{table}.{column}: no {value!r}' for value in wanted if value not in found]
    for column in ('message.body', 'asset.data', 'tool_call.arguments'):
        table, name = column.split('.')
        rows = database.execute(f'SELECT DISTINCT hex(substr({name}, 1, 1)) FROM {table}').fetchall()
        missing += [f'{column}: no encoding {each}' for each in ('00', '01', '02') if (each,) not in rows]
    assert set(missing) == NEVER, missing


async def read(url: str) -> dict[str, object]:
    async with open_store(url) as store:
        return await read_store(store)


async def recovered(url: str) -> dict[str, object]:
    async with open_store(url) as store:
        return await read_recovered(store)


def main(directory: Path) -> None:
    directory.mkdir(exist_ok=True)
    path = directory / 'b578597.db'
    anyio.run(make, path)
    crash_all(path)
    with closing(sqlite3.connect(path)) as database:
        check(database)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute('PRAGMA wal_checkpoint(TRUNCATE)')
        database.execute('PRAGMA journal_mode=DELETE')
        database.execute('VACUUM')
    (directory / 'b578597.db.gz').write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))
    found = {}
    for name, reading in (('read', read), ('recovered', recovered)):
        copy = directory / f'{name}.db'
        copy.write_bytes(path.read_bytes())
        found[name] = anyio.run(reading, f'sqlite:///{copy}')
    text = json.dumps(found, sort_keys=True, ensure_ascii=False, separators=(',', ':'))
    (directory / 'b578597.json.gz').write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == '__main__':
    warnings.simplefilter('ignore')
    main(Path(sys.argv[1]))
