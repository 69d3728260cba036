"""Replays: a turn runs again without model and tools, and every request is compared with the recorded one."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import ModelRetry
from pydantic_ai.capabilities import AbstractCapability, ProcessEventStream, ProcessHistory
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import RunContext
from pydantic_core import to_json

from pydantic_deep import Approve, LocalBackend, StateBackend, Subagent, create_deep_agent
from pydantic_deep.store import open_store
from pydantic_deep.testing import ScriptedModel, Step, call
from pydantic_deep.versions import AgentVersion, InstructionsWarning, VersionedAgent
from pydantic_deep_backends import BackendUnavailableError
from tests.versions.conftest import MakeAgent, SpyStore

pytestmark = pytest.mark.anyio

Version = AgentVersion[Any, Any]


def add(a: int, b: int) -> int:
    """Add.

    Args:
        a: One.
        b: Another.
    """
    return a + b


STEPS: tuple[Step, ...] = (call('add', a=1, b=2), [call('add', a=3, b=4), call('ls')], 'It is 7.')


def said(messages: Sequence[ModelMessage]) -> list[Sequence[object]]:
    return [message.parts for message in messages if isinstance(message, ModelResponse)]


async def test_replay_is_exact(make: MakeAgent, store: SpyStore):
    agent = make(*STEPS, tools=[add])
    turn = await (await agent.create()).advance('go', temperature=0.5)

    replay = await turn.replay()

    assert bool(replay)
    assert (replay.requests, replay.difference, replay.output) == (3, None, 'It is 7.')
    assert said(replay.messages) == said(await turn.messages())


async def test_replay_calls_no_model_and_no_tool_and_writes_nothing(make: MakeAgent, store: SpyStore):
    calls: list[str] = []

    def note(text: str) -> str:
        calls.append(text)
        return text

    agent = make(call('note', text='a'), call('write_file', path='/a.txt', content='a'), 'done', tools=[note])
    turn = await (await agent.create()).advance('go')
    model: Any = agent.agent.model
    asked, calls[:] = len(model.requests), []
    store.commits.clear()
    store.counting.writes.clear()

    assert bool(await turn.replay())

    assert (len(model.requests), calls, store.commits, store.counting.writes) == (asked, [], [], [])


async def test_later_turns_and_streams_replay_in_other_processes(make: MakeAgent):
    agent = make('one', *STEPS, tools=[add])
    first = await (await agent.create(model_settings={'temperature': 0})).advance('a')
    stream = first.advance_stream('b', max_tokens=5)
    async for _ in stream:
        pass

    other = make(tools=[add])
    for version in (first, stream.version):
        assert bool(await (await other.load(version.id)).replay())


async def test_turn_with_commands_replays_without_running_them(make: MakeAgent, tmp_path: Path):
    backend = LocalBackend(tmp_path, allow_commands=True)
    steps = (call('execute', command='echo ran >> ran.txt'), 'done')
    turn = await (await make(*steps).create(backend=backend)).advance('go')
    again = await (await make(*steps).load(turn.id)).replay()
    assert again.difference is None
    assert (tmp_path / 'ran.txt').read_text() == 'ran\n'


async def test_replay_uses_the_backend_of_the_turn_and_not_of_the_conversation(make: MakeAgent, tmp_path: Path):
    agent = make('one', 'two', 'three')
    root = await agent.create(backend=LocalBackend(tmp_path))
    one = await root.advance('go')
    two = await (await agent.load(one.id, backend=LocalBackend(tmp_path, allow_commands=True))).advance('go')
    three = await (await agent.load(two.id, backend=StateBackend())).advance('go')
    assert [bool(await turn.replay()) for turn in (one, two)] == [True, True]
    assert three.record.backend == two.record.backend


async def test_hook_that_runs_commands_raises_in_a_replay(make: MakeAgent, tmp_path: Path):
    @dataclass
    class Runs(AbstractCapability[Any]):
        async def before_model_request(
            self, ctx: RunContext[Any], request_context: ModelRequestContext
        ) -> ModelRequestContext:
            await ctx.deps.backend.run(['true'])
            return request_context

    agent = make('done', capabilities=[Runs()])
    turn = await (await agent.create(backend=LocalBackend(tmp_path, allow_commands=True))).advance('go')
    with pytest.raises(BackendUnavailableError, match='runs no commands'):
        await turn.replay()


async def test_pauses_and_resumed_turns_replay(make: MakeAgent):
    agent = make(
        [call('write_file', path='/a', content='1'), call('write_file', path='/b', content='2'), call('ls')], 'done',
        interrupt_on={'write_file': True},
    )  # fmt: skip
    paused = await (await agent.create()).advance('go')
    again = await paused.resume({paused.pending[0].id: Approve()})
    done = await again.resume({again.pending[0].id: Approve()})

    assert (paused.kind, again.kind, done.kind) == ('pause', 'pause', 'turn')
    for version in (paused, again, done):
        replay = await version.replay()
        assert replay.difference is None


async def test_turn_resumed_in_an_edited_directory_replays(make: MakeAgent, tmp_path: Path):
    agent = make(call('write_file', path='/a', content='1'), 'done', interrupt_on={'write_file': True})
    paused = await (await agent.create(backend=LocalBackend(tmp_path))).advance('go')
    (tmp_path / 'notes.txt').write_text('meanwhile')
    done = await paused.resume({paused.pending[0].id: Approve()})

    replay = await done.replay()

    assert (replay.difference, replay.requests) == (None, 1)


async def test_turns_of_subagents_and_their_pauses_replay(make: MakeAgent):
    agent = make(
        call('task', subagent='writer', description='write'), call('write_file', path='/a', content='1'), 'written',
        'done', interrupt_on={'write_file': True}, subagents=[Subagent('writer', 'Writes.')],
    )  # fmt: skip
    paused = await (await agent.create()).advance('go')
    done = await paused.resume({paused.pending[0].id: Approve()})

    assert done.output == 'done'
    for version in (paused, done):
        assert (await version.replay()).difference is None


async def test_failed_turn_replays_up_to_its_failure(make: MakeAgent):
    agent = make(call('ls'), RuntimeError('overloaded'))
    with pytest.raises(RuntimeError):
        await (await agent.create()).advance('go')

    [failed, _] = await agent.list()
    replay = await failed.replay()

    assert (replay.requests, replay.difference, replay.output) == (1, None, None)


@pytest.mark.parametrize('kind', ['root', 'step', 'edit'])
async def test_only_the_end_of_a_turn_can_be_replayed(make: MakeAgent, kind: str):
    agent = make(call('ls'), 'done')
    root = await agent.create()
    turn = await root.advance('go')
    versions = {'root': root, 'step': (await turn.steps())[0], 'edit': await turn.with_metadata({'a': 1})}

    with pytest.raises(ValueError, match=f'is not the end of a turn, but of kind {kind!r}'):
        await versions[kind].replay()


async def replay_elsewhere(make: MakeAgent, turn: Version, **options: Any) -> tuple[int, str, str]:
    """Replay a turn with a changed agent, and return the first difference."""
    options.setdefault('tools', [add])
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', InstructionsWarning)
        replay = await (await make(**options).load(turn.id)).replay()
    assert not replay
    assert replay.difference is not None
    return replay.difference.number, replay.difference.part, replay.difference.detail


async def test_changed_instruction_is_reported(make: MakeAgent):
    turn = await (await make(*STEPS, tools=[add], instructions='Be brief.').create()).advance('go')

    number, part, detail = await replay_elsewhere(make, turn, instructions='Be long.')

    assert (number, part) == (1, 'instructions')
    assert '-' in detail
    assert 'Be brief.' in detail
    assert 'Be long.' in detail


async def test_changed_tool_is_reported(make: MakeAgent):
    turn = await (await make(*STEPS, tools=[add]).create()).advance('go')

    def other(a: int, b: int, c: int = 0) -> int:
        return a + b

    other.__name__ = 'add'

    number, part, detail = await replay_elsewhere(make, turn, tools=[other])

    assert (number, part) == (1, 'tools')
    assert '"c"' in detail


async def test_changed_setting_is_reported(make: MakeAgent):
    turn = await (await make(*STEPS, tools=[add], model_settings={'seed': 7}).create()).advance('go')

    number, part, detail = await replay_elsewhere(make, turn, model_settings={'seed': 8})

    assert (number, part) == (1, 'settings')
    assert '"seed": 7' in detail
    assert '"seed": 8' in detail


class Rewriter(AbstractCapability[object]):
    """Replaces the content of some parts."""

    def __init__(self, part: type[Any], content: str) -> None:
        self.part = part
        self.content = content

    async def before_model_request(
        self, ctx: RunContext[object], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        request_context.messages = [self._rewritten(message) for message in request_context.messages]
        return request_context

    def _rewritten(self, message: ModelMessage) -> ModelMessage:
        if not isinstance(message, ModelRequest):
            return message
        parts = [replace(part, content=self.content) if isinstance(part, self.part) else part for part in message.parts]
        return replace(message, parts=parts)


async def test_changed_tool_result_is_reported(make: MakeAgent):
    turn = await (await make(*STEPS, tools=[add]).create()).advance('go')

    number, part, detail = await replay_elsewhere(make, turn, capabilities=[Rewriter(ToolReturnPart, 'forged')])

    assert (number, part) == (2, 'messages')
    assert 'message 2' in detail
    assert 'forged' in detail


async def test_changed_prompt_is_reported(make: MakeAgent):
    turn = await (await make(*STEPS, tools=[add]).create()).advance('the goal')

    number, part, detail = await replay_elsewhere(make, turn, capabilities=[Rewriter(UserPromptPart, 'other')])

    assert (number, part) == (1, 'messages')
    assert 'the goal' in detail
    assert 'other' in detail


async def test_per_request_trims_are_not_a_difference(make: MakeAgent):
    """The request was trimmed when it was recorded, and is trimmed in the replay."""
    trim = Rewriter(UserPromptPart, 'short')
    turn = await (await make(*STEPS, tools=[add], capabilities=[trim]).create()).advance('a long prompt')

    assert (await turn.replay()).difference is None
    number, part, detail = await replay_elsewhere(make, turn)
    assert (number, part) == (1, 'messages')
    assert detail


async def test_missing_request_is_reported(make: MakeAgent):
    class Impatient(AbstractCapability[object]):
        async def after_model_request(
            self, ctx: Any, *, request_context: Any, response: ModelResponse
        ) -> ModelResponse:
            return replace(response, parts=[TextPart('enough')])

    turn = await (await make(*STEPS, tools=[add]).create()).advance('go')

    number, part, detail = await replay_elsewhere(make, turn, capabilities=[Impatient()])

    assert (number, part) == (2, 'count')
    assert detail == '3 requests were recorded, and the replay made 1.'


async def test_additional_request_is_reported(make: MakeAgent):
    class Picky(AbstractCapability[object]):
        async def after_model_request(
            self, ctx: Any, *, request_context: Any, response: ModelResponse
        ) -> ModelResponse:
            if response.tool_calls:
                return response
            raise ModelRetry('again')

    turn = await (await make(*STEPS, tools=[add]).create()).advance('go')

    number, part, detail = await replay_elsewhere(make, turn, capabilities=[Picky()])

    assert (number, part) == (4, 'count')
    assert detail.startswith('3 requests were recorded, and the replay made')


async def test_replay_returns_output_and_messages(make: MakeAgent):
    turn = await (await make(*STEPS, tools=[add]).create()).advance('go')

    replay = await turn.replay()

    assert to_json(replay.output) == b'"It is 7."'
    assert len(replay.messages) == turn.message_count == 6


async def test_turn_with_an_event_stream_replays() -> None:
    async def watch(_: RunContext[Any], events: AsyncIterable[Any]) -> None:
        async for _event in events:
            pass

    agent = create_deep_agent(
        ScriptedModel(call('write_file', path='/a.txt', content='a'), 'done'), capabilities=[ProcessEventStream(watch)]
    )
    async with open_store('memory:') as store:
        after = await (await VersionedAgent(agent, store).create()).advance('go')
        replay = await after.replay()
    assert (replay.difference, replay.requests, replay.output) == (None, 2, 'done')


def _shortened(messages: list[ModelMessage]) -> list[ModelMessage]:
    return messages[-3:] if isinstance(messages[-3:][0], ModelRequest) else messages


def _introduced(messages: list[ModelMessage]) -> list[ModelMessage]:
    return [ModelRequest(parts=[SystemPromptPart('Be good.')]), *messages]


@pytest.mark.parametrize('process', [_shortened, _introduced])
async def test_replay_with_a_history_processor_is_exact(
    make_plain: MakeAgent, process: Callable[[list[ModelMessage]], list[ModelMessage]]
):
    """A turn whose history pydantic-ai's `ProcessHistory` rewrites, also within the turn, replays without a difference:
    replaced messages are read from the old branch."""
    agent = make_plain(call('add', a=1, b=2), call('add', a=3, b=4), 'end', 'more', tools=[add],
                       capabilities=[ProcessHistory(process)])  # fmt: skip
    turn = await (await agent.create()).advance('go')
    later = await turn.advance('on')
    for version, output, requests in ((turn, 'end', 3), (later, 'more', 1)):
        replay = await version.replay()
        assert (replay.difference, replay.output, replay.requests) == (None, output, requests)
