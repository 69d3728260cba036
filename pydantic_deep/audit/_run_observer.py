"""Observe one run, and create its record at the end. The cost of an observation depends only on the new messages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Protocol, cast, runtime_checkable

from pydantic import JsonValue
from pydantic_ai import AgentRunResult, DeferredToolRequests, RunCancelled, RunContext, ToolReturn
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolReturnPart, UserPromptPart
from pydantic_ai.models import Model
from pydantic_ai.usage import RunUsage

from pydantic_deep._requests.prices import price_of
from pydantic_deep._session_id import current_session_id
from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.extensions import SupportsHistory, find_capabilities
from pydantic_deep.store import (
    RunRecord,
    RunTakenOverError,
    StoreClosedError,
    StoreUnavailableError,
    VersionRecord,
    new_id,
)

from ._record_from_events import (
    JsonObject,
    ObservedCall,
    calls_of,
    dump_messages,
    dump_value,
    first_of_run,
    grants_of,
    label_of,
    question_of,
    storable,
)
from ._redact import Redact
from ._types import AuditedError, AuditedUsage, AuditRecord, Status

_LOST = (StoreUnavailableError, StoreClosedError, RunTakenOverError)
"""Store errors after which the run may be resumed; it counts as crashed and not as failed."""


class _RunStart(Protocol):
    @property
    def run_record(self) -> RunRecord: ...


class _Recording(Protocol):
    @property
    def tip(self) -> VersionRecord: ...

    @property
    def start(self) -> _RunStart: ...


@runtime_checkable
class SupportsVersions(SupportsHistory, Protocol):
    """A capability that records versions of the run in a store."""

    @property
    def recording(self) -> _Recording:
        """The recorded run. `find_capabilities` skips capabilities whose recording has not started."""
        ...


def now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


@dataclass(kw_only=True)
class RunObserver:
    """The observations of one run so far."""

    record: AuditRecord
    """The record at the start of the run."""
    redact: Redact
    """Redacts secrets in JSON values."""
    live: Sequence[ModelMessage] = ()
    """The live history, which keeps growing."""
    settings: Mapping[str, Any] | None = None
    """The settings of the last request."""
    model: str | None = None
    """The model of the last response."""
    ran: dict[str, list[ObservedCall]] = field(default_factory=dict[str, 'list[ObservedCall]'])
    """Observed calls, by id."""
    answered: frozenset[str] = frozenset()
    """Ids of calls in the last message that already had a result when the run started."""
    _returned: dict[str, ToolReturnPart] = field(default_factory=dict[str, ToolReturnPart])
    """Results of calls of the last response."""
    _usage: RunUsage = field(default_factory=RunUsage)
    _cost: Decimal | None = None

    @classmethod
    def begin(cls, ctx: RunContext[Any], redact: Redact, above: AuditRecord | None) -> RunObserver:
        """Return an observer for a run, with the record of its start.

        Args:
            ctx: The run.
            redact: Redacts secrets.
            above: The record of the parent run, if this is the run of a subagent.
        """
        metadata = {**_deps_metadata(ctx.deps), **_version_metadata(ctx), **(ctx.metadata or {})}
        metadata = cast('JsonObject', _clean(redact, dump_value(metadata)))
        prompt: Sequence[ModelMessage] = ctx.messages
        if ctx.prompt is not None:
            prompt = [ModelRequest([UserPromptPart(ctx.prompt)])]
        record = AuditRecord(
            id=new_id(),
            run_id=ctx.run_id or new_id(),
            conversation_id=ctx.conversation_id,
            parent_run_id=None if above is None else above.run_id,
            agent_name=(None if ctx.agent is None else ctx.agent.name) or 'agent',
            owner=label_of(metadata, 'owner') or (above and above.owner),
            tenant=label_of(metadata, 'tenant') or (above and above.tenant),
            session_id=label_of(metadata, 'session_id') or _session_id(redact) or (above and above.session_id),
            metadata=metadata,
            question=cast('str', _clean(redact, question_of(dump_messages(_last_prompt(prompt))))),
            status='running',
            started_at=now(),
        )
        before = ctx.messages[-1].parts if ctx.messages else ()
        answered = frozenset(part.tool_call_id for part in before if isinstance(part, ToolReturnPart))
        return cls(record=record, redact=redact, live=ctx.messages, answered=answered)

    def note_response(self, response: ModelResponse, model: Model) -> None:
        """Add the usage and cost of a response. The messages now contain the results of all earlier calls."""
        self.model = f'{response.provider_name or model.system}:{response.model_name or model.model_name}'
        self._returned.clear()
        self._usage.requests += 1
        self._usage.incr(response.usage)
        cost = price_of(response) if response.usage.cost is None else response.usage.cost
        if cost is not None:
            self._cost = (self._cost or Decimal()) + cost

    def note_started(self, tool_call_id: str) -> ObservedCall:
        """Record that a call starts, and return its observation."""
        ran = ObservedCall(started_at=now())
        self.ran.setdefault(tool_call_id, []).append(ran)
        return ran

    def note_returned(self, tool_name: str, tool_call_id: str, result: object) -> None:
        """Hold the result of a call until the messages contain it."""
        value = cast('ToolReturn[object]', result).return_value if isinstance(result, ToolReturn) else result
        self._returned[tool_call_id] = ToolReturnPart(tool_name=tool_name, content=value, tool_call_id=tool_call_id)

    def ended(self, ctx: RunContext[Any], result: AgentRunResult[Any]) -> AuditRecord:
        """Return the record of a run that succeeded or paused."""
        is_waiting = isinstance(result.output, DeferredToolRequests)
        self.live = result.all_messages()
        return self._record(
            ctx,
            'awaiting_approval' if is_waiting else 'success',
            output=None if is_waiting else _clean(self.redact, dump_value(result.output)),
        )

    def failed(self, ctx: RunContext[Any], error: BaseException) -> AuditRecord:
        """Return the record of a run that failed or was cancelled."""
        is_stopped = isinstance(error, RunCancelled) or not isinstance(error, Exception)
        message = cast('str', _clean(self.redact, str(error)))
        if self._returned and isinstance(self.live[-1], ModelResponse):
            self.live = [*self.live, self._unsent(self.live[-1])]
        return self._record(
            ctx,
            'interrupted' if is_stopped else 'crashed' if isinstance(error, _LOST) else 'failed',
            error=AuditedError(kind=type(error).__name__, message=message),
        )

    def _unsent(self, response: ModelResponse) -> ModelRequest:
        """Return the message with call results that was not sent to the model any more."""
        parts = [
            self._returned[call.tool_call_id] for call in response.tool_calls if call.tool_call_id in self._returned
        ]
        return ModelRequest(
            parts, state='interrupted', run_id=self.record.run_id, conversation_id=self.record.conversation_id
        )

    def _record(
        self,
        ctx: RunContext[Any],
        status: Status,
        *,
        error: AuditedError | None = None,
        output: JsonValue = None,
    ) -> AuditRecord:
        run_id = self.record.run_id
        version_id, attempt_of = _stored_version(ctx, run_id)
        begin = 0
        if version_id is not None:  # messages of earlier runs are not needed here
            begin = next((index for index, message in enumerate(self.live) if message.run_id == run_id), len(self.live))
            begin = max((index for index in range(begin) if isinstance(self.live[index], ModelResponse)), default=begin)
        messages = cast('list[JsonValue]', _clean(self.redact, dump_messages(self.live[begin:])))
        first_new = first_of_run(messages, run_id)
        return self.record.model_copy(
            update={
                'attempt_of': attempt_of,
                'version_id': version_id,
                'messages': messages if version_id is None else [],
                'first_new': first_new if version_id is None else 0,
                'model': self.model,
                'model_settings': _clean(self.redact, dump_value(self.settings or {})),
                'usage': AuditedUsage.model_validate(self._usage, from_attributes=True),
                'cost': self._cost,
                'status': status,
                'error': error,
                'tool_calls': calls_of(
                    messages,
                    first_new,
                    self.ran,
                    is_waiting=status == 'awaiting_approval',
                    answered=self.answered,
                ),
                'grants': grants_of(messages, first_new, answered=self.answered),
                'output': output,
                'ended_at': now(),
            }
        )


def _stored_version(ctx: RunContext[Any], run_id: str) -> tuple[str | None, str | None]:
    """Return the version with the whole run, if there is one, and the id of the run that this one resumes."""
    for recorder in find_capabilities(ctx, SupportsVersions):
        tip = recorder.recording.tip
        is_whole = tip.run_id == run_id and tip.kind in ('turn', 'pause')
        return tip.id if is_whole else None, recorder.recording.start.run_record.attempt_of
    return None, None


def _version_metadata(ctx: RunContext[Any]) -> Mapping[str, JsonValue]:
    """Return the metadata of the version that a run is based on."""
    metadata = next(
        (json.loads(recorder.recording.tip.metadata) for recorder in find_capabilities(ctx, SupportsVersions)), None
    )
    return cast('JsonObject', metadata or {})


def _last_prompt(messages: Sequence[ModelMessage]) -> Sequence[ModelMessage]:
    """Return the last message with a user prompt."""
    for message in reversed(messages):
        if any(isinstance(part, UserPromptPart) for part in message.parts):
            return [message]
    return []


def _deps_metadata(deps: object) -> Mapping[str, JsonValue]:
    return deps.metadata if isinstance(deps, DeepAgentDeps) else {}


def _session_id(redact: Redact) -> str | None:
    """Return the session id that `session_scope` sets for this run."""
    return label_of({'session_id': _clean(redact, current_session_id())}, 'session_id')


def _clean(redact: Redact, value: JsonValue) -> JsonValue:
    return storable(redact(value))
