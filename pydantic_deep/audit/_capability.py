"""What the agent plugs in: `Audit`, which writes one record for each run, on any pydantic-ai agent.

It is the outermost capability, around the one that makes versions too: it sees what a run really ends with, and the
version that has it.
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

from pydantic_deep.extensions import SupportsHistory, SupportsRecovery, find_capabilities
from pydantic_deep.repository import Repository

from ._redact import Redact, redact
from ._run_observer import RunObserver, now
from ._settle import settle
from ._types import AuditRecord

_LOGGER = logging.getLogger('pydantic_deep')

ChooseRows: TypeAlias = Callable[[RunContext[Any]], Repository[AuditRecord]]
"""Says where the record of a run goes."""

UNWRITTEN: str = 'pydantic_deep.audit.unwritten'
"""The event in the span of a run whose record could not be written."""


@dataclass
class Audit(AbstractCapability[object]):
    """Writes an `AuditRecord` of each run: `Agent(model, capabilities=[Audit(rows)])`.

    A record is written twice: `running` when the run begins, and all of it when it ends, whether it answers, fails,
    waits for a person, or is cancelled, as when a client leaves. Runs of subagents have records of their own, which
    name the run above them. Nothing is written in between, so a record of a process that died stays `running`:
    `finish_crashed` ends it.

    Secrets are taken out first. A repository that fails or hangs never ends a run: an error is logged that has the
    record, `audit_record` in the `extra` of the log, and the span of the run has an event.
    """

    repository: Repository[AuditRecord] | ChooseRows
    """Where to; a function of the run's context where that depends on whose run it is."""
    id: str | None = field(default='audit', kw_only=True)
    redact: Redact = field(default=redact, kw_only=True, repr=False)
    """Takes secrets out of values of JSON: a `Redactor` that knows yours."""
    write_seconds: float = field(default=5.0, kw_only=True)
    """How long a run waits for each of the two writes, at most."""
    _above: AuditRecord | None = field(default=None, init=False, repr=False)
    _watch: RunObserver | None = field(default=None, init=False, repr=False, compare=False)
    _recovers: SupportsRecovery | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.defer_loading:
            raise UserError('`Audit` cannot have `defer_loading`: nothing would be written until the model loads it.')

    @classmethod
    def combine(cls, capabilities: Sequence[AbstractCapability[object]]) -> AbstractCapability[object]:
        """Return that of the run above, if there is one, else the last: a run has one record."""
        above = [each for each in capabilities if isinstance(each, Audit) and each._above is not None]
        return [*capabilities, *above][-1]

    def get_ordering(self) -> CapabilityOrdering:
        """Come before all others, and before what keeps the history."""
        keeps = cast('type[AbstractCapability[Any]]', SupportsHistory)  # by its methods: it is asked by `issubclass`
        return CapabilityOrdering(position='outermost', wraps=(keeps,))

    async def for_run(self, ctx: RunContext[object]) -> Audit:
        """Return this run's instance."""
        run = replace(self)
        run._above = self._above
        return run

    def for_subagent(self) -> Audit:
        """Return what writes the record of a subagent's run."""
        below = replace(self)
        below._above = None if self._watch is None else self._watch.record
        return below

    async def wrap_run(self, ctx: RunContext[object], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        """Write that the run begins, and how it ends."""
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
        """Note what was sent in the end, and what it took."""
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
        """Note where the history is."""
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
        """Note when a call runs, and what it has returned."""
        watch = self._watch
        if watch is None:
            return await handler(args)
        ran = watch.note_started(call.tool_call_id)
        try:
            result = await handler(args)
        except (ApprovalRequired, CallDeferred):
            raise
        except Exception:
            ran.outcome = 'failed'
            raise
        finally:
            ran.ended_at = now()
        watch.note_returned(call.tool_name, call.tool_call_id, result)
        return result

    async def _begin(self, ctx: RunContext[object]) -> None:
        self._recovers = next(iter(find_capabilities(ctx, SupportsRecovery)), None)
        try:
            self._watch = RunObserver.begin(ctx, self.redact, self._above)
        except Exception as error:  # noqa: BLE001 - of the user's redaction: an audit never ends a run
            self._tell(ctx, error, None)
            return
        await self._write(ctx, lambda watch: watch.record)

    async def _write(self, ctx: RunContext[object], make: Callable[[RunObserver], AuditRecord]) -> None:
        """Make a record and write it; tell loudly if that fails."""
        watch = self._watch
        if watch is None:
            return
        known = watch.record

        async def write() -> None:
            nonlocal known
            try:
                known = await asyncio.to_thread(make, watch)  # a long history takes a while, and others work meanwhile
                await self._rows(ctx).upsert(known)
            except Exception as error:  # noqa: BLE001 - of anybody's repository or redaction: an audit never ends a run
                self._tell(ctx, error, known)

        late = TimeoutError(f'it has not ended in {self.write_seconds} seconds')
        await settle(write(), self.write_seconds, lambda: self._tell(ctx, late, known))

    def _rows(self, ctx: RunContext[object]) -> Repository[AuditRecord]:
        return self.repository if _is_repository(self.repository) else self.repository(ctx)

    def _tell(self, ctx: RunContext[object], error: Exception, record: AuditRecord | None) -> None:
        """Say that a record is not where it should be, with all that is known, and without a traceback: it may hold secrets."""
        kind = type(error).__name__
        trace.get_current_span().add_event(UNWRITTEN, {'error.type': kind, 'pydantic_deep.run.id': ctx.run_id or ''})
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
