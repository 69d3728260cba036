"""Ours with a store: the cost of persisting each step, and the growth of the database with a chat."""

from __future__ import annotations

import asyncio
import gc
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bare import agent_on_a_dict
from chat import Turn, raw_bytes, size_of, turn
from loop import NO_LIMIT, Script, play, write_and_read
from measure import Case, Figures, Sizes, cpu_seconds, measure_cpu_ms, require
from pydantic_ai import Agent, AgentRunResult, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model
from pydantic_ai.usage import RequestUsage

from pydantic_deep import DeepAgentDeps, StateBackend, create_deep_agent
from pydantic_deep.store import Append, Commit, HeadMove, NewMessage, Store, VersionRecord, new_id, open_store
from pydantic_deep.versions import AgentVersion, VersionedAgent

EARLY = 10
"""The turn that late turns are compared with."""


def url_in(directory: str | Path) -> str:
    """Return the URL of a store in a directory."""
    return f'sqlite:///{directory}/agents.db'


def stored_steps(sizes: Sizes) -> Figures:
    """Return the CPU time of a fully persisted tool step, in SQLite and, if available, in PostgreSQL."""
    with tempfile.TemporaryDirectory() as directory:
        figures = {
            'stored_step_ms': asyncio.run(_stored_step_ms(url_in(directory), sizes)),
            'stored_bare_step_ms': asyncio.run(_stored_step_ms(url_in(directory), sizes, agent_on_a_dict())),
        }
    if sizes.postgres:
        figures['stored_step_postgres_ms'] = asyncio.run(_stored_step_ms(sizes.postgres, sizes))
    return figures


async def _stored_step_ms(url: str, sizes: Sizes, plain: Agent[Any, str] | None = None) -> float:
    """Return the cost of a step of `plain`; by default, of our agent with all capabilities."""
    async with open_store(url) as store:
        agent = VersionedAgent(plain or create_deep_agent(), store)

        async def run(model: Model, history: Sequence[ModelMessage]) -> object:
            root = await agent.create(backend=StateBackend())
            return await root.advance('Go on.', model=model)

        calls = write_and_read(sizes.steps)
        require((await play(run, calls)).last_result, f'value {sizes.steps - 1}')
        return (await measure_cpu_ms(sizes.repeats, lambda: play(run, calls))) / sizes.steps


def growth(sizes: Sizes) -> Figures:
    """Return the size of a database after a chat, as a multiple of the bytes of its texts and files."""
    with tempfile.TemporaryDirectory() as with_files, tempfile.TemporaryDirectory() as text_only:
        asyncio.run(_chat(Path(with_files), sizes.turns, files=True))
        asyncio.run(_chat(Path(text_only), sizes.turns, files=False))
        return {
            'growth_ratio': size_of(Path(with_files)) / raw_bytes(sizes.turns),
            'growth_text_ratio': size_of(Path(text_only)) / raw_bytes(sizes.turns, files=False),
        }


async def _chat(directory: Path, turns: int, *, files: bool) -> None:
    async with open_store(url_in(directory)) as store:
        agent = VersionedAgent(create_deep_agent(), store)
        version = await agent.create(backend=StateBackend())
        for number in range(turns):
            version = await say(version, turn(number), files=files)


async def say(version: AgentVersion[DeepAgentDeps], played: Turn, *, files: bool = True) -> AgentVersion[DeepAgentDeps]:
    """Run a turn and return its version."""
    script = script_of(played, files=files)
    after = await version.advance(played.prompt, model=script.model)
    require(after.output or '', played.answer)
    return after


def script_of(played: Turn, *, files: bool = True) -> Script:
    """Return the script of the model for a turn."""
    return Script([('write_file', {'path': played.path, 'content': played.content})] if files else [], played.answer)


def late_turns(sizes: Sizes) -> Figures:
    """Return the cost of persisting a turn after many turns, as a multiple of the tenth turn: bytes and CPU."""
    early = asyncio.run(_turns_after(EARLY, sizes.late_repeats))
    late = asyncio.run(_turns_after(sizes.late, sizes.late_repeats))
    return {
        'late_bytes_ratio': late[0] / early[0],
        'late_turn_ratio': late[1] / early[1],
        'early_turn_ms': early[1],
        'late_turn_ms': late[1],
    }


async def _turns_after(turns: int, measured: int) -> tuple[float, float]:
    """Return the bytes that a turn adds, and its additional CPU milliseconds over the same turn without persistence."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        async with open_store(url_in(directory)) as store:
            agent = VersionedAgent(create_deep_agent(), store)
            root = await agent.create(backend=StateBackend())
            record = (await keep_turns(store, root.record, turns))[-1]
        before = size_of(directory)
        async with open_store(url_in(directory)) as store:
            last = LastMessages()
            plain = create_deep_agent(capabilities=[LastMessages()])
            agent = VersionedAgent(create_deep_agent(capabilities=[last]), store)
            version = await agent.load(record.id, backend=StateBackend())
            version = await say(version, turn(turns))
            taken: list[tuple[float, float]] = []
            for number in range(turns + 1, turns + measured):
                history = last.messages
                version, stored, plain_seconds = await _beside(
                    plain, history, version, turn(number), stored_first=number % 2 == 0
                )
                taken.append((stored, plain_seconds))
        # Disturbances make a turn slower, never faster, so the fastest eighth of each kind is compared.
        stored_s, plain_s = (statistics.quantiles(seconds, n=8)[0] for seconds in zip(*taken, strict=True))
        return (size_of(directory) - before) / measured, (stored_s - plain_s) * 1000


@dataclass(kw_only=True)
class LastMessages(AbstractCapability[object]):
    """Records the messages of the last completed run, as the same objects."""

    id: str | None = 'last_messages'
    messages: list[ModelMessage] = field(default_factory=list[ModelMessage])

    async def after_run(self, ctx: RunContext[object], *, result: AgentRunResult[Any]) -> AgentRunResult[Any]:
        """Record the messages."""
        self.messages = result.all_messages()
        return result


async def _beside(
    plain: Agent[DeepAgentDeps],
    history: Sequence[ModelMessage],
    version: AgentVersion[DeepAgentDeps, str],
    played: Turn,
    *,
    stored_first: bool,
) -> tuple[AgentVersion[DeepAgentDeps, str], float, float]:
    """Return the version of a turn, its CPU seconds, and those of the same turn without persistence.

    After 1,000 turns, both scan 4,000 messages, which takes ten times the measured cost. So both scan the same objects,
    because recently loaded messages are closer together in memory; the objects are scanned once before both; the order
    alternates; and neither run collects the garbage of the other.
    """

    async def run_plain() -> float:
        start = cpu_seconds()
        await plain.run(
            played.prompt,
            model=script_of(played).model,
            deps=DeepAgentDeps(backend=StateBackend()),
            message_history=[*history],
            usage_limits=NO_LIMIT,
        )
        return cpu_seconds() - start

    async def run_stored() -> tuple[AgentVersion[DeepAgentDeps, str], float]:
        start = cpu_seconds()
        after = await say(version, played)
        return after, cpu_seconds() - start

    gc.collect()
    gc.disable()
    try:
        await run_plain()
        if stored_first:
            return *await run_stored(), await run_plain()
        floor = await run_plain()
        return *await run_stored(), floor
    finally:
        gc.enable()


def messages_of(played: Turn) -> list[ModelMessage]:
    """Return the messages that a run of a turn produces."""
    usage = RequestUsage(input_tokens=100, output_tokens=10)
    call = ToolCallPart('write_file', {'path': played.path, 'content': played.content}, tool_call_id='measured-1')
    return [
        ModelRequest(parts=[UserPromptPart(played.prompt)]),
        ModelResponse(parts=[call], usage=usage, model_name='scripted'),
        ModelRequest(parts=[ToolReturnPart('write_file', f'Wrote {played.path}.', tool_call_id='measured-1')]),
        ModelResponse(parts=[TextPart(played.answer)], usage=usage, model_name='scripted'),
    ]


async def keep_turns(store: Store, root: VersionRecord, turns: int, *, first: int = 0) -> list[VersionRecord]:
    """Add turns to a store without running them, a hundred per commit; return their versions."""
    records, count, parent = list[VersionRecord](), root.message_count, root
    for start in range(first, first + turns, 100):
        news: list[NewMessage] = []
        versions: list[VersionRecord] = []
        at = count
        for number in range(start, min(start + 100, first + turns)):
            messages = messages_of(turn(number))
            news += [NewMessage(id=new_id(), body=encoded(message)) for message in messages]
            count += len(messages)
            parent = parent._replace(
                id=new_id(), number=0, parent_id=parent.id, kind='turn', message_count=count, output='"Done."',
                usage=f'{{"input_tokens":{200 * number},"output_tokens":{20 * number},"requests":{2 * number}}}',
            )  # fmt: skip
            versions.append(parent)
        append = Append(branch_id=root.branch_id, at=at, messages=news, fork_id=new_id())
        await store.commit(Commit(append=append, versions=versions))
        records += versions
    head = HeadMove(conversation_id=root.conversation_id, expected_id=root.id, version_id=records[-1].id)
    await store.commit(Commit(heads=[head]))
    return records


def encoded(message: ModelMessage) -> bytes:
    """Return a message as JSON."""
    return ModelMessagesTypeAdapter.dump_json([message])[1:-1]


CASES: dict[str, Case] = {'store-step': stored_steps, 'store-growth': growth, 'store-late': late_turns}
"""The cases of the store, by name."""
