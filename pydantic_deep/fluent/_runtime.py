"""Where a conversation runs: in memory (`InMemory`), or with versions in a store (`Versioned`).

A runtime runs turns and reports their outcome. `_turn` controls the pace of a turn, and `_conversation` the list of
messages that users see.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, Self, cast

from pydantic_ai import AgentRunResultEvent, AgentStreamEvent, DeferredToolRequests, UserError
from pydantic_ai.agent import AgentRunEvents
from pydantic_ai.messages import ModelMessage, ModelResponse, SystemPromptPart
from pydantic_ai.run import AgentRunResult
from pydantic_ai.usage import RunUsage, UsageLimits

from pydantic_deep._messages.coalesced_requests import identical
from pydantic_deep._messages.summary_metadata import find_summary, is_summary, read_summary
from pydantic_deep.approvals import PendingApproval, answer_approvals, pending_approvals
from pydantic_deep.deps import DeepAgentDeps, is_deps_type
from pydantic_deep.store import Commit, HeadMove, new_id
from pydantic_deep.versions import AgentVersion, TurnOptions, TurnStream, VersionedAgent, VersionedConversation
from pydantic_deep_backends import BackendProtocol

from ._composed_agent import ComposedAgent
from ._delta import DepsT, OutputT, Prompt

Events = AsyncIterator[AgentStreamEvent | AgentRunResultEvent[OutputT]]
"""The events of a run, ending with its result."""


@dataclass(frozen=True, kw_only=True)
class TurnRequest:
    """The input of a turn."""

    history: list[ModelMessage]
    """The messages before the turn."""
    known: int
    """The number of these messages that the runtime knew."""
    words: list[ModelMessage]
    """The prompt as messages."""
    options: TurnOptions
    """The prompt, or the answers to pending approvals."""

    @property
    def prompt(self) -> Prompt | None:
        """The prompt; `None` if the turn resumes with answers to approvals."""
        return self.options.prompt


class TurnOutcome(NamedTuple):
    """The outcome of a turn."""

    history: Sequence[ModelMessage]
    """All messages, including those before the turn."""
    common: int
    """The number of messages before the turn."""
    is_whole: bool = False
    """Whether a cancelled or failed turn had already completed, so that nothing is removed."""


class Runtime(ABC, Generic[DepsT, OutputT]):
    """Runs the turns of one conversation and holds its state."""

    conversation_id: str
    """The id of the conversation."""
    agent: ComposedAgent[DepsT, OutputT]
    """The agent, with the configuration of the conversation."""
    head: AgentVersion[DepsT, OutputT] | None = None
    """The version at the head of the conversation; `None` in memory, and before the first turn."""
    _deps: DepsT | None
    """The deps of all turns, if they were passed."""

    @property
    @abstractmethod
    def usage(self) -> RunUsage:
        """The usage of the conversation, including a running turn."""

    @property
    @abstractmethod
    def pending(self) -> list[PendingApproval]:
        """The pending approvals."""

    @property
    def is_suspended(self) -> bool:
        """Whether the failed turn has no end in the store, so that it can be resumed."""
        return False

    async def refresh(self) -> Sequence[ModelMessage] | None:
        """Return the history if a store has another one than at the last call; otherwise `None`."""
        return None

    async def system_prompt(self, history: Sequence[ModelMessage]) -> list[SystemPromptPart]:
        """Return the system prompts of the agent, for a history without any."""
        agent = self.agent
        deps = self._deps
        if deps is None and is_deps_type(agent.deps_type):
            deps = cast('DepsT', agent.deps_type())
        return await agent.system_prompt_parts(
            deps=cast('DepsT', deps), model=agent.config.model, message_history=history, usage=self.usage
        )

    @abstractmethod
    def run(self, ask: TurnRequest) -> AbstractAsyncContextManager[Events[OutputT]]:
        """Run a turn."""

    @abstractmethod
    async def settle(
        self, ask: TurnRequest, result: AgentRunResult[OutputT] | None, seen: Sequence[ModelMessage]
    ) -> TurnOutcome | None:
        """Return the outcome of a turn; `None` if it had no effect, so that it can be repeated.

        Args:
            ask: The input of the turn.
            result: The result; `None` if the turn was cancelled or failed.
            seen: The messages up to the last complete one.
        """

    async def export(self, messages: Sequence[ModelMessage]) -> list[ModelMessage]:
        """Return messages, with those that summaries have replaced in a store."""
        return list(messages)

    @abstractmethod
    def branch(self) -> Self:
        """Return a runtime that continues from the current state of this one."""


class InMemory(Runtime[DepsT, OutputT]):
    """Runs turns in memory: a conversation lasts as long as its object."""

    def __init__(self, agent: ComposedAgent[DepsT, OutputT], deps: DepsT | None, conversation_id: str | None) -> None:
        self.agent = agent
        self.conversation_id = conversation_id or new_id()
        self._deps = deps
        self._usage = RunUsage()
        self._requests: DeferredToolRequests | None = None
        self._events: AgentRunEvents[OutputT] | None = None

    @property
    def usage(self) -> RunUsage:
        return self._usage

    @property
    def pending(self) -> list[PendingApproval]:
        return pending_approvals(self._requests)

    @asynccontextmanager
    async def run(self, ask: TurnRequest) -> AsyncGenerator[Events[OutputT]]:
        config = self.agent.config
        deps = self._take_deps()
        limits = deps.usage_limits if isinstance(deps, DeepAgentDeps) else None
        async with self.agent.run_stream_events(
            ask.prompt,
            message_history=ask.history,
            deferred_tool_results=answer_approvals(self._requests, ask.options.answers) if ask.prompt is None else None,
            conversation_id=self.conversation_id,
            model=config.model,
            model_settings=config.settings,
            deps=deps,
            usage=self._usage,
            usage_limits=limits or UsageLimits(request_limit=None),
            infer_name=False,
        ) as events:
            self._events = events
            yield events

    def _take_deps(self) -> DepsT:
        """Return the deps of all turns, so that files and todos persist between turns."""
        if self._deps is None and is_deps_type(self.agent.deps_type):
            self._deps = cast('DepsT', self.agent.deps_type())
        return cast('DepsT', self._deps)

    async def settle(
        self, ask: TurnRequest, result: AgentRunResult[OutputT] | None, seen: Sequence[ModelMessage]
    ) -> TurnOutcome | None:
        events, self._events = self._events, None
        if result is not None:
            self._requests = result.output if isinstance(result.output, DeferredToolRequests) else None
            done = result.all_messages()
            return TurnOutcome(done, identical(ask.history, done))
        if events is None:
            return None
        try:
            live = events.all_messages()
        except UserError:  # the run stopped before it had messages
            return None
        done = _at_end(live, seen)
        common = identical(ask.history, done)
        if ask.prompt is not None and not _is_answered(done[common:]):
            return None
        self._requests = None
        return TurnOutcome(done, common)

    def branch(self) -> Self:
        branch = type(self)(ComposedAgent(self.agent.wrapped), self._deps, None)
        branch.agent.config = self.agent.config
        branch._usage, branch._requests = RunUsage() + self._usage, self._requests
        return branch


class Versioned(Runtime[DepsT, OutputT]):
    """Runs turns with a store: every turn creates a version, and the head of the conversation moves to it."""

    def __init__(
        self,
        agent: ComposedAgent[DepsT, OutputT],
        versioned: VersionedAgent[DepsT, OutputT],
        deps: DepsT | None,
        conversation_id: str | None,
    ) -> None:
        self.agent = agent
        self.conversation_id = conversation_id or new_id()
        self._versioned = versioned.with_agent(agent)
        self._session = self._versioned.session
        self._deps = deps
        self._backend: BackendProtocol | None = deps.backend if isinstance(deps, DeepAgentDeps) else None
        self._moves_head = True
        self._stream: TurnStream[DepsT, OutputT] | None = None

    @property
    def handle(self) -> VersionedConversation[DepsT, OutputT]:
        """The conversation as the store has it."""
        return self._versioned.conversation(self.conversation_id, backend=self._backend)

    @property
    def usage(self) -> RunUsage:
        running = None if self._stream is None else self._stream.usage
        if running is not None:
            return running
        return RunUsage() if self.head is None else self.head.usage

    @property
    def pending(self) -> list[PendingApproval]:
        return [] if self.head is None else self.head.pending

    @property
    def is_suspended(self) -> bool:
        return self._stream is not None and self._stream.is_suspended

    async def refresh(self) -> Sequence[ModelMessage] | None:
        if self.head is not None and not self._moves_head:
            return None
        conversation = await self._session.store.conversation(self.conversation_id)
        if conversation is None or (self.head is not None and conversation.head_id == self.head.id):
            return None
        self.head = await self.handle.head()
        return (await self._session.history(self.head.record))[0]

    @asynccontextmanager
    async def run(self, ask: TurnRequest) -> AsyncGenerator[Events[OutputT]]:
        config = self.agent.config
        head = self.head or await self._versioned.create(
            deps=self._deps, instructions=config.instructions, conversation_id=self.conversation_id
        )
        options = replace(ask.options, deps=self._deps, moves_head=self._moves_head)
        if ask.prompt is not None:
            head = await head.with_messages(ask.history, moves_head=self._moves_head)
            head = self.head = await self._with_instructions(head)
            options = replace(options, model=config.model, model_settings=config.settings)
        stream = head.stream(options)
        async with stream:
            self._stream = stream
            yield stream.events()

    async def _with_instructions(self, head: AgentVersion[DepsT, OutputT]) -> AgentVersion[DepsT, OutputT]:
        """Return the version to continue from. It stores the instructions of builders, for other handles of the
        conversation.

        Raises:
            VersionConflictError: The head was moved concurrently. Nothing has run.
        """
        new = [text for text in self.agent.config.instructions if text not in head.instructions]
        if not new:
            return head
        updated = await head.with_metadata(instructions=[*head.instructions, *new])
        if self._moves_head:
            move = HeadMove(conversation_id=self.conversation_id, expected_id=head.id, version_id=updated.id)
            await self._session.store.commit(Commit(heads=[move]))
        return updated

    async def settle(
        self, ask: TurnRequest, result: AgentRunResult[OutputT] | None, seen: Sequence[ModelMessage]
    ) -> TurnOutcome | None:
        stream, self._stream = self._stream, None
        if stream is None or stream.version_id is None:
            return None
        if stream.conflict is not None:
            raise stream.conflict
        tip = await self._versioned.load(stream.version_id, backend=self._backend)
        history, _ = await self._session.history(tip.record)
        common = _common_length(ask.history, history)
        if result is None and ask.prompt is not None and not _is_answered(history[common:]):
            return None
        # A step means that the end of the turn was not stored. The head stays, and the next turn stores the messages.
        if tip.kind != 'step':
            self.head = tip
        return TurnOutcome(history, common, result is None and tip.state in ('complete', 'awaiting_approval'))

    async def export(self, messages: Sequence[ModelMessage]) -> list[ModelMessage]:
        summary = find_summary(messages)
        if self.head is None or summary is None or read_summary(summary).messages is not None:
            return list(messages)
        earlier = await self.head.earlier_messages()
        return [_with_replaced(message, earlier) for message in messages]

    def branch(self) -> Self:
        agent = ComposedAgent(self.agent.wrapped)
        agent.config = self.agent.config
        branch = type(self)(agent, self._versioned, self._deps, self.conversation_id)
        branch._moves_head = False
        if self.head is not None:  # turns of the branch use its own agent
            branch.head = replace(self.head, _session=branch._session)
        return branch


def _at_end(live: Sequence[ModelMessage], seen: Sequence[ModelMessage]) -> Sequence[ModelMessage]:
    """Return the messages of a stopped run. Call results may have been emitted before they are in its list."""
    return seen if len(live) == len(seen) - 1 and identical(live, seen) == len(live) else live


def _common_length(before: Sequence[ModelMessage], history: Sequence[ModelMessage]) -> int:
    """Return the length of `before` if a history from a store begins with it; 0 if the history was rewritten."""
    count = len(before)
    is_same = count <= len(history) and before[:1] == history[: min(count, 1)] and before[-1:] == history[:count][-1:]
    return count if is_same else 0


def _is_answered(messages: Sequence[ModelMessage]) -> bool:
    return any(isinstance(message, ModelResponse) and message.parts for message in messages)


def _with_replaced(message: ModelMessage, earlier: Sequence[ModelMessage]) -> ModelMessage:
    """Return a message whose summary includes the messages that it replaced."""
    if not any(map(is_summary, message.parts)) or isinstance(message, ModelResponse):
        return message
    parts = [
        replace(read_summary(part), messages=earlier).part(part.content or '') if is_summary(part) else part
        for part in message.parts
    ]
    return replace(message, parts=parts)
