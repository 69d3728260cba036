"""`emit_turn`: runs a turn, and passes on its events."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from pydantic_ai import AgentRunResultEvent, AgentStreamEvent

from pydantic_deep.streaming import EXPECTED_ERRORS, RunEvents, StatusEvent, StreamEvent
from pydantic_deep.versions import TurnStream

_LOGGER = logging.getLogger('pydantic_deep')

TurnEvent: TypeAlias = AgentStreamEvent | AgentRunResultEvent[Any]
"""An event of pydantic-ai."""


async def emit_turn(
    stream: TurnStream[Any, Any],
    translator: RunEvents,
    *,
    run_id: str,
    base_id: str,
    emit: Callable[[StreamEvent], None],
    push: Callable[[TurnEvent], None] | None = None,
    before: Sequence[StreamEvent] | None = None,
    is_unfinished: Callable[[BaseException | None], bool] = lambda _: False,
) -> BaseException | None:
    """Run a turn to its end, and return the error of a failed one.

    Args:
        stream: The turn.
        translator: Translates its events.
        run_id: The run, for the log.
        base_id: The version that the turn starts from.
        emit: Receives the translated events, the last of which is the end of the run.
        push: Receives the events of pydantic-ai.
        before: The events of a run that continues, which come first; `None` for a new run.
        is_unfinished: Returns, for the error of the turn, whether another attempt runs it or its rest. If so, the run
            gets no end event: the next attempt continues the events.

    Raises:
        BaseException: The task was cancelled. The end of the run was emitted.
    """
    failure: BaseException | None = None
    ends: list[StreamEvent] = []
    try:
        for stream_event in translator.start() if before is None else translator.continue_after(before):
            emit(stream_event)
        async with stream:
            async for event in stream.events():
                for stream_event in translator.translate(event):
                    emit(stream_event)
                if push is not None:
                    push(event)
        ends = translator.end(version_id=stream.version.id, status=stream.version.state)
    except BaseException as error:
        failure = error
        version_id = None if stream.version_id == base_id else stream.version_id
        ends = translator.fail(error, version_id=version_id, is_suspended=stream.is_suspended)
        if not isinstance(error, Exception):  # the process is stopping and no longer waits
            raise
        if not isinstance(error, EXPECTED_ERRORS):
            _LOGGER.exception('The run %s failed', run_id, exc_info=error)
    finally:
        if is_unfinished(failure):
            ends = []
        if stream.conflict is not None:
            emit(StatusEvent(kind='conflict', text=str(stream.conflict)))
        for stream_event in ends:
            emit(stream_event)
    return failure
