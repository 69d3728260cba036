"""Turns of clients of other APIs: the version that they continue, the response, and the thread that is stored.

The run belongs to the run pool and continues if the client disconnects.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

import anyio
from pydantic import JsonValue
from starlette.responses import JSONResponse, Response, StreamingResponse

from pydantic_deep._checks import check_names
from pydantic_deep.approvals import Decision
from pydantic_deep.server._agents import ServedAgent
from pydantic_deep.server._run_start import start_run
from pydantic_deep.server.access._ownership import Access, AuthorizedApproval
from pydantic_deep.server.http._errors import NO_RETRY, ServerError
from pydantic_deep.server.runs._event_stream import HEADERS
from pydantic_deep.server.runs._run_log import LogDiscardedError
from pydantic_deep.server.runs._server_run import ServerRun
from pydantic_deep.store import ApprovalAnsweredError
from pydantic_deep.streaming import (
    AnswerEncoder,
    Approval,
    ApprovalRequiredEvent,
    EndEvent,
    ErrorEvent,
    EventGroup,
    RetriedEvent,
    StartEvent,
    StreamEvent,
    TextEvent,
    ToolCallEvent,
    UsageEvent,
    decode_entry,
    is_selected,
    read_answer,
    render_frame,
)
from pydantic_deep.versions import AgentVersion, TurnOptions

from ._client_results import is_client_call, resume_with_results, run_of_answers
from ._client_tools import ClientCall, parse_args
from ._dialogue import Content, Dialogue, prompt_of, text_of, to_model_messages
from ._dialogue_threads import find_version, has_new_instructions, store_thread

BodyBuilder: TypeAlias = Callable[[Iterable[StreamEvent]], Mapping[str, JsonValue]]
"""Returns the body of a non-streamed response, or of an error if the run failed."""

_KEEPALIVE = b'\n'
"""Sent while a run has no events for the client. A blank line, because Google's client treats a comment as an error."""

_READ_GROUPS = EventGroup.tool_results | EventGroup.thinking
"""The groups of events that a response needs. Calls and their pieces are not decoded."""

CONTINUE = 'Continue with the results above.'
"""The prompt after results in a dialogue that is unknown here. The results are part of its history."""

NEW_INSTRUCTIONS = 'The instructions of this conversation are from now on:\n\n'
"""The text that precedes a system prompt that the client changed."""


@dataclass(frozen=True, kw_only=True)
class CompatTurn:
    """A running turn of a client of another API."""

    access: Access
    agent_name: str
    request: Dialogue
    """The parsed request of the client."""
    run: ServerRun

    async def stream(self, encoder: AnswerEncoder, build_body: BodyBuilder) -> Response:
        """Return a streamed response. A failure before the first content is an HTTP error, as clients expect.

        Args:
            encoder: Encodes events as frames.
            build_body: Builds the body of an error.
        """
        events = self._events()
        first = [event async for event in _until_first_content(events)]
        failed = next((event for event in first if isinstance(event, ErrorEvent)), None)
        if failed is not None:
            await events.aclose()
            return _error_response(failed, build_body(first))
        return StreamingResponse(  # without our streams' `retry`, which OpenAI's client would treat as an event
            self._frames(first, events, encoder), media_type='text/event-stream', headers=HEADERS
        )

    async def respond(self, build_body: BodyBuilder) -> Response:
        """Wait for the end of the run, and return the response."""
        events = [event async for event in self._events() if event is not None]
        answer = read_answer(events)
        if answer.error is not None:
            return _error_response(answer.error, build_body(events))
        await self._store_thread(answer.text, _calls_in(events))
        return JSONResponse(dict(build_body(events)))

    async def _frames(
        self, first: list[StreamEvent], events: AsyncGenerator[StreamEvent | None], encoder: AnswerEncoder
    ) -> AsyncGenerator[bytes]:
        is_stored = False
        calls: list[ClientCall] = []
        try:
            async with aclosing(_chain(first, events)) as all_events:
                async for event in all_events:
                    calls += _calls_in([event])
                    frames = _KEEPALIVE if event is None else _render(encoder, event)
                    if isinstance(event, EndEvent) and event.finish_reason != 'error':
                        # Stored before the client can send its next request.
                        await self._store_thread(encoder.text, calls)
                        is_stored = True
                    yield frames
            yield ''.join(map(render_frame, encoder.finish())).encode()
        finally:
            if not is_stored:
                self.access.state.runs.tasks.start_soon(self._store_thread_at_end)

    async def _events(self) -> AsyncGenerator[StreamEvent | None]:
        """Yield the events of the run, and `None` while the client gets none. Pending calls have the ids of the inbox.

        The only calls are those of the client's tools. With a schema, the only text is the output. If the log is
        removed while it is read, the events stop without an end event, which readers treat as an error.
        """
        required: ApprovalRequiredEvent | None = None
        keepalive_seconds, last_yielded = self.access.state.settings.keepalive_seconds, anyio.current_time()
        with suppress(LogDiscardedError):
            async with aclosing(self.run.log.batches(idle_seconds=keepalive_seconds)) as batches:
                async for batch in batches:
                    entries = [entry for _, entry in batch if is_selected(entry, _READ_GROUPS)]
                    if not entries and anyio.current_time() - last_yielded < keepalive_seconds:
                        continue
                    last_yielded = anyio.current_time()
                    for event in map(decode_entry, entries) if entries else (None,):
                        if isinstance(event, ApprovalRequiredEvent):
                            required = event  # the ids are in the version that the end event names
                            continue
                        if isinstance(event, EndEvent) and required is not None:
                            for call in await self._pending_events(required, event):
                                yield call
                        if self.request.output_schema is not None:
                            if isinstance(event, (TextEvent, RetriedEvent)):
                                continue
                            if isinstance(event, EndEvent) and event.output is not None:
                                event = await self._with_json_output(event)
                        yield event

    async def _pending_events(self, required: ApprovalRequiredEvent, end: EndEvent) -> list[StreamEvent]:
        """Return the calls of the client's tools, and the approvals that are pending beside them."""
        version = await self.access.version(end.version_id or '')
        names = {tool.name for tool in await version.external_tools()}
        records = await self.access.state.store.approvals(status=None, version_id=version.id, limit=1000)
        record_by_pending = {record.pending_id: record for record in records}
        events: list[StreamEvent] = []
        others: list[Approval] = []
        for approval in required.approvals:
            record = record_by_pending[approval.id]
            if is_client_call(record, names):
                events.append(ToolCallEvent(id=record.id, name=approval.tool, args=json.dumps(approval.args)))
            else:
                others.append(replace(approval, id=record.id))
        return [*events, replace(required, approvals=others)] if others else events

    async def _with_json_output(self, end: EndEvent) -> EndEvent:
        """Return the end with its output as JSON, also if the output is a string."""
        version = await self.access.state.store.version(end.version_id or '')
        return replace(end, output=version.output)

    async def _store_thread_at_end(self) -> None:
        events = [event async for event in self._events() if event is not None]
        answer = read_answer(events)
        if answer.error is None:
            await self._store_thread(answer.text, _calls_in(events))

    async def _store_thread(self, answer: str, calls: Sequence[ClientCall]) -> None:
        """Store the version that the dialogue of a successful run ends with."""
        version_id = cast('str', self.run.version_id)
        await store_thread(
            self.access.state.threads,
            self.access.key.owner,
            self.agent_name,
            self.request,
            answer=answer,
            calls=calls,
            version_id=version_id,
            session_id=self.run.session_id,
        )


async def start_turn(access: Access, agent_name: str, dialogue: Dialogue, *, session_id: str | None) -> CompatTurn:
    """Start the turn that a client requests.

    Raises:
        ServerError: The caller lacks a scope, no run can start now, a decision does not match a pending approval, or
            approvals are pending and the request contains a prompt.
        ApprovalAnsweredError: An approval was already answered.
    """
    agent = access.agent(agent_name)
    check_names(session_id=session_id)  # before a conversation is created for it
    approvals = await _authorize_decisions(access, agent_name, dialogue.decisions)
    options = TurnOptions(
        model_settings=dialogue.model_settings,
        external_tools=dialogue.tools.tools,
        tool_choice=dialogue.tools.choice,
        output_schema=dialogue.output_schema,
    )
    resumed = (
        await resume_with_results(access, agent_name, dialogue, session_id=session_id) if dialogue.results else None
    )
    run = None if resumed is None else resumed.run
    if resumed is not None:
        version = resumed.version
        prompt = prompt_of(dialogue.prompt) if dialogue.prompt else None
        options = replace(options, answers=resumed.answers, prompt=prompt)
    elif approvals:
        records = [approval.record for approval in approvals.values()]
        run = run_of_answers(access, records, dialogue.decisions)
        version = next(iter(approvals.values())).version
        options = replace(options, answers={each.pending_id: dialogue.decisions[each.id] for each in records})
    else:
        version, prefix = await _base_version(access, agent, agent_name, dialogue, session_id)
        options = replace(options, prompt=prompt_of([*prefix, *(dialogue.prompt or (CONTINUE,))]))
    if run is None:
        run = await _start(access, version, options, session_id=session_id, may_branch=not dialogue.decisions)
    return CompatTurn(access=access, agent_name=agent_name, request=dialogue, run=run)


async def _start(
    access: Access, version: AgentVersion[Any, Any], options: TurnOptions, *, session_id: str | None, may_branch: bool
) -> ServerRun:
    """Start the run of a turn. While another run works from the same version, the turn works from a copy of it."""
    try:
        return await start_run(access, version, options, session_id=session_id)
    except (ServerError, ApprovalAnsweredError) as error:
        is_busy = isinstance(error, ApprovalAnsweredError) or 'run_id' in error.facts
        if not may_branch or not is_busy:
            raise
    return await start_run(access, await version.clone(), options, session_id=session_id)


async def _authorize_decisions(
    access: Access, agent_name: str, decisions: Mapping[str, Decision]
) -> dict[str, AuthorizedApproval]:
    """Return the approvals that the decisions refer to, by id. They must belong to a single version."""
    if not decisions:
        return {}
    if not access.has('approve'):
        raise ServerError('forbidden', 'This requires a key with the scope `approve`.')
    approvals = {id: await access.approval(id) for id in decisions}
    versions = {(approval.version.id, approval.version.agent_name) for approval in approvals.values()}
    if len(versions) > 1 or versions.pop()[1] != agent_name:
        raise ServerError('invalid', 'All decisions of a request must belong to one response of this model.')
    return approvals


async def _base_version(
    access: Access, agent: ServedAgent, agent_name: str, dialogue: Dialogue, session_id: str | None
) -> tuple[AgentVersion[Any, Any], list[Content]]:
    """Return the version that a dialogue continues, and content to send before its prompt.

    An unknown dialogue becomes the history of a new conversation. A changed system prompt is sent with the new prompt,
    so that earlier messages stay unchanged and remain in the provider's cache.
    """
    known = None
    if not dialogue.results:  # those of a known dialogue have found their version already
        known = await find_version(access, agent_name, dialogue, session_id=session_id)
    if known is not None:
        is_new = has_new_instructions(known.thread, dialogue)
        return known.version, [NEW_INSTRUCTIONS + dialogue.system] if is_new else []
    root = await access.create_conversation(agent_name, name=_conversation_name(text_of(dialogue.prompt)))
    history = to_model_messages(dialogue)
    if not history:
        return root, []
    return await agent.conversation(root.conversation_id, backend=root.backend).set(history), []


def _calls_in(events: Iterable[StreamEvent | None]) -> list[ClientCall]:
    """Return the calls of the client's tools."""
    return [
        ClientCall(id=event.id, name=event.name, args=parse_args(event.args))
        for event in events
        if isinstance(event, ToolCallEvent)
    ]


def _conversation_name(prompt: str) -> str | None:
    """Return the beginning of the first prompt, as the display name."""
    line = prompt.strip().partition('\n')[0]
    return ''.join(character for character in line if character.isprintable())[:60] or None


async def _chain(
    first: Iterable[StreamEvent], events: AsyncGenerator[StreamEvent | None]
) -> AsyncGenerator[StreamEvent | None]:
    for event in first:
        yield event
    async with aclosing(events):
        async for event in events:
            yield event


async def _until_first_content(events: AsyncGenerator[StreamEvent | None]) -> AsyncGenerator[StreamEvent]:
    """Yield events up to the first one with content."""
    async for event in events:
        match event:
            case None:
                pass
            case StartEvent() | UsageEvent():
                yield event
            case _:
                yield event
                return


def _render(encoder: AnswerEncoder, event: StreamEvent) -> bytes:
    return ''.join(map(render_frame, encoder.encode(event))).encode()


def _error_response(error: ErrorEvent, body: Mapping[str, JsonValue]) -> JSONResponse:
    return JSONResponse(dict(body), error.status or 500, headers=NO_RETRY)
