"""Turns of clients of other APIs: the version that they continue, the response, and the thread that is stored.

The run belongs to the run pool and continues if the client disconnects.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

from pydantic import JsonValue
from starlette.responses import JSONResponse, Response, StreamingResponse

from pydantic_deep._checks import check_names
from pydantic_deep.approvals import Decision
from pydantic_deep.server._deletion import deleted_if_refused
from pydantic_deep.server._run_start import start_run
from pydantic_deep.server.access._ownership import Access, AuthorizedApproval
from pydantic_deep.server.http._errors import NO_RETRY, ServerError
from pydantic_deep.server.runs._event_stream import HEADERS
from pydantic_deep.server.runs._server_run import ServerRun
from pydantic_deep.store import ApprovalAnsweredError
from pydantic_deep.streaming import (
    AnswerEncoder,
    EndEvent,
    ErrorEvent,
    Frame,
    ResponsesEncoder,
    StartEvent,
    StreamEvent,
    ToolCallEvent,
    UsageEvent,
    read_answer,
    render_frames,
)
from pydantic_deep.versions import AgentVersion, TurnOptions

from ._client_events import ClientEvent, client_events, parse_texts, run_events
from ._client_results import NOT_TOGETHER, refuse_prompt_if_pending, resume_with_answers
from ._client_tools import ClientCall, parse_args
from ._dialogue import Dialogue, prompt_of, text_of, to_model_messages
from ._dialogue_threads import find_version, has_new_instructions, store_thread
from ._linked_files import fetch_content, fetch_history

BodyBuilder: TypeAlias = Callable[[Iterable[StreamEvent]], Mapping[str, JsonValue]]
"""Returns the body of a non-streamed response, or of an error if the run failed."""

KEEPALIVE = b'\n'
"""Sent while a run has no events for the client. A blank line, because Google's client treats a comment as an error."""

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
    continues_id: bool = False
    """Whether the request named what it continues, so that it does not contain the whole dialogue."""

    async def stream(self, encoder: AnswerEncoder, build_body: BodyBuilder) -> Response:
        """Return a streamed response. A failure before the first content is an HTTP error, as clients expect, unless the
        run is silent for so long that the client must get something.

        Args:
            encoder: Encodes events as frames.
            build_body: Builds the body of an error.
        """
        events = self.events(is_streamed=True)
        first = [event async for event in _until_first_content(events)]
        failed = next((event for event in first if isinstance(event, ErrorEvent)), None)
        if failed is not None:
            await events.aclose()
            return _error_response(
                failed, build_body([event for event in first if not isinstance(event, bytes | None)])
            )
        return StreamingResponse(  # without our streams' `retry`, which OpenAI's client would treat as an event
            self.frames(events, encoder, read=first), media_type='text/event-stream', headers=HEADERS
        )

    async def respond(self, build_body: BodyBuilder) -> Response:
        """Wait for the end of the run, and return the response. If its worker crashes, another one completes it.

        Raises:
            ServerError: This process cannot follow the run to its end.
        """
        events = await self._all_events()
        if not _has_end(events):
            raise ServerError(
                'unavailable',
                f'This server cannot follow the run {self.run.id} any more. The run is not affected: read its result with '
                f'`GET /api/runs/{self.run.id}` or `GET /v1/responses/resp_{self.run.id}` instead of repeating the '
                'request.',
                headers=NO_RETRY,
            )
        answer = read_answer(events)
        if answer.error is not None:
            return _error_response(answer.error, build_body(events))
        await self._store_thread(answer.text, _calls_in(events))
        return JSONResponse(dict(build_body(events)))

    def events(self, *, is_streamed: bool) -> AsyncGenerator[ClientEvent]:
        """Return the events of the run for its client, and `None` while there are none."""
        schema, is_plain = self.request.output_schema, self.request.has_plain_output
        events = run_events(self.access.state, self.run, has_call_deltas=is_streamed and schema is not None)
        return client_events(self.access, events, schema=schema, is_streamed=is_streamed, is_plain=is_plain)

    async def frames(
        self,
        events: AsyncGenerator[ClientEvent],
        encoder: AnswerEncoder | ResponsesEncoder,
        *,
        first: Sequence[Frame] = (),
        read: Sequence[ClientEvent] = (),
    ) -> AsyncGenerator[bytes]:
        """Yield the first frames and those of the events, and store the thread even if the client disconnects.

        Args:
            events: The events of the run.
            encoder: Encodes them.
            first: Frames to send before them.
            read: Events that were read before.
        """
        is_stored = False
        calls: list[ClientCall] = []

        async def encode(event: ClientEvent) -> bytes:
            nonlocal is_stored
            if event is None:
                return KEEPALIVE
            if isinstance(event, bytes):
                return encoder.render_text(event)
            calls.extend(_calls_in([event]))
            frames = render_frames(encoder.encode(event))
            if isinstance(event, EndEvent) and event.finish_reason != 'error':
                # Stored before the client can send its next request.
                await self._store_thread(encoder.text, calls)
                is_stored = True
            return frames

        try:
            if first:
                yield render_frames(first)
            async with aclosing(events):
                for event in read:
                    yield await encode(event)
                async for event in events:
                    yield encoder.render_text(event) if isinstance(event, bytes) else await encode(event)
            yield render_frames(encoder.finish())
        finally:
            if not is_stored:
                self.access.state.runs.tasks.start_soon(self.store_thread_at_end)

    async def store_thread_at_end(self) -> None:
        """Wait for the end of the run, and store its thread."""
        events = await self._all_events()
        answer = read_answer(events)
        if answer.error is None:
            await self._store_thread(answer.text, _calls_in(events))

    async def _all_events(self) -> list[StreamEvent]:
        """Return the events of the run. They start over if another worker takes over the run of a crashed one."""
        log, events = None, list[StreamEvent]()
        while not _has_end(events) and log is not self.run.log:
            log = self.run.log
            events = [event async for event in parse_texts(self.events(is_streamed=False)) if event is not None]
        return events

    async def _store_thread(self, answer: str, calls: Sequence[ClientCall]) -> None:
        """Store the version that the dialogue of a successful run ends with."""
        if self.continues_id:
            return
        version_id = cast('str', self.run.version_id)
        await store_thread(
            self.access.state.threads,
            self.access.owner,
            self.agent_name,
            self.request,
            answer=answer,
            calls=calls,
            version_id=version_id,
            session_id=self.run.session_id,
        )


@dataclass(frozen=True, kw_only=True)
class Continuation:
    """The version that a request continues."""

    version: AgentVersion[Any, Any]
    new_instructions: bool = False
    """Whether the system prompt of the request is not the one in effect."""
    may_branch: bool = True
    """Whether the turn may become a branch while another run works from the version."""
    is_new: bool = False
    """Whether the conversation was created for this turn."""


async def start_turn(
    access: Access,
    agent_name: str,
    dialogue: Dialogue,
    *,
    session_id: str | None,
    continuation: Continuation | None = None,
    run_id: str | None = None,
) -> CompatTurn:
    """Start the turn that a client requests.

    Args:
        access: The access of the caller.
        agent_name: The agent that the request names.
        dialogue: The parsed request.
        session_id: The client's own session id.
        continuation: The version that the request names; by default, the one that the earlier messages identify.
        run_id: The id of the run if workers execute it.

    Raises:
        ServerError: The caller lacks a scope, no run can start now, a decision does not match a pending approval, or
            approvals are pending and the request contains a prompt.
        ApprovalAnsweredError: An approval was already answered.
    """
    access.model(agent_name)
    continues_id = continuation is not None
    check_names(session_id=session_id)  # before a conversation is created for it
    if continuation is not None:
        await _check_answers(access, continuation.version, dialogue)
    approvals = await _authorize_decisions(access, agent_name, dialogue.decisions)
    new = await fetch_content(access.state.settings, dialogue.prompt)
    options = TurnOptions(
        run_id=run_id,
        model_settings=dialogue.model_settings,
        external_tools=dialogue.tools.tools,
        tool_choice=dialogue.tools.choice,
        output_schema=dialogue.output_schema,
    )
    run, resumed = None, None
    if dialogue.results or approvals:
        decided = next((approval.version for approval in approvals.values()), None)
        resumed = await resume_with_answers(access, agent_name, dialogue, session_id=session_id, decided=decided)
    if resumed is not None:
        run = resumed.run
        version = resumed.version
        prompt = prompt_of(new) if new else None
        options = replace(options, answers=resumed.answers, prompt=prompt)
    elif approvals:
        raise ServerError('invalid', NOT_TOGETHER)
    else:
        if continuation is None:
            continuation = await _continuation(access, agent_name, dialogue, session_id)
        version = continuation.version
        await refuse_prompt_if_pending(access, version)
        prefix = [NEW_INSTRUCTIONS + dialogue.system] if dialogue.system and continuation.new_instructions else []
        options = replace(options, prompt=prompt_of([*prefix, *(new or (CONTINUE,))]))
    if run is None:
        may_branch = not dialogue.decisions and (continuation is None or continuation.may_branch)
        created_id = version.conversation_id if continuation is not None and continuation.is_new else None
        async with deleted_if_refused(access.state, created_id):
            run = await _start(access, version, options, session_id=session_id, may_branch=may_branch)
    return CompatTurn(access=access, agent_name=agent_name, request=dialogue, run=run, continues_id=continues_id)


async def _check_answers(access: Access, version: AgentVersion[Any, Any], dialogue: Dialogue) -> None:
    """Refuse decisions and results that do not belong to the version that the request names."""
    for id in [*dialogue.decisions, *(result.id for result in dialogue.results)]:
        try:
            found = None if id is None else (await access.approval(id)).record.version_id
        except ServerError:  # there is no such call, or it is another owner's
            found = None
        if found != version.id:
            raise ServerError('invalid', f'The call {id!r} is not pending in the response that the request continues.')


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
    await access.state.runs.check_capacity(access.caller.account)
    return await start_run(access, await version.clone(), options, session_id=session_id)


async def _authorize_decisions(
    access: Access, agent_name: str, decisions: Mapping[str, Decision]
) -> dict[str, AuthorizedApproval]:
    """Return the approvals that the decisions refer to, by id. They must belong to a single version."""
    if not decisions:
        return {}
    if not access.has('approve'):
        raise ServerError('forbidden', 'This requires a key with the scope `approve`.')
    approvals = {id: await _find_approval(access, id) for id in decisions}
    versions = {(approval.version.id, approval.version.agent_name) for approval in approvals.values()}
    if len(versions) > 1 or versions.pop()[1] != agent_name:
        raise ServerError('invalid', 'All decisions of a request must belong to one response of this model.')
    return approvals


async def _find_approval(access: Access, id: str) -> AuthorizedApproval:
    """Return an approval. If there is none, the error must not be that of an unknown model."""
    try:
        return await access.approval(id)
    except ServerError:
        message = 'This approval does not exist, or this key has no access to it.'
        raise ServerError('not_found', message, facts={'code': 'approval_not_found'}) from None


async def _continuation(access: Access, agent_name: str, dialogue: Dialogue, session_id: str | None) -> Continuation:
    """Return the version that a dialogue continues. An unknown dialogue becomes the history of a new conversation.

    A changed system prompt is sent with the new prompt, so that earlier messages stay unchanged and remain in the
    provider's cache.
    """
    known = None
    if not dialogue.results:  # those of a known dialogue have found their version already
        known = await find_version(access, agent_name, dialogue, session_id=session_id)
    if known is not None:
        return Continuation(version=known.version, new_instructions=has_new_instructions(known.thread, dialogue))
    return Continuation(version=await start_conversation(access, agent_name, dialogue), is_new=True)


async def start_conversation(
    access: Access, agent_name: str, dialogue: Dialogue, *, id: str | None = None
) -> AgentVersion[Any, Any]:
    """Create a conversation with the earlier messages of a dialogue, and return the version that a turn continues.

    Raises:
        ServerError: Too many runs are active, so that no turn could continue it now.
    """
    await access.state.runs.check_capacity(access.caller.account)
    dialogue = await fetch_history(access.state.settings, dialogue)
    name = _conversation_name(text_of(dialogue.prompt))
    root = await access.create_conversation(agent_name, name=name, id=id)
    history = to_model_messages(dialogue)
    if not history:
        return root
    return await access.agent(agent_name).conversation(root.conversation_id, backend=root.backend).set(history)


def _has_end(events: Iterable[StreamEvent]) -> bool:
    return any(isinstance(event, (EndEvent, ErrorEvent)) for event in events)


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


async def _until_first_content(events: AsyncGenerator[ClientEvent]) -> AsyncGenerator[ClientEvent]:
    """Yield events up to the first one with content, or up to `None`: the run has been silent as long as it may be."""
    async for event in events:
        yield event
        if not isinstance(event, StartEvent | UsageEvent):
            return


def _error_response(error: ErrorEvent, body: Mapping[str, JsonValue]) -> JSONResponse:
    return JSONResponse(dict(body), error.status or 500, headers=NO_RETRY)
