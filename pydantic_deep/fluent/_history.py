"""`ConversationHistory`: the messages and the state of a conversation, in step with the turns of its runtime.

Not here: where a turn runs (`_runtime`), its pace (`_turn`), and its readers (`_conversation`).
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any, Generic, Literal

from pydantic_ai import (
    AgentRunResultEvent,
    DeferredToolRequests,
    PartDeltaEvent,
    PartStartEvent,
    RunCancelled,
    TextPart,
    TextPartDelta,
)
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, SystemPromptPart, repair_messages
from pydantic_ai.run import AgentRunResult

from pydantic_deep._checks import check_prompt
from pydantic_deep._messages.coalesced_requests import identical
from pydantic_deep._run_to_completion import run_to_completion
from pydantic_deep.approvals import NothingPendingError
from pydantic_deep.store import VersionConflictError
from pydantic_deep.versions import ApprovalsPendingError, TurnOptions

from ._delta import Delta, DepsT, OutputT, merge_messages, split_prompt
from ._runtime import Runtime, TurnOutcome, TurnRequest
from ._transcript import MessageList
from ._turn import Turn

ConversationState = Literal['ready', 'running', 'complete', 'awaiting_approval', 'interrupted', 'failed', 'suspended']
"""The state of a conversation: `ready` before the first turn, otherwise the state of its last turn. A `suspended` turn
has no end in the store: `VersionedAgent.recover` resumes it, and `VersionedAgent.cancel` ends it.
"""


class ConversationHistory(Generic[DepsT, OutputT]):
    """The messages and the state of a conversation."""

    def __init__(self, runtime: Runtime[DepsT, OutputT], messages: MessageList) -> None:
        self.runtime = runtime
        self.messages = messages
        """All messages. Callers may modify the list at any time."""
        self.state: ConversationState = 'ready'
        self.output: OutputT | None = None
        self._known = 0
        """The number of messages that the runtime knows or a turn has added. Later messages are new."""
        self._is_begun = False
        """Whether the running turn has seen its prompt."""

    @property
    def has_new_messages(self) -> bool:
        """Whether there are messages that no turn has used."""
        return len(self.messages) > self._known

    def add(self, delta: Delta[DepsT]) -> None:
        """Add the messages and the configuration of a builder."""
        self.runtime.agent.config = self.runtime.agent.config.plus(delta.config)
        self._known = min(self._known, len(self.messages))
        for message in deepcopy(delta.messages):  # the same messages may start another conversation
            merged = merge_messages(self.messages[-1], message) if self.has_new_messages else None
            if merged is None:
                self.messages.append(message)
            else:
                self.messages[-1] = merged

    def branch(self) -> ConversationHistory[DepsT, OutputT]:
        """Return the history of another conversation that continues from here."""
        branch = ConversationHistory(self.runtime.branch(), MessageList(deepcopy(list(self.messages))))
        branch._known, branch.state, branch.output = self._known, self.state, self.output
        return branch

    async def load(self) -> None:
        """Replace the known messages by those of the store, if it has others."""
        newest = await self.runtime.refresh()
        if newest is not None:
            self.messages[: self._known] = newest
            self._known = len(newest)
            head = self.runtime.head
            if head is not None and head.kind != 'root':
                self.state, self.output = head.state, head.output

    async def next_request(self) -> TurnRequest | None:
        """Return the request for a turn that responds to the user messages at the end; `None` if there are none.

        Raises:
            ApprovalsPendingError: Approvals are pending.
        """
        await self.load()
        self._known = min(self._known, len(self.messages))
        history, prompt = split_prompt(self.messages)
        if prompt is None:
            return None
        check_prompt('prompt', prompt)
        if pending := self.runtime.pending:
            head = self.runtime.head
            id = self.runtime.conversation_id if head is None else head.id
            raise ApprovalsPendingError(id, [approval.id for approval in pending])
        if history and not self._known and await self._add_system_prompt(history):
            history, _ = split_prompt(self.messages)
        words = self.messages[len(history) :]
        known, self._known = self._known, len(self.messages)
        return TurnRequest(
            history=_repaired(history, known), known=known, words=words, options=TurnOptions(prompt=prompt)
        )

    async def resumption(self, options: TurnOptions) -> TurnRequest:
        """Return the request for a turn that resumes pending calls.

        Raises:
            NothingPendingError: No approvals are pending.
        """
        await self.load()
        if not self.runtime.pending:
            raise NothingPendingError(
                f'No approvals are pending in the conversation {self.runtime.conversation_id}: it is {self.state}.'
            )
        return TurnRequest(history=self.messages[: self._known], known=self._known, words=[], options=options)

    async def _add_system_prompt(self, history: Sequence[ModelMessage]) -> bool:
        """Add the system prompts of the agent to messages without any: agents do not add them to an existing history.

        Returns:
            Whether the agent has any.
        """
        if any(isinstance(part, SystemPromptPart) for message in history for part in message.parts):
            return False
        prompts = await self.runtime.system_prompt(history)
        if not prompts:
            return False
        first = self.messages[0]
        if isinstance(first, ModelRequest):
            self.messages[0] = replace(first, parts=[*prompts, *first.parts])
        else:
            self.messages.insert(0, ModelRequest(prompts))
        return True

    async def run(self, request: TurnRequest, is_text: bool, turn: Turn[Any]) -> None:
        """Run a turn, and emit its messages, or the text of its responses."""
        self.state, self.output = 'running', None
        self._is_begun = False
        self.runtime.agent.listener = partial(self._see, None if is_text else turn)
        result: AgentRunResult[OutputT] | None = None
        try:
            async with self.runtime.run(request) as events:
                async for event in events:
                    if isinstance(event, AgentRunResultEvent):
                        result = event.result
                    elif is_text and (text := _text_of(event)):
                        await turn.emit(text)
        except BaseException as error:
            is_failure = isinstance(error, Exception) and not isinstance(error, RunCancelled)
            self.state = 'suspended' if self.runtime.is_suspended else 'failed' if is_failure else 'interrupted'
            await run_to_completion(self._settle(request, None))
            raise
        await run_to_completion(self._settle(request, result))
        last = self.messages[self._known - 1]
        if not is_text and isinstance(last, ModelRequest):
            await turn.emit(last)

    async def _see(self, turn: Turn[Any] | None, history: Sequence[ModelMessage], message: ModelMessage) -> None:
        """Add a complete message, and emit it, unless it is the prompt, which existed before the turn."""
        is_within = bool(history) and history[-1] is message
        common = min(identical(self.messages, history), self._known)
        new = [*history[common:], *(() if is_within else (message,))]
        self.messages[common : self._known] = new
        self._known = common + len(new)
        is_prompt, self._is_begun = not self._is_begun, True
        if turn is not None and not is_prompt:
            await turn.emit(message)

    async def _settle(self, request: TurnRequest, result: AgentRunResult[OutputT] | None) -> None:
        """Add the outcome of a turn, even during cancellation."""
        settled = await self._settled(request, result)
        if settled is None:  # the turn had no effect, so it can be repeated
            self.messages[: self._known] = [*request.history, *request.words]
            self._known = request.known
            self.state = 'awaiting_approval' if self.runtime.pending else self.state
            return
        start = min(identical(self.messages, settled.history), self._known)
        new = settled.history[start:]
        if result is None and not settled.is_whole:  # calls without a result will never have one
            start = min(start, settled.common)
            new = [*settled.history[start : settled.common], *repair_messages(settled.history[settled.common :])]
        self.messages[start : self._known] = new
        self._known = identical(self.messages, settled.history)
        if result is not None:
            self.output = result.output
            self.state = 'awaiting_approval' if isinstance(result.output, DeferredToolRequests) else 'complete'
        elif settled.is_whole and (head := self.runtime.head) is not None:
            self.state, self.output = head.state, head.output

    async def _settled(self, request: TurnRequest, result: AgentRunResult[OutputT] | None) -> TurnOutcome | None:
        try:
            return await self.runtime.settle(request, result, self.messages[: self._known])
        except VersionConflictError:
            self.state = 'interrupted'
            await self.load()
            raise


def _repaired(history: list[ModelMessage], known: int) -> list[ModelMessage]:
    """Return a history in which every call has a result. Its first messages are complete; the others may come from a
    transcript that was saved during a turn.
    """
    if known >= len(history):
        return history
    start = known - 1 if known and isinstance(history[known - 1], ModelResponse) else known
    return [*history[:start], *repair_messages(history[start:])]


def _text_of(event: object) -> str:
    match event:
        case PartStartEvent(part=TextPart(content=text)) | PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
            return text
        case _:
            return ''
