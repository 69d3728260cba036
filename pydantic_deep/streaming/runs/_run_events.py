"""`RunEvents`: translates the events of pydantic-ai and of our capabilities into `StreamEvent`s as they occur.

Not here: what a finished run has told (`_events_from_messages`), and how events become frames.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from dataclasses import replace
from typing import TypeAlias

from pydantic_ai import (
    AgentRunResultEvent,
    AgentStreamEvent,
    CapabilityEvent,
    DeferredToolRequests,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
)
from pydantic_ai.messages import ToolCallEvent as RunToolCallEvent
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.messages import ToolResultEvent as RunToolResultEvent
from pydantic_ai.usage import RunUsage

from pydantic_deep.streaming._events import (
    EndEvent,
    FinishReason,
    RetriedEvent,
    RunStatus,
    StartEvent,
    StreamEvent,
    UsageEvent,
)
from pydantic_deep.streaming._failures import EXPECTED_ERRORS, describe_failure, status_after, suspended_event
from pydantic_deep.subagents import SubagentEvent

from ._capability_events import capability_event
from ._part_events import (
    CHANGERS,
    WRITE_TODOS,
    approval_events,
    call_event,
    change_events,
    escaped_id,
    finish_reason_of,
    output_text,
    result_event,
)
from ._response_state import ResponseState

_LOGGER = logging.getLogger('pydantic_deep')

UsageOf: TypeAlias = Callable[[], RunUsage | None]
"""Returns what has been used so far; `None` before the run has begun."""


class RunEvents:
    """Translates the events of one run. It has state: one for each run.

    Files are told by the calls of `write_file` and `edit_file` that succeed: what a command changes is not known here,
    and what a subagent with files of its own (`isolation='fork'`) writes is told before it is merged.

    `start()` first, `translate(event)` for each event, then `end()`, or `fail(error)` if the run raised one.
    """

    def __init__(
        self,
        *,
        run_id: str | None = None,
        agent_name: str | None = None,
        conversation_id: str | None = None,
        session_id: str | None = None,
        usage: UsageOf | None = None,
        usage_before: RunUsage | None = None,
        working_dir: str = '/',
        shows_errors: bool = False,
    ) -> None:
        """Prepare to translate a run.

        Args:
            run_id: Its id.
            agent_name: The name of the agent.
            conversation_id: Its conversation.
            session_id: The caller's own id.
            usage: Returns what was used so far, such as `lambda: stream.usage`: then usage is told after each
                response, else only with the result.
            usage_before: What it returned before the run, such as the usage of the version that the run goes on from.
            working_dir: The directory that relative paths of tool calls start from.
            shows_errors: Whether summaries that failed are explained by the messages of exceptions, which may hold
                internals of an application; otherwise only by their names.
        """
        self._start = StartEvent(id=run_id, model=agent_name, conversation_id=conversation_id, session_id=session_id)
        self._usage = usage
        self._usage_before = usage_before or RunUsage()
        self._working_dir = working_dir
        self._shows_errors = shows_errors
        self.usage = UsageEvent()
        """The usage of the run so far."""
        self._state_by_key: dict[str, ResponseState] = {}
        self._announced: set[str] = set()
        self._changing: dict[str, ToolCallPart] = {}
        self._has_result = False
        self._output: object = None
        self._finish_reason: FinishReason = 'error'

    def start(self) -> list[StreamEvent]:
        """Return what is told first."""
        return [self._start]

    def translate(self, event: AgentStreamEvent | AgentRunResultEvent[object]) -> list[StreamEvent]:
        """Return what an event tells, often nothing: what is no business of whoever watches is left out."""
        if isinstance(event, AgentRunResultEvent):
            return self._take_result(event)
        news = self._usage_news()
        if isinstance(event, SubagentEvent):
            within = f'{escaped_id(event.tool_call_id or "")}/'
            response_state = self._state_of(within + event.conversation_id, within=within, path=event.path)
            return [*news, *self._told_by(response_state, event.event)]
        return [*news, *self._told_by(self._state_of(''), event)]

    def end(self, *, version_id: str | None = None, status: RunStatus | None = None) -> list[StreamEvent]:
        """Return what is told last of a run that raised nothing.

        Args:
            version_id: The version that it ended with.
            status: What became of it; by default it is told from the result. Without one the run was interrupted.
        """
        is_waiting = isinstance(self._output, DeferredToolRequests)
        told: RunStatus = 'interrupted' if not self._has_result else 'awaiting_approval' if is_waiting else 'complete'
        return [
            *self._usage_news(),
            EndEvent(
                finish_reason=self._finish_reason,
                status=status or told,
                version_id=version_id,
                output=output_text(self._output),
                usage=self.usage,
            ),
        ]

    def fail(
        self, error: BaseException, *, version_id: str | None = None, is_suspended: bool = False
    ) -> list[StreamEvent]:
        """Return what is told last of a run that raised an error: the error, then the end.

        Args:
            error: What it raised; its words are told only where they are meant to be read, and without keys.
            version_id: The version that keeps what was done.
            is_suspended: Whether the store does not have the end of the run, so that it can be resumed.
        """
        status = 'suspended' if is_suspended else status_after(error)
        said = suspended_event() if is_suspended else describe_failure(error)
        news = self._usage_news()
        end = EndEvent(finish_reason='error', status=status, version_id=version_id, usage=self.usage)
        return [*news, said, end]

    def _state_of(self, key: str, *, within: str = '', path: tuple[str, ...] = ()) -> ResponseState:
        return self._state_by_key.setdefault(key, ResponseState(within, path))

    def _told_by(self, response_state: ResponseState, event: AgentStreamEvent) -> list[StreamEvent]:
        match event:
            case PartStartEvent() | PartDeltaEvent() | PartEndEvent():
                return response_state.tell_part(event)
            case RunToolCallEvent(part=part):
                return self._tell_call(response_state, part)
            case RunToolResultEvent(part=part):
                told = result_event(part, within=response_state.within, path=response_state.path)
                call = self._changing.pop(told.id, None)
                if call is None or part.outcome != 'success':
                    return [told]
                return [told, *change_events(call, part, working_dir=self._working_dir)]
            case CapabilityEvent():
                told = capability_event(
                    event,
                    path=response_state.path,
                    answer_text=response_state.said,
                    shows_errors=self._shows_errors,
                )
                if isinstance(told, RetriedEvent) and told.void_text:
                    response_state.forget()
                return [told]
            case _:
                return []

    def _tell_call(self, response_state: ResponseState, part: ToolCallPart) -> list[StreamEvent]:
        """Tell a call once: one that waited is announced again when it runs."""
        index = response_state.index_of(part.tool_call_id)
        told = call_event(part, within=response_state.within, path=response_state.path, index=index)
        # The plan of a subagent is its own: only files are shared.
        if part.tool_name in CHANGERS and not (response_state.path and part.tool_name == WRITE_TODOS):
            self._changing[told.id] = part
        if told.id in self._announced:
            return []
        self._announced.add(told.id)
        return [told]

    def _take_result(self, event: AgentRunResultEvent[object]) -> list[StreamEvent]:
        result = event.result
        self._has_result, self._output = True, result.output
        is_waiting = isinstance(result.output, DeferredToolRequests)
        self._finish_reason = finish_reason_of(result.response, is_waiting=is_waiting)
        return [*self._usage_of(result.usage), *approval_events(result.output)]

    def _usage_news(self) -> list[StreamEvent]:
        """Tell the usage if it is not what was told last: pydantic-ai counts a response when it is whole."""
        usage = None if self._usage is None else self._usage()
        return [] if usage is None else self._usage_of(usage)

    def _usage_of(self, usage: RunUsage) -> list[StreamEvent]:
        """Return the usage unless nothing but the number of tool calls has changed: results are events of their own."""
        emitted, self.usage = self.usage, UsageEvent.of(usage - self._usage_before)
        return [] if replace(self.usage, tool_calls=emitted.tool_calls) == emitted else [self.usage]


async def stream_events(
    run_events: AsyncIterable[AgentStreamEvent | AgentRunResultEvent[object]], translator: RunEvents | None = None
) -> AsyncGenerator[StreamEvent]:
    """Yield what a run tells, from its start to its end: one that fails is told so, and raises nothing.

    Cancellation of the task passes: then nobody listens.

    Args:
        run_events: Its events, such as those of `agent.run_stream_events()` or of `TurnStream.events()`.
        translator: A fresh one, with what is known of the run.
    """
    told = RunEvents() if translator is None else translator
    for event in told.start():
        yield event
    try:
        async for event in run_events:
            for each in told.translate(event):
                yield each
    except Exception as error:  # the outermost edge: whoever watches learns of it instead of an end that looks well
        if not isinstance(error, EXPECTED_ERRORS):
            _LOGGER.exception('A run failed', exc_info=error)
        for each in told.fail(error):
            yield each
    else:
        for each in told.end():
            yield each
