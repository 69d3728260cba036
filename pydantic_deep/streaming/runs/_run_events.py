"""`RunEvents`: translates the events of pydantic-ai and of our capabilities into `StreamEvent`s as they occur.

Defined elsewhere: the events of a finished run (`_events_from_messages`), and the conversion of events to frames.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Sequence
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

from pydantic_deep._messages.call_ids import escape_call_id
from pydantic_deep.streaming._events import (
    EndEvent,
    FinishReason,
    RetriedEvent,
    RunStatus,
    StartEvent,
    StreamEvent,
    ToolCallEvent,
    ToolResultEvent,
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
    finish_reason_of,
    output_text,
    result_event,
)
from ._response_state import ResponseState

_LOGGER = logging.getLogger('pydantic_deep')

UsageOf: TypeAlias = Callable[[], RunUsage | None]
"""Returns the usage so far, or `None` before the run has started."""


class RunEvents:
    """Translates the events of one run. Stateful: create one for each run.

    File events are derived from successful calls of `write_file` and `edit_file`. Changes by commands are unknown here,
    and writes of a subagent with files of its own (`isolation='fork'`) are reported before they are merged.

    Call `start()` first, then `translate(event)` for each event, then `end()`, or `fail(error)` if the run raised one.
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
        """Create a translator for one run.

        Args:
            run_id: The id of the run.
            agent_name: The name of the agent.
            conversation_id: The id of the conversation.
            session_id: The caller's own session id.
            usage: Returns the usage so far, such as `lambda: stream.usage`. If given, usage is emitted after each
                response, otherwise only with the result.
            usage_before: The value of `usage` before the run, such as the usage of the version that the run continues.
            working_dir: The directory that relative paths in tool calls are resolved against.
            shows_errors: Whether events of failed summaries contain the messages of exceptions, which may reveal
                internals of an application. Otherwise they contain only the names of the exceptions.
        """
        self._start = StartEvent(id=run_id, model=agent_name, conversation_id=conversation_id, session_id=session_id)
        self._usage = usage
        self._usage_before = usage_before or RunUsage()
        self._working_dir = working_dir
        self._shows_errors = shows_errors
        self.usage: UsageEvent = UsageEvent()
        """The usage of the run so far."""
        self._state_by_key: dict[str, ResponseState] = {}
        self._announced: set[str] = set()
        self._changing: dict[str, ToolCallPart] = {}
        self._has_result = False
        self._output: object = None
        self._finish_reason: FinishReason = 'error'

    def start(self) -> list[StreamEvent]:
        """Return the first events of the stream."""
        return [self._start]

    def continue_after(self, events: Sequence[StreamEvent]) -> list[StreamEvent]:
        """Return the first events of a run that continues: those that it had before, which are not emitted again."""
        for event in events:
            match event:
                case ToolCallEvent(id=id):
                    self._announced.add(id)
                case ToolResultEvent(id=id):
                    self._announced.discard(id)
                case UsageEvent():
                    self.usage = event
                case _:
                    pass
        return list(events)

    def translate(self, event: AgentStreamEvent | AgentRunResultEvent[object]) -> list[StreamEvent]:
        """Return the stream events of an event. Events without relevance to viewers yield none."""
        if isinstance(event, AgentRunResultEvent):
            return self._result_events(event)
        changed_usage = self._changed_usage()
        if isinstance(event, SubagentEvent):
            within = f'{escape_call_id(event.tool_call_id or "")}/'
            response_state = self._state_of(within + event.conversation_id, within=within, path=event.path)
            return [*changed_usage, *self._events_of(response_state, event.event)]
        return [*changed_usage, *self._events_of(self._state_of(''), event)]

    def end(self, *, version_id: str | None = None, status: RunStatus | None = None) -> list[StreamEvent]:
        """Return the last events of a run that raised no error.

        Args:
            version_id: The version that the run ended with.
            status: How the run ended. By default, it is derived from the result; without a result, `interrupted`.
        """
        is_waiting = isinstance(self._output, DeferredToolRequests)
        derived: RunStatus = 'complete' if self._has_result else 'interrupted'
        if is_waiting:
            derived = 'awaiting_approval'
        return [
            *self._changed_usage(),
            EndEvent(
                finish_reason=self._finish_reason,
                status=status or derived,
                version_id=version_id,
                output=output_text(self._output),
                usage=self.usage,
            ),
        ]

    def fail(
        self, error: BaseException, *, version_id: str | None = None, is_suspended: bool = False
    ) -> list[StreamEvent]:
        """Return the last events of a run that raised an error: the error, then the end.

        Args:
            error: The error. Its message is included only if it is meant for readers, with keys removed.
            version_id: The version that contains the completed work.
            is_suspended: Whether the store does not have the end of the run, so that the run can be resumed.
        """
        status = 'suspended' if is_suspended else status_after(error)
        error_event = suspended_event() if is_suspended else describe_failure(error)
        changed_usage = self._changed_usage()
        end = EndEvent(finish_reason='error', status=status, version_id=version_id, usage=self.usage)
        return [*changed_usage, error_event, end]

    def _state_of(self, key: str, *, within: str = '', path: tuple[str, ...] = ()) -> ResponseState:
        return self._state_by_key.setdefault(key, ResponseState(within, path))

    def _events_of(self, response_state: ResponseState, event: AgentStreamEvent) -> list[StreamEvent]:
        match event:
            case PartStartEvent() | PartDeltaEvent() | PartEndEvent():
                return response_state.part_events(event)
            case RunToolCallEvent(part=part):
                return self._call_events(response_state, part)
            case RunToolResultEvent(part=part):
                result = result_event(part, within=response_state.within, path=response_state.path)
                call = self._changing.pop(result.id, None)
                if call is None or part.outcome != 'success':
                    return [result]
                return [result, *change_events(call, part, working_dir=self._working_dir)]
            case CapabilityEvent():
                stream_event = capability_event(
                    event,
                    path=response_state.path,
                    answer_text=response_state.text,
                    shows_errors=self._shows_errors,
                )
                if isinstance(stream_event, RetriedEvent) and stream_event.void_text:
                    response_state.reset()
                return [stream_event]
            case _:
                return []

    def _call_events(self, response_state: ResponseState, part: ToolCallPart) -> list[StreamEvent]:
        """Return the event of a call once: pydantic-ai announces a pending call again when it runs."""
        index = response_state.index_of(part.tool_call_id)
        call = call_event(part, within=response_state.within, path=response_state.path, index=index)
        # The plan of a subagent is its own: only files are shared.
        if part.tool_name in CHANGERS and not (response_state.path and part.tool_name == WRITE_TODOS):
            self._changing[call.id] = part
        if call.id in self._announced:
            return []
        self._announced.add(call.id)
        return [call]

    def _result_events(self, event: AgentRunResultEvent[object]) -> list[StreamEvent]:
        result = event.result
        self._has_result, self._output = True, result.output
        is_waiting = isinstance(result.output, DeferredToolRequests)
        self._finish_reason = finish_reason_of(result.response, is_waiting=is_waiting)
        return [*self._usage_of(result.usage), *approval_events(result.output)]

    def _changed_usage(self) -> list[StreamEvent]:
        """Return the usage if it changed since it was last emitted. pydantic-ai counts complete responses only."""
        usage = None if self._usage is None else self._usage()
        return [] if usage is None else self._usage_of(usage)

    def _usage_of(self, usage: RunUsage) -> list[StreamEvent]:
        """Return the usage, unless only the number of tool calls changed: results have events of their own."""
        emitted, self.usage = self.usage, UsageEvent.of(usage - self._usage_before)
        return [] if replace(self.usage, tool_calls=emitted.tool_calls) == emitted else [self.usage]


async def stream_events(
    run_events: AsyncIterable[AgentStreamEvent | AgentRunResultEvent[object]], translator: RunEvents | None = None
) -> AsyncGenerator[StreamEvent]:
    """Yield the events of a run from start to end. A failed run yields an error event; nothing is raised.

    Cancellation of the task propagates, since nobody reads the stream then.

    Args:
        run_events: The events of the run, such as those of `agent.run_stream_events()` or of `TurnStream.events()`.
        translator: A new translator with the details of the run.
    """
    run = RunEvents() if translator is None else translator
    for stream_event in run.start():
        yield stream_event
    try:
        async for event in run_events:
            for stream_event in run.translate(event):
                yield stream_event
    except Exception as error:  # outermost boundary: viewers must see the failure, not a normal end
        if not isinstance(error, EXPECTED_ERRORS):
            _LOGGER.exception('A run failed', exc_info=error)
        for stream_event in run.fail(error):
            yield stream_event
    else:
        for stream_event in run.end():
            yield stream_event
