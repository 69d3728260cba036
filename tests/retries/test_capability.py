"""Runs with retries: their events and usage, and the view of other capabilities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import anyio
import pytest
from pydantic_ai import Agent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ModelRequestTimeout
from pydantic_ai.messages import (
    AgentStreamEvent,
    ModelMessage,
    ModelRequestAttempt,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    ToolCallPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.run import AgentRun, AgentRunResultEvent
from pydantic_ai.settings import ModelSettings

from pydantic_deep import DeepAgentDeps, VersionedAgent, open_store
from pydantic_deep._requests.canned_stream import CannedModel
from pydantic_deep.errors import ValidationError
from pydantic_deep.retries import CutAnswerError, ModelRetriedEvent, Retries
from pydantic_deep.subagents import Subagent, SubagentEvent, Subagents
from pydantic_deep.testing import ScriptedModel, call

from .conftest import FaultyModel, Waits, cut, lost, whole

pytestmark = pytest.mark.anyio

TEXT = TextPart('one two three')
CALL = ToolCallPart('ring', {}, tool_call_id='ring-1')


def ringing(model: FaultyModel, *capabilities: Retries) -> tuple[Agent[None, str], list[str]]:
    """Return an agent and the list of its tool's runs."""
    agent = Agent(model, capabilities=capabilities, name='ringing')
    rings: list[str] = []

    @agent.tool_plain
    def ring() -> str:
        rings.append('ring')
        return 'rang'

    return agent, rings


def without_times(messages: list[ModelMessage]) -> list[object]:
    return [[(part.part_kind, getattr(part, 'content', None)) for part in message.parts] for message in messages]


async def stream_all(run: AgentRun[None, str]) -> None:
    """Run all nodes, streaming the model requests."""
    async for node in run:
        if Agent.is_model_request_node(node):
            async with node.stream(run.ctx) as stream:
                async for _ in stream:
                    pass


async def run_all(run: AgentRun[None, str]) -> None:
    """Run all nodes without streaming."""
    async for _ in run:
        pass


async def test_run_without_streaming_retries_transient_errors(waits: Waits) -> None:
    agent, rings = ringing(FaultyModel(lost(), whole(CALL), lost(), lost(), whole(TEXT)), waits.retries())
    result = await agent.run('go')
    assert (result.output, rings, result.usage.requests) == ('one two three', ['ring'], 2)


async def test_run_by_nodes_retries_transient_errors(waits: Waits) -> None:
    agent, rings = ringing(FaultyModel((cut(CALL), lost()), cut(CALL), whole(CALL), whole(TEXT)), waits.retries())
    async with agent.iter('go') as run:
        await stream_all(run)
    assert run.result is not None
    assert (run.result.output, rings) == ('one two three', ['ring'])


async def test_streamed_run_ends_with_the_complete_answer(waits: Waits) -> None:
    agent, rings = ringing(FaultyModel(cut(CALL), whole(CALL), cut('one tw'), whole(TEXT)), waits.retries())
    async with agent.run_stream('go') as stream:
        outputs = [output async for output in stream.stream_output(debounce_by=None)]
    assert outputs[-1] == await stream.get_output() == 'one two three'
    assert rings == ['ring']


async def test_history_equals_that_of_a_run_without_faults(waits: Waits) -> None:
    smooth, _ = ringing(FaultyModel(whole(CALL), whole(TEXT)))
    faulty, rings = ringing(
        FaultyModel((cut(CALL), lost()), cut('some', CALL), whole(CALL), cut(TEXT), lost(), whole(TEXT)),
        waits.retries(),
    )
    expected = await smooth.run('go')
    async with faulty.run_stream_events('go') as events:
        results = [event.result async for event in events if isinstance(event, AgentRunResultEvent)]
    assert without_times(results[0].all_messages()) == without_times(expected.all_messages())
    assert rings == ['ring']


async def test_a_retry_event_precedes_the_next_attempt(waits: Waits) -> None:
    agent, _ = ringing(FaultyModel(lost(), (cut(TEXT), lost()), whole(TEXT)), waits.retries())
    events: list[AgentStreamEvent] = []
    async with agent.run_stream_events('go') as stream:
        events += [event async for event in stream if not isinstance(event, AgentRunResultEvent)]
    told = [event for event in events if isinstance(event, ModelRetriedEvent)]
    assert [(event.attempt, event.attempts, event.is_void, event.delay_seconds) for event in told] == [
        (2, 3, False, 0.5),
        (3, 3, True, 1.0),
    ]
    assert {(event.reason, event.capability_id) for event in told} == {('unreadable answer', 'retries')}
    at = events.index(told[1])
    assert isinstance(events[at + 1], PartStartEvent)
    assert sum(isinstance(event, PartDeltaEvent) for event in events[:at]) == 2


async def test_usage_of_failed_attempts_counts_in_the_run(waits: Waits) -> None:
    agent, _ = ringing(FaultyModel(cut(TEXT), cut(TEXT), whole(TEXT)), waits.retries())
    async with agent.run_stream_events('go') as events:
        results = [event.result async for event in events if isinstance(event, AgentRunResultEvent)]
    assert (results[0].usage.input_tokens, results[0].usage.requests) == (21, 1)


@dataclass
class Invoice(AbstractCapability[object]):
    """Sums up billed attempts (`SupportsBilledAttempts`)."""

    tokens: int = 0

    def record_billed_attempts(self, attempts: Sequence[ModelRequestAttempt]) -> None:
        self.tokens += sum(attempt.usage.input_tokens for attempt in attempts if attempt.usage is not None)


async def test_billed_attempts_without_a_response_are_reported_to_capabilities(waits: Waits) -> None:
    half = replace(cut(TEXT), provider_name='anthropic')
    agent, _ = ringing(FaultyModel(half, lost(), half), waits.retries())
    invoice = Invoice()
    with pytest.raises(CutAnswerError):
        await agent.run('go', capabilities=[invoice])
    assert invoice.tokens == 14


async def test_billed_attempts_count_even_if_no_attempt_succeeds(waits: Waits) -> None:
    # Anthropic responses are streamed even if the run is not.
    half = replace(cut(TEXT), provider_name='anthropic')
    agent, _ = ringing(FaultyModel(half, lost(), half), waits.retries())
    async with agent.iter('go') as run:
        with pytest.raises(CutAnswerError):
            await run_all(run)
    assert run.usage.input_tokens == 14

    agent, _ = ringing(FaultyModel(half, lost(), half), waits.retries())
    async with agent.iter('go') as run:
        with pytest.raises(CutAnswerError):
            await stream_all(run)
    assert run.usage.input_tokens == 14


async def test_request_timeout_covers_all_attempts(waits: Waits, let_time_pass: Callable[[float], None]) -> None:
    async def for_ever(seconds: float) -> None:
        waits.seconds.append(seconds)
        let_time_pass(600)
        await anyio.sleep_forever()

    settings = ModelSettings(request_timeout=600)
    for streamed in (False, True):
        agent, _ = ringing(FaultyModel(lost(), whole(TEXT)), waits.retries(sleep=for_ever))
        async with agent.iter('go', model_settings=settings) as run:
            with pytest.raises(ModelRequestTimeout):
                await (stream_all if streamed else run_all)(run)
    assert waits.seconds == [0.5, 0.5]


class Recorded(CannedModel):
    """Plays a truncated response under its provider's name."""

    async def answer(
        self, messages: list[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> ModelResponse:
        return replace(cut(TEXT), provider_name='anthropic')

    @property
    def model_name(self) -> str:
        return 'recorded'

    @property
    def system(self) -> str:
        return 'anthropic'


@pytest.mark.parametrize('model', [Recorded(), WrapperModel(Recorded())], ids=['itself', 'wrapped'])
async def test_recorded_response_of_the_test_kit_is_never_judged_truncated(waits: Waits, model: Model) -> None:
    agent = Agent(model, capabilities=[waits.retries()])
    assert (await agent.run('go')).output == 'one two three'
    async with agent.run_stream('go') as stream:
        assert await stream.get_output() == 'one two three'
    assert waits.seconds == []


async def test_failure_played_by_a_scripted_model_is_retried(waits: Waits) -> None:
    agent = Agent(ScriptedModel(lost(), 'hello'), capabilities=[waits.retries()])
    assert (await agent.run('go')).output == 'hello'


async def test_each_run_of_an_agent_gets_its_own_retry_events(waits: Waits) -> None:
    agent, _ = ringing(FaultyModel(lost(), whole(TEXT), whole(TEXT)), waits.retries())
    counts: list[int] = []
    for _ in range(2):
        async with agent.run_stream_events('go') as events:
            counts.append(len([event async for event in events if isinstance(event, ModelRetriedEvent)]))
    assert counts == [1, 0]


async def test_subagent_inherits_the_retry_policy_of_its_parent(waits: Waits) -> None:
    child = Subagent('child', 'x', model=FaultyModel(lost(), whole(TEXT)))
    parent = Agent(
        ScriptedModel(call('task', subagent='child', description='work'), 'done'),
        deps_type=DeepAgentDeps,
        capabilities=[Subagents([child]), waits.retries()],
    )
    async with parent.run_stream_events('go', deps=DeepAgentDeps()) as events:
        raised = [event.event async for event in events if isinstance(event, SubagentEvent)]
    assert len([event for event in raised if isinstance(event, ModelRetriedEvent)]) == 1
    assert waits.seconds == [0.5]


async def test_replayed_turn_makes_no_request_and_no_delay(waits: Waits) -> None:
    # Recorded without retries, with answers that the capability would reject.
    recorded, _ = ringing(FaultyModel(cut(CALL), cut(TEXT)))
    model = FaultyModel()
    again, rings = ringing(model, waits.retries())
    async with open_store('memory:') as store:
        version = await (await VersionedAgent(recorded, store).create()).advance('go')
        replay = await (await VersionedAgent(again, store).load(version.id)).replay()
    assert replay
    assert (model.asked, rings, waits.seconds) == (0, [], [])


async def test_version_contains_only_complete_answers(waits: Waits) -> None:
    smooth, _ = ringing(FaultyModel(whole(CALL), whole(TEXT)))
    faulty, rings = ringing(FaultyModel(lost(), whole(CALL), lost(), whole(TEXT)), waits.retries())
    histories: list[list[object]] = []
    async with open_store('memory:') as store:
        for agent in (smooth, faulty):
            version = await (await VersionedAgent(agent, store).create()).advance('go')
            histories.append(without_times(await version.messages()))
    assert histories[0] == histories[1]
    assert rings == ['ring']


async def test_retry_outside_a_run_emits_no_event(waits: Waits) -> None:
    half = replace(cut(TEXT), provider_name='anthropic')
    model = waits.retries(attempts=2).get_wrapper_model(FaultyModel(lost(), whole(TEXT), half, half))
    assert model is not None
    agent = Agent(model)
    assert (await agent.run('go')).output == 'one two three'
    with pytest.raises(CutAnswerError):
        await agent.run('go')


async def test_permanent_error_is_raised_unchanged(waits: Waits) -> None:
    agent, _ = ringing(FaultyModel(ValueError('no')), waits.retries())
    with pytest.raises(ValueError, match='no') as caught:
        await agent.run('go')
    assert not hasattr(caught.value, '__notes__')


async def test_permanent_error_after_retries_gets_a_note(waits: Waits) -> None:
    agent, _ = ringing(FaultyModel(lost(), ValueError('no')), waits.retries())
    with pytest.raises(ValueError, match='no') as caught:
        await agent.run('go')
    assert caught.value.__notes__ == [
        'pydantic-deep: attempt 2 at this request was the last, after: unreadable answer; the error is not transient.'
    ]


async def test_sleep_that_is_not_asynchronous_is_named() -> None:
    """The message was "object NoneType can't be used in 'await' expression"."""
    slow = Retries(sleep=lambda _: None)  # type: ignore[arg-type]
    agent = Agent(FaultyModel(lost(), whole('done')), capabilities=[slow])
    with pytest.raises(ValidationError, match=r'sleep: it returned None, which cannot be awaited. Pass an'):
        await agent.run('go')
