"""Versions in traces, tested with the test exporter of logfire."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import logfire
import pytest
from logfire.testing import TestExporter
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from pydantic_ai.capabilities import Instrumentation
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models.instrumented import InstrumentationSettings

from pydantic_deep import Approve, DeepAgentDeps, LocalBackend, StateBackend, create_deep_agent
from pydantic_deep._spans import VERSION_ID, link_to
from pydantic_deep.dispatch import Worker, submit
from pydantic_deep.store import Store, StoreClosedError, open_store
from pydantic_deep.testing import ScriptedModel
from pydantic_deep.versions import ApprovalInbox, TurnOptions, VersionedAgent

pytestmark = pytest.mark.anyio

SECRET = 'sk-canary-0123456789'


@pytest.fixture
def exporter() -> Iterator[TestExporter]:
    exporter = TestExporter()
    logfire.configure(
        send_to_logfire=False,
        console=False,
        additional_span_processors=[SimpleSpanProcessor(exporter)],
        inspect_arguments=False,
    )
    yield exporter
    # Later tests export nothing, and may accept a trace from a client in the same process.
    logfire.configure(send_to_logfire=False, console=False, distributed_tracing=True)


def spans_named(exporter: TestExporter, start: str) -> list[dict[str, Any]]:
    return [span for span in exporter.exported_spans_as_dict() if span['name'].startswith(start)]


async def test_trace_and_version_refer_to_each_other(exporter: TestExporter) -> None:
    agent = create_deep_agent(ScriptedModel('done'), name='analyst')
    async with open_store('memory:') as store:
        root = await VersionedAgent(agent, store).create()
        after = await root.advance('go')
        (turn,) = spans_named(exporter, 'turn analyst')
        assert turn['attributes'][VERSION_ID] == after.id
        assert turn['attributes']['pydantic_deep.version.parent.id'] == root.id
        assert turn['attributes']['gen_ai.conversation.id'] == after.conversation_id
        run = await store.run(after.run_id or '')
        assert run is not None
        assert run.trace_id == f'{turn["context"]["trace_id"]:032x}'


async def test_delegation_span_names_the_thread(exporter: TestExporter) -> None:
    call = ToolCallPart('task', {'subagent': 'general-purpose', 'description': 'look'}, tool_call_id='t1')
    agent = create_deep_agent(ScriptedModel(call, 'seen', 'done'), capabilities=[Instrumentation()])
    async with open_store('memory:') as store:
        after = await (await VersionedAgent(agent, store).create()).advance('go')
        (thread,) = await after.subagents()
    linked = [
        span for span in exporter.exported_spans_as_dict() if 'pydantic_deep.sub_agent_thread_id' in span['attributes']
    ]
    assert [span['attributes']['pydantic_deep.sub_agent_thread_id'] for span in linked] == [thread.conversation_id]
    assert linked[0]['name'].startswith('invoke_agent')


async def test_spans_without_content_contain_no_user_model_or_tool_text(exporter: TestExporter) -> None:
    write = ToolCallPart('write_file', {'path': f'/{SECRET}.txt', 'content': SECRET})
    delegate = ToolCallPart('task', {'subagent': 'general-purpose', 'description': SECRET})
    agent = create_deep_agent(
        ScriptedModel(write, delegate, SECRET, SECRET),
        instructions=SECRET,
        capabilities=[Instrumentation(InstrumentationSettings(include_content=False))],
    )
    async with open_store('memory:') as store:
        after = await (await VersionedAgent(agent, store).create()).advance(SECRET)
    assert after.output == SECRET
    spans = exporter.exported_spans_as_dict()
    assert {span['name'].split()[0] for span in spans} == {'turn', 'store', 'invoke_agent', 'chat', 'execute_tool'}
    assert [span['name'] for span in spans if SECRET in repr(span)] == []


async def test_each_commit_is_a_span_with_its_version(exporter: TestExporter) -> None:
    agent = create_deep_agent(ScriptedModel('done'))
    async with open_store('memory:') as store:
        after = await (await VersionedAgent(agent, store).create()).advance('go')
    commits = spans_named(exporter, 'store commit')
    assert [commit['attributes'].get(VERSION_ID) for commit in commits][-1] == after.id


async def test_own_spans_contain_no_content(exporter: TestExporter) -> None:
    call = ToolCallPart('write_file', {'path': '/key.txt', 'content': SECRET}, tool_call_id='w1')
    agent = create_deep_agent(ScriptedModel(call, SECRET))
    async with open_store('memory:') as store:
        root = await VersionedAgent(agent, store).create(name='n', backend=StateBackend(), metadata={'k': SECRET})
        after = await root.advance(SECRET)
        await after.merge(after)
    assert SECRET not in str(exporter.exported_spans_as_dict())


async def test_failed_turn_is_an_error_span_without_the_error_text(exporter: TestExporter) -> None:
    def fail(*_: object) -> str:
        raise RuntimeError(SECRET)

    agent = create_deep_agent(ScriptedModel(then=fail))
    async with open_store('memory:') as store:
        root = await VersionedAgent(agent, store).create()
        with pytest.raises(RuntimeError):
            await root.advance('go')
    (turn,) = spans_named(exporter, 'turn')
    assert turn['attributes']['error.type'] == 'RuntimeError'
    assert SECRET not in str(exporter.exported_spans_as_dict())


async def test_approval_answer_is_a_span(exporter: TestExporter) -> None:
    call = ToolCallPart('write_file', {'path': '/a.txt', 'content': 'x'}, tool_call_id='w1')
    agent = create_deep_agent(ScriptedModel([call, call_again('w2')], 'done'), interrupt_on={'write_file': True})
    async with open_store('memory:') as store:
        paused = await (await VersionedAgent(agent, store).create()).advance('go')
        one, two = await ApprovalInbox(store).list()
        await ApprovalInbox(store).answer(one.id, Approve())
        await paused.resume({two.pending_id: Approve()})
    answered = spans_named(exporter, 'answer approvals')
    assert [span['attributes'][VERSION_ID] for span in answered] == [paused.id, paused.id]


async def test_command_span_has_the_exit_code_but_not_the_text(exporter: TestExporter, tmp_path: Path) -> None:
    call = ToolCallPart('execute', {'command': f'echo {SECRET}; exit 3'}, tool_call_id='e1')
    agent = create_deep_agent(ScriptedModel(call, 'done'))
    await agent.run('go', deps=DeepAgentDeps(backend=LocalBackend(tmp_path, allow_commands=True)))
    (command,) = spans_named(exporter, 'run command')
    assert command['attributes']['process.exit.code'] == 3
    assert SECRET not in str(command)


def call_again(id: str) -> ToolCallPart:
    return ToolCallPart('write_file', {'path': f'/{id}.txt', 'content': 'x'}, tool_call_id=id)


def links_of(span: dict[str, Any]) -> list[tuple[int, int]]:
    """Return the trace and span ids that a span links to."""
    return [(link['context']['trace_id'], link['context']['span_id']) for link in span.get('links', ())]


async def test_resumption_links_to_the_turn_that_paused(exporter: TestExporter) -> None:
    write = ToolCallPart('write_file', {'path': '/a', 'content': 'x'}, tool_call_id='w')
    agent = create_deep_agent(ScriptedModel(write, 'done'), interrupt_on={'write_file': True})
    async with open_store('memory:') as store:
        pause = await (await VersionedAgent(agent, store).create()).advance('go')
        await pause.resume({pause.pending[0].id: Approve()})
    paused, resumed = spans_named(exporter, 'turn')
    assert links_of(paused) == []
    assert links_of(resumed) == [(paused['context']['trace_id'], paused['context']['span_id'])]


async def test_recovery_links_to_the_first_attempt(exporter: TestExporter) -> None:
    """The second recovery links to the turn that crashed first, and not to the recovery that crashed too."""
    stores: list[Store] = []

    async def crash(*_: object) -> str:
        await stores.pop().aclose()
        return 'lost'

    async def answer(*arguments: object) -> str:
        return await crash() if stores else 'done'

    agent = create_deep_agent(ScriptedModel(then=answer))
    async with open_store('memory:links') as keeper:
        for is_last in (False, False, True):
            async with open_store('memory:links') as store:
                stores[:] = [] if is_last else [store]
                with suppress(StoreClosedError):
                    if not await keeper.conversations():
                        await (await VersionedAgent(agent, store).create()).advance('go')
                    else:
                        await VersionedAgent(agent, store).recover()
    first, *later = spans_named(exporter, 'turn')
    assert links_of(first) == []
    assert [links_of(span) for span in later] == [[(first['context']['trace_id'], first['context']['span_id'])]] * 2


async def test_queued_turn_links_to_the_span_that_submitted_it(exporter: TestExporter) -> None:
    """A worker of any process runs it, in a trace of its own."""
    agent = create_deep_agent(ScriptedModel('one', 'two'), name='analyst')
    async with open_store('memory:') as store:
        versioned = VersionedAgent(agent, store)
        root = await versioned.create()
        with logfire.span('request'):
            traced = await submit(root, TurnOptions(prompt='go'), store)
        untraced = await submit(root, TurnOptions(prompt='go'), store)
        worker = Worker({'analyst': versioned}, store)
        for run in (traced, untraced):
            await worker.execute(run.run_id)
    (request,) = spans_named(exporter, 'request')
    turns = spans_named(exporter, 'turn analyst')
    assert [links_of(turn) for turn in turns] == [[(request['context']['trace_id'], request['context']['span_id'])], []]
    assert turns[0]['context']['trace_id'] != request['context']['trace_id']


async def test_resumption_of_an_untraced_turn_has_no_link() -> None:
    assert link_to(None, '0' * 16) == link_to('0' * 32, None) == []
