"""`QueuedTurn`: the turn of a claimed run, from its start or from the last step of its crashed process."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from pydantic_ai import CancellationToken

from pydantic_deep._messages.half_characters import join_halves
from pydantic_deep._spans import submitted_in
from pydantic_deep.errors import DeepAgentError
from pydantic_deep.store import (
    QueuedRunRecord,
    RunRecord,
    SqlStore,
    StoreClosedError,
    StoreCorruptedError,
    StoreUnavailableError,
    VersionNotFoundError,
)
from pydantic_deep.streaming import (
    EXPECTED_ERRORS,
    EndEvent,
    RunEvents,
    StartEvent,
    StreamEvent,
    describe_failure,
    project_messages,
)
from pydantic_deep.versions import (
    AgentVersion,
    ApprovalsPendingError,
    SupportsFilling,
    TurnOptions,
    TurnStream,
    VersionedAgent,
)
from pydantic_deep_backends import BackendProtocol

from ._stored_events import load_attempts, load_run_messages
from ._turn_events import emit_turn

_LOGGER = logging.getLogger('pydantic_deep')

_PROBLEM_CHARS = 2000
"""Maximum length of the reason why a turn did not begin, in characters."""

MAX_CLAIMS = 5
"""How often a turn that cannot begin on one worker, for example because its disk is full, is claimed before it fails."""

OpenBackend: TypeAlias = Callable[[str, str], BackendProtocol]
"""Returns the backend of a conversation, by its account and its id."""


class QueuedTurn:
    """The turn of a claimed run."""

    def __init__(
        self,
        agent: VersionedAgent[Any, Any],
        store: SqlStore,
        run: QueuedRunRecord,
        token: CancellationToken,
        make_backend: OpenBackend | None,
    ) -> None:
        self._agent = agent
        self._store = store
        self._run = run
        self._token = token
        self._make_backend = make_backend
        self._options = json.loads(run.options)
        self.session_id: str | None = self._options.get('session_id')
        self.problem: str | None = None
        """Why the turn did not begin, or does not continue now."""

    async def run(self, emit: Callable[[StreamEvent], None]) -> bool:
        """Run the turn or its rest; return whether the run is over."""
        trace_id, span_id = self._options.get('submitted_in', (None, None))
        with submitted_in(trace_id, span_id):
            return await self._run_or_resume(emit)

    async def _run_or_resume(self, emit: Callable[[StreamEvent], None]) -> bool:
        attempts = await load_attempts(self._store, self._run.run_id)
        if self._run.cancelled_at is not None:
            if not attempts:
                self.problem = 'It was cancelled before it began.'
                return True
            await self._agent.cancel(attempts[-1].id)  # has no effect on a run that has ended
            return await self._is_over()
        if not attempts:
            return await self._begin(emit)
        return attempts[-1].state != 'running' or await self._resume(attempts, emit)

    async def _is_over(self) -> bool:
        attempts = await load_attempts(self._store, self._run.run_id)
        return attempts[-1].state != 'running'

    async def _begin(self, emit: Callable[[StreamEvent], None]) -> bool:
        run = self._run
        try:
            base = await self._load_base()
            moves_head = run.base_id is None or bool(self._options.get('moves_head'))
            options = TurnOptions.load(
                run.prompt, run.options, run_id=run.run_id, moves_head=moves_head, cancellation_token=self._token
            )
            stream = base.stream(options, keeps_run=True)
        except Exception as error:  # noqa: BLE001 - the base was deleted, or a file system is missing
            self.problem = describe_problem(error)
            if self._begins_later(error):
                return False
            self._refuse(error, emit)
            return True
        return await self._emit(stream, base, emit)

    def _begins_later(self, error: BaseException | None) -> bool:
        """Return whether a turn that did not begin is tried again, here or elsewhere.

        An error of the framework is the same on each worker, unless a store or disk has failed.
        """
        if isinstance(error, ApprovalsPendingError):
            return self._run.base_id is None  # the head has moved since the claim
        if isinstance(error, (StoreUnavailableError, StoreClosedError)) and not isinstance(error, StoreCorruptedError):
            return True
        is_final = isinstance(error, DeepAgentError) and not isinstance(error, OSError)
        return isinstance(error, Exception) and not is_final and self._run.epoch < MAX_CLAIMS

    def _open_backend(self) -> BackendProtocol | None:
        if self._make_backend is None:
            return None
        return self._make_backend(self._run.account or '', self._run.conversation_id)

    async def _load_base(self) -> AgentVersion[Any, Any]:
        run, backend = self._run, self._open_backend()
        if run.base_id is None:
            base = await self._agent.conversation(run.conversation_id, backend=backend).head()
        else:
            base = await self._agent.load(run.base_id, backend=backend)
        if isinstance(self._make_backend, SupportsFilling):
            await self._make_backend.fill(self._store, base.record)
        return base

    def _refuse(self, error: Exception, emit: Callable[[StreamEvent], None]) -> None:
        """Emit the events of a turn that cannot begin."""
        _LOGGER.warning('The run %s cannot begin: %s', self._run.run_id, self.problem)
        for event in (self._start, describe_failure(error), EndEvent(finish_reason='error', status='failed')):
            emit(event)

    async def _resume(self, attempts: Sequence[RunRecord], emit: Callable[[StreamEvent], None]) -> bool:
        last_id = attempts[-1].id
        backend = self._open_backend()
        stream = await self._agent.recover_stream(last_id, backend=backend, cancellation_token=self._token)
        if stream is None:
            return await self._is_over()
        try:  # now that no other process adds steps
            base = await self._load_first_base(attempts[0])
            messages, since = await load_run_messages(self._agent, attempts)
        except BaseException:
            self._store.mark_orphaned(last_id)
            raise
        before = project_messages(messages, since=since, start=self._start, status=None)
        return await self._emit(stream, base, emit, before)

    async def _load_first_base(self, first: RunRecord) -> AgentVersion[Any, Any] | None:
        try:
            return await self._agent.load(first.base_id or '')
        except VersionNotFoundError:
            return None

    async def _emit(
        self,
        stream: TurnStream[Any, Any],
        base: AgentVersion[Any, Any] | None,
        emit: Callable[[StreamEvent], None],
        before: Sequence[StreamEvent] | None = None,
    ) -> bool:
        run = self._run

        def is_unfinished(failure: BaseException | None) -> bool:
            return stream.is_suspended or (stream.run_id is None and self._begins_later(failure))

        translator = RunEvents(
            run_id=run.run_id,
            agent_name=run.agent_name,
            conversation_id=run.conversation_id,
            session_id=self.session_id,
            usage=lambda: stream.usage,
            usage_before=None if base is None else base.usage,
        )
        failure = await emit_turn(
            stream,
            translator,
            run_id=run.run_id,
            base_id='' if base is None else base.id,
            emit=emit,
            before=before,
            is_unfinished=is_unfinished,
        )
        is_over = not is_unfinished(failure)
        if not is_over or stream.run_id is None:
            self.problem = describe_problem(failure)
        return is_over

    @property
    def _start(self) -> StartEvent:
        run = self._run
        return StartEvent(
            id=run.run_id, model=run.agent_name, conversation_id=run.conversation_id, session_id=self.session_id
        )


def describe_problem(error: BaseException | None) -> str:
    """Return an error as a text that every database accepts: otherwise the claim of its run could not be ended.

    Clients may read its first line. The others have the message of an unexpected error.
    """
    described = 'The store did not take its end.' if error is None else describe_failure(error).message
    if not isinstance(error, (*EXPECTED_ERRORS, type(None))):
        described += f'\n{type(error).__name__}: {error}'
    return join_halves(described[:_PROBLEM_CHARS].replace('\0', '\\0'))
