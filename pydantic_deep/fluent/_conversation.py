"""`Conversation`: the current state of a dialogue, which runs the next turn when it is iterated."""

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
from pydantic_deep.versions import (
    AgentVersion,
    ApprovalsPendingError,
    TurnOptions,
    VersionedAgent,
    VersionedConversation,
)

from ._builder import PromptBuilder
from ._composed_agent import ComposedAgent
from ._delta import Delta, DepsT, OutputT, merge_messages, split_prompt
from ._runtime import InMemory, Runtime, TurnOutcome, TurnRequest, Versioned
from ._transcript import MessageList
from ._turn import Turn
from .errors import ConversationBusyError, NothingToAnswerError

ConversationState = Literal['ready', 'running', 'complete', 'awaiting_approval', 'interrupted', 'failed', 'suspended']
"""The state of a conversation: `ready` before the first turn, otherwise the state of its last turn. A `suspended` turn
has no end in the store: `VersionedAgent.recover` resumes it, and `VersionedAgent.cancel` ends it.
"""


class Conversation(Generic[DepsT, OutputT]):
    """One dialogue with an agent. The object always reflects its current state.

    Iterate over a conversation for the messages of the next turn, each as soon as it is complete: a response before its
    calls run, and a request with their results before it is sent. To stop the turn, stop iterating: calls without a
    result get one that says that they were interrupted, and never run. `await anext(conversation)` returns one message;
    the turn is then suspended until the next `anext` or loop, until it is stopped, or until another turn starts.
    `continuation` is a builder for the next messages, at any time.

    The list `messages` may be modified: a turn responds to the user messages at its end. It never contains
    configuration.

    Only one turn runs at a time. Starting a builder while a turn is being awaited raises `ConversationBusyError`, and
    the builder can be started again; starting it otherwise stops the previous turn. `branch()` returns another
    conversation that continues independently.

    With a store, every turn is a version, which is stored while it runs. Several `Conversation` objects with the same
    id, in any processes, represent the same conversation. If two of them run turns concurrently, one moves the head;
    the other gets `VersionConflictError`, and its turn is stored as a branch.

    Args:
        messages: The message history, such as a loaded transcript. A `MessageList` is used without copying.
        agent: The agent, or a `VersionedAgent` with its store; by default a deep agent.
        deps: The deps of all turns; by default new ones, created once.
        store: The store for versions. Without one, the conversation lasts as long as the object.
        conversation_id: The id of the conversation, which is continued if the store contains it; by default a new one.
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
        """The number of messages that the runtime knows or a turn has added. Later messages are new."""
        self._state: ConversationState = 'ready'
        self._output: OutputT | None = None
        self._turn: Turn[Any] | None = None
        self._iteration: AsyncGenerator[ModelMessage] | None = None
        """The turn that `anext` started."""
        self._is_awaited = False

    def __repr__(self) -> str:
        return f'<Conversation {self.id}: {self.state}, {len(self.messages)} messages>'

    @property
    def id(self) -> str:
        """The id of the conversation."""
        return self._runtime.conversation_id

    @property
    def messages(self) -> MessageList:
        """All messages so far, including those of a running turn. Only these are serialized."""
        return self._messages

    @property
    def continuation(self) -> PromptBuilder[DepsT, Conversation[DepsT, OutputT]]:
        """A builder for the next messages. It holds no messages: it continues from the state of this conversation when
        started.
        """
        return PromptBuilder(self)

    @property
    def state(self) -> ConversationState:
        """The state of the last turn, or `running`."""
        return self._state

    @property
    def output(self) -> OutputT | None:
        """The output of the last turn; `None` if it has none."""
        return self._output

    @property
    def usage(self) -> RunUsage:
        """The usage of the conversation, including a running turn."""
        return self._runtime.usage

    @property
    def pending(self) -> list[PendingApproval]:
        """Pending approvals, including those of subagents. Answer them with `resume`."""
        return self._runtime.pending

    @property
    def head(self) -> AgentVersion[DepsT, OutputT] | None:
        """The version at the head of the conversation; `None` without a store, and before the first turn or `load`."""
        return self._runtime.head if isinstance(self._runtime, Versioned) else None

    @property
    def versions(self) -> VersionedConversation[DepsT, OutputT] | None:
        """The conversation in the store, with all branches; `None` without a store."""
        return self._runtime.handle if isinstance(self._runtime, Versioned) else None

    def begin(self, delta: Delta[DepsT]) -> Self:
        """Apply the additions of a builder. Called by `PromptBuilder.start`.

        Raises:
            ConversationBusyError: A turn is being awaited. Nothing has changed.
        """
        if self._is_awaited:
            raise ConversationBusyError(self.id)
        self._iteration = None
        self._runtime.agent.config = self._runtime.agent.config.plus(delta.config)
        self._known = min(self._known, len(self.messages))
        for message in deepcopy(delta.messages):  # the same messages may start another conversation
            merged = merge_messages(self.messages[-1], message) if len(self.messages) > self._known else None
            if merged is None:
                self.messages.append(message)
            else:
                self.messages[-1] = merged
        return self

    def branch(self) -> Conversation[DepsT, OutputT]:
        """Return another conversation that continues from here independently, with the same configuration.

        With a store, its turns are versions on branches of the same conversation, and do not move the head.
        """
        branch = cast('Conversation[DepsT, OutputT]', object.__new__(Conversation))
        branch._begin_on(self._runtime.branch(), MessageList(deepcopy(list(self.messages))))
        branch._known, branch._state, branch._output = self._known, self._state, self._output
        return branch

    async def load(self) -> Self:
        """Load the messages of the conversation from the store, and return this object. Each turn does so when it
        starts.
        """
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
        if self._is_awaited:
            raise ConversationBusyError(self.id)
        iteration = self._iteration = self._iteration or self._iterate(is_text=False)
        try:
            return await anext(iteration)
        except BaseException:
            if self._iteration is iteration:
                self._iteration = None
            raise

    def text_stream(self) -> AsyncGenerator[str]:
        """Run the turn like an iteration, and yield the text of the responses as it is generated."""
        return self._iterate(is_text=True)

    async def run(self) -> OutputT:
        """Run the turn to completion and return its output: the turn that `anext` started, otherwise a new one.
        Cancelling this call stops the turn.

        Raises:
            NothingToAnswerError: The last message is not from the user.
            ConversationBusyError: A turn is being awaited elsewhere.
            ApprovalsPendingError: Approvals are pending. Call `resume`.
            VersionConflictError: The head was moved concurrently. The turn is stored as a branch.
        """
        with self._awaiting():
            started = (
                self._iteration if len(self.messages) <= self._known else None
            )  # otherwise there are new messages to respond to
            turn = await self._open(is_text=False) if started is None else self._turn
            if turn is None:
                raise NothingToAnswerError(self.id)
            try:
                return await self._drain(turn)
            finally:
                if started is not None:
                    await started.aclose()

    async def resume(
        self, answers: Mapping[str, Decision] | None = None, *, by: str | None = None, reason: str | None = None
    ) -> OutputT:
        """Resume pending calls, run to completion, and return the output. Calls without an answer stay pending.

        Args:
            answers: Decisions, keyed by the `id` of each item in `pending`. With a store, answers in its inbox are
                used, too.
            by: Who answers. The name is stored.
            reason: The reason for the decisions.

        Raises:
            NothingPendingError: No approvals are pending.
            UnknownApprovalError: No pending call has the id of an answer.
            ConversationBusyError: A turn is being awaited elsewhere.
        """
        with self._awaiting():
            await self.stop()
            await self.load()
            if not self.pending:
                raise NothingPendingError(
                    f'No approvals are pending in the conversation {self.id}: it is {self.state}.'
                )
            history = self.messages[: self._known]
            options = TurnOptions(answers=answers or {}, by=by, reason=reason)
            ask = TurnRequest(history=history, known=self._known, words=[], options=options)
            return await self._drain(self._begin_turn(ask, is_text=False))

    async def stop(self) -> None:
        """Stop the running turn, if any. Its messages remain, and further calls do not run."""
        self._iteration = None
        await self._stop_turn()

    async def export(self) -> MessageList:
        """Return the messages, with those that summaries have replaced, which a store contains."""
        return MessageList(await self._runtime.export(list(self.messages)))

    async def _iterate(self, *, is_text: bool) -> AsyncGenerator[Any]:
        with self._awaiting():
            turn = await self._open(is_text=is_text)
        if turn is None:
            return
        try:
            while True:
                with self._awaiting():
                    item = await turn.next()
                if item is None:
                    return
                yield item
        finally:
            if self._turn is turn:
                self._iteration = None
            await turn.stop()

    @contextmanager
    def _awaiting(self) -> Generator[None]:
        if self._is_awaited:
            raise ConversationBusyError(self.id)
        self._is_awaited = True
        try:
            yield
        finally:
            self._is_awaited = False

    async def _open(self, *, is_text: bool) -> Turn[Any] | None:
        """Return the turn that responds to the user messages at the end of the list; `None` if there are none."""
        await self._stop_turn()
        await self.load()
        self._known = min(self._known, len(self.messages))
        history, prompt = split_prompt(self.messages)
        if prompt is None:
            return None
        check_prompt('prompt', prompt)
        if self.pending:
            head = self.head
            raise ApprovalsPendingError(
                self.id if head is None else head.id, [approval.id for approval in self.pending]
            )
        if history and not self._known and await self._add_system_prompt(history):
            history, _ = split_prompt(self.messages)
        words = self.messages[len(history) :]
        options = TurnOptions(prompt=prompt)
        ask = TurnRequest(history=_repaired(history, self._known), known=self._known, words=words, options=options)
        self._known = len(self.messages)
        return self._begin_turn(ask, is_text=is_text)

    async def _add_system_prompt(self, history: Sequence[ModelMessage]) -> bool:
        """Add the system prompts of the agent to messages without any: agents do not add them to an existing history.

        Returns:
            Whether the agent has any.
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
        """Add a complete message, and emit it, unless it is the prompt, which existed before the turn."""
        is_within = bool(history) and history[-1] is message
        common = min(identical(self._sequence, history), self._known)
        new = [*history[common:], *(() if is_within else (message,))]
        self.messages[common : self._known] = new
        self._known = common + len(new)
        is_first, seen.is_begun = not seen.is_begun, True
        if turn is not None and not is_first:
            await turn.emit(message)

    async def _settle(self, ask: TurnRequest, result: AgentRunResult[OutputT] | None) -> None:
        """Add the outcome of a turn, even during cancellation."""
        settled = await self._settled(ask, result)
        if settled is None:  # the turn had no effect, so it can be repeated
            self.messages[: self._known] = [*ask.history, *ask.words]
            self._known = ask.known
            self._state = 'awaiting_approval' if self.pending else self._state
            return
        start = min(identical(self._sequence, settled.history), self._known)
        new = settled.history[start:]
        if result is None and not settled.is_whole:  # calls without a result will never have one
            start = min(start, settled.common)
            new = [*settled.history[start : settled.common], *repair_messages(settled.history[settled.common :])]
        self.messages[start : self._known] = new
        self._known = identical(self._sequence, settled.history)
        if result is not None:
            self._output = result.output
            is_paused = isinstance(result.output, DeferredToolRequests)
            self._state = 'awaiting_approval' if is_paused else 'complete'
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
    """Return a history in which every call has a result. Its first messages are complete; the others may come from a
    transcript that was saved during a turn.
    """
    if known >= len(history):
        return history
    start = known - 1 if known and isinstance(history[known - 1], ModelResponse) else known
    return [*history[:start], *repair_messages(history[start:])]


class _Seen:
    """The progress of a turn."""

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
            raise ValueError('The versioned agent already has a store. Pass the plain agent, or remove `store`.')
        return Versioned(ComposedAgent(agent.agent), agent, deps, conversation_id)
    composed = ComposedAgent(agent)
    if store is None:
        return InMemory(composed, deps, conversation_id)
    return Versioned(composed, VersionedAgent(agent, store), deps, conversation_id)
