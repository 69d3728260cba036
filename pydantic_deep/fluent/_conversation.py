"""`Conversation`: the current state of a dialogue, which runs the next turn when it is iterated."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, cast, overload

from pydantic_ai.agent import AbstractAgent
from pydantic_ai.messages import ModelMessage
from pydantic_ai.usage import RunUsage

from pydantic_deep._checks import CREATE_AGENT, check_names, check_object
from pydantic_deep.agent import create_deep_agent
from pydantic_deep.approvals import Decision, PendingApproval
from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.store import Store
from pydantic_deep.versions import AgentVersion, TurnOptions, VersionedAgent, VersionedConversation

from ._builder import PromptBuilder
from ._composed_agent import ComposedAgent
from ._delta import Delta, DepsT, OutputT
from ._history import ConversationHistory, ConversationState
from ._runtime import InMemory, Runtime, TurnRequest, Versioned
from ._transcript import MessageList
from ._turn import Turn
from .errors import ConversationBusyError, NothingToAnswerError


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
        if agent is not None:
            check_object('agent', agent, (AbstractAgent, VersionedAgent), CREATE_AGENT)
        runtime = _runtime_for(create_deep_agent() if agent is None else agent, deps, store, conversation_id)
        messages = messages if isinstance(messages, MessageList) else MessageList(messages)
        self._continue(ConversationHistory(runtime, messages))

    def _continue(self, history: ConversationHistory[DepsT, OutputT]) -> None:
        self._history = history
        self._messages = history.messages
        self._turn: Turn[Any] | None = None
        self._iteration: AsyncGenerator[ModelMessage] | None = None
        """The turn that `anext` started."""
        self._is_awaited = False

    def __repr__(self) -> str:
        return f'<Conversation {self.id}: {self.state}, {len(self.messages)} messages>'

    @property
    def id(self) -> str:
        """The id of the conversation."""
        return self._history.runtime.conversation_id

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
        return self._history.state

    @property
    def output(self) -> OutputT | None:
        """The output of the last turn; `None` if it has none."""
        return self._history.output

    @property
    def usage(self) -> RunUsage:
        """The usage of the conversation, including a running turn."""
        return self._history.runtime.usage

    @property
    def pending(self) -> list[PendingApproval]:
        """Pending approvals, including those of subagents. Answer them with `resume`."""
        return self._history.runtime.pending

    @property
    def head(self) -> AgentVersion[DepsT, OutputT] | None:
        """The version at the head of the conversation; `None` without a store, and before the first turn or `load`."""
        return self._history.runtime.head

    @property
    def versions(self) -> VersionedConversation[DepsT, OutputT] | None:
        """The conversation in the store, with all branches; `None` without a store."""
        runtime = self._history.runtime
        return runtime.handle if isinstance(runtime, Versioned) else None

    def begin(self, delta: Delta[DepsT]) -> Self:
        """Apply the additions of a builder. Called by `PromptBuilder.start`.

        Raises:
            ConversationBusyError: A turn is being awaited. Nothing has changed.
        """
        if self._is_awaited:
            raise ConversationBusyError(self.id)
        self._iteration = None
        self._history.add(delta)
        return self

    def branch(self) -> Conversation[DepsT, OutputT]:
        """Return another conversation that continues from here independently, with the same configuration.

        With a store, its turns are versions on branches of the same conversation, and do not move the head.
        """
        branch = cast('Conversation[DepsT, OutputT]', object.__new__(Conversation))
        branch._continue(self._history.branch())
        return branch

    async def load(self) -> Self:
        """Load the messages of the conversation from the store, and return this object. Each turn does so when it
        starts.
        """
        await self._history.load()
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
            started = None if self._history.has_new_messages else self._iteration
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
            options = TurnOptions(answers=answers or {}, by=by, reason=reason)
            return await self._drain(self._begin_turn(await self._history.resumption(options), is_text=False))

    async def stop(self) -> None:
        """Stop the running turn, if any. Its messages remain, and further calls do not run."""
        self._iteration = None
        await self._stop_turn()

    async def export(self) -> MessageList:
        """Return the messages, with those that summaries have replaced, which a store contains."""
        return MessageList(await self._history.runtime.export(list(self.messages)))

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
        request = await self._history.next_request()
        return None if request is None else self._begin_turn(request, is_text=is_text)

    def _begin_turn(self, request: TurnRequest, *, is_text: bool) -> Turn[Any]:
        self._turn = Turn(self.id, partial(self._history.run, request, is_text))
        return self._turn

    async def _drain(self, turn: Turn[Any]) -> OutputT:
        while await turn.next() is not None:
            pass
        return cast('OutputT', self.output)

    async def _stop_turn(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            await turn.stop()


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
