"""The budget of a turn, which its runs and subagents share."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from inline_snapshot import snapshot
from pydantic_ai import CancellationToken
from pydantic_ai.usage import RunUsage
from typer.testing import Result

from pydantic_deep.budgets import BudgetExceededError, BudgetWarningEvent
from pydantic_deep.cli.approvals._policy import allow_all
from pydantic_deep.cli.render._budget_amounts import BudgetUsage
from pydantic_deep.cli.turn._budget import TurnBudget
from pydantic_deep.cli.turn._conversation import Conversation
from pydantic_deep.cli.turn._runner import TurnObserver, TurnReport, run_turn
from pydantic_deep.streaming import STREAM_EVENTS, BudgetEvent, StreamEvent, capability_event
from pydantic_deep.testing import ScriptedModel, call

MakeConversation = Callable[..., Conversation]
Invoke = Callable[..., Result]

BUDGET = TurnBudget(tokens=1000, cost=Decimal('0.5'))
WRITE = call('write_file', path='/new.txt', content='new\n')


async def run(conversation: Conversation) -> tuple[list[StreamEvent], TurnReport]:
    events: list[StreamEvent] = []
    observer = TurnObserver(show=events.append, decide=allow_all)
    return events, await run_turn(conversation, 'Go', stop=CancellationToken(), observer=observer)


def emitted(events: list[StreamEvent]) -> list[dict[str, Any]]:
    """Return the events of capabilities, without delays, which are random."""
    dumped = [STREAM_EVENTS.dump_python(event) for event in events]
    news = [each for each in dumped if each['type'] in ('summarized', 'retried', 'budget')]
    return [{name: value for name, value in each.items() if name != 'delay_seconds'} for each in news]


@pytest.mark.anyio
async def test_last_answer_event_precedes_a_turn_that_ends_with_limit(
    make_conversation: MakeConversation,
) -> None:
    conversation = make_conversation(ScriptedModel(WRITE, call('ls'), call('ls'), 'Not done.'), max_tokens=500)
    events, turn = await run(conversation)
    assert emitted(events) == snapshot(
        [
            {
                'type': 'budget',
                'path': [],
                'kind': 'last_answer',
                'scope': 'run',
                'measure': 'tokens',
                'limit': 500,
                'used': 330,
                'model': None,
            }
        ]
    )
    assert turn.end.usage is not None
    assert turn.error is not None
    assert (turn.exit_code, turn.end.status, turn.end.output, turn.end.usage.requests) == (
        4,
        'complete',
        'Not done.',
        4,
    )
    assert turn.error.message == snapshot(
        'The budget of 500 tokens for a turn allows no further answer: 440 tokens used, and the task may not be done. Continue with `pydantic-deep run --continue TASK`, or in a chat with another prompt; --max-tokens raises it.'
    )
    assert conversation.tip is not None
    assert (turn.end.version_id, conversation.tip.state) == (conversation.tip.id, 'complete')


@pytest.mark.anyio
async def test_each_turn_has_its_own_budget(
    make_conversation: MakeConversation,
) -> None:
    model = ScriptedModel(call('ls'), call('ls'), 'First.', call('ls'), 'Second.')
    conversation = make_conversation(model, max_tokens=330)
    _, first = await run(conversation)
    _, second = await run(conversation)
    assert (first.exit_code, second.exit_code) == (4, 0)


@pytest.mark.anyio
async def test_subagents_count_toward_the_budget(make_conversation: MakeConversation) -> None:
    task = call('task', subagent='general-purpose', description='Look')
    model = ScriptedModel(task, *[call('ls')] * 3, then=lambda messages, info: call('ls'))
    events, turn = await run(make_conversation(model, max_tokens=500))
    assert turn.exit_code == 4
    assert ['general-purpose'] in [each['path'] for each in emitted(events)]


@pytest.mark.anyio
async def test_unknown_usage_emits_a_budget_event(make_conversation: MakeConversation) -> None:
    events, turn = await run(make_conversation(ScriptedModel('Done.'), max_cost=Decimal('0.5')))
    assert turn.exit_code == 0
    assert emitted(events) == snapshot(
        [
            {
                'type': 'budget',
                'path': [],
                'kind': 'unknown',
                'scope': None,
                'measure': 'cost',
                'limit': None,
                'used': None,
                'model': 'scripted',
            }
        ]
    )


def test_budget_events_of_a_resumed_run_refer_to_the_turn() -> None:
    """A run after a pause has the remaining budget as its limit; its events report the budget of the whole turn."""
    cost = BudgetWarningEvent(scope='run', measure='cost', limit=Decimal('0.2'), used=Decimal('0.15'))
    event = capability_event(cost)
    assert isinstance(event, BudgetEvent)
    assert BUDGET.to_turn_event(event) == BudgetEvent(kind='warning', scope='run', measure='cost', limit=0.5, used=0.45)
    unknown = BudgetEvent(kind='unknown', measure='tokens')
    assert BUDGET.to_turn_event(unknown) == unknown


def test_remaining_budget_excludes_earlier_turns() -> None:
    budget = TurnBudget(tokens=1000, cost=Decimal('0.5'))
    used = RunUsage(input_tokens=5000, output_tokens=100, cost=Decimal(2))
    assert budget.remaining(used).limits == {'tokens': 1000, 'cost': Decimal('0.5')}
    budget.start_turn(RunUsage(input_tokens=4500, cost=Decimal('1.75')))
    assert budget.remaining(used).limits == {'tokens': 400, 'cost': Decimal('0.25')}
    assert budget.usage('tokens', used) == BudgetUsage(measure='tokens', limit=Decimal(1000), used=Decimal(600))
    assert budget.usage('cost', used) == BudgetUsage(measure='cost', limit=Decimal('0.5'), used=Decimal('0.25'))
    budget.start_turn(RunUsage(input_tokens=4500))
    with pytest.raises(BudgetExceededError) as caught:
        budget.remaining(used)
    assert (caught.value.measure, caught.value.limit, caught.value.used) == ('cost', Decimal('0.5'), 2)


def test_paused_turn_with_exhausted_budget_prints_the_resume_command(
    invoke: Invoke, steady: Callable[[str], str]
) -> None:
    small = ('--max-tokens', '100')
    result = invoke('run', 'Go', '--approvals=pause', *small, model=ScriptedModel(WRITE))
    assert result.exit_code == 4
    assert steady(result.stderr.splitlines()[-1]) == snapshot(
        'The budget of 100 tokens for a turn is used up: 110 tokens used. Raise it: pydantic-deep resume 01234567 --max-tokens …'
    )
    version = result.stderr.split('resume ')[-1].split()[0]
    result = invoke('resume', version, '--approvals=allow', '--max-tokens', '1000', model=ScriptedModel('Done.'))
    assert (result.exit_code, result.stdout) == (0, 'Done.\n')


def test_max_cost_is_in_dollars(invoke: Invoke) -> None:
    result = invoke('run', 'Go', '--max-cost', '0', model=ScriptedModel())
    assert result.exit_code == 2
    assert "'0' is not an amount of US dollars above 0" in result.stderr
    result = invoke('run', 'Go', '--max-cost', '0.50', model=ScriptedModel('Done.'))
    assert (result.exit_code, result.stdout) == (0, 'Done.\n')
    assert 'the cost of an answer of scripted is unknown and not counted against the budget\n' in result.stderr


def test_exhausted_budget_without_a_store_suggests_no_continuation(invoke: Invoke) -> None:
    result = invoke('run', 'Go', '--no-store', '--max-tokens', '1', model=ScriptedModel(call('ls')))
    assert result.stderr.endswith('is used up: 110 tokens used. --max-tokens raises it.\n')


def test_turn_with_a_last_answer_is_replayed_exactly(invoke: Invoke) -> None:
    result = invoke('run', 'Go', '--max-tokens', '330', model=ScriptedModel(call('ls'), call('ls'), 'Not done.'))
    assert (result.exit_code, result.stdout) == (4, 'Not done.\n')
    assert 'budget: 220 of 330 tokens used; one answer left\n' in result.stderr
    replayed = invoke('replay', model=ScriptedModel())
    assert (replayed.exit_code, replayed.stderr) == (0, '')


def events(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_resume_continues_or_raises_the_budget(invoke: Invoke) -> None:
    small = ('--approvals=pause', '--max-tokens', '150')
    invoke('run', 'Go', *small, model=ScriptedModel(WRITE))
    result = invoke('resume', '--approvals=deny', model=ScriptedModel(call('ls')))
    assert result.exit_code == 4
    assert 'The budget of 150 tokens for a turn is used up: 220 tokens used.' in result.stderr
    invoke('run', 'Go', *small, model=ScriptedModel(WRITE))
    result = invoke('resume', '--approvals=deny', '--max-tokens', '300', model=ScriptedModel('Done.'))
    assert (result.exit_code, result.stdout) == (0, 'Done.\n')


def test_resumed_budget_excludes_earlier_turns(invoke: Invoke) -> None:
    small = ('--approvals=pause', '--max-tokens', '250')
    invoke('run', 'One', *small, model=ScriptedModel('First.'))
    invoke('run', 'Two', '--continue', *small, model=ScriptedModel(WRITE))
    result = invoke('resume', '--approvals=deny', '--json', model=ScriptedModel('Done.'))
    assert events(result)[-1]['usage']['requests'] == 2
    assert result.exit_code == 0
