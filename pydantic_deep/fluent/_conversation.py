"""`Conversation`: the handle that a user holds, always current, and iterated over for what comes next."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Generic, Literal, Self, cast, overload

from pydantic_ai import (
    AgentRunResultEvent,
    DeferredToolRequests,
    PartDeltaEvent,
    PartStartEvent,
    RunCancelled,
    TextPart,
    TextPartDelta,
)
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, SystemPromptPart, repair_messages
from pydantic_ai.run import AgentRunResult
from pydantic_ai.usage import RunUsage

from pydantic_deep._checks import check_names, check_prompt
from pydantic_deep._messages.coalesced_requests import identical
from pydantic_deep._run_to_completion import run_to_completion
from pydantic_deep.agent import create_deep_agent
from pydantic_deep.approvals import Decision, NothingPendingError, PendingApproval
from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.store import Store, VersionConflictError
from pydantic_deep.versions import AgentVersion, ApprovalsPendingError, VersionedAgent, VersionedConversation

from ._builder import PromptBuilder
from ._composed_agent import ComposedAgent
from ._delta import Delta, DepsT, OutputT, joined, split_prompt
from ._runtime import InMemory, Runtime, TurnOutcome, TurnRequest, Versioned
from ._transcript import MessageList
from ._turn import Turn
from .errors import ConversationBusyError, NothingToAnswerError

ConversationState = Literal['ready', 'running', 'complete', 'awaiting_approval', 'interrupted', 'failed', 'suspended']
"""What a conversation is at: nothing was asked yet, or what became of its last turn. A `suspended` turn has no end in the
store: `VersionedAgent.recover` resumes it, and `VersionedAgent.cancel` ends it."""


class Conversation(Generic[DepsT, OutputT]):
    """One dialogue with an agent. It moves with each turn, so that whoever holds it never sees an old state.

    Iterate over it for the messages that the turn makes, each when it is complete: a response of the model before its
    calls run, a request with all of their results before it is sent. To stop, stop iterating: pending calls are
    answered as interrupted and never run. `await anext(conversation)` takes one message; the turn then waits for the
    next `anext` or loop, until it is stopped or another one begins. `continuation` is a builder for what is said next, at any moment.

    The list `messages` may be changed: what is at its end when a turn begins is answered. Configuration is never in it.

    One turn runs at a time: of several builders on one conversation, whoever starts while somebody waits for a turn gets
    `ConversationBusyError` and can start again, and who starts while nobody waits stops the turn before. `branch()`
    makes another conversation that goes on beside this one.

    With a store every turn is a version, kept as it happens. Several conversations of the same id, in any processes,
    are handles of one; of two that run turns at once, one moves the head, and the other gets `VersionConflictError`
    and its turn is kept as a branch.

    Args:
        messages: What was said before, such as a transcript that was loaded. A `MessageList` is used as it is.
        agent: The agent, or a `VersionedAgent`, whose store is used; by default a deep agent.
        deps: The deps of all turns; by default fresh ones, made once.
        store: Where versions are kept; without one, the conversation lasts as long as the object.
        conversation_id: The conversation, to go on with it where the store has it; by default a new one.
    """

    @overload
    def __init__(
        self: Conversation[DeepAgentDeps, str],
        messages: MessageList | Sequence[ModelMessage] = (),
        *,
        deps: DeepAgentDeps | None = None,
        store: Store | None = None,
        conversation_id: str | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self,
        messages: MessageList | Sequence[ModelMessage] = (),
        *,
        agent: AbstractAgent[DepsT, OutputT] | VersionedAgent[DepsT, OutputT],
        deps: DepsT | None = None,
        store: Store | None = None,
        conversation_id: str | None = None,
    ) -> None: ...

    def __init__(
        self,
        messages: MessageList | Sequence[ModelMessage] = (),
        *,
        agent: AbstractAgent[Any, Any] | VersionedAgent[Any, Any] | None = None,
        deps: Any = None,
        store: Store | None = None,
        conversation_id: str | None = None,
    ) -> None:
        check_names(conversation_id=conversation_id)
        runtime = _runtime_for(create_deep_agent() if agent is None else agent, deps, store, conversation_id)
        self._begin_on(runtime, messages if isinstance(messages, MessageList) else MessageList(messages))

    def _begin_on(self, runtime: Runtime[DepsT, OutputT], messages: MessageList) -> None:
        self._runtime = runtime
        self._messages = messages
        self._known = 0
        """How many messages, from the first on, the ground knows or a turn has made. Those after them are new."""
        self._state: ConversationState = 'ready'
        self._output: OutputT | None = None
        self._turn: Turn[Any] | None = None
        self._iteration: AsyncGenerator[ModelMessage] | None = None
        """The turn that `anext` has begun."""
        self._is_waited_for = False

    def __repr__(self) -> str:
        return f'<Conversation {self.id}: {self.state}, {len(self.messages)} messages>'

    @property
    def id(self) -> str:
        """The `conversation_id`."""
        return self._runtime.conversation_id

    @property
    def messages(self) -> MessageList:
        """All messages up to now, also while a turn runs; the only thing of a conversation that is serialized."""
        return self._messages

    @property
    def continuation(self) -> PromptBuilder[DepsT, Conversation[DepsT, OutputT]]:
        """A builder of what is said next. It holds no messages: what it starts goes on from where this is then."""
        return PromptBuilder(self)

    @property
    def state(self) -> ConversationState:
        """What became of the last turn, or that one runs."""
        return self._state

    @property
    def output(self) -> OutputT | None:
        """What the last turn answered with; `None` if it has not."""
        return self._output

    @property
    def usage(self) -> RunUsage:
        """What the conversation has used; it grows while a turn runs."""
        return self._runtime.usage

    @property
    def pending(self) -> list[PendingApproval]:
        """What waits for a person, subagents included: answer it with `resume`."""
        return self._runtime.pending

    @property
    def head(self) -> AgentVersion[DepsT, OutputT] | None:
        """The version that the conversation is at; `None` without a store, and before the first turn or `load`."""
        return self._runtime.head if isinstance(self._runtime, Versioned) else None

    @property
    def versions(self) -> VersionedConversation[DepsT, OutputT] | None:
        """The conversation as its store has it, with all branches; `None` without a store."""
        return self._runtime.handle if isinstance(self._runtime, Versioned) else None

    def begin(self, delta: Delta[DepsT]) -> Self:
        """Say and set what a builder has gathered: `PromptBuilder.start` calls it.

        Raises:
            ConversationBusyError: Somebody is waiting for a turn. Nothing has changed.
        """
        if self._is_waited_for:
            raise ConversationBusyError(self.id)
        self._iteration = None
        self._runtime.agent.config = self._runtime.agent.config.plus(delta.config)
        self._known = min(self._known, len(self.messages))
        for message in deepcopy(delta.messages):  # another conversation may be started with the same ones
            whole = joined(self.messages[-1], message) if len(self.messages) > self._known else None
            if whole is None:
                self.messages.append(message)
            else:
                self.messages[-1] = whole
        return self

    def branch(self) -> Conversation[DepsT, OutputT]:
        """Return another conversation that goes on from here, with the same configuration, beside this one.

        With a store its turns are versions on branches of the same conversation, and leave the head where it is.
        """
        branch = cast('Conversation[DepsT, OutputT]', object.__new__(Conversation))
        branch._begin_on(self._runtime.branch(), MessageList(deepcopy(list(self.messages))))
        branch._known, branch._state, branch._output = self._known, self._state, self._output
        return branch

    async def load(self) -> Self:
        """Take in what the store has of the conversation, and return it. A turn does so before it begins."""
        newest = await self._runtime.refresh()
        if newest is not None:
            self.messages[: self._known] = newest
            self._known = len(newest)
            head = self.head
            if head is not None and head.kind != 'root':
                self._state, self._output = head.state, head.output
        return self

    async def __aenter__(self) -> Self:
        return await self.load()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    def __aiter__(self) -> AsyncIterator[ModelMessage]:
        return self._iterate(is_text=False) if self._iteration is None else self._iteration

    async def __anext__(self) -> ModelMessage:
        if self._is_waited_for:
            raise ConversationBusyError(self.id)
        iteration = self._iteration = self._iteration or self._iterate(is_text=False)
        try:
            return await anext(iteration)
        except BaseException:
            if self._iteration is iteration:
                self._iteration = None
            raise

    def text_stream(self) -> AsyncGenerator[str]:
        """Run the turn as an iteration does, and yield the text of the answers as it comes."""
        return self._iterate(is_text=True)

    async def run(self) -> OutputT:
        """Run the turn to its end, and return its output: that which `anext` has begun, or else a new one. Whoever is
        cancelled here stops it.

        Raises:
            NothingToAnswerError: The last message is none of the user.
            ConversationBusyError: Somebody else is waiting for a turn.
            ApprovalsPendingError: Calls wait for a person: `resume`.
            VersionConflictError: Somebody else moved the head meanwhile. The turn is kept as a branch.
        """
        with self._waiting():
            begun = self._iteration if len(self.messages) <= self._known else None  # else something else is asked
            turn = await self._open(is_text=False) if begun is None else self._turn
            if turn is None:
                raise NothingToAnswerError(self.id)
            try:
                return await self._drain(turn)
            finally:
                if begun is not None:
                    await begun.aclose()

    async def resume(
        self, answers: Mapping[str, Decision] | None = None, *, by: str | None = None, reason: str | None = None
    ) -> OutputT:
        """Go on with what waits, to the end, and return the output. What is not answered waits on.

        Args:
            answers: By the `id` of each of `pending`; with a store also without any, for what its inbox has.
            by: Who answers; a store keeps it.
            reason: Why.

        Raises:
            NothingPendingError: Nothing waits.
            UnknownApprovalError: No pending call has such an id.
            ConversationBusyError: Somebody else is waiting for a turn.
        """
        with self._waiting():
            await self.stop()
            await self.load()
            if not self.pending:
                raise NothingPendingError(f'Nothing waits in the conversation {self.id}: it is {self.state}.')
            history = self.messages[: self._known]
            ask = TurnRequest(history=history, known=self._known, words=[], answers=answers or {}, by=by, reason=reason)
            return await self._drain(self._begin_turn(ask, is_text=False))

    async def stop(self) -> None:
        """Stop the turn that runs, if one does: what it has done stays, and what it has not is never done."""
        self._iteration = None
        await self._stop_turn()

    async def export(self) -> MessageList:
        """Return the messages with all that summaries among them stand for, which a store keeps elsewhere."""
        return MessageList(await self._runtime.export(list(self.messages)))

    # Within

    async def _iterate(self, *, is_text: bool) -> AsyncGenerator[Any]:
        with self._waiting():
            turn = await self._open(is_text=is_text)
        if turn is None:
            return
        try:
            while True:
                with self._waiting():
                    item = await turn.next()
                if item is None:
                    return
                yield item
        finally:
            if self._turn is turn:
                self._iteration = None
            await turn.stop()

    @contextmanager
    def _waiting(self) -> Generator[None]:
        if self._is_waited_for:
            raise ConversationBusyError(self.id)
        self._is_waited_for = True
        try:
            yield
        finally:
            self._is_waited_for = False

    async def _open(self, *, is_text: bool) -> Turn[Any] | None:
        """Return the turn that answers what the user says at the end of the messages; `None` if that is nothing."""
        await self._stop_turn()
        await self.load()
        self._known = min(self._known, len(self.messages))
        history, prompt = split_prompt(self.messages)
        if prompt is None:
            return None
        check_prompt('prompt', prompt)
        if self.pending:
            head = self.head
            raise ApprovalsPendingError(self.id if head is None else head.id, [each.id for each in self.pending])
        if history and not self._known and await self._add_system_prompt(history):
            history, _ = split_prompt(self.messages)
        words = self.messages[len(history) :]
        ask = TurnRequest(history=_repaired(history, self._known), known=self._known, words=words, prompt=prompt)
        self._known = len(self.messages)
        return self._begin_turn(ask, is_text=is_text)

    async def _add_system_prompt(self, history: Sequence[ModelMessage]) -> bool:
        """Put the system prompts of the agent before messages that came without: an agent adds them to no history.

        Returns:
            Whether there are any.
        """
        if any(isinstance(part, SystemPromptPart) for message in history for part in message.parts):
            return False
        prompts = await self._runtime.system_prompt(history)
        if not prompts:
            return False
        first = self.messages[0]
        if isinstance(first, ModelRequest):
            self.messages[0] = replace(first, parts=[*prompts, *first.parts])
        else:
            self.messages.insert(0, ModelRequest(prompts))
        return True

    def _begin_turn(self, ask: TurnRequest, *, is_text: bool) -> Turn[Any]:
        self._turn = Turn(self.id, partial(self._work, ask, is_text))
        return self._turn

    async def _drain(self, turn: Turn[Any]) -> OutputT:
        while await turn.next() is not None:
            pass
        return cast('OutputT', self.output)

    async def _stop_turn(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            await turn.stop()

    async def _work(self, ask: TurnRequest, is_text: bool, turn: Turn[Any]) -> None:
        """Run a turn, in its own task."""
        self._state, self._output = 'running', None
        seen = _Seen()
        self._runtime.agent.listener = partial(self._see, seen, None if is_text else turn)
        result: AgentRunResult[OutputT] | None = None
        try:
            async with self._runtime.run(ask) as events:
                async for event in events:
                    if isinstance(event, AgentRunResultEvent):
                        result = event.result
                    elif is_text and (text := _text_of(event)):
                        await turn.emit(text)
        except BaseException as error:
            is_failure = isinstance(error, Exception) and not isinstance(error, RunCancelled)
            self._state = 'suspended' if self._runtime.is_suspended else 'failed' if is_failure else 'interrupted'
            await run_to_completion(self._settle(ask, None))
            raise
        await run_to_completion(self._settle(ask, result))
        last = self.messages[self._known - 1]
        if not is_text and isinstance(last, ModelRequest):
            await turn.emit(last)

    async def _see(
        self, seen: _Seen, turn: Turn[Any] | None, history: Sequence[ModelMessage], message: ModelMessage
    ) -> None:
        """Take in a message that is complete, and hand it out, unless it was there before the turn: its prompt."""
        is_within = bool(history) and history[-1] is message
        common = min(identical(self._sequence, history), self._known)
        new = [*history[common:], *(() if is_within else (message,))]
        self.messages[common : self._known] = new
        self._known = common + len(new)
        is_first, seen.is_begun = not seen.is_begun, True
        if turn is not None and not is_first:
            await turn.emit(message)

    async def _settle(self, ask: TurnRequest, result: AgentRunResult[OutputT] | None) -> None:
        """Take in what has become of a turn, whoever is cancelled."""
        settled = await self._settled(ask, result)
        if settled is None:  # as if it had not been asked: it can be asked again
            self.messages[: self._known] = [*ask.history, *ask.words]
            self._known = ask.known
            self._state = 'awaiting_approval' if self.pending else self._state
            return
        start = min(identical(self._sequence, settled.history), self._known)
        new = settled.history[start:]
        if result is None and not settled.is_whole:  # calls that have no result will never have one
            start = min(start, settled.common)
            new = [*settled.history[start : settled.common], *repair_messages(settled.history[settled.common :])]
        self.messages[start : self._known] = new
        self._known = identical(self._sequence, settled.history)
        if result is not None:
            self._output = result.output
            waits = isinstance(result.output, DeferredToolRequests)
            self._state = 'awaiting_approval' if waits else 'complete'
        elif settled.is_whole and (head := self.head) is not None:
            self._state, self._output = head.state, head.output

    async def _settled(self, ask: TurnRequest, result: AgentRunResult[OutputT] | None) -> TurnOutcome | None:
        try:
            return await self._runtime.settle(ask, result, self.messages[: self._known])
        except VersionConflictError:
            self._state = 'interrupted'
            await self.load()
            raise

    @property
    def _sequence(self) -> Sequence[ModelMessage]:
        return cast('Sequence[ModelMessage]', self.messages)


def _repaired(history: list[ModelMessage], known: int) -> list[ModelMessage]:
    """Return a history in which every call has a result, after its first messages, which have them: a transcript may
    have been taken when they ran.
    """
    if known >= len(history):
        return history
    start = known - 1 if known and isinstance(history[known - 1], ModelResponse) else known
    return [*history[:start], *repair_messages(history[start:])]


class _Seen:
    """What a turn has shown so far."""

    is_begun = False


def _text_of(event: object) -> str:
    match event:
        case PartStartEvent(part=TextPart(content=text)) | PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
            return text
        case _:
            return ''


def _runtime_for(
    agent: AbstractAgent[Any, Any] | VersionedAgent[Any, Any],
    deps: Any,
    store: Store | None,
    conversation_id: str | None,
) -> Runtime[Any, Any]:
    if isinstance(agent, VersionedAgent):
        if store is not None and store is not agent.store:
            raise ValueError('The versioned agent has a store of its own. Pass the agent without it, or no `store`.')
        return Versioned(ComposedAgent(agent.agent), agent, deps, conversation_id)
    composed = ComposedAgent(agent)
    if store is None:
        return InMemory(composed, deps, conversation_id)
    return Versioned(composed, VersionedAgent(agent, store), deps, conversation_id)
