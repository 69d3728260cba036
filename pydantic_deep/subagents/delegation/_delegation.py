"""Execute one `task` call: prepare and run a child, and convert its outcome into a result, a pause or a failure."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

from pydantic import JsonValue, TypeAdapter, ValidationError
from pydantic_ai import AgentRunResult, DeferredToolRequests, RunContext, ToolReturn, UserError, capture_run_messages
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.exceptions import ApprovalRequired, RunCancelled, RunTimedOut, ToolFailed, UsageLimitExceeded
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import KnownModelName, Model
from pydantic_ai.output import OutputSpec
from pydantic_ai.usage import RunUsage, UsageLimits

from pydantic_deep._messages.deferred_metadata import DelegationAnswers, DelegationRequest, dump
from pydantic_deep._messages.message_json import dump_history, parse_history
from pydantic_deep._messages.usage_json import usage_adapter
from pydantic_deep.extensions import SupportsRecovery, find_capabilities
from pydantic_deep.subagents._deps import clone_deps, dump_todos, load_todos
from pydantic_deep.subagents._events import forward_to
from pydantic_deep.subagents._tree_position import METADATA_KEY, PausedChild, TreePosition
from pydantic_deep_backends.overlay import OverlayBackend, OverlayMerge

from ._answer_freshness import conversation_of, forget_pauses, number_pause
from ._budget import DelegationBudget
from ._child_run import CHILD_RUN_ID, ChildRun
from ._fork import fork_files, merge_as_json, render_merge
from ._inheritance import settings_below
from ._report import describe_error, render_failure

_LOGGER = logging.getLogger('pydantic_deep')


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How to run a child, derived from its description and its parent."""

    name: str
    """The name of the subagent."""
    agent: AbstractAgent[Any, Any]
    """The agent to run."""
    place: TreePosition
    """The position in the subagent tree."""
    is_parent: bool
    """Whether the agent is the parent itself."""
    model: Model | KnownModelName | str | None
    """The model of the run; `None` for the agent's own."""
    has_parents_model: bool
    """Whether the model is that of the parent."""
    settings: dict[str, Any] | None
    """The settings of the parent's requests; `None` if it has made none in this run."""
    is_streamed: bool | None
    """Whether the parent's run is streamed; `None` if it is unknown."""
    output_type: OutputSpec[Any] | None
    """The output type of the run, including a pause; `None` for that of the agent."""
    capabilities: Sequence[Any]
    """The capabilities that it inherits from the parent."""
    limits: UsageLimits | None
    """The limits of the subagent itself; `None` if it has none."""
    timeout_seconds: float | None
    """Maximum time of the run in seconds; `None` for no limit."""
    is_fork: bool
    """Whether it works on a copy-on-write view of the files."""


@dataclass(kw_only=True)
class Delegation:
    """One run of a child, for a `task` call of its parent."""

    ctx: RunContext[object]
    """The context of the call, with the deps of the run."""
    plan: Plan
    """How to run the child."""
    _messages: Sequence[ModelMessage] = field(default=(), init=False)
    _run: ChildRun = field(init=False)
    _overlay: OverlayBackend | None = field(default=None, init=False)

    async def start(self, description: str) -> ToolReturn[object]:
        """Run the child on a new task.

        Raises:
            ToolFailed: The run failed.
            ApprovalRequired: The run paused for approval.
        """
        recorder = next(iter(find_capabilities(self.ctx, SupportsRecovery)), None)
        recovered_id = None if recorder is None else await recorder.recovered_conversation_id()
        return await self._settle(None, user_prompt=description, conversation_id=recovered_id or 'new')

    async def resume(self, answers: DelegationAnswers) -> ToolReturn[object]:
        """Resume a suspended child with answers.

        Raises:
            ToolFailed: The run failed, or the answers do not match the suspended child.
            ApprovalRequired: The run paused for approval again.
        """
        request = answers.request
        try:
            history = parse_history(request.messages)
            state = PausedChild.model_validate(request.state)
        except ValidationError as error:
            raise ToolFailed(f'The subagent {self.plan.name!r} cannot resume: its stored state is damaged.') from error
        if request.subagent != self.plan.name:
            raise ToolFailed(
                f'The subagent {self.plan.name!r} cannot resume: the answers are for {request.subagent!r}.'
            )
        # pydantic-ai joins consecutive requests of several partial answers, without the id.
        if conversation_of(history) != request.conversation_id:
            raise ToolFailed(
                f'The subagent {self.plan.name!r} cannot resume: its stored state belongs to another conversation.'
            )
        return await self._settle(
            state,
            message_history=history,
            deferred_tool_results=answers.results,
            conversation_id=request.conversation_id,
        )

    async def _settle(self, state: PausedChild | None, **run: Any) -> ToolReturn[object]:
        """Run the child, and return or raise the outcome of the parent's tool call."""
        usage = RunUsage() if state is None else state.usage
        above = self.ctx.capabilities.get(CHILD_RUN_ID)
        budgets = above.budgets if isinstance(above, ChildRun) else ()
        self._run = ChildRun(budgets=(DelegationBudget(limits=self.plan.limits, usage=usage), *budgets))
        settings, is_streamed = self._parent_request_options(state)
        try:
            deps = await self._deps(state)
            result = await self._run_child(
                **run,
                deps=deps,
                model=self.plan.model,
                model_settings=self._settings(settings),
                usage=self.ctx.usage,
                usage_limits=self.ctx.usage_limits,
                timeout=self.plan.timeout_seconds,
                metadata={METADATA_KEY: self.plan.place.model_dump(mode='json')},
                capabilities=[*self.plan.capabilities, self._run],
                event_stream_handler=forward_to(self.ctx, self.plan.place.path) if is_streamed else None,
            )
            if not isinstance(result.output, DeferredToolRequests):
                merge = None if self._overlay is None else await self._overlay.merge()
                forget_pauses(self.ctx.usage, result.conversation_id)
                return self._returned(result, merge)
            pause = dump(await self._request(result, deps, settings, is_streamed=is_streamed))
        except Exception as error:  # user code, which may raise anything
            forget_pauses(self.ctx.usage, run['conversation_id'])
            raise self._failure(error) from error
        raise ApprovalRequired(metadata=pause)

    async def _deps(self, state: PausedChild | None) -> object:
        """Return the deps of the child, restored to their state at the pause."""
        deps = clone_deps(self.ctx.deps, self.plan.place.max_depth)
        if state is not None:
            load_todos(deps, state.todos)
        if self.plan.is_fork:
            dumped, working_dir = (None, None) if state is None else (state.overlay, state.working_dir)
            self._overlay = await fork_files(cast('Any', deps), dumped, working_dir)
        return deps

    def _parent_request_options(self, state: PausedChild | None) -> tuple[dict[str, Any], bool]:
        """Return the settings of the parent, and whether it is streamed.

        A resumed run that has made no request yet does not know them. In that case, those of the suspended child apply.
        """
        settings, is_streamed = self.plan.settings, self.plan.is_streamed
        if settings is None:
            settings = {} if state is None else dict(state.model_settings)
        if is_streamed is None:
            is_streamed = state is not None and state.is_streamed
        return settings, is_streamed

    def _settings(self, settings: dict[str, Any]) -> Any:
        """Return the settings of the run: those of the parent, overridden by the child's own. If the child is the
        parent agent, it has no other settings than those of the parent.
        """
        if self.plan.is_parent:
            return settings
        return settings_below(settings, is_same_model=self.plan.has_parents_model) if settings else None

    async def _run_child(self, **run: Any) -> AgentRunResult[object]:
        """Run the agent with an output type that allows a pause.

        An agent with output validators rejects an output type for a run before it starts. It then runs with its own
        output type, and can pause only if that allows it.
        """
        try:
            return await self._captured(output_type=self.plan.output_type, **run)
        except UserError:
            if self._run.is_started or self.plan.output_type is None:
                raise
        return await self._captured(**run)

    async def _captured(self, **run: Any) -> AgentRunResult[object]:
        with capture_run_messages() as messages:
            self._messages = messages
            return await self.plan.agent.run(**run)

    def _returned(self, result: AgentRunResult[object], merge: OverlayMerge | None) -> ToolReturn[object]:
        metadata: dict[str, JsonValue] = {
            'sub_agent_thread_id': result.conversation_id,
            'subagent': self.plan.name,
            'path': list(self.plan.place.path),
            'usage': usage_adapter().dump_python(self._usage, mode='json'),
        }
        output = result.output
        if merge is not None:
            metadata['merge'] = merge_as_json(merge)
            output = _with_notice(output, render_merge(merge))
        return ToolReturn(return_value=output, metadata=metadata)

    async def _request(
        self, result: AgentRunResult[object], deps: object, settings: dict[str, Any], *, is_streamed: bool
    ) -> DelegationRequest:
        """Return the request for the pause of the child, with all state that is needed to resume anywhere."""
        state = PausedChild(
            parent_conversation_id=conversation_of(self.ctx.messages),
            pause_number=number_pause(self.ctx.usage, result.conversation_id),
            usage=self._usage,
            is_streamed=is_streamed,
            model_settings=_json_part(settings),
            todos=dump_todos(deps),
            overlay=None if self._overlay is None else await self._overlay.dump(),
            working_dir=None if self._overlay is None else await self._overlay.working_dir(),
        )
        return DelegationRequest(
            subagent=self.plan.name,
            conversation_id=result.conversation_id,
            messages=dump_history(result.all_messages()),
            requests=cast('DeferredToolRequests', result.output),
            state=state.model_dump(mode='json'),
        )

    def _failure(self, error: Exception) -> ToolFailed:
        """Return the failed result: the reason, and a report of the child's work."""
        discarded = () if self._overlay is None else self._overlay.changed_paths
        return ToolFailed(render_failure(self.plan.name, self._reason(error), self._messages, discarded))

    def _reason(self, error: Exception) -> str:
        exceeded = self._run.budgets[0].exceeded
        if exceeded is not None:
            return f'exceeded its budget: {exceeded}'
        if isinstance(error, UsageLimitExceeded):
            return f'was stopped by a limit: {error}'
        if isinstance(error, RunTimedOut):
            return 'ran out of time.'
        if isinstance(error, RunCancelled):
            return f'was cancelled: {error}'
        if isinstance(error, UserError) and self._run.has_deferred:
            return (
                'has a call that needs approval, but cannot pause: it has output validators, and its '
                '`output_type` does not include `DeferredToolRequests`.'
            )
        _LOGGER.warning('Subagent %r failed with %s', self.plan.name, type(error).__name__, exc_info=error)
        return f'failed: {describe_error(error)}'

    @property
    def _usage(self) -> RunUsage:
        return self._run.budgets[0].usage


def _with_notice(output: object, notice: str | None) -> object:
    """Return an output with a notice. Structured output is wrapped in a mapping."""
    if notice is None:
        return output
    return f'{output}\n\n{notice}' if isinstance(output, str) else {'result': output, 'notice': notice}


def _json_part(settings: dict[str, Any]) -> dict[str, JsonValue]:
    """Return the settings that JSON can represent."""
    part: dict[str, JsonValue] = {}
    adapter = _json_adapter()
    for name, value in settings.items():
        try:
            part[name] = adapter.validate_python(value)
        except ValidationError:  # such as an httpx timeout
            continue
    return part


@cache
def _json_adapter() -> TypeAdapter[JsonValue]:
    return TypeAdapter(JsonValue)
