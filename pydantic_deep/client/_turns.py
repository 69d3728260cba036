"""Turns and their runs: start, stream, wait for, cancel and resume them."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from typing_extensions import Unpack

from pydantic_deep.views import Run

from ._connection import Connection, segment
from ._event_stream import MAX_RECONNECTS, EventStream
from ._turn_fields import TurnFields, turn_body


class TurnsClient:
    """Turns of conversations, each of which is one run, or several with pauses between them: `client.turns`.

    A run continues if the client disconnects.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def start(
        self, conversation_id: str, prompt: str, *, from_version: str | None = None, **fields: Unpack[TurnFields]
    ) -> Run:
        """Start a turn, and return its run as soon as it is stored.

        Args:
            conversation_id: The conversation.
            prompt: The prompt of the user, not empty.
            from_version: The version to start from, by default the head. A turn from another version does not move the
                head.
            **fields: Optional fields of the turn.
        """
        path = f'/api/conversations/{segment("conversation_id", conversation_id)}/turns'
        body = turn_body(prompt, fields, from_version=from_version)
        return await self._connection.post(Run, path, body, params={'wait': False})

    def events(
        self,
        run_id: str,
        *,
        last_event_id: str | None = None,
        tool_results: bool = False,
        function_calls: bool = False,
        thinking: bool = False,
        max_reconnects: int = MAX_RECONNECTS,
    ) -> EventStream:
        """Return the events of a run, from its beginning to its end: `async with client.turns.events(id) as events`.

        Args:
            run_id: The run.
            last_event_id: The `EventStream.last_event_id` of an earlier stream, after which this one begins.
            tool_results: Include results of tools, and the text and thinking of subagents.
            function_calls: Include complete tool calls.
            thinking: Include the model's thinking.
            max_reconnects: How often in a row to reconnect without receiving an event. With the default, the stream
                survives outages of about two minutes.
        """
        return EventStream(
            self._connection,
            f'{_path(run_id)}/events',
            {'tool_results': tool_results, 'function_calls': function_calls, 'thinking': thinking},
            last_event_id=last_event_id,
            max_reconnects=max_reconnects,
        )

    async def wait(self, run_id: str) -> Run:
        """Return a run when it has ended or paused for approvals. Reconnects like `events`."""
        async with self.events(run_id) as events:
            async for _ in events:
                pass
        return await self.get(run_id)

    async def get(self, run_id: str) -> Run:
        """Return a run with its state, output and pending approvals."""
        return await self._connection.get(Run, _path(run_id))

    def list(self, *, conversation_id: str | None = None) -> AsyncGenerator[Run]:
        """Yield the newest 200 runs of a conversation; without one, active and recently ended runs. Newest first."""
        return self._connection.items(Run, '/api/runs', conversation=conversation_id, limit=200)

    async def cancel(self, run_id: str) -> Run:
        """Cancel a run, and return it when its end is stored. Completed work is preserved."""
        return await self._connection.post(Run, f'{_path(run_id)}/cancel')

    async def resume(self, conversation_id: str, *, from_version: str | None = None) -> Run:
        """Resume the turn of a pending version with the approvals answered so far, and return the new run.

        Args:
            conversation_id: The conversation.
            from_version: The pending version, by default the head.
        """
        path = f'/api/conversations/{segment("conversation_id", conversation_id)}/resume'
        return await self._connection.post(Run, path, {'from_version': from_version}, params={'wait': False})


def _path(run_id: str) -> str:
    return f'/api/runs/{segment("run_id", run_id)}'
