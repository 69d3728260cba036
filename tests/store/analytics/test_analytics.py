"""`store.sql`: contents of the tables, macros and parameters."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from pydantic_deep.store import ApprovalRecord, Commit, Decision, DelegationRecord, SqlStore, StoreClosedError
from pydantic_deep_backends import Tree
from tests.store.analytics.conftest import SECOND, Dialogue, answers, asks, file, user, value

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


async def test_run_is_listed_while_it_runs_and_after_its_end(store: SqlStore, dialogue: Dialogue) -> None:
    assert (await store.sql('SELECT agent_name, state, cost FROM runs')).rows == (('analyst', 'running', None),)
    await dialogue.end()
    rows = await store.sql('SELECT state, cost, requests, tool_calls, input_tokens, output_tokens FROM runs')
    assert rows.rows == (('complete', 0.25, 1, 2, 30, 4),)


async def test_error_of_a_run_has_two_columns(store: SqlStore, dialogue: Dialogue) -> None:
    await dialogue.end(error='{"type":"ValueError","message":"no"}')
    assert (await store.sql('SELECT error_type, error_message FROM runs')).rows == (('ValueError', 'no'),)


async def test_messages_have_role_text_and_position(store: SqlStore, dialogue: Dialogue) -> None:
    await dialogue.step(user('List it.'))
    await dialogue.step(asks('ls'), answers(['a', 'b']))
    rows = await store.sql('SELECT seq, role, text, tool_call_count, output_tokens FROM messages ORDER BY seq')
    assert rows.rows == ((0, 'user', 'List it.', 0, None), (1, 'assistant', '', 1, 2), (2, 'tool', 'a\n\nb', 0, None))


async def test_result_of_a_call_is_taken_from_its_message(store: SqlStore, dialogue: Dialogue) -> None:
    for content in ('first', {'second': 2}):  # two calls of one id
        [response] = await dialogue.step(asks('ls'))
        done = dialogue.call(response, 'done', result=json.dumps(content))
        await dialogue.step(calls=[done])
        assert await value(store, f"SELECT result FROM tool_calls WHERE response_id = '{response}'") == done.result
        await dialogue.step(answers(content), settled=[(dialogue.run_id, response, 'call')])
    rows = await store.sql('SELECT tool, status, result, duration_ms FROM tool_calls ORDER BY number')
    assert rows.rows == (('ls', 'done', '"first"', 2.5), ('ls', 'done', '{"second": 2}', 2.5))


async def test_status_of_a_started_call_is_updated(store: SqlStore, dialogue: Dialogue) -> None:
    [response] = await dialogue.step(asks('ls'), calls=[])
    await dialogue.step(calls=[dialogue.call(response, 'started')])
    assert await value(store, 'SELECT status FROM tool_calls') == 'started'
    await dialogue.step(calls=[dialogue.call(response, 'failed')])
    assert (await store.sql('SELECT status, error FROM tool_calls')).rows == (('failed', 'OSError'),)


async def test_requests_are_listed_while_their_run_continues(store: SqlStore, dialogue: Dialogue) -> None:
    for number in (1, 2):
        [response] = await dialogue.step(asks('ls'))
        await dialogue.step(requests=[dialogue.request(number, response)])
        assert await value(store, 'SELECT count(*) FROM requests') == number
    rows = await store.sql(
        "SELECT sum(cost), max(duration_ms), any_value(model_settings->>'$.temperature') FROM requests"
    )
    assert rows.rows == ((0.2, 1.5, '0'),)


async def test_approval_is_updated_until_it_is_resumed(store: SqlStore, dialogue: Dialogue) -> None:
    await dialogue.step(user('Write.'), kind='pause')
    await store.commit(Commit(approvals=[approval(dialogue, 'a')]))
    assert await value(store, 'SELECT status FROM approvals') == 'pending'
    decision = Decision(approval_id='a', status='approved', decision='{}', arguments_digest='d', by='ada')
    [decided] = await store.decide([decision])
    rows = await store.sql('SELECT status, decided_by, wait_ms, resumed_by FROM approvals')
    assert decided.decided_at is not None
    assert rows.rows == (('approved', 'ada', (decided.decided_at - SECOND) / 1000, None),)
    await store.claim_approvals(str(dialogue.head), dialogue.run_id)
    assert await value(store, 'SELECT resumed_by FROM approvals') == dialogue.run_id


async def test_approval_expires_without_a_write(store: SqlStore, dialogue: Dialogue) -> None:
    await dialogue.step(user('Write.'), kind='pause')
    await store.commit(Commit(approvals=[approval(dialogue, 'a')._replace(expires_at=2 * SECOND)]))
    assert await value(store, 'SELECT status FROM approvals') == 'expired'


def approval(dialogue: Dialogue, id: str) -> ApprovalRecord:
    return ApprovalRecord(
        id=id, version_id=str(dialogue.head), pending_id='call', conversation_id=dialogue.conversation_id,
        agent_name='analyst', path='["editor"]', tool_name='write_file', arguments='{"path":"/a"}',
        arguments_digest='d', preview=None, status='pending', decision=None, decided_by=None, reason=None,
        decided_at=None, resumed_by=None, superseded_by=None, expires_at=None, created_at=SECOND,
    )  # fmt: skip


async def test_delegations_have_their_intent(store: SqlStore, dialogue: Dialogue) -> None:
    [response] = await dialogue.step(asks('task'))
    child = Dialogue(store, 'counter')
    await child.begin()
    link = DelegationRecord(
        dialogue.run_id, response, 'call', child.conversation_id, 'counter', 'Count.', '{"n": 1}', SECOND
    )
    await store.commit(Commit(delegations=[link]))
    rows = await store.sql(
        "SELECT d.subagent, d.intent, d.arguments->>'$.n', r.agent_name FROM delegations d JOIN runs r"
        ' ON r.conversation_id = d.child_conversation_id'
    )
    assert rows.rows == (('counter', 'Count.', '1', 'counter'),)


async def test_todos_are_listed_per_version(store: SqlStore, dialogue: Dialogue) -> None:
    plan = json.dumps(
        {'todos': [{'content': 'Read', 'status': 'completed'}, {'content': 'Write', 'status': 'pending'}]}
    )
    await dialogue.step(user('1'), deps=plan)
    await dialogue.step(user('2'), deps=plan)
    await dialogue.step(user('3'), deps='{"todos": []}')
    rows = await store.sql('SELECT position, content, status, count(*) FROM todos GROUP BY ALL ORDER BY position')
    assert rows.rows == ((0, 'Read', 'completed', 2), (1, 'Write', 'pending', 2))


async def test_closed_store_raises(store: SqlStore) -> None:
    await store.sql('SELECT 1')
    await store.aclose()
    with pytest.raises(StoreClosedError, match='were closed'):
        await store.sql('SELECT 1')


async def test_macros_answer_common_questions(store: SqlStore) -> None:
    dialogue = Dialogue(store)
    await dialogue.begin()
    [response] = await dialogue.step(asks('ls'), tree=Tree.of({'/a.txt': file(b'a')}))
    await dialogue.step(requests=[dialogue.request(1, response)], calls=[dialogue.call(response, 'failed')])
    await dialogue.step(user('done'), kind='turn', tree=Tree.of({'/b.txt': file(b'bb')}))
    await store.commit(Commit(approvals=[approval(dialogue, 'a')]))
    await dialogue.end(error='{"type":"ValueError","message":"no"}')

    async def rows(query: str) -> tuple[tuple[object, ...], ...]:
        return (await store.sql(query)).rows

    assert await rows('SELECT agent_name, day::VARCHAR, runs, cost FROM cost_per_agent_and_day()') == (
        ('analyst', '1970-01-01', 1, 0.25),
    )
    assert await rows('FROM cost_per_model()') == (('m', 1, 0.1, 10, 5, 2),)
    assert await rows('FROM slowest_tools()') == (('ls', 1, 2.5, 2.5, 2.5),)
    assert await rows('FROM failure_rates()') == (('ls', 1, 1, 1.0, 'OSError'),)
    assert await rows('SELECT requests, input_tokens, output_tokens, cost FROM tokens_per_turn()') == (
        (1, 30, 4, 0.25),
    )
    assert await rows('FROM approval_waits()') == (('write_file', 'pending', 1, None, None),)
    assert await rows('SELECT error_type FROM failed_runs(1)') == (('ValueError',),)
    assert await rows('FROM failed_runs(0)') == ()
    assert await rows('FROM files_changed_most()') == (('/b.txt', 1, 2, 1),)


async def test_parameters_are_bound(store: SqlStore, dialogue: Dialogue) -> None:
    assert (await store.sql('SELECT ? + 1', [2])).rows == ((3,),)
    assert (await store.sql('SELECT $name', {'name': "'; DROP TABLE runs"})).rows == (("'; DROP TABLE runs",),)


async def test_timestamps_are_naive_and_json_is_text(store: SqlStore, dialogue: Dialogue) -> None:
    await dialogue.step(user('1'))
    table = await store.sql("SELECT created_at::VARCHAR AS at, metadata, metadata->>'$.team' AS team FROM versions")
    assert table.to_dicts() == [{'at': '1970-01-01 00:00:01', 'metadata': '{"team":"red"}', 'team': 'red'}]


async def test_timestamp_with_a_time_zone_is_returned(store: SqlStore) -> None:
    ((moment,),) = (await store.sql("SELECT '2026-11-22 12:00:00+01'::TIMESTAMPTZ")).rows

    assert moment == datetime(2026, 11, 22, 11, tzinfo=UTC)
