"""The capability `Audit`, which writes one record for each run of any pydantic-ai agent.

It is the outermost capability, outside of the one that records versions. So it sees the final outcome of a run and the
version that contains it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast

from opentelemetry import trace
from pydantic_ai import AgentRunResult, RunContext, ToolDefinition, UserError
from pydantic_ai.capabilities import (
    AbstractCapability,
    AgentNode,
    CapabilityOrdering,
    NodeResult,
    ValidatedToolArgs,
    WrapModelRequestHandler,
    WrapRunHandler,
    WrapToolExecuteHandler,
)
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.models import ModelRequestContext
from typing_extensions import TypeIs

from pydantic_deep._capabilities.base import BaseCapability
from pydantic_deep._checks import check_member
from pydantic_deep.errors import ValidationError
from pydantic_deep.extensions import SupportsHistory, SupportsRecovery, find_capabilities
from pydantic_deep.repository import Repository

from ._redact import Redact, redact
from ._run_observer import RunObserver, now
from ._settle import LATEST_SECONDS, settle
from ._types import AuditRecord

_LOGGER = logging.getLogger('pydantic_deep')

ChooseRows: TypeAlias = Callable[[RunContext[Any]], Repository[AuditRecord]]
"""Returns the repository for the record of a run."""

UNWRITTEN: str = 'pydantic_deep.audit.unwritten'
"""Name of the span event for a run whose record could not be written."""


@dataclass
class Audit(BaseCapability[object]):
    """Write an `AuditRecord` of each run: `Agent(model, capabilities=[Audit(rows)])`.

    A record is written twice: with status `running` when the run starts, and in full when it ends, whether it succeeds,
    fails, pauses for approval, or is cancelled (for example by a client that disconnects). Runs of subagents have their
    own records, with the id of their parent run. If the process crashes, the record stays `running` until
    `finish_crashed` completes it.

    Secrets are redacted before writing. A repository that fails or hangs does not affect the run: an error is logged
    with the record in `extra['audit_record']`, and the span of the run gets an event.
    """

    repository: Repository[AuditRecord] | ChooseRows
    """The repository for the records, or a function that returns it for the context of a run."""
    id: str | None = field(default='audit', kw_only=True)
    redact: Redact = field(default=redact, kw_only=True, repr=False)
    """Redacts secrets in JSON values: pass a `Redactor` to add your own."""
    write_seconds: float = field(default=5.0, kw_only=True)
    """Maximum time that a run waits for each of the two writes, in seconds. A late write continues for a minute."""
    _above: AuditRecord | None = field(default=None, init=False, repr=False)
    _watch: RunObserver | None = field(default=None, init=False, repr=False, compare=False)
    _recovers: SupportsRecovery | None = field(default=None, init=False, repr=False, compare=False)
    _writing: asyncio.Task[None] | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not _is_repository(self.repository) and not callable(cast('object', self.repository)):
            given = type(self.repository).__name__
            raise ValidationError('repository', f'it is of type `{given}`. Pass a repository, or a function of a run.')
        check_member('redact', self.redact, '__call__', 'Redact', 'For example, `Redactor(names=…)`.')
        if self.defer_loading:
            raise UserError('`Audit` cannot have `defer_loading`: no record would be written until the model loads it.')
        if not isinstance(cast('object', self.write_seconds), int | float) or not self.write_seconds > 0:
            raise ValueError(
                f'`write_seconds` is {self.write_seconds!r}. Use more than 0, or no record could be written.'
            )

    @classmethod
    def combine(cls, capabilities: Sequence[AbstractCapability[object]]) -> AbstractCapability[object]:
        """Return the instance of the parent run if there is one, otherwise the last: a run has one record."""
        parents = [
            capability for capability in capabilities if isinstance(capability, Audit) and capability._above is not None
        ]
        return [*capabilities, *parents][-1]

    def get_ordering(self) -> CapabilityOrdering:
        """Run outside of all other capabilities, including the one that stores the history."""
        stores_history = cast('type[AbstractCapability[Any]]', SupportsHistory)  # `issubclass` checks its methods
        return CapabilityOrdering(position='outermost', wraps=(stores_history,))

    async def for_run(self, ctx: RunContext[object]) -> Audit:
        """Return a copy with the state of this run."""
        run = replace(self)
        run._above = self._above
        return run

    def for_subagent(self) -> Audit:
        """Return the instance for the run of a subagent."""
        child = replace(self)
        child._above = None if self._watch is None else self._watch.record
        return child

    async def wrap_run(self, ctx: RunContext[object], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        """Write the record when the run starts and when it ends."""
        try:
            await self._begin(ctx)
            result = await handler()
        except BaseException as error:
            stopped = error
            await self._write(ctx, lambda watch: watch.failed(ctx, stopped))
            raise
        await self._write(ctx, lambda watch: watch.ended(ctx, result))
        return result

    async def wrap_model_request(
        self, ctx: RunContext[object], *, request_context: ModelRequestContext, handler: WrapModelRequestHandler
    ) -> ModelResponse:
        """Observe the effective settings of a request, and its response."""
        watch = self._watch
        if watch is None:
            return await handler(request_context)
        watch.live = ctx.messages
        try:
            response = await handler(request_context)
        finally:
            watch.settings = request_context.model_settings and {**request_context.model_settings}
        if self._recovers is None or not self._recovers.is_recovered_response():
            watch.note_response(response, request_context.model)
        return response

    async def after_node_run(
        self, ctx: RunContext[object], *, node: AgentNode[object], result: NodeResult[object]
    ) -> NodeResult[object]:
        """Keep a reference to the current history."""
        if self._watch is not None:
            self._watch.live = ctx.messages
        return result

    async def wrap_tool_execute(
        self,
        ctx: RunContext[object],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: ValidatedToolArgs,
        handler: WrapToolExecuteHandler,
    ) -> Any:
        """Record when a call runs, and its result."""
        watch = self._watch
        if watch is None:
            return await handler(args)
        observed = watch.note_started(call.tool_call_id)
        try:
            result = await handler(args)
        except (ApprovalRequired, CallDeferred):
            raise
        except Exception:
            observed.outcome = 'failed'
            raise
        finally:
            observed.ended_at = now()
        watch.note_returned(call.tool_name, call.tool_call_id, result)
        return result

    async def _begin(self, ctx: RunContext[object]) -> None:
        self._recovers = next(iter(find_capabilities(ctx, SupportsRecovery)), None)
        try:
            self._watch = RunObserver.begin(ctx, self.redact, self._above)
        except Exception as error:  # noqa: BLE001 - user-supplied redaction: an audit does not affect the run
            self._report(ctx, error, None)
            return
        await self._write(ctx, lambda watch: watch.record)

    async def _write(self, ctx: RunContext[object], make: Callable[[RunObserver], AuditRecord]) -> None:
        """Create a record and write it. Report a failure."""
        watch = self._watch
        if watch is None:
            return
        if self._writing is not None:
            self._writing.cancel()  # the first record, which may be late, is replaced
        known = watch.record

        async def write() -> None:
            nonlocal known
            try:
                known = await asyncio.to_thread(make, watch)  # a long history must not block the event loop
                await self._rows(ctx).upsert(known)
            except Exception as error:  # noqa: BLE001 - user code: an audit does not affect the run
                self._report(ctx, error, known)

        late = TimeoutError(
            f'the write has not completed in {self.write_seconds} seconds. It continues for {LATEST_SECONDS:.0f} seconds.'
        )
        self._writing = asyncio.ensure_future(write())
        await settle(self._writing, self.write_seconds, lambda: self._report(ctx, late, known))

    def _rows(self, ctx: RunContext[object]) -> Repository[AuditRecord]:
        return self.repository if _is_repository(self.repository) else self.repository(ctx)

    def _report(self, ctx: RunContext[object], error: Exception, record: AuditRecord | None) -> None:
        """Log that a record was not written, with its content. Tracebacks are omitted, as they may contain secrets."""
        kind = type(error).__name__
        span = trace.get_current_span()
        if span.is_recording():  # the run of a late write may have ended
            span.add_event(UNWRITTEN, {'error.type': kind, 'pydantic_deep.run.id': ctx.run_id or ''})
        _LOGGER.error(
            'The audit record of run %s (%s) could not be written: %s: %s',
            ctx.run_id,
            'unknown' if record is None else record.status,
            kind,
            redact(str(error)),
            extra={} if record is None else {'audit_record': record.model_dump_json()},
        )


def _is_repository(rows: Repository[AuditRecord] | ChooseRows) -> TypeIs[Repository[AuditRecord]]:
    return isinstance(rows, Repository)
