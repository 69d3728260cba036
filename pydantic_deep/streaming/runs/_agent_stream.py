"""Run any pydantic-ai agent as a stream of events, without a store."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import replace
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, cast
from uuid import uuid4

from pydantic_ai import AgentRunResult, AgentRunResultEvent, AgentStreamEvent, DeferredToolResults
from pydantic_ai.agent import AbstractAgent, AgentRunEvents
from pydantic_ai.messages import ModelMessage, UserContent
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RunUsage, UsageLimits

from pydantic_deep._checks import (
    CREATE_AGENT,
    LIMIT_USAGE,
    check_messages,
    check_names,
    check_numbers,
    check_object,
    check_prompt,
)
from pydantic_deep._session_id import session_scope
from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.streaming._events import RetriedEvent, StreamEvent, TextEvent, ToolCallEvent
from pydantic_deep.streaming._lines import NOTICE, iter_lines
from pydantic_deep.streaming._protocol import Encoder

from ._run_events import RunEvents, stream_events
from ._whole_calls import WholeCalls

DepsT = TypeVar('DepsT')
OutputT = TypeVar('OutputT')


def stream_agent(
    agent: AbstractAgent[DepsT, OutputT],
    prompt: str | Sequence[UserContent] | None = None,
    *,
    deps: DepsT = None,
    message_history: Sequence[ModelMessage] | None = None,
    deferred_tool_results: DeferredToolResults | None = None,
    max_iterations: int | None = None,
    session_id: str | None = None,
    model_settings: ModelSettings | None = None,
    usage_limits: UsageLimits | None = None,
) -> AgentStream[OutputT]:
    """Return a stream that runs an agent while you iterate over it.

    ```python
    import asyncio

    from pydantic_ai import Agent

    from pydantic_deep.streaming import stream_agent
    from pydantic_deep.testing import ScriptedModel


    async def main() -> None:
        async with stream_agent(Agent(ScriptedModel('Hello there')), 'Hi') as stream:
            async for event in stream:
                if event.type == 'text':
                    print(event.text)
                    #> Hello
                    #> there
        print(stream.result.output)
        #> Hello there


    asyncio.run(main())
    ```

    A model that reaches its token limit is not asked to continue: a cut text is the output, with the finish reason
    `length`, and a cut call is an error.

    Args:
        agent: Any pydantic-ai agent.
        prompt: The user's prompt.
        deps: The deps of the run. The `usage_limits` of `DeepAgentDeps` apply unless `usage_limits` is given.
        message_history: The messages of the conversation so far.
        deferred_tool_results: Answers to pending calls.
        max_iterations: Maximum number of model requests, including those of subagents. Beyond it, the run ends with an
            error of kind `limit_exceeded`.
        session_id: A session id of your own. Events carry it, and `current_session_id` returns it in tools at any
            depth.
        model_settings: Model settings for this run.
        usage_limits: Usage limits for this run.

    Raises:
        ValueError: `max_iterations` is less than 1.
        ValidationError: The prompt is empty, a setting is not a number or out of bounds, or the `session_id` is blank,
            not a string, not valid Unicode, or contains a NUL. The run has not started.
    """
    check_object('agent', agent, AbstractAgent, CREATE_AGENT)
    if prompt is not None:
        check_prompt('prompt', prompt)
    if message_history is not None:
        check_messages('message_history', message_history)
    if deferred_tool_results is not None:
        check_object(
            'deferred_tool_results',
            deferred_tool_results,
            DeferredToolResults,
            'Pass the result of `answer_approvals`.',
        )
    if model_settings is not None:
        check_numbers(model_settings)
    if usage_limits is not None:
        check_object('usage_limits', usage_limits, UsageLimits, LIMIT_USAGE)
    if max_iterations is not None and (not isinstance(cast('object', max_iterations), int) or max_iterations < 1):
        raise ValueError(f'max_iterations={max_iterations!r}: a run makes at least one model request. Pass 1 or more.')
    check_names(session_id=session_id)
    run_id = str(uuid4())

    def start() -> AbstractAsyncContextManager[AgentRunEvents[OutputT]]:
        return agent.run_stream_events(
            prompt,
            run_id=run_id,
            deps=deps,
            message_history=message_history,
            deferred_tool_results=deferred_tool_results,
            model_settings=model_settings,
            usage_limits=_limits(usage_limits, deps, max_iterations),
            capabilities=[WholeCalls()],
        )

    history = reversed(message_history or ())
    conversation_id = next((message.conversation_id for message in history if message.conversation_id), None)
    return AgentStream(
        start, run_id=run_id, agent_name=agent.name, conversation_id=conversation_id, session_id=session_id
    )


class AgentStream(Generic[OutputT]):
    """A run that advances while you iterate over it. Yields its events from start to end.

    Iterate once, over the stream itself or over `iter_lines()`. Use it with `async with`, so that leaving the block
    early stops the run immediately. A failed run yields an `ErrorEvent`; nothing is raised.
    """

    def __init__(
        self,
        start: Callable[[], AbstractAsyncContextManager[AgentRunEvents[OutputT]]],
        *,
        run_id: str | None = None,
        agent_name: str | None = None,
        conversation_id: str | None = None,
        session_id: str | None = None,
    ) -> None:
        self._start = start
        self._session_id = session_id
        self._translator = RunEvents(
            run_id=run_id,
            agent_name=agent_name,
            conversation_id=conversation_id,
            session_id=session_id,
            usage=self._usage,
        )
        self._run: AgentRunEvents[OutputT] | None = None
        self._result: AgentRunResult[OutputT] | None = None
        self._events: AsyncGenerator[StreamEvent] | None = None
        self._lines: AsyncGenerator[str] | None = None
        self._content: list[str] = []
        self._tool_calls: list[ToolCallEvent] = []

    @property
    def content(self) -> str:
        """The text of the agent itself so far, without text that a retry made void."""
        return ''.join(self._content)

    @property
    def tool_calls(self) -> list[ToolCallEvent]:
        """The calls of the agent itself so far."""
        return list(self._tool_calls)

    @property
    def result(self) -> AgentRunResult[OutputT]:
        """The result of the run.

        Raises:
            RuntimeError: The run has not ended, or it failed.
        """
        if self._result is None:
            raise RuntimeError(
                'The run has no result. Iterate over the stream to its end, and check it for an error event.'
            )
        return self._result

    def __aiter__(self) -> AsyncIterator[StreamEvent]:
        return self._begin()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for generator in (self._lines, self._events):
            if generator is not None:
                await generator.aclose()

    def iter_lines(
        self,
        *,
        encoder: Encoder | None = None,
        notice: str | None = NOTICE,
        tool_results: bool = False,
        function_calls: bool = False,
    ) -> AsyncGenerator[str]:
        """Return the stream as server-sent events. The arguments are those of `streaming.iter_lines`.

        Calling `aclose` on the returned generator stops the run, as leaving the `async with` block does.

        Raises:
            RuntimeError: The stream is already being iterated over.
        """
        events = self._begin()
        lines = iter_lines(
            events, encoder=encoder, notice=notice, tool_results=tool_results, function_calls=function_calls
        )
        self._lines = _closing(lines, events)
        return self._lines

    def _begin(self) -> AsyncGenerator[StreamEvent]:
        if self._events is not None:
            raise RuntimeError('A stream runs its agent once, and this stream is already being iterated over.')
        self._events = self._stream()
        return self._events

    async def _stream(self) -> AsyncGenerator[StreamEvent]:
        async with aclosing(self._run_events()) as source, aclosing(stream_events(source, self._translator)) as events:
            async for event in events:
                self._record(event)
                yield event

    async def _run_events(self) -> AsyncGenerator[AgentStreamEvent | AgentRunResultEvent[Any]]:
        async with self._start() as run:
            iterator = aiter(run)
            with session_scope(self._session_id):  # `anext` creates the task of the run, which inherits the context
                event = await anext(iterator)
            self._run = run
            while event is not None:
                if isinstance(event, AgentRunResultEvent):
                    self._result = event.result
                yield event
                event = await anext(iterator, None)

    def _usage(self) -> RunUsage | None:
        return None if self._run is None else self._run.usage

    def _record(self, event: StreamEvent) -> None:
        match event:
            case TextEvent(text=text, path=[]):
                self._content.append(text)
            case ToolCallEvent(path=[]):
                self._tool_calls.append(event)
            case RetriedEvent(void_text=text, path=[]) if text:
                self._content = [self.content.removesuffix(text)]
            case _:
                pass


async def _closing(lines: AsyncGenerator[str], events: AsyncGenerator[StreamEvent]) -> AsyncGenerator[str]:
    """Yield lines, and close their source together with them."""
    async with aclosing(events), aclosing(lines):
        async for line in lines:
            yield line


def _limits(limits: UsageLimits | None, deps: object, max_iterations: int | None) -> UsageLimits | None:
    """Combine the usage limits with `max_iterations`: the smaller request limit applies."""
    effective = limits or (deps.usage_limits if isinstance(deps, DeepAgentDeps) else None)
    if max_iterations is None:
        return effective
    if effective is None:
        return UsageLimits(request_limit=max_iterations)
    most = max_iterations if effective.request_limit is None else min(effective.request_limit, max_iterations)
    return replace(effective, request_limit=most)
