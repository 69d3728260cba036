"""A single turn: its events and the resulting conversation."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from inline_snapshot import snapshot
from pydantic_ai import CancellationToken
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from typer.testing import Result

from pydantic_deep.approvals import Approve, Decision, Deny, Edit, PendingApproval
from pydantic_deep.cli.approvals._policy import ApprovalMode, CallAnswer, Decider, allow_all, pause_all
from pydantic_deep.cli.render._ids import short_id
from pydantic_deep.cli.turn._conversation import Conversation
from pydantic_deep.cli.turn._runner import EventSink, TurnObserver, TurnReport, recover_turn, run_turn
from pydantic_deep.store import ApprovalAnsweredError, Store
from pydantic_deep.store import Decision as StoreDecision
from pydantic_deep.streaming import (
    STREAM_EVENTS,
    ApprovalAnswerEvent,
    EndEvent,
    ErrorEvent,
    FileEvent,
    StartEvent,
    StreamEvent,
    TextEvent,
    ToolCallEvent,
    ToolResultEvent,
)
from pydantic_deep.testing import FakeClock, ScriptedModel, call
from pydantic_deep.versions import ApprovalInbox

MakeConversation = Callable[..., Conversation]

pytestmark = pytest.mark.anyio

PLAN = [{'content': 'Add a line', 'status': 'completed'}]


def watch(show: EventSink, decide: Decider = allow_all) -> TurnObserver:
    return TurnObserver(show=show, decide=decide)


def message_of(turn: TurnReport) -> str:
    assert turn.error is not None
    return turn.error.message


def requests_of(turn: TurnReport) -> int:
    assert turn.end.usage is not None
    return turn.end.usage.requests


def files_of(turn: TurnReport) -> list[FileEvent]:
    assert turn.end.files is not None
    return turn.end.files


async def run(conversation: Conversation, task: str = 'Go') -> tuple[list[StreamEvent], TurnReport]:
    events: list[StreamEvent] = []
    observer = watch(events.append)
    turn = await run_turn(conversation, task, stop=CancellationToken(), observer=observer)
    return events, turn


async def test_turn_emits_all_events(make_conversation: MakeConversation, work: Path, clock: FakeClock) -> None:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> str:
        clock.advance(2.5)
        return 'Done.'

    model = ScriptedModel(
        [
            'Adding.',
            call('edit_file', path='/poem.txt', old_string='violet', new_string='lily\noak'),
            call('write_todos', todos=PLAN),
        ],
        call('read_file', path='/nothing.txt'),
        answer,
    )
    conversation = make_conversation(model)
    events, turn = await run(conversation)
    dumped = [STREAM_EVENTS.dump_python(event) for event in events]
    version = dumped[-1].pop('version_id')
    assert conversation.tip is not None
    assert version == conversation.tip.id
    assert [e['name'] for e in dumped if e['type'] == 'tool_result'] == ['edit_file', 'write_todos', 'read_file']
    assert [
        e for e in dumped if e['type'] not in ('tool_call', 'tool_call_delta', 'tool_result', 'usage', 'start')
    ] == snapshot(
        [
            {'type': 'text', 'text': 'Adding.', 'path': []},
            {'type': 'file', 'path': '/poem.txt', 'change': 'changed', 'added_lines': 2, 'removed_lines': 1},
            {'type': 'todos', 'todos': [{'content': 'Add a line', 'status': 'completed'}]},
            {'type': 'text', 'text': 'Done.', 'path': []},
            {
                'type': 'end',
                'finish_reason': 'stop',
                'status': 'complete',
                'output': 'Done.',
                'usage': {
                    'type': 'usage',
                    'requests': 3,
                    'tool_calls': 2,
                    'cache_read_tokens': 0,
                    'cache_write_tokens': 0,
                    'input_tokens': 300,
                    'output_tokens': 30,
                },
                'files': [
                    {
                        'type': 'file',
                        'path': '/poem.txt',
                        'change': 'changed',
                        'added_lines': 2,
                        'removed_lines': 1,
                    }
                ],
                'todos': [{'content': 'Add a line', 'status': 'completed'}],
                'seconds': 2.5,
                'workspace': {
                    'store': 'memory:',
                    'is_in_directory': True,
                    'has_files': True,
                    'has_all_changes': True,
                },
            },
        ]
    )
    assert dumped[0] == STREAM_EVENTS.dump_python(StartEvent(prompt='Go', directory=str(work), model='given'))
    assert dumped[-1] | {'version_id': version} == STREAM_EVENTS.dump_python(turn.end)
    assert [e['requests'] for e in dumped if e['type'] == 'usage'][-1] == 3
    assert (work / 'poem.txt').read_text() == 'rose\nlily\noak\n'


async def test_failed_call_has_the_outcome_failed(make_conversation: MakeConversation) -> None:
    events, _ = await run(make_conversation(ScriptedModel(call('read_file', path='/nothing.txt'), 'No.')))
    (result,) = [event for event in events if isinstance(event, ToolResultEvent)]
    assert (result.name, result.outcome) == ('read_file', 'failed')
    assert '/nothing.txt does not exist' in result.content


async def test_arguments_with_invalid_json_are_emitted_unchanged(make_conversation: MakeConversation) -> None:
    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
        if len(messages) == 1:
            yield {0: DeltaToolCall(name='ls', json_args='{"path": ', tool_call_id='x')}
        else:
            yield 'Done.'

    events, _ = await run(make_conversation(FunctionModel(stream_function=stream)))
    (asked,) = [event for event in events if isinstance(event, ToolCallEvent)]
    assert asked.args == '{"path": '


async def test_next_turn_contains_the_history(make_conversation: MakeConversation) -> None:
    model = ScriptedModel('First.', 'Second.')
    conversation = make_conversation(model)
    await run(conversation, 'One')
    await run(conversation, 'Two')
    assert len(model.requests[1].messages) == 3
    assert conversation.tip is not None
    assert conversation.tip.message_count == 4


@pytest.mark.slow
async def test_turn_is_limited_by_its_budget_not_by_a_request_count(make_conversation: MakeConversation) -> None:
    model = ScriptedModel(*[call('glob', pattern=f'{number}*') for number in range(60)], 'Done.')
    _, turn = await run(make_conversation(model))
    assert (turn.end.status, requests_of(turn)) == ('complete', 61)


async def test_exhausted_budget_fails_the_turn_and_reports_its_files(
    make_conversation: MakeConversation, work: Path
) -> None:
    model = ScriptedModel(call('write_file', path='/a.txt', content='a\n'), then=lambda messages, info: call('ls'))
    _, turn = await run(make_conversation(model, max_tokens=250))
    assert (turn.exit_code, turn.end.status, turn.end.output) == (4, 'failed', None)
    assert requests_of(turn) == 3
    assert [file.path for file in files_of(turn)] == ['/a.txt']


async def test_conversation_continues_after_a_stopped_turn(make_conversation: MakeConversation) -> None:
    stop = CancellationToken()

    async def wait_until_stopped(messages: list[ModelMessage], info: AgentInfo) -> str:
        stop.cancel()
        await anyio.sleep_forever()
        raise AssertionError('unreachable')

    conversation = make_conversation(ScriptedModel(['Looking.', call('ls')], wait_until_stopped, 'Here I am.'))
    turn = await run_turn(conversation, 'Look', stop=stop, observer=watch(lambda event: None))
    assert (turn.end.status, message_of(turn)) == ('interrupted', 'Interrupted. Completed work is not undone.')
    assert conversation.tip is not None
    assert conversation.tip.state == 'interrupted'
    requests = [message for message in await conversation.tip.messages() if isinstance(message, ModelRequest)]
    returns = [part.content for request in requests for part in request.parts if isinstance(part, ToolReturnPart)]
    assert returns == ['poem.txt (12 bytes)']
    _, second = await run(conversation, 'And?')
    assert second.end.output == 'Here I am.'


async def test_interrupted_call_is_closed_for_the_next_turn(
    make_conversation: MakeConversation,
) -> None:
    stop = CancellationToken()

    def stop_at_the_call(event: StreamEvent) -> None:
        if isinstance(event, ToolCallEvent):
            stop.cancel()

    model = ScriptedModel(call('ls'), 'Here I am.')
    conversation = make_conversation(model)
    await run_turn(conversation, 'Look', stop=stop, observer=watch(stop_at_the_call))
    _, second = await run(conversation, 'And?')
    assert second.end.output == 'Here I am.'
    assert [(part.tool_name, part.outcome) for part in model.requests[1].tool_returns] == [('ls', 'interrupted')]


async def test_turn_stopped_before_its_first_request_preserves_history(make_conversation: MakeConversation) -> None:
    conversation = make_conversation(ScriptedModel('First.'))
    await run(conversation)
    assert conversation.tip is not None
    history = await conversation.tip.messages()
    stop = CancellationToken()
    stop.cancel()
    turn = await run_turn(conversation, 'Two', stop=stop, observer=watch(lambda event: None))
    assert turn.end.status == 'interrupted'
    assert (await conversation.tip.messages())[: len(history)] == history


async def test_conversation_continues_after_a_turn_with_a_taken_branch_name(
    make_conversation: MakeConversation,
) -> None:
    conversation = make_conversation(ScriptedModel('First.', 'Third.'))
    await run(conversation)
    before = conversation.tip
    observer = watch(lambda event: None)
    turn = await run_turn(conversation, 'Two', branch='main', stop=CancellationToken(), observer=observer)
    assert turn.end.status == 'failed'
    assert message_of(turn) == "The conversation has a branch 'main' already. Choose another name."
    assert conversation.tip == before
    _, third = await run(conversation, 'Three')
    assert third.end.output == 'Third.'


async def test_empty_text_deltas_emit_no_events(make_conversation: MakeConversation) -> None:
    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        for piece in ('', 'Do', '', 'ne.'):
            yield piece

    events, _ = await run(make_conversation(FunctionModel(stream_function=stream)))
    assert [event.text for event in events if isinstance(event, TextEvent)] == ['Do', 'ne.']


async def test_unexpected_exception_ends_the_events_and_is_raised(make_conversation: MakeConversation) -> None:
    events: list[StreamEvent] = []
    conversation = make_conversation(ScriptedModel(ZeroDivisionError('a defect')))
    with pytest.raises(ZeroDivisionError):
        await run_turn(conversation, 'Go', stop=CancellationToken(), observer=watch(events.append))
    *_, error, end = events
    assert isinstance(error, ErrorEvent)
    assert isinstance(end, EndEvent)
    assert (end.status, error.kind) == ('failed', 'run_failed')


async def test_deleted_directory_fails_the_turn_and_reports_removed_files(
    make_conversation: MakeConversation, work: Path
) -> None:
    def remove(messages: list[ModelMessage], info: AgentInfo) -> str:
        shutil.rmtree(work)
        return 'Done.'

    _, turn = await run(
        make_conversation(
            ScriptedModel(call('edit_file', path='/poem.txt', old_string='rose', new_string='oak'), remove)
        )
    )
    assert turn.end.status == 'failed'
    assert [(file.change, file.removed_lines) for file in files_of(turn)] == [('removed', 2)]


async def test_turn_stopped_during_an_approval_runs_no_call(make_conversation: MakeConversation, work: Path) -> None:
    stop = CancellationToken()

    async def stop_and_allow(pending: Sequence[PendingApproval]) -> Mapping[str, CallAnswer]:
        stop.cancel()
        return await allow_all(pending)

    conversation = make_conversation(
        ScriptedModel(call('write_file', path='/a.txt', content='a\n')), approvals=ApprovalMode.ask
    )
    events: list[StreamEvent] = []
    turn = await run_turn(conversation, 'Go', stop=stop, observer=watch(events.append, stop_and_allow))
    assert turn.end.status == 'interrupted'
    assert not (work / 'a.txt').exists()
    assert [event.type for event in events if event.type.startswith('approval')] == ['approval_required']


async def test_pending_turn_is_a_pending_version(make_conversation: MakeConversation) -> None:
    write = call('write_file', path='/a.txt', content='a\n')
    conversation = make_conversation(ScriptedModel(write), approvals=ApprovalMode.ask)
    observer = TurnObserver(show=lambda event: None, decide=pause_all)
    turn = await run_turn(conversation, 'Go', stop=CancellationToken(), observer=observer)
    assert conversation.tip is not None
    assert (turn.end.status, turn.end.version_id) == ('awaiting_approval', conversation.tip.id)
    assert [pending.tool for pending in conversation.tip.pending] == ['write_file']


A, B = (call('write_file', path=f'/{name}.txt', content='1\n') for name in 'ab')


def answered_by_another(store: Store, *decisions: Decision, by: str | None = 'ada') -> Decider:
    """Approve all calls after another person has answered the first ones."""
    remaining = list(decisions)

    async def decide(pending: Sequence[PendingApproval]) -> Mapping[str, CallAnswer]:
        pending_approvals = await store.approvals()
        for each in pending_approvals[: len(decisions)]:
            await ApprovalInbox(store).answer(each.id, remaining.pop(0), by=by)
        return {pending_call.id: CallAnswer(decision=Approve(), by='person') for pending_call in pending}

    return decide


async def test_earlier_answer_of_another_person_is_used_with_the_other_answers(
    make_conversation: MakeConversation, store: Store, work: Path
) -> None:
    conversation = make_conversation(ScriptedModel([A, B], 'Done.'), approvals=ApprovalMode.ask)
    events: list[StreamEvent] = []
    observer = watch(events.append, answered_by_another(store, Deny('No a.')))
    turn = await run_turn(conversation, 'Go', stop=CancellationToken(), observer=observer)
    assert (turn.end.status, turn.end.output) == ('complete', 'Done.')
    assert [(work / name).exists() for name in ('a.txt', 'b.txt')] == [False, True]
    answers = [event for event in events if isinstance(event, ApprovalAnswerEvent)]
    assert [(each.id, each.decision, each.reason, each.answered_by) for each in answers] == snapshot(
        [
            ('call-1', 'approve', None, None),
            ('call-2', 'approve', None, None),
            ('call-1', 'deny', 'No a.', 'ada'),
        ]
    )


@pytest.mark.parametrize('by', ['ada', None])
async def test_turn_resumes_if_another_person_answered_all_calls(
    make_conversation: MakeConversation, store: Store, work: Path, by: str | None
) -> None:
    conversation = make_conversation(ScriptedModel(A, 'Done.'), approvals=ApprovalMode.ask)
    events: list[StreamEvent] = []
    edit = Edit({'path': '/c.txt', 'content': 'c'})
    turn = await run_turn(
        conversation,
        'Go',
        stop=CancellationToken(),
        observer=watch(events.append, answered_by_another(store, edit, by=by)),
    )
    assert turn.end.status == 'complete'
    assert ((work / 'a.txt').exists(), (work / 'c.txt').read_text()) == (False, 'c')
    last = [event for event in events if isinstance(event, ApprovalAnswerEvent)][-1]
    assert (last.args, last.answered_by) == ({'path': '/c.txt', 'content': 'c'}, by or 'somebody')


@pytest.mark.parametrize('has_version', [True, False])
async def test_turn_resumed_by_another_run_names_the_show_command(
    make_conversation: MakeConversation, store: Store, has_version: bool
) -> None:
    conversation = make_conversation(ScriptedModel(A, 'Done by another.'), approvals=ApprovalMode.ask)
    tips: list[str] = []

    async def decide(pending: Sequence[PendingApproval]) -> Mapping[str, CallAnswer]:
        assert conversation.tip is not None
        tips.append(conversation.tip.id)
        decisions: dict[str, Decision] = {each.id: Approve() for each in pending}
        if has_version:
            other = await conversation.tip.resume(decisions, by='ada')
            tips.append(other.id)
        else:
            for each in await store.approvals():
                await ApprovalInbox(store).answer(each.id, Approve(), by='ada')
            await store.claim_approvals(conversation.tip.id, 'a-run')
        return {id: CallAnswer(decision=decision, by='person') for id, decision in decisions.items()}

    turn = await run_turn(conversation, 'Go', stop=CancellationToken(), observer=watch(lambda event: None, decide))
    assert (turn.end.status, turn.has_next_command) == ('failed', True)
    look = f'show {short_id(tips[1])}' if has_version else 'log --steps'
    assert message_of(turn) == (
        f'The version {short_id(tips[0])} was answered by ada, and a run has resumed it. Show its progress with: '
        f'pydantic-deep {look}'
    )


async def test_refused_answer_without_another_answer_fails_the_turn(
    make_conversation: MakeConversation, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = make_conversation(ScriptedModel(A), approvals=ApprovalMode.ask)

    async def decide(decisions: Sequence[StoreDecision]) -> None:
        raise ApprovalAnsweredError(decisions[0].approval_id, 'not open any more', None, None)

    monkeypatch.setattr(store, 'decide', decide)  # simulates a store that refuses answers to pending approvals
    _, turn = await run(conversation)
    assert turn.end.status == 'failed'
    assert 'is not open any more' in str(message_of(turn))


def test_plan_is_accepted_at_the_terminal_before_anything_changes(
    invoke: Callable[..., Result], make_terminal: Callable[..., Any], work: Path
) -> None:
    """With `--plan`, the write before the accepted plan is refused, and the one after it runs."""
    write, plan = call('write_file', path='/a.txt', content='a'), call('propose_plan', plan='1. Write /a.txt.')
    model = ScriptedModel(write, plan, write, 'Done.')
    result = invoke('run', 'Go', '--plan', model=model, terminal=make_terminal('y', 'y'))
    assert (result.exit_code, result.stdout) == (0, 'Done.\n')
    assert (work / 'a.txt').read_text() == 'a'
    assert 'Plan mode is on' in str(model.requests[1].messages[-1])


def test_next_task_continues_without_a_plan(
    invoke: Callable[..., Result], make_terminal: Callable[..., Any], work: Path
) -> None:
    """Plan mode ends with the accepted plan, and a later task is planned only with the option."""
    plan, write = call('propose_plan', plan='1. Nothing.'), call('write_file', path='/a.txt', content='a')
    assert invoke('run', 'Go', '--plan', model=ScriptedModel(plan, 'Done.'), terminal=make_terminal('y')).exit_code == 0
    result = invoke('run', 'Go', '-c', model=ScriptedModel(write, 'Done.'), terminal=make_terminal('y'))
    assert (result.exit_code, (work / 'a.txt').read_text()) == (0, 'a')


async def test_a_turn_that_another_process_has_finished_is_not_finished_again(
    make_conversation: MakeConversation,
) -> None:
    """If the run is no longer suspended, the turn fails with a sentence, and no model is called."""
    conversation = make_conversation(ScriptedModel('One.'))
    await run(conversation)
    turn = await recover_turn(conversation, 'gone', stop=CancellationToken(), observer=watch(lambda event: None))
    assert message_of(turn) == 'Another process has finished the turn. Open the conversation again.'
