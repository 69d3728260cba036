"""Approvals over HTTP: pending calls are answered once, and the turn resumes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Tool, ToolDefinition
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.toolsets import ExternalToolset

from pydantic_deep import create_deep_agent
from pydantic_deep.approvals import ApprovalRule
from pydantic_deep.mcp import McpServer, McpServers
from pydantic_deep.server.http._errors import ServerError
from pydantic_deep.server.routes import _approvals
from pydantic_deep.server.runs._pool import busy_error
from pydantic_deep.server.runs._server_run import ServerRun
from pydantic_deep.subagents import Subagent
from pydantic_deep.testing import Answer, ScriptedModel, call
from tests.server.conftest import Client, MakeClient, Serve, Served, frames_in, told

pytestmark = pytest.mark.anyio

MCP_SERVER = Path(__file__).parents[2] / 'mcp/fixture_server.py'


def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
    """Write two files or delegate to a subagent, then answer with the outcomes."""
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    results = [part for part in last.parts if isinstance(part, ToolReturnPart)]
    if results:
        return ' '.join(f'{part.outcome}' for part in results)
    if any(isinstance(part, UserPromptPart) and part.content == 'delegate' for part in last.parts):
        return call('task', subagent='scribe', description='write')
    return [call('write_file', path='/a.txt', content='a\n'), call('write_file', path='/b.txt', content='b\n')]


@pytest.fixture
def agents() -> Mapping[str, Any]:
    model = ScriptedModel(then=answer)
    scribe = Subagent(name='scribe', description='Writes.', instructions='Write.')
    return {'analyst': create_deep_agent(model, subagents=[scribe], interrupt_on={'write_file': True})}


@pytest.fixture
async def ada(make_client: MakeClient) -> Client:
    return await make_client('run', 'approve')


async def pause(client: Client, prompt: str = 'write') -> tuple[str, dict[str, Any]]:
    """Start a turn that pauses, and return the path of its conversation and the run."""
    path = (await client.post('/api/conversations', json={'agent': 'analyst'})).headers['location']
    return path, (await client.post(f'{path}/turns', json={'prompt': prompt})).json()


def approve(approval: Mapping[str, Any]) -> dict[str, Any]:
    """Return the approval of a person who saw the current view."""
    return {'decision': 'approve', 'digest': approval['view']['digest']}


async def test_pending_approvals_are_listed_and_streamed_with_a_preview(ada: Client):
    """C24: Results hidden by default; approvals always visible (`event: approval_required`), stream ends, resume by
    `deferred_tool_results`."""
    path, run = await pause(ada)

    waiting = (await ada.get('/api/approvals')).json()['items']
    frames = told(frames_in((await ada.get(f'/api/runs/{run["id"]}/events')).content))

    assert waiting == run['approvals'] == (await ada.get(path)).json()['approvals']
    assert [(each['tool'], each['args']['path'], each['status']) for each in waiting] == [
        ('write_file', '/a.txt', 'pending'),
        ('write_file', '/b.txt', 'pending'),
    ]
    preview = waiting[0]['view']['preview']
    assert preview['kind'] == 'diff'
    assert [line for hunk in preview['diff']['hunks'] for line in hunk['lines']] == [
        {'kind': 'added', 'before': None, 'after': 1, 'text': ['a'], 'is_ended': True}
    ]
    assert (await ada.get(f'/api/approvals/{waiting[0]["id"]}')).json() == waiting[0]
    asked = dict(frames)['approval_required']['approvals']
    assert [(each['id'], each['view']) for each in asked] == [(each['pending_id'], each['view']) for each in waiting]
    assert frames[-1][1]['status'] == 'awaiting_approval'


async def test_resume_with_answers_continues_the_turn(ada: Client):
    path, run = await pause(ada)
    first, second = (each['pending_id'] for each in run['approvals'])
    edited = {'path': '/c.txt', 'content': 'c\n'}
    digest = run['approvals'][0]['view']['digest']
    answers = {
        first: {'decision': 'edit', 'args': edited, 'digest': digest},
        second: {'decision': 'deny', 'reason': 'No.'},
    }

    after = (await ada.post(f'{path}/resume', json={'answers': answers})).json()

    assert (after['state'], after['output']) == ('complete', 'success denied')
    files = (await ada.get(f'/api/versions/{after["version_id"]}/files')).json()['items']
    assert [each['path'] for each in files] == ['/c.txt']
    assert (await ada.get(path)).json()['head'] == after['version_id']
    assert (await ada.get('/api/approvals')).json()['items'] == []
    done = (await ada.get('/api/approvals', params={'all': True})).json()['items']
    assert [(each['status'], each['decided_by']) for each in done] == [('edited', 'ada'), ('denied', 'ada')]


async def test_second_answer_is_a_conflict_that_names_the_first_decider(ada: Client, make_client: MakeClient):
    path, run = await pause(ada)
    first, second = (f'/api/approvals/{each["id"]}' for each in run['approvals'])

    shown, last_shown = run['approvals']
    taken = (await ada.post(first, json={**approve(shown), 'reason': 'Fine.'})).json()
    late = await ada.post(first, json={'decision': 'deny'})
    answers = {shown['pending_id']: {'decision': 'deny'}}
    too_late = await ada.post(f'{path}/resume', json={'answers': answers})
    respond = {'decision': 'respond', 'content': 'b is there', 'digest': last_shown['view']['digest']}
    last = await ada.post(second, json=respond, params={'resume': True})

    assert taken['run_id'] is None
    assert {name: taken['approval'][name] for name in ('status', 'decided_by', 'reason')} == {
        'status': 'approved', 'decided_by': 'ada', 'reason': 'Fine.',
    }  # fmt: skip
    for refused in (late, too_late):
        assert refused.status_code == 409
        assert refused.json()['error'] | {'message': ''} == {
            'type': 'conflict', 'message': '', 'status': 'approved', 'decided_by': 'ada',
        }  # fmt: skip
    events = told(frames_in((await ada.get(f'/api/runs/{last.json()["run_id"]}/events')).content))
    assert events[-1][1]['output'] == 'success success'


async def test_last_answer_that_cannot_start_the_run_is_not_stored(ada: Client, served: Served) -> None:
    """The client can send it again, as the error says: an approval is answered once."""
    _, run = await pause(ada)
    first, last = run['approvals']
    served.state.runs.close()

    answers = [
        await ada.post(f'/api/approvals/{each["id"]}', json=approve(each), params={'resume': True})
        for each in (first, last)
    ]

    assert [answer.status_code for answer in answers] == [200, 503]
    assert answers[1].json()['error']['message'].endswith('Try again after its restart.')
    [pending] = (await ada.get('/api/approvals')).json()['items']
    assert pending['id'] == last['id']


@pytest.mark.parametrize('content', ['b is there', {'count': 2, 'names': ['a', None]}, None])
async def test_response_is_listed_with_the_approval(ada: Client, content: object):
    """Everybody who reads the approval later sees the result that the person gave, as it was given."""
    _, run = await pause(ada)
    first, second = run['approvals']
    body = {'decision': 'respond', 'content': content, 'digest': first['view']['digest']}
    given = (await ada.post(f'/api/approvals/{first["id"]}', json=body)).json()['approval']
    await ada.post(f'/api/approvals/{second["id"]}', json=approve(second))

    listed = (await ada.get('/api/approvals', params={'all': True})).json()['items']
    assert listed[0] == given
    assert [(each['status'], each['response']) for each in listed] == [('responded', content), ('approved', None)]


async def test_resume_uses_answers_of_the_inbox(ada: Client):
    path, run = await pause(ada)
    unanswered = await ada.post(f'{path}/resume', json={})
    await ada.post(f'/api/approvals/{run["approvals"][0]["id"]}', json=approve(run['approvals'][0]))

    after = (await ada.post(f'{path}/resume', json={})).json()
    again = await ada.post(f'{path}/resume', json={'from_version': run['version_id']})

    assert unanswered.status_code == 409
    assert after['state'] == 'awaiting_approval'
    assert [each['args']['path'] for each in after['approvals']] == ['/b.txt']
    assert again.status_code == 409


async def test_invalid_answers_change_nothing(ada: Client):
    path, run = await pause(ada)
    id, shown = run['approvals'][0]['pending_id'], approve(run['approvals'][0])

    wrong: list[dict[str, Any]] = [
        {'nothing': shown},
        {id: {**shown, 'decision': 'edit'}},
        {id: {**shown, 'args': {}}},
        {id: {'decision': 'approve'}},
        {id: {'decision': 'edit', 'args': {}}},
        {id: {'decision': 'respond', 'content': 'x'}},
        {id: {'decision': 'approve', 'digest': 'short'}},
        {id: {'decision': 'maybe'}},
    ]
    for answers in wrong:
        assert (await ada.post(f'{path}/resume', json={'answers': answers})).status_code == 422
    inbox = await ada.post(f'/api/approvals/{run["approvals"][0]["id"]}', json={'decision': 'edit'})
    assert inbox.status_code == 422
    assert len((await ada.get('/api/approvals')).json()['items']) == 2


async def test_answer_with_another_digest_is_a_conflict(ada: Client):
    """An approval contains the digest of the shown view. If it belongs to another call, to other arguments or to an
    answered call, the server answers 409; no call runs, and the approval remains pending."""
    path, run = await pause(ada)
    first, second = run['approvals']
    assert first['view']['digest'] != second['view']['digest']

    decisions: list[dict[str, Any]] = [
        {'decision': 'approve'}, {'decision': 'edit', 'args': {}}, {'decision': 'deny'}
    ]  # fmt: skip
    for decision in decisions:
        answer = {**decision, 'digest': second['view']['digest']}
        refused = await ada.post(f'/api/approvals/{first["id"]}', json=answer)
        resumed = await ada.post(f'{path}/resume', json={'answers': {first['pending_id']: answer}})
        assert [each.status_code for each in (refused, resumed)] == [409, 409]
        assert refused.json()['error']['digest'] == first['view']['digest']
    assert [each['status'] for each in (await ada.get(path)).json()['approvals']] == ['pending'] * 2
    assert (await ada.post(f'/api/approvals/{first["id"]}', json=approve(first))).status_code == 200
    late = await ada.post(f'/api/approvals/{first["id"]}', json=approve(first))
    assert (late.status_code, late.json()['error']['status']) == (409, 'approved')


async def test_view_preserves_argument_order_and_escapes_invisible_characters(serve: Serve):
    hidden = {'z': 'a\u202eb\r', 'content': '\u200b', 'a': {'\U000e0041': ['\x00']}}
    agent = create_deep_agent(
        ScriptedModel(call('odd', **hidden)), tools=[Tool(odd, requires_approval=True)], interrupt_on={}
    )
    async with serve(agents={'analyst': agent}) as served:
        ada = served.client(await served.key('run', 'approve'))
        _, run = await pause(ada)
        [approval] = run['approvals']

        shown = [(each['name'], each['kind'], each['value']) for each in approval['view']['arguments']]
        assert shown == [
            (['z'], 'text', ['a', '\\u202e', 'b', '\\r', '']),
            (['content'], 'text', ['', '\\u200b', '']),
            (['a'], 'json', ['{"', '\\U000e0041', '": ["\\u0000"]}']),
        ]
        assert approval['view']['escapes'] == 4
        assert approval['args'] == hidden
        await ada.aclose()


def odd(z: str, content: str, a: dict[str, Any]) -> str:
    """Return the arguments as one text."""
    return z + content + str(a)


async def test_decision_that_the_rule_forbids_is_refused(serve: Serve):
    rule = ApprovalRule(decisions=['approve'])
    agent = create_deep_agent(ScriptedModel(then=answer), interrupt_on={'write_file': rule})
    async with serve(agents={'analyst': agent}) as served:
        ada = served.client(await served.key('run', 'approve'))
        _, run = await pause(ada)

        refused = await ada.post(f'/api/approvals/{run["approvals"][0]["id"]}', json={'decision': 'deny'})

        assert refused.status_code == 422
        assert [each['status'] for each in (await ada.get('/api/approvals')).json()['items']] == ['pending'] * 2
        await ada.aclose()


async def test_approvals_of_a_subagent_can_be_answered(ada: Client):
    _, run = await pause(ada, 'delegate')

    assert [each['path'] for each in run['approvals']] == [['scribe'], ['scribe']]
    first, last = (f'/api/approvals/{each["id"]}' for each in run['approvals'])
    await ada.post(first, json=approve(run['approvals'][0]), params={'resume': 'true'})
    answered = await ada.post(last, json=approve(run['approvals'][1]), params={'resume': 'true'})
    events = told(frames_in((await ada.get(f'/api/runs/{answered.json()["run_id"]}/events')).content))
    assert events[-1][1]['status'] == 'complete'


async def test_last_answers_at_the_same_time_resume_the_turn_once(ada: Client, monkeypatch: pytest.MonkeyPatch):
    """Both are stored, so neither request fails, whether the run of the other one is active or has ended."""
    start = _approvals.start_run
    path, run = await pause(ada)
    first, last = run['approvals']
    resumed: list[str] = []

    async def refuse(*_: Any) -> None:
        raise busy_error('run_of_the_other')

    async def start_second(*arguments: Any) -> ServerRun:
        resumed.append((await ada.post(f'{path}/resume', json={})).json()['id'])
        return await start(*arguments)

    await ada.post(f'/api/approvals/{first["id"]}', json=approve(first))
    monkeypatch.setattr(_approvals, 'start_run', start_second)
    answered = await ada.post(f'/api/approvals/{last["id"]}', json=approve(last), params={'resume': True})
    assert (answered.status_code, answered.json()['run_id']) == (200, resumed[0])

    monkeypatch.setattr(_approvals, 'start_run', refuse)
    path, run = await pause(ada)
    first, last = run['approvals']
    await ada.post(f'/api/approvals/{first["id"]}', json=approve(first))
    answered = await ada.post(f'/api/approvals/{last["id"]}', json=approve(last), params={'resume': True})
    assert (answered.status_code, answered.json()['run_id']) == (200, 'run_of_the_other')


async def test_answer_reports_that_its_run_is_refused(ada: Client, monkeypatch: pytest.MonkeyPatch):
    async def refuse(*_: Any) -> None:
        raise ServerError('unavailable', 'The server is stopping.')

    monkeypatch.setattr(_approvals, 'start_run', refuse)
    _, run = await pause(ada)
    first, last = run['approvals']
    await ada.post(f'/api/approvals/{first["id"]}', json=approve(first))
    answered = await ada.post(f'/api/approvals/{last["id"]}', json=approve(last), params={'resume': True})
    assert answered.status_code == 503


async def test_answering_requires_the_approve_scope(ada: Client, make_client: MakeClient):
    """004-09: Authentication/authorization flows."""
    path, run = await pause(ada)
    id = run['approvals'][0]['id']
    runner, approver, bob = (
        await make_client('run'),
        await make_client('approve'),
        await make_client('approve', owner='bob'),
    )
    yes = approve(run['approvals'][0])
    answers = {run['approvals'][0]['pending_id']: yes}

    assert (await runner.get('/api/approvals')).status_code == 403
    assert (await runner.post(f'{path}/resume', json={'answers': answers})).status_code == 403
    assert (await approver.post(f'/api/approvals/{id}', json=yes, params={'resume': 'true'})).status_code == 403
    assert (await approver.get(path)).status_code == 403
    assert (await bob.get('/api/approvals')).json()['items'] == []
    assert (await bob.post(f'/api/approvals/{id}', json=yes)).status_code == 404
    assert (await bob.get('/api/approvals', params={'conversation': path.rpartition('/')[2]})).status_code == 404
    assert (await approver.post(f'/api/approvals/{id}', json=yes)).status_code == 200


async def test_resume_without_pending_approvals_is_a_conflict(ada: Client):
    path = (await ada.post('/api/conversations', json={'agent': 'analyst'})).headers['location']

    assert (await ada.post(f'{path}/resume', json={})).status_code == 409


async def test_pages_of_approvals_contain_whole_versions(
    ada: Client, make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
):
    runs = [(await pause(ada))[1] for _ in range(3)]
    seen: list[str] = []
    cursor: str | None = None

    for _ in range(3):
        params = {'limit': 1} | ({} if cursor is None else {'cursor': cursor})
        page = (await ada.get('/api/approvals', params=params)).json()
        seen += [each['id'] for each in page['items']]
        cursor = page['cursor']

    assert cursor is None
    assert (await ada.get('/api/approvals/00000000-0000-7000-8000-000000000000')).status_code == 404
    monkeypatch.setattr(_approvals, '_PAGE', 1)
    assert [each['id'] for each in (await ada.get('/api/approvals')).json()['items']] == seen
    assert seen == [each['id'] for run in reversed(runs) for each in run['approvals']]
    assert (await ada.get('/api/approvals', params={'agent': 'writer'})).json() == {'items': [], 'cursor': None}
    other = await make_client('approve', agents=['nobody'])
    assert (await other.get('/api/approvals')).json()['items'] == []


async def test_question_with_a_form_is_refused_until_the_answer_fits(serve: Serve) -> None:
    """A question of an MCP server is an approval like others: its fields are in the view, a wrong answer is refused with a
    sentence and stays pending, and the right one continues the call."""
    command = McpServer(command=sys.executable, args=(str(MCP_SERVER),), env={'CALLS': os.devnull})
    servers = McpServers(servers={'shop': command}, allow=['shop_book'])
    agent = create_deep_agent(ScriptedModel(call('shop_book'), 'done'), capabilities=[servers], interrupt_on={})
    async with serve({'analyst': agent}) as served, served.client(await served.key('run', 'approve')) as ada:
        path, run = await pause(ada)
        [approval] = run['approvals']
        preview = approval['view']['preview']
        assert (preview['kind'], [field['name'] for field in preview['fields']]) == ('question', [['count']])
        answer = {'decision': 'respond', 'digest': approval['view']['digest']}
        refused = await ada.post(f'/api/approvals/{approval["id"]}', json={**answer, 'content': {'count': 9}})
        assert refused.status_code == 422
        assert "The field 'count' does not accept '9'" in refused.json()['error']['message']
        given = {approval['pending_id']: {**answer, 'content': {'count': 2}}}
        [second] = (await ada.post(f'{path}/resume', json={'answers': given})).json()['approvals']
        assert second['view']['preview']['link'] == ['https://pay.example/1']
        declined = {second['pending_id']: {'decision': 'deny'}}
        done = (await ada.post(f'{path}/resume', json={'answers': declined})).json()
        assert (done['state'], done['output']) == ('complete', 'done')


async def test_results_of_several_external_calls_are_given_one_by_one(serve: Serve) -> None:
    """Each external call has a card of its own, and two people may give the results. The turn resumes after the last one;
    before, it is refused, and a resumption needs only the results that are missing."""
    thermometer = ExternalToolset[Any]([ToolDefinition(name='thermometer')])
    model = ScriptedModel([call('thermometer', room=room) for room in ('cellar', 'attic')], 'done')
    agent = create_deep_agent(model, toolsets=[thermometer], interrupt_on={})
    async with serve({'analyst': agent}) as served, served.client(await served.key('run', 'approve')) as ada:
        path, run = await pause(ada)
        cellar, attic = run['approvals']

        def give(approval: Mapping[str, Any], content: object) -> dict[str, Any]:
            return {'decision': 'respond', 'content': content, 'digest': approval['view']['digest']}

        first = await ada.post(f'/api/approvals/{cellar["id"]}', json=give(cellar, 12), params={'resume': True})
        assert (first.status_code, first.json()['run_id']) == (200, None)
        refused = await ada.post(f'{path}/resume', json={})
        assert refused.status_code == 409
        assert attic['pending_id'] in refused.json()['error']['message']
        answers = {attic['pending_id']: give(attic, {'degrees': 30})}
        done = (await ada.post(f'{path}/resume', json={'answers': answers})).json()
        assert (done['state'], done['output']) == ('complete', 'done')
        calls = (await ada.get(f'/api/versions/{done["version_id"]}')).json()['tool_calls']
        assert [each['content'] for each in calls] == ['12', '{"degrees":30}']
