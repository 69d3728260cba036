"""The agent that is killed. Its turns are deterministic, so their effects can be counted.

A turn writes files, edits one, stores a todo, notes keys in a journal (`note` and, once approved, `publish`:
irreversible effects), and delegates to two workers at once: one delegates again, the other works in a fork. Histories
are summarized every few steps. The model depends on the messages alone, so a process that resumes a run of another
gets the same responses.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import anyio
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import CompactionPart, ModelMessage, ModelResponse, ToolCallPart, UserPromptPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import Approve, DeepAgentDeps, Deny, create_deep_agent
from pydantic_deep.approvals import Decision as Answer
from pydantic_deep.store import (
    ApprovalAnsweredError,
    ApprovalRecord,
    Commit,
    Committed,
    SqlStore,
)
from pydantic_deep.store.engine import Engine
from pydantic_deep.subagents import Subagent
from pydantic_deep.summarization import Messages, Summarization
from pydantic_deep.testing import Answer as Said
from pydantic_deep.testing import ScriptedModel
from pydantic_deep.versions import AgentVersion, ApprovalInbox, InboxItem, NothingAnsweredError, VersionedAgent

T = TypeVar('T')

_STATE = re.compile(r'<(?P<said>[^|>]*)\|(?P<count>\d+)>')

DeepAgent = PydanticAgent[DeepAgentDeps, Any]
Agent = VersionedAgent[DeepAgentDeps, Any]
Version = AgentVersion[DeepAgentDeps, Any]


def prompt_of(name: str, turn: int) -> str:
    return f'turn {name}/{turn}'


def keys_of(name: str, turn: int) -> list[str]:
    """Return the keys that a turn notes, each once."""
    places = ('t1', 't2', 't3', 'p', 'w1/j1', 'w1/j2', 'w1/h/j', 'w2/j', 'w2/p')
    return [f'{name}/{turn}/{place}' for place in places]


def files_of(name: str, turn: int) -> dict[str, bytes]:
    """Return the files that a turn writes."""
    content_by_place = {place: f'{name}/{turn}/{place}' for place in ('a', 'b', 'w1', 'w2', 'f')}
    content_by_place['a'] = content_by_place['a'][::-1]
    return {f'/{turn}/{place}.txt': content.encode() for place, content in content_by_place.items()}


def plan(messages: list[ModelMessage], info: AgentInfo) -> Said:
    """Answer by the number of responses since the last prompt."""
    said, count = state_of(messages)
    role, _, place = said.partition(' ')
    steps = {'turn': _turn, 'worker': _worker, 'forker': _forker, 'helper': _helper}[role](place)
    return [_numbered(step, place, count) for step in steps[count]] if count < len(steps) else f'done {place}'


def state_of(messages: Sequence[ModelMessage]) -> tuple[str, int]:
    """Return the last prompt and the number of responses since; a summary contains them for the messages it replaces."""
    said, count = '', 0
    for message in messages:
        if isinstance(message, ModelResponse):
            count += 1
            continue
        for part in message.parts:
            if isinstance(part, CompactionPart):
                found = _STATE.search(part.content or '')
                assert found is not None
                said, count = found['said'], int(found['count'])
            elif isinstance(part, UserPromptPart) and isinstance(part.content, str):
                said, count = part.content, 0
    return said, count


async def _summarize(messages: Sequence[ModelMessage]) -> str:
    await anyio.sleep(0.0005)
    return '<{}|{}>'.format(*state_of(messages))


def _summarization() -> Summarization:
    """Return a summarization that runs every few steps, so that some kills hit it."""
    return Summarization(trigger=Messages(4), keep=Messages(2), summarizer=_summarize)


def _turn(place: str) -> list[list[ToolCallPart]]:
    return [
        [_write(f'{place}/a'), _call('ls', path='/'), _call('note', key=f'{place}/t1')],
        [_task('worker', f'{place}/w1'), _task('forker', f'{place}/w2'), _call('note', key=f'{place}/t2')],
        [_call('publish', key=f'{place}/p'), _write(f'{place}/b')],
        [_edit(f'{place}/a'), _call('note', key=f'{place}/t3')],
        [_todos(place)],
    ]


def _worker(place: str) -> list[list[ToolCallPart]]:
    return [
        [_call('note', key=f'{place}/j1'), _write(place), _todos(place)],
        [_task('helper', f'{place}/h')],
        [_call('note', key=f'{place}/j2')],
    ]


def _forker(place: str) -> list[list[ToolCallPart]]:
    return [
        [_call('file', key=f'{place}/f'), _write(place), _todos(place)],
        [_call('publish', key=f'{place}/p')],
        [_call('note', key=f'{place}/j')],
    ]


def _helper(place: str) -> list[list[ToolCallPart]]:
    return [[_call('note', key=f'{place}/j')]]


def _call(tool: str, **args: object) -> ToolCallPart:
    return ToolCallPart(tool, args)


def _todos(place: str) -> ToolCallPart:
    return _call('write_todos', todos=[{'content': place, 'status': 'pending'}])


def _write(place: str) -> ToolCallPart:
    _, turn, name = place.split('/')
    return _call('write_file', path=f'/{turn}/{name}.txt', content=place)


def _edit(place: str) -> ToolCallPart:
    """Reverse the written text, which works only once."""
    _, turn, name = place.split('/')
    return _call('edit_file', path=f'/{turn}/{name}.txt', old_string=place, new_string=place[::-1])


def _task(subagent: str, place: str) -> ToolCallPart:
    return _call('task', subagent=subagent, description=f'{subagent} {place}')


def _numbered(call: ToolCallPart, place: str, count: int) -> ToolCallPart:
    args = call.args_as_dict()
    what = args.get('key') or args.get('description') or args.get('path')
    return ToolCallPart(call.tool_name, args, tool_call_id=f'{place}:{count}:{call.tool_name}:{what}')


class Waits(AbstractCapability[Any]):
    """Delays each response before it is used, so that some kills hit this moment."""

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        await anyio.sleep(0.0005)
        return response


class Journal:
    """Irreversible effects: lines in a file, each durable on its own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._answers = path.with_suffix('.answers')

    def plan(self, messages: list[ModelMessage], info: AgentInfo) -> Said:
        """Answer, and record the conversation: a written line outlives its process."""
        _, _, place = state_of(messages)[0].partition(' ')
        with self._answers.open('a') as answers:
            answers.write(f'{place.partition("/")[0]}\n')
        return plan(messages, info)

    def answers(self, name: str) -> int:
        """Return the number of responses in a conversation and its subagents."""
        return self._answers.read_text().split('\n').count(name)

    async def note(self, key: str) -> str:
        """Note a key."""
        await anyio.sleep(0.0005)  # so that parallel calls overlap, and kills hit them before and after
        descriptor = os.open(self._path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        os.write(descriptor, f'{key}\n'.encode())
        os.fsync(descriptor)
        os.close(descriptor)
        await anyio.sleep(0.0005)
        return f'noted {key}'

    async def publish(self, key: str) -> str:
        """Publish a key."""
        return await self.note(key)

    def lines(self) -> list[str]:
        return self._path.read_text().split('\n')[:-1] if self._path.exists() else []


async def file(ctx: RunContext[DeepAgentDeps], key: str) -> str:
    """Write a file, with a tool that does not declare its effect."""
    name, turn, _, place = key.split('/')
    await ctx.deps.backend.write_bytes(f'/{turn}/{place}.txt', f'{name}/{turn}/{place}'.encode())
    return f'filed {key}'


def make_deep_agent(journal: Journal) -> DeepAgent:
    helper = Subagent('helper', 'Helps.', tools=[journal.note], capabilities=[_summarization(), Waits()])
    worker = Subagent(
        'worker',
        'Works.',
        tools=[journal.note, journal.publish],
        subagents=[helper],
        capabilities=[_summarization(), Waits()],
    )
    forker = Subagent(
        'forker',
        'Works in a fork.',
        tools=[journal.note, journal.publish, file],
        isolation='fork',
        capabilities=[_summarization(), Waits()],
    )
    return create_deep_agent(
        ScriptedModel(then=journal.plan),
        name='killed',
        tools=[journal.note, journal.publish],
        subagents=[worker, forker],
        interrupt_on={'publish': True},
        capabilities=[_summarization(), Waits()],
    )


def make_agent(store: SqlStore, journal: Journal) -> Agent:
    return VersionedAgent(make_deep_agent(journal), store, make_deps=lambda: DeepAgentDeps(max_depth=2))


class MortalStore(SqlStore):
    """A store that reports acknowledged records, and whose process may be killed before or after its nth write.

    Args:
        engine: The engine.
        acknowledge: Called with each acknowledged record.
        dies_at: The write, from 1.
        dies_after: Whether it dies after the write and before the acknowledgement.
        die: How.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        acknowledge: Callable[[str], None] = lambda line: None,
        dies_at: int | None = None,
        dies_after: bool = False,
        die: Callable[[], None] = lambda: os.kill(os.getpid(), signal.SIGKILL),
    ) -> None:
        super().__init__(engine)
        self.writes = 0
        self._acknowledge = acknowledge
        self._dies_at = dies_at
        self._dies_after = dies_after
        self._die = die

    async def commit(self, commit: Commit) -> Committed:
        committed = await self._write(lambda: super(MortalStore, self).commit(commit))
        for version in commit.versions:
            self._acknowledge(f'version {version.id}')
        for call in commit.calls:
            if call.status == 'done':
                self._acknowledge(f'call {call.run_id} {call.response_id} {call.tool_call_id}')
        return committed

    async def decide(self, decisions: Any) -> list[ApprovalRecord]:
        return await self._write(lambda: super(MortalStore, self).decide(decisions))

    async def claim_approvals(self, version_id: str, run_id: str) -> list[ApprovalRecord]:
        return await self._write(lambda: super(MortalStore, self).claim_approvals(version_id, run_id))

    async def claim_workspace(self, backend: str, run_id: str, version_id: str | None) -> bool:
        return await self._write(lambda: super(MortalStore, self).claim_workspace(backend, run_id, version_id))

    async def claim_run(self, run_id: str) -> bool:
        return await self._write(lambda: super(MortalStore, self).claim_run(run_id))

    async def _write(self, write: Callable[[], Awaitable[T]]) -> T:
        self.writes += 1
        mine = self.writes
        if mine == self._dies_at and not self._dies_after:
            self._die()
        result = await write()
        if mine == self._dies_at:
            self._die()
        return result


async def answer_and_resume(agent: Agent, version: Version, journal: Journal) -> Version | None:
    """Answer the pending calls of a version and resume it; return `None` if another process already does."""
    inbox = ApprovalInbox(agent.store)
    for item in await inbox.list(limit=10_000):
        if item.version_id == version.id:
            try:
                await inbox.answer(item.id, _answer(item, journal), by='operator')
            except ApprovalAnsweredError:
                return None
    try:
        return await version.resume()
    except (ApprovalAnsweredError, NothingAnsweredError):
        return None


def may_have_run(item: InboxItem) -> bool:
    return item.preview is not None and item.preview.notice.startswith('This call may have run')


def _answer(item: InboxItem, journal: Journal) -> Answer:
    """Answer like a person who checks whether the effect has happened."""
    if may_have_run(item) and item.arguments.get('key') in journal.lines():
        return Deny('It has happened.')
    return Approve()
