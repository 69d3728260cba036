"""The operations of A2A through the official client: messages, decisions, cancellation, lists, and what is refused."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest
from a2a.client import Client
from a2a.client.errors import AgentCardResolutionError
from a2a.helpers import new_raw_part
from a2a.types import (
    CancelTaskRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTasksRequest,
    SubscribeToTaskRequest,
    TaskState,
)
from a2a.utils.errors import (
    A2AError,
    ExtendedAgentCardNotConfiguredError,
    InternalError,
    InvalidParamsError,
    InvalidRequestError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from inline_snapshot import snapshot

from pydantic_deep.server import ServerSettings, _turn_task
from pydantic_deep.server._state import OWNER
from pydantic_deep.server.a2a import _handler
from pydantic_deep.server.routes import _turns
from pydantic_deep.store import open_store
from pydantic_deep.views import Run
from tests.server.a2a.conftest import (
    UNKNOWN,
    Connect,
    connect_to,
    decision,
    message,
    pending_in,
    responses,
    send,
    text_of,
)
from tests.server.conftest import Gate, Listen, MakeClient, Serve, Served
from tests.server.test_lifespan import store_orphan

pytestmark = pytest.mark.anyio

WORKING, COMPLETED = TaskState.TASK_STATE_WORKING, TaskState.TASK_STATE_COMPLETED
CANCELED, FAILED = TaskState.TASK_STATE_CANCELED, TaskState.TASK_STATE_FAILED


async def get(client: Client, id: str) -> Any:
    return await client.get_task(GetTaskRequest(id=id))


async def refused(error: type[A2AError], calling: Any) -> str:
    """Return the message of an expected error."""
    with pytest.raises(error) as raised:
        await calling
    return str(raised.value)


# Messages


@pytest.mark.slow
@pytest.mark.parametrize('streaming', [False, True])
async def test_official_client_sends_continues_approves_and_gets_over_loopback(
    connect: Connect, served: Served, listen: Listen, streaming: bool
) -> None:
    """A client that knows only the URL and a key runs a turn, continues it, approves a call, and reads the task."""
    async with listen(served.app) as url, connect('asker', url=url, streaming=streaming) as client:
        first = await responses(client, message('Hi'))
        task_id = first[0].task.id
        task = await get(client, task_id)
        assert (task.status.state, text_of(task.artifacts)) == (COMPLETED, 'Nothing.')
        await responses(client, message('/a.txt=a', context_id=task.context_id))
        listed = await client.list_tasks(ListTasksRequest(context_id=task.context_id))
        assert [each.id for each in listed.tasks][-1] == task_id
        paused = await get(client, listed.tasks[0].id)
        [shown] = pending_in(paused)
        answered = await responses(client, message(decision(shown, 'approve'), task_id=paused.id))
        assert (await get(client, paused.id)).status.state == COMPLETED
        assert len(first) > 1 if streaming else len(answered) == 1


async def test_message_starts_a_conversation_and_another_continues_it(connect: Connect) -> None:
    """Without `contextId`, a message starts a conversation; with it, the next turn sees the first."""
    async with connect('writer') as client:
        first = await send(client, '/a.txt=a')
        second = await send(client, 'Hi', context_id=first.context_id)
        assert (first.status.state, text_of(first.artifacts)) == (COMPLETED, 'Written.')
        assert (second.context_id, second.id != first.id) == (first.context_id, True)
        assert await get(client, first.id) == first


async def test_message_may_return_before_the_run_has_ended(connect: Connect, gate: Gate) -> None:
    """With `returnImmediately`, the task is returned while it works, and can be read until it is completed."""
    async with connect('writer') as client:
        task = await send(client, 'hold', now=True)
        assert task.status.state == WORKING
        gate.opened.set()
        assert (await send(client, 'Hi')).status.state == COMPLETED


async def test_repeated_message_joins_the_first(connect: Connect, served: Served, gate: Gate) -> None:
    """A client that repeats a message after a lost response gets the task of the first; other text is another task."""
    async with connect('writer') as client:
        gate.opened.set()
        first = await send(client, 'hold', id='m1')
        assert await send(client, 'hold', id='m1') == first
        assert (await send(client, 'Hi', id='m1')).id != first.id


async def test_repeated_decision_joins_the_run_of_the_first(connect: Connect) -> None:
    """A decision that is repeated with the same `messageId` is not refused as a second one."""
    async with connect('asker') as client:
        paused = await send(client, '/a.txt=a')
        [shown] = pending_in(paused)
        first, second = [await send(client, decision(shown, 'approve'), task_id=paused.id, id='m1') for _ in range(2)]
        assert first == second
        again = await refused(
            UnsupportedOperationError, send(client, decision(shown, 'approve'), task_id=paused.id, id='m2')
        )
        assert 'has no pending calls: its run is complete' in again


async def test_second_message_of_a_context_is_refused_while_the_first_runs(connect: Connect, gate: Gate) -> None:
    """As on the other interfaces that name the conversation, only one turn at a time continues a version."""
    async with connect('writer') as client:
        first = await send(client, 'Hi')
        await send(client, 'hold', now=True, context_id=first.context_id)
        text = await refused(UnsupportedOperationError, send(client, 'Hi', context_id=first.context_id))
        assert text.endswith('is active. Wait for it, cancel it, or start from another version.')
        gate.opened.set()


async def test_message_to_a_context_with_pending_calls_is_refused(connect: Connect) -> None:
    async with connect('asker') as client:
        paused = await send(client, '/a.txt=a')
        text = await refused(UnsupportedOperationError, send(client, 'Hi', context_id=paused.context_id))
        assert 'has pending approvals' in text


@pytest.mark.parametrize(
    ('parts', 'text'),
    [
        ((), 'it is empty'),
        (('  ',), 'it is empty'),
        ((new_raw_part(b'x', media_type='png'),), "A file has the media type 'png'. Name one, as `image/png`."),
    ],
)
async def test_message_without_content_is_refused(
    connect: Connect, served: Served, parts: tuple[Any, ...], text: str
) -> None:
    """A message that no turn can have is refused before a conversation is created."""
    async with connect('writer') as client:
        assert text in await refused(InvalidParamsError, send(client, *parts))
        assert await served.store.conversations() == []


async def test_message_with_several_parts_is_one_prompt(connect: Connect) -> None:
    """Text, data as JSON and files become the prompt in their order."""
    async with connect('writer') as client:
        task = await send(client, 'See', {'a': 1}, new_raw_part(b'x', media_type='image/png'))
        assert text_of(task.artifacts) == 'See {"a": 1} BinaryContent'


# Decisions


async def test_approved_call_runs_and_the_task_keeps_its_id(connect: Connect, make_client: MakeClient) -> None:
    """The task that paused is the one that completes, and the call ran as it was shown."""
    async with connect('asker') as client:
        paused = await send(client, '/a.txt=a')
        [shown] = pending_in(paused)
        assert (shown['tool'], shown['call'] in paused.status.message.parts[0].text) == ('write_file', True)
        done = await send(client, decision(shown, 'approve'), task_id=paused.id, context_id=paused.context_id)
        assert (done.id, done.status.state) == (paused.id, COMPLETED)
        assert (await get(client, paused.id)) == done
        version = dict(done.metadata)['version']
    ada = await make_client('run')
    assert (await ada.get(f'/api/versions/{version}/files/a.txt')).text == 'a\n'


async def test_resumed_task_works_until_its_newest_run_has_ended(connect: Connect, gate: Gate) -> None:
    """While an approved call runs, the task of the paused run is working, for a reader and for a stream."""
    async with connect('asker', streaming=True) as client:
        paused = (await responses(client, message('hold')))[0].task
        [shown] = pending_in(await get(client, paused.id))
        only = [response async for response in client.subscribe(SubscribeToTaskRequest(id=paused.id))]
        assert [response.task.status.state for response in only] == [TaskState.TASK_STATE_INPUT_REQUIRED]
        async with anyio.create_task_group() as group:
            group.start_soon(responses, client, message(decision(shown, 'approve'), task_id=paused.id))
            await gate.reached.wait()
            assert (await get(client, paused.id)).status.state == WORKING
            gate.opened.set()
        assert (await get(client, paused.id)).status.state == COMPLETED


async def test_calls_without_a_decision_stay_pending(connect: Connect) -> None:
    """A decision on one of two calls resumes the turn, which pauses again for the other; the task stays the same."""
    async with connect('asker') as client:
        paused = await send(client, '/a.txt=a /b.txt=b')
        first, _ = pending_in(paused)
        again = await send(client, decision(first, 'approve'), task_id=paused.id)
        [second] = pending_in(again)
        assert second['call'].startswith('Tool: write_file\nArgument path: /b.txt')
        done = await send(client, decision(second, 'approve'), task_id=paused.id)
        assert (done.id, done.status.state) == (paused.id, COMPLETED)
        listed = await client.list_tasks(ListTasksRequest(context_id=paused.context_id))
        assert [task.id for task in listed.tasks] == [paused.id]


async def test_structured_output_is_an_artifact_with_json(connect: Connect) -> None:
    async with connect('typed', streaming=True) as client:
        received = await responses(client, message('Hi'))
        assert received[-2].artifact_update.artifact.parts[0].text == '{"petals":5}'
        assert text_of((await get(client, received[0].task.id)).artifacts) == '{"petals":5}'


async def test_denied_and_edited_calls_resume_with_the_decisions(connect: Connect, make_client: MakeClient) -> None:
    """A message decides on several calls, and its text is the reason for them."""
    async with connect('asker') as client:
        paused = await send(client, '/a.txt=a /b.txt=b')
        first, second = pending_in(paused)
        args = {'path': '/c.txt', 'content': 'c'}
        parts = decision(first, 'deny', reason='No.'), decision(second, 'edit', args=args), 'Only c'
        done = await send(client, *parts, task_id=paused.id)
        assert done.status.state == COMPLETED
        version = dict(done.metadata)['version']
    ada = await make_client('run', 'approve')
    listed = (await ada.get('/api/approvals', params={'status': 'all'})).json()
    assert listed is not None
    assert (await ada.get(f'/api/versions/{version}/files/a.txt')).status_code == 404
    assert (await ada.get(f'/api/versions/{version}/files/c.txt')).text == 'c'


@pytest.mark.parametrize('by_text', [False, True])
async def test_question_is_answered_by_text_or_data(connect: Connect, by_text: bool) -> None:
    """A client that shows only text can answer a question with text."""
    async with connect('curious') as client:
        paused = await send(client, 'Hi')
        [shown] = pending_in(paused)
        assert 'Which flower?' in paused.status.message.parts[0].text
        answer = 'Tulip' if by_text else decision(shown, 'respond', content='Tulip')
        assert 'Tulip' in text_of((await send(client, answer, task_id=paused.id)).artifacts)


async def test_external_call_is_answered_with_its_result(connect: Connect) -> None:
    """The result that the client sends is the result of the tool."""
    async with connect('outside') as client:
        paused = await send(client, 'Hi')
        [shown] = pending_in(paused)
        done = await send(client, decision(shown, 'respond', content={'sales': 7}), task_id=paused.id)
        assert text_of(done.artifacts) == "{'sales': 7}"


async def test_key_without_the_scope_approve_cannot_decide(connect: Connect) -> None:
    """An agent with a key that may only run cannot approve its own calls."""
    async with connect('asker', 'run') as client:
        paused = await send(client, '/a.txt=a')
        [shown] = pending_in(paused)
        text = await refused(InvalidRequestError, send(client, decision(shown, 'approve'), task_id=paused.id))
        assert text == 'Answering approvals requires a key with the scope `approve`.'
        assert pending_in(await get(client, paused.id)) == [shown]


async def test_changed_digest_approves_nothing(connect: Connect) -> None:
    """A decision on another call than the one that is pending is refused, and the call stays pending."""
    async with connect('asker') as client:
        paused = await send(client, '/a.txt=a')
        [shown] = pending_in(paused)
        wrong = decision({**shown, 'digest': '0' * 64}, 'approve')
        assert 'changed' in await refused(UnsupportedOperationError, send(client, wrong, task_id=paused.id))
        assert pending_in(await get(client, paused.id)) == [shown]


async def test_decision_with_another_context_is_refused(connect: Connect) -> None:
    async with connect('asker') as client:
        paused = await send(client, '/a.txt=a')
        text = await refused(InvalidParamsError, send(client, 'x', task_id=paused.id, context_id=UNKNOWN))
        assert text == f'The task {paused.id} belongs to the context {paused.context_id}. Omit `contextId`.'


async def test_task_resumes_with_decisions_that_were_made_elsewhere(connect: Connect, make_client: MakeClient) -> None:
    """Where a person has decided on the page and nothing resumed, the client resumes the task."""
    ada = await make_client('run', 'approve')
    async with connect('asker') as client:
        paused = await send(client, '/a.txt=a')
        [shown] = pending_in(paused)
        resume = {'decision': 'resume'}
        text = await refused(UnsupportedOperationError, send(client, resume, task_id=paused.id))
        assert 'has an answer yet' in text
        answer = {'decision': 'approve', 'digest': shown['digest']}
        assert (await ada.post(f'/api/approvals/{shown["approval"]}', json=answer)).is_success
        [part] = (await get(client, paused.id)).status.message.parts
        assert part.text == snapshot(
            'The calls were decided elsewhere. Resume the task with the data `{"decision": "resume"}`.'
        )
        assert (await send(client, resume, task_id=paused.id)).status.state == COMPLETED


# Access


async def test_tasks_and_contexts_of_another_owner_are_not_found(connect: Connect) -> None:
    """Another owner, and the owner through another agent, gets the error for an unknown id, for every operation."""
    async with connect('asker') as ada, connect('asker', owner='bob', streaming=True) as bob:
        paused = await send(ada, '/a.txt=a')
        [shown] = pending_in(paused)
        calls: list[Any] = []
        async with connect('writer', streaming=True) as other:
            for client, id in ((bob, paused.id), (bob, UNKNOWN), (bob, 'x'), (other, paused.id), (other, UNKNOWN)):
                calls += [
                    get(client, id),
                    client.cancel_task(CancelTaskRequest(id=id)),
                    anext(client.subscribe(SubscribeToTaskRequest(id=id))),
                    responses(client, message(decision(shown, 'approve'), task_id=id)),
                    responses(client, message('Hi', context_id=paused.context_id if id == paused.id else id)),
                ]
            told = {await refused(TaskNotFoundError, call) for call in calls}
            assert told == {'This resource does not exist, or this key has no access to it.'}
            for client, id in ((bob, paused.context_id), (bob, UNKNOWN), (bob, 'x'), (other, paused.context_id)):
                listed = await client.list_tasks(ListTasksRequest(context_id=id))
                assert ([*listed.tasks], listed.total_size, listed.next_page_token) == ([], 0, '')
        assert pending_in(await get(ada, paused.id)) == [shown]


async def test_key_of_other_agents_gets_no_card(connect: Connect) -> None:
    with pytest.raises(AgentCardResolutionError, match='404'):
        async with connect('asker', agents=['writer']):
            pass


# Cancellation, lists, and what is not offered


async def test_running_task_is_cancelled(connect: Connect, gate: Gate) -> None:
    """Cancelling ends the run, and the task is cancelled for everyone who waits for it."""
    async with connect('writer') as client:
        task = await send(client, 'hold', now=True)
        await gate.reached.wait()
        assert (await client.cancel_task(CancelTaskRequest(id=task.id))).status.state == CANCELED
        [part] = (await get(client, task.id)).status.message.parts
        assert part.text == 'The run was cancelled. Completed work is preserved.'


async def test_ended_and_paused_tasks_cannot_be_cancelled(connect: Connect) -> None:
    async with connect('asker') as client:
        done, paused = await send(client, 'Hi'), await send(client, '/a.txt=a')
        text = await refused(TaskNotCancelableError, client.cancel_task(CancelTaskRequest(id=done.id)))
        assert text == f'The task {done.id} has ended already: complete.'
        text = await refused(TaskNotCancelableError, client.cancel_task(CancelTaskRequest(id=paused.id)))
        assert text == f'The task {paused.id} has stored its pending calls. Deny them instead.'


async def test_ended_task_cannot_be_subscribed_to(connect: Connect) -> None:
    async with connect('writer', streaming=True) as client:
        done = (await responses(client, message('Hi')))[0].task
        text = await refused(UnsupportedOperationError, anext(client.subscribe(SubscribeToTaskRequest(id=done.id))))
        assert text == f'The task {done.id} has ended: complete. Get it instead.'


async def test_list_has_each_task_once_with_its_newest_state(connect: Connect) -> None:
    """A task that was resumed is one task. Lists can be limited to a context, a state and a number."""
    async with connect('asker') as client:
        first = await send(client, '/a.txt=a')
        [shown] = pending_in(first)
        await send(client, decision(shown, 'deny'), task_id=first.id)
        second = await send(client, '/b.txt=b')
        everything = await client.list_tasks(ListTasksRequest(include_artifacts=True))
        assert [task.id for task in everything.tasks] == [second.id, first.id]
        assert [text_of(task.artifacts) for task in everything.tasks] == ['', 'Written.']
        assert (everything.total_size, everything.page_size) == (2, 50)
        one = await client.list_tasks(ListTasksRequest(context_id=first.context_id, page_size=1))
        assert ([task.id for task in one.tasks], text_of(one.tasks[0].artifacts)) == ([first.id], '')
        completed = await client.list_tasks(ListTasksRequest(status=COMPLETED))
        assert [task.id for task in completed.tasks] == [first.id]
        changed_at = second.status.timestamp
        newer = await client.list_tasks(ListTasksRequest(status_timestamp_after=changed_at))
        assert [task.id for task in newer.tasks] == [second.id]
    async with connect('writer') as client:
        request = ListTasksRequest(context_id=first.context_id)
        assert (await client.list_tasks(request)).total_size == 0  # the context belongs to another agent


async def test_tasks_are_listed_in_pages(connect: Connect, make_client: MakeClient) -> None:
    """A page is limited after the tasks were selected, and its token is for the next one. Deleted tasks are omitted."""
    async with connect('writer') as client:
        tasks = [await send(client, text) for text in ('one', 'two', 'three')]
        newest_first = [task.id for task in reversed(tasks)]
        for selected in (ListTasksRequest(page_size=2), ListTasksRequest(page_size=2, status=COMPLETED)):
            first = await client.list_tasks(selected)
            assert ([task.id for task in first.tasks], first.total_size) == (newest_first[:2], 3)
            selected.page_token = first.next_page_token
            last = await client.list_tasks(selected)
            assert ([task.id for task in last.tasks], last.next_page_token) == (newest_first[2:], '')
        text = await refused(InvalidParamsError, client.list_tasks(ListTasksRequest(page_token='2')))
        assert text == '`pageToken` is not the token of a page of this list. Omit it to start over.'
        ada = await make_client('run')
        assert (await ada.delete(f'/api/conversations/{tasks[0].context_id}')).status_code == 204
        listed = await client.list_tasks(ListTasksRequest())
        assert [task.id for task in listed.tasks] == newest_first[:2]


async def test_list_begins_with_the_last_change(connect: Connect, gate: Gate) -> None:
    """The order is that of the timestamps of the states, and not that in which the tasks were created."""
    async with connect('writer') as client:
        first = await send(client, 'hold', now=True)
        second = await send(client, 'Hi')
        gate.opened.set()
        while (await get(client, first.id)).status.state == WORKING:
            await anyio.lowlevel.checkpoint()
        listed = await client.list_tasks(ListTasksRequest())
        assert [task.id for task in listed.tasks] == [first.id, second.id]
        moments = [task.status.timestamp.ToDatetime() for task in listed.tasks]
        assert moments == sorted(moments, reverse=True)


async def test_numbers_out_of_range_are_refused(connect: Connect) -> None:
    """A page has 1 to 100 tasks, and no history has a negative length, as the specification says."""
    async with connect('writer') as client:
        for size in (-1, 0, 101):
            await refused(InvalidParamsError, client.list_tasks(ListTasksRequest(page_size=size)))
        for call in (
            client.list_tasks(ListTasksRequest(history_length=-1)),
            client.get_task(GetTaskRequest(id=UNKNOWN, history_length=-1)),
            responses(client, message('Hi'), history_length=-1),
        ):
            await refused(InvalidParamsError, call)


async def test_push_notifications_and_extended_cards_are_not_offered(connect: Connect, served: Served) -> None:
    """A client that asks for notifications learns that none will come, instead of waiting for them."""
    async with connect('writer') as client:
        config = {'url': 'https://hooks.invalid/'}
        text = await refused(
            PushNotificationNotSupportedError, responses(client, message('Hi'), task_push_notification_config=config)
        )
        assert text == 'This server sends no push notifications. It has webhooks.'
        wanted = GetTaskPushNotificationConfigRequest(task_id=UNKNOWN, id='1')
        access = await served.access(await served.key())
        handler = _handler.AgentHandler(access, 'writer')
        with pytest.raises(PushNotificationNotSupportedError):
            await handler.on_get_task_push_notification_config(wanted, _handler.ServerCallContext())
        with pytest.raises(ExtendedAgentCardNotConfiguredError):
            await handler.on_get_extended_agent_card(GetExtendedAgentCardRequest(), _handler.ServerCallContext())


# States


async def test_run_of_another_process_is_followed_through_the_store(
    connect: Connect, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run without a log here is read again until it has ended, by a message and by a stream."""
    build, states = _turn_task.build_run, list[str]()

    async def build_later(*arguments: Any) -> Run:
        run = await build(*arguments)
        return run.model_copy(update={'state': states.pop()}) if states else run

    monkeypatch.setattr(_turns, 'POLL_SECONDS', 0)
    monkeypatch.setattr(_turn_task, 'build_run', build_later)
    async with connect('writer') as client:
        done = await send(client, 'Hi', id='m1')
        served.state.runs.clear_logs()
        states += ['running', 'queued']
        handler = _handler.AgentHandler(await served.access(await served.key()), 'writer')
        subscription = handler.on_subscribe_to_task(SubscribeToTaskRequest(id=done.id), _handler.ServerCallContext())
        updates = [type(update).__name__ async for update in subscription]
        assert updates == ['Task', 'TaskArtifactUpdateEvent', 'TaskArtifactUpdateEvent', 'TaskStatusUpdateEvent']


@pytest.mark.parametrize('has_moved_on', [False, True])
async def test_suspended_run_needs_input(connect: Connect, monkeypatch: pytest.MonkeyPatch, has_moved_on: bool) -> None:
    """A run whose process crashed can be resumed or cancelled, which its status says."""
    build = _turn_task.build_run

    async def build_suspended(*arguments: Any) -> Run:
        changes = {'state': 'suspended', 'has_moved_on': has_moved_on}
        return (await build(*arguments)).model_copy(update=changes)

    async with connect('writer') as client:
        done = await send(client, 'Hi')
        monkeypatch.setattr(_turn_task, 'build_run', build_suspended)
        task = await get(client, done.id)
        assert task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
        assert task.status.message.parts[0].text == (
            f'The run {done.id} has no end, because its process crashed'
            f'{", and the conversation has moved on" if has_moved_on else ""}. '
            'Resume the task with the data `{"decision": "resume"}`, or cancel it.'
        )


async def test_suspended_task_is_resumed(serve: Serve) -> None:
    """A run whose process crashed needs input: the client resumes it, or cancels it, which its status says."""
    async with open_store('memory:suspended') as store, serve(store=store) as served:
        with anyio.fail_after(60):
            while served.state.runs.is_recovering:
                await anyio.lowlevel.checkpoint()
        served.state.runs.takes_over = lambda run: False
        root = await served.state.agents['writer'].create(metadata={OWNER: 'ada'})
        run_id = await store_orphan(store.url, await store.version(root.id))
        async with connect_to(served)('writer', owner='ada') as client:
            task = await get(client, run_id)
            assert task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
            assert task.status.message.parts[0].text == (
                f'The run {run_id} has no end, because its process crashed. Resume the task with the data '
                '`{"decision": "resume"}`, or cancel it.'
            )
            resumed = await send(client, {'decision': 'resume'}, task_id=run_id)
            assert (resumed.id, resumed.status.state, text_of(resumed.artifacts)) == (run_id, COMPLETED, 'Nothing.')
            text = await refused(UnsupportedOperationError, send(client, {'decision': 'resume'}, task_id=run_id))
            assert 'has no pending calls: its run is complete' in text


async def test_too_many_runs_are_an_error_that_names_the_limit(
    served: Served, connect: Connect, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limits of runs apply as on every route."""
    monkeypatch.setattr(served.state.runs, '_settings', ServerSettings(max_runs_per_key=1))
    async with connect('writer') as client:
        await send(client, 'hold', now=True)
        text = await refused(InternalError, send(client, 'Hi'))
        assert text == '1 runs of this key are already active. Wait until one has ended, or cancel one.'
        gate.opened.set()


async def test_defect_is_an_error_without_its_text(
    connect: Connect, served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An unexpected exception is in the log of the server, and not in the response."""

    async def fail(*arguments: Any) -> None:
        raise RuntimeError('a secret')

    async with connect('writer') as client:
        done = await send(client, 'Hi')
        monkeypatch.setattr(_turn_task, 'build_run', fail)
        text = await refused(InternalError, get(client, done.id))
        assert text == 'Internal server error. The log of the server contains the details.'
    assert 'a secret' in caplog.text
