"""A turn that a client of another API asks for: where it goes on, what it is told, and where the next one goes on.

The run is the hub's, as any other: a client that leaves changes nothing, and what was done is in the conversation.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias, cast

from pydantic import JsonValue
from starlette.responses import JSONResponse, Response, StreamingResponse

from pydantic_deep._checks import check_names
from pydantic_deep.approvals import Decision
from pydantic_deep.server._run_start import begin_run
from pydantic_deep.server._state import ServedAgent, ServerState
from pydantic_deep.server.access._authentication import Caller, agent_for
from pydantic_deep.server.access._ownership import OwnApproval, create_conversation, load_version, own_approval
from pydantic_deep.server.http._errors import NO_RETRY, ServerError
from pydantic_deep.server.runs._event_stream import HEADERS, KEEPALIVE
from pydantic_deep.server.runs._run_log import LogForgottenError
from pydantic_deep.server.runs._server_run import ServerRun
from pydantic_deep.store import VersionNotFoundError
from pydantic_deep.streaming import (
    STREAM_EVENTS,
    ApprovalRequiredEvent,
    EndEvent,
    ErrorEvent,
    StartEvent,
    StreamEvent,
    UsageEvent,
    render_frame,
)
from pydantic_deep.streaming._answer import AnswerEncoder, read_answer
from pydantic_deep.versions import AgentVersion
from pydantic_deep.versions.pauses._answers import decode_decision

from ._dialogue import Content, Dialogue, as_messages, text_of
from ._dialogue_threads import find_thread, has_other_system, note_thread

Whole: TypeAlias = Callable[[Iterable[StreamEvent]], Mapping[str, JsonValue]]
"""Returns the body of an answer that is not streamed; that of an error if the run failed."""


OTHER_SYSTEM = 'The instructions of this conversation are from now on:\n\n'
"""What comes before a system text that a client has changed."""


@dataclass(frozen=True, kw_only=True)
class WireTurn:
    """A turn that was begun for a client of another API."""

    state: ServerState
    owner: str
    agent_name: str
    asked: Dialogue
    """What the client sent."""
    run: ServerRun

    async def stream(self, encoder: AnswerEncoder, whole: Whole) -> Response:
        """Return the answer as it comes; what fails before the first word is an HTTP error, as clients expect.

        Args:
            encoder: Makes frames of events.
            whole: Makes the body of an error.
        """
        events = self._events()
        first = [event async for event in _up_to_first_news(events)]
        failed = next((event for event in first if isinstance(event, ErrorEvent)), None)
        if failed is not None:
            await events.aclose()
            return _answer(failed, whole(first))
        return StreamingResponse(  # without the `retry` of our own streams, which OpenAI's client takes for an event
            self._frames(first, events, encoder), media_type='text/event-stream', headers=HEADERS
        )

    async def whole(self, whole: Whole) -> Response:
        """Return the answer when it is there."""
        events = [event async for event in self._events() if event is not None]
        answer = read_answer(events)
        if answer.error is not None:
            return _answer(answer.error, whole(events))
        await self._note(answer.text)
        return JSONResponse(dict(whole(events)))

    async def _frames(
        self, first: list[StreamEvent], events: AsyncGenerator[StreamEvent | None], encoder: AnswerEncoder
    ) -> AsyncGenerator[bytes]:
        is_noted = False
        try:
            async with aclosing(_chain(first, events)) as told:
                async for event in told:
                    frames = KEEPALIVE if event is None else _render(encoder, event)
                    if isinstance(event, EndEvent) and event.finish_reason != 'error':
                        # Noted before the client knows that it may go on.
                        await self._note(encoder.text)
                        is_noted = True
                    yield frames
            yield ''.join(map(render_frame, encoder.finish())).encode()
        finally:
            if not is_noted:
                self.state.hub.tasks.start_soon(self._note_when_it_ends)

    async def _events(self) -> AsyncGenerator[StreamEvent | None]:
        """Yield what the run tells, `None` while it tells nothing; approvals have the ids that the inbox has.

        A log that is forgotten while it is read ends without an end, which whoever reads takes for the error it is.
        """
        asked: ApprovalRequiredEvent | None = None
        with suppress(LogForgottenError):
            async with aclosing(self.run.log.batches(idle_seconds=self.state.settings.keepalive_seconds)) as batches:
                async for batch in batches:
                    for event in [STREAM_EVENTS.validate_json(data) for _, data in batch] or [None]:
                        if isinstance(event, ApprovalRequiredEvent):
                            asked = event  # the version that has their ids is told with the end
                            continue
                        if isinstance(event, EndEvent) and asked is not None:
                            yield await self._with_ids(asked, event)
                        yield event

    async def _with_ids(self, asked: ApprovalRequiredEvent, end: EndEvent) -> ApprovalRequiredEvent:
        records = await self.state.store.approvals(status=None, version_id=end.version_id, limit=1000)
        ids = {record.pending_id: record.id for record in records}
        return replace(asked, approvals=[replace(each, id=ids[each.id]) for each in asked.approvals])

    async def _note_when_it_ends(self) -> None:
        answer = read_answer([event async for event in self._events() if event is not None])
        if answer.error is None:
            await self._note(answer.text)

    async def _note(self, answer: str) -> None:
        """Note where the dialogue is kept, of a run that has ended well."""
        version_id = cast('str', self.run.version_id)
        await note_thread(
            self.state.threads,
            self.owner,
            self.agent_name,
            self.asked,
            answer=answer,
            version_id=version_id,
            session_id=self.run.session_id,
        )


async def begin_turn(
    state: ServerState, caller: Caller, agent_name: str, asked: Dialogue, *, session_id: str | None
) -> WireTurn:
    """Begin the turn that a client asks for.

    Raises:
        ServerError: The caller may not, no run can begin now, a decision does not fit what waits, or something waits
            for a person and the client goes on talking.
        ApprovalAnsweredError: Somebody was faster with a decision.
    """
    agent = agent_for(state, caller, agent_name)
    check_names(session_id=session_id)  # before a conversation is begun for it
    begin = partial(begin_run, state, caller, model_settings=asked.model_settings, session_id=session_id)
    if asked.decisions:
        found = await _decided(state, caller, agent_name, asked.decisions)
        turn = {found[id].record.pending_id: decision for id, decision in asked.decisions.items()}
        run = _acting(state, found, asked.decisions) or await begin(next(iter(found.values())).version, turn)
    else:
        version, told = await _base(state, caller, agent, agent_name, asked, session_id)
        run = await begin(version, _prompt([*told, *asked.prompt]))
    return WireTurn(state=state, owner=caller.owner, agent_name=agent_name, asked=asked, run=run)


async def _decided(
    state: ServerState, caller: Caller, agent_name: str, decisions: Mapping[str, Decision]
) -> dict[str, OwnApproval]:
    """Return what was decided, by the ids that the client knows: all of it waits, or has waited, in one version."""
    if not caller.has('approve'):
        raise ServerError('forbidden', 'This needs a key with the scope `approve`.')
    found = {id: await own_approval(state, caller, id) for id in decisions}
    versions = {(each.version.id, each.version.agent_name) for each in found.values()}
    if len(versions) > 1 or versions.pop()[1] != agent_name:
        raise ServerError('invalid', 'Answer what one answer of this model has asked for, and nothing else with it.')
    return found


def _acting(
    state: ServerState, found: Mapping[str, OwnApproval], decisions: Mapping[str, Decision]
) -> ServerRun | None:
    """Return the run that acts, or has acted, on just these decisions: who sends them again has not got its answer."""
    ids = {each.record.resumed_by for each in found.values()}
    is_same = all(decode_decision(found[id].record) == decision for id, decision in decisions.items())
    return state.hub.get(ids.pop() or '') if is_same and len(ids) == 1 else None


async def _base(
    state: ServerState, caller: Caller, agent: ServedAgent, agent_name: str, asked: Dialogue, session_id: str | None
) -> tuple[AgentVersion[Any, Any], list[Content]]:
    """Return the version that a dialogue goes on from, and what to say before its new words.

    Where it is not known, that is a version that was told of it. Where the client wants the agent to be told something
    else than before, that is said with the new words: what was sent stays as it is, and in the provider's cache.
    """
    known = await find_thread(state.threads, caller.owner, agent_name, asked, session_id=session_id)
    if known is not None:
        with suppress(VersionNotFoundError):  # it was deleted: the client has the words still
            version = await load_version(state, caller, agent, await state.store.version(known.version_id))
            return version, [OTHER_SYSTEM + asked.system] if has_other_system(known, asked) else []
    root = await create_conversation(state, caller, agent_name, name=_name_of(text_of(asked.prompt)))
    told = as_messages(asked)
    if not told:
        return root, []
    return await agent.conversation(root.conversation_id, backend=root.backend).set(told), []


def _name_of(said: str) -> str | None:
    """Return the beginning of what was said first, as people read it in a list."""
    line = said.strip().partition('\n')[0]
    return ''.join(each for each in line if each.isprintable())[:60] or None


def _prompt(content: Sequence[Content]) -> str | list[Content]:
    return content[0] if len(content) == 1 and isinstance(content[0], str) else list(content)


async def _chain(
    first: Iterable[StreamEvent], events: AsyncGenerator[StreamEvent | None]
) -> AsyncGenerator[StreamEvent | None]:
    for event in first:
        yield event
    async with aclosing(events):
        async for event in events:
            yield event


async def _up_to_first_news(events: AsyncGenerator[StreamEvent | None]) -> AsyncGenerator[StreamEvent]:
    """Yield events up to the first that says something."""
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


def _answer(error: ErrorEvent, body: Mapping[str, JsonValue]) -> JSONResponse:
    return JSONResponse(dict(body), error.status or 500, headers=NO_RETRY)
