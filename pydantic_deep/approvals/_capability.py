"""The capability that defers tool calls until a person decides on them; it works with any pydantic-ai agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast

from pydantic import ValidationError
from pydantic_ai import ApprovalRequired, DeferredToolRequests, RunContext, ToolApproved, ToolDefinition, ToolDenied
from pydantic_ai.agent import CallToolsNode
from pydantic_ai.capabilities import (
    AbstractCapability,
    AgentNode,
    CapabilityOrdering,
    NodeResult,
    RawToolArgs,
    ValidatedToolArgs,
    WrapToolExecuteHandler,
)
from pydantic_ai.exceptions import ModelRetry, ToolFailed, ToolFailedError, ToolRetryError, UserError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart, ToolReturn, ToolReturnPart
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset
from pydantic_graph import End

from pydantic_deep._capabilities.base import BaseCapability
from pydantic_deep._messages.deferred_metadata import (
    DECISIONS,
    Answered,
    Approved,
    CallRequest,
    DecisionKind,
    DelegationAnswers,
    Edited,
    Responded,
    StillPending,
    add_notice,
    dump,
    parse_answer,
    parse_request,
)
from pydantic_deep._toolsets.parallel_calls import has_parallel_calls
from pydantic_deep.extensions import find_capabilities

from ._errors import InvalidDecisionError, MalformedApprovalError
from ._gate import Call, Gate, open_gate
from ._listing import digest_of
from ._model_notes import ANSWERED, failure_with_note, invalid_edit, not_asked, with_note
from ._tool_names import check_names, is_marked, marked
from ._types import ApprovalRule, InterruptOn

_Decided: TypeAlias = Approved | Edited | Responded | Answered | DelegationAnswers
_Answer: TypeAlias = StillPending | _Decided


@dataclass(kw_only=True)
class Approvals(BaseCapability[object]):
    """Defer tool calls until a person decides on them.

    A run that needs a decision ends with `DeferredToolRequests`, which must be one of the agent's output types. List
    the pending calls with `pending_approvals`, answer them with `answer_approvals`, and run again. Four kinds of call
    are deferred in addition to `interrupt_on`: calls of tools with `requires_approval=True`, calls of tools that raise
    `ApprovalRequired`, writes to files that another capability protects, and calls for which another capability
    requires approval.

    Only function tools are gated. Output tools and tools that run on the provider's side are not, and a command can
    write to a protected file unnoticed: run commands in a sandbox.
    """

    id: str | None = 'approvals'
    interrupt_on: InterruptOn = field(default_factory=dict[str, bool | ApprovalRule])
    """Which tools need approval, keyed by the name that the model sees: `True` always, `False` never, an `ApprovalRule`
    by its conditions.

    An unknown tool name raises an error before the first request. A subagent inherits the rules of its parent, and
    `False` does not lift them.
    """
    _inherited: bool = field(default=False, init=False, repr=False)
    _gate: Gate | None = field(default=None, init=False, repr=False)
    _leads: bool = field(default=False, init=False, repr=False)
    _waiting: list[Call] = field(default_factory=list[Call], init=False, repr=False)
    _admitted: dict[str, _Admitted] = field(default_factory=dict[str, '_Admitted'], init=False, repr=False)
    _given: dict[str, object] = field(default_factory=dict[str, object], init=False, repr=False)
    _tools: Mapping[str, ToolsetTool[object]] = field(
        default_factory=dict[str, ToolsetTool[object]], init=False, repr=False
    )

    def __post_init__(self) -> None:
        """Validate the configuration.

        Raises:
            UserError: `interrupt_on` is not a mapping to bools and rules, or `defer_loading` is set.
        """
        if self.defer_loading:
            raise UserError('`Approvals` cannot have `defer_loading`: no call would be gated until the model loads it.')
        if not isinstance(cast('object', self.interrupt_on), Mapping):
            raise UserError(
                f"`interrupt_on` is {self.interrupt_on!r}. Pass a mapping of tool names: `{{'write_file': True}}`."
            )
        for name, rule in self.interrupt_on.items():
            if not isinstance(cast('object', rule), (bool, ApprovalRule)):
                raise UserError(f'`interrupt_on[{name!r}]` is {rule!r}. Pass `True`, `False` or an `ApprovalRule`.')

    @classmethod
    def combine(cls, capabilities: Sequence[AbstractCapability[object]]) -> Approvals:
        """Return one capability that asks wherever any of the given ones asks.

        Raises:
            UserError: Two of them have different rules for the same tool.
        """
        merged: dict[str, bool | ApprovalRule] = {}
        for capability in cast('Sequence[Approvals]', capabilities):
            for name, rule in capability.interrupt_on.items():
                before = merged.get(name, False)
                if before is not False and rule is not False and before != rule:
                    raise UserError(
                        f'Two `Approvals` of one agent have different rules for {name!r}. Remove one of them.'
                    )
                merged[name] = before or rule
        return cls(id=capabilities[0].id, interrupt_on=merged)

    def for_subagent(self) -> Approvals:
        """Return the capability that a subagent inherits: the same rules, marked as inherited."""
        inherited = replace(self, id=None)
        inherited._inherited = True
        return inherited

    def may_require_approval(self, tool_name: str) -> bool:
        """Return whether a call of this tool may need approval."""
        return self.interrupt_on.get(tool_name, False) is not False

    async def hidden_tool_names(self, ctx: RunContext[object]) -> frozenset[str]:
        """Return the names that the run of the parent has checked. The general-purpose subagent is the same agent, but
        has no `task`, and no tools that were passed to the run.
        """
        return frozenset(self.interrupt_on if self._inherited else ())

    def accepts_grants(self, ctx: RunContext[object], tool_name: str) -> bool:
        """Return whether a grant by a skill would let calls of this tool run without approval."""
        gate, tool = self._gate or self._open(ctx), self._tools.get(tool_name)
        rules = gate.rules_by_tool.get(tool_name, ())
        asks = bool(rules) or (tool is not None and is_marked(tool.tool_def) and not gate.inherited)
        return asks and not any(rule.inherited for rule in rules)

    async def for_run(self, ctx: RunContext[object]) -> Approvals:
        """Return a copy with the state of this run."""
        run = replace(self)
        run._inherited = self._inherited
        return run

    def get_ordering(self) -> CapabilityOrdering:
        """Run outermost, so that a person sees the arguments after other capabilities have changed them."""
        return CapabilityOrdering(position='outermost')

    def get_wrapper_toolset(self, toolset: AbstractToolset[object]) -> AbstractToolset[object]:
        """Validate the tool names, and gate tools that pydantic-ai would otherwise defer itself."""
        names = () if self._inherited else tuple(self.interrupt_on)
        return _Marked(toolset, names=names, check=self._check_results)

    async def before_node_run(self, ctx: RunContext[object], *, node: AgentNode[object]) -> AgentNode[object]:
        """Collect the results that a person supplied for calls. pydantic-ai never validates these calls."""
        if isinstance(node, CallToolsNode) and node.tool_call_results:
            given = node.tool_call_results.items()
            self._given = {
                id: result for id, result in given if result != 'skip' and not isinstance(result, ToolApproved)
            }
        return node

    async def after_tool_validate(
        self, ctx: RunContext[object], *, call: ToolCallPart, tool_def: ToolDefinition, args: ValidatedToolArgs
    ) -> ValidatedToolArgs:
        """Allow the call, defer it, or refuse it."""
        gate = self._gate or self._open(ctx)
        if self._leads and (ctx.tool_call_approved or gate.concerns(tool_def)) and tool_def.kind != 'external':
            gated = Call(call=call, tool_def=tool_def, args=args)
            with self._noting(gated):
                answer = await _admit(ctx, gate, gated, made=self._made(ctx, call))
                self._admitted[call.tool_call_id] = _Admitted(call=gated, answer=answer)
        return args

    async def on_tool_validate_error(
        self,
        ctx: RunContext[object],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: RawToolArgs,
        error: ValidationError | ModelRetry,
    ) -> ValidatedToolArgs:
        """Report invalid arguments to the model if a person edited them."""
        if not ctx.tool_call_approved:
            raise error
        match _answer_of(ctx):
            case Edited():
                raise ToolFailed(invalid_edit(error.message if isinstance(error, ModelRetry) else error)) from error
            case StillPending() | Responded():
                return call.args_as_dict()  # the tool does not run, and its validator may have changed
            case _:
                raise error

    async def wrap_tool_execute(
        self,
        ctx: RunContext[object],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: ValidatedToolArgs,
        handler: WrapToolExecuteHandler,
    ) -> Any:
        """Run the call, or return the result that a person gave instead."""
        gate = self._gate or self._open(ctx)
        if not self._leads:
            return await handler(args)
        gated = Call(call=call, tool_def=tool_def, args=args)
        with self._noting(gated):
            return await self._deliver(ctx, gate, gated, handler)

    async def after_node_run(
        self, ctx: RunContext[object], *, node: AgentNode[object], result: NodeResult[object]
    ) -> NodeResult[object]:
        """Complete the bookkeeping of a response with deferred calls.

        If the run ended with an output instead of pausing, its deferred calls get a result: pydantic-ai leaves them
        without one, and providers reject such a history. (`run_stream` executes calls outside of any node, so this does
        not apply there.) If the run paused, the requests name the protected files that the run changed, as parallel
        calls may have changed them after the preview. Denials by a deferred-call handler are checked against the rules
        here, as they pass no other hook.
        """
        if not isinstance(node, CallToolsNode):
            return result
        waiting, self._waiting = self._waiting, []
        denied = _denied_in(ctx.messages[-1] if isinstance(result, End) else getattr(result, 'request', None))
        for gated in waiting if self._leads else ():
            if gated.call.tool_call_id in denied:
                await self._check_kind(ctx, gated, 'deny')
        if isinstance(result, End):
            output = result.data.output
            if isinstance(output, DeferredToolRequests):
                await self._add_changes(ctx, output)
            elif waiting:
                parts = not_asked([gated.call for gated in waiting])
                ctx.messages.append(ModelRequest(parts=parts, run_id=ctx.run_id, conversation_id=ctx.conversation_id))
        return result

    async def _add_changes(self, ctx: RunContext[object], requests: DeferredToolRequests) -> None:
        gate = self._gate or self._open(ctx)
        notice = await gate.changes(ctx) if self._leads else None
        if notice is not None:
            add_notice(requests, notice)

    async def _deliver(self, ctx: RunContext[object], gate: Gate, gated: Call, handler: WrapToolExecuteHandler) -> Any:
        answer = None
        admitted = self._admitted.pop(gated.call.tool_call_id, None)
        if admitted is not None and admitted.call == gated:
            answer = admitted.answer
            # a parallel call may have changed the file that was shown, or the target of a path
            if isinstance(answer, (Approved, Edited)) or (answer is None and has_parallel_calls(ctx)):
                await _admit(ctx, gate, gated, made=self._made(ctx, gated.call))
        elif ctx.tool_call_approved or gate.concerns(gated.tool_def):
            # another capability skipped validation or changed the call
            answer = await _admit(ctx, gate, gated, made=self._made(ctx, gated.call))
        if isinstance(answer, Responded):
            return ToolReturn[Any](answer.content, metadata=ANSWERED)
        return await _run(ctx, gate, gated, handler, edited=_edited(answer))

    def _made(self, ctx: RunContext[object], call: ToolCallPart) -> ToolCallPart | None:
        """Return the call as the model made it, without the edits of an approval; `None` if it is unknown."""
        if not ctx.tool_call_approved:
            return call
        asked = (gated.call for gated in reversed(self._waiting) if gated.call.tool_call_id == call.tool_call_id)
        return next(asked, None) or _call_in(ctx.messages, call.tool_call_id)

    async def _check_results(self, ctx: RunContext[object], tools: Mapping[str, ToolsetTool[object]]) -> None:
        """Raise if a rule does not allow one of the supplied results, before any tool runs.

        Raises:
            InvalidDecisionError: A rule does not allow this kind of result.
        """
        results, self._given = self._given, {}
        self._tools = tools
        if self._gate is None:
            self._open(ctx)
        for id, result in results.items() if self._leads else ():
            call = _call_in(ctx.messages, id)
            tool = None if call is None else tools.get(call.tool_name)
            if call is None or tool is None or tool.tool_def.kind == 'external':
                continue
            kind = 'deny' if isinstance(result, (ToolDenied, ToolFailed)) else 'respond'
            await self._check_kind(ctx, Call(call=call, tool_def=tool.tool_def, args=call.args_as_dict()), kind)

    async def _check_kind(self, ctx: RunContext[object], gated: Call, kind: DecisionKind) -> None:
        """Raise if no rule allows this kind of decision for a call, as the model made it."""
        gate = self._gate or self._open(ctx)
        decisions = await gate.decisions_on(ctx, gated) if gate.concerns(gated.tool_def) else DECISIONS
        if kind not in decisions:
            id = gated.call.tool_call_id
            raise InvalidDecisionError(
                id,
                f'The call {id!r} of {gated.call.tool_name!r} does not accept the decision {kind!r}, and has not run. '
                f'Allowed: {", ".join(decisions)}.',
            )

    @contextmanager
    def _noting(self, call: Call) -> Generator[None]:
        """Record a call that is deferred."""
        try:
            yield
        except ApprovalRequired:
            self._waiting.append(call)
            raise

    def _open(self, ctx: RunContext[object]) -> Gate:
        """Open the gate of this run. All `Approvals` of a run share the one that the last of them opens."""
        capabilities = find_capabilities(ctx, Approvals)
        self._leads = all(capability is not self for capability in capabilities[1:])
        self._gate = open_gate(ctx, [(capability.interrupt_on, capability._inherited) for capability in capabilities])
        return self._gate


@dataclass(frozen=True, kw_only=True)
class _Admitted:
    """A call that was allowed or answered during validation. It holds the call itself, as ids may repeat."""

    call: Call
    answer: _Answer | None


@dataclass
class _Marked(WrapperToolset[object]):
    """The tools of a run: names are validated once, and tools with `requires_approval=True` are marked for our gate."""

    names: tuple[str, ...]
    check: Callable[[RunContext[object], Mapping[str, ToolsetTool[object]]], Awaitable[None]]

    async def get_tools(self, ctx: RunContext[object]) -> dict[str, ToolsetTool[object]]:
        tools = await super().get_tools(ctx)
        if self.names:
            await check_names(ctx, self.names, tools, self.wrapped)
            self.names = ()
        tools = marked(tools)
        await self.check(ctx, tools)
        return tools


async def _admit(ctx: RunContext[object], gate: Gate, call: Call, *, made: ToolCallPart | None) -> _Answer | None:
    """Return a person's answer to a call that may run now or needs no execution; `None` if no approval was needed.

    Args:
        ctx: The run.
        gate: The rules that apply to the call.
        call: The call as it would run.
        made: The call as the model made it; `None` if it is unknown.

    Raises:
        ApprovalRequired: The call needs approval.
        ToolFailed: A rule denies the call.
    """
    answer = _answer_of(ctx) if ctx.tool_call_approved else None
    if isinstance(answer, StillPending):
        raise ApprovalRequired(metadata=answer.request)
    try:
        request = await _request(ctx, gate, call, answer, made=made)
    except ToolFailed as error:
        edited = _edited(answer)
        raise error if edited is None else failure_with_note(error, call.call, edited) from error
    if request is not None:
        raise ApprovalRequired(metadata=dump(request))
    return answer


async def _request(
    ctx: RunContext[object], gate: Gate, call: Call, answer: _Decided | None, *, made: ToolCallPart | None
) -> CallRequest | None:
    """Return the request for a person; `None` if the call may run now or needs no execution."""
    if not ctx.tool_call_approved:
        return await gate.ask(ctx, call)
    if isinstance(answer, Answered):  # the call was admitted before it asked
        return None
    kind = _kind(call, made, answer)
    if made is not None and kind is not None:
        # Edited arguments need a rule that allows edits, even if they would not need approval themselves.
        before = Call(call=made, tool_def=call.tool_def, args=made.args_as_dict())
        decisions = await gate.decisions_on(ctx, before)
        if kind not in decisions:
            return CallRequest(preview=await gate.preview(ctx, before), decisions=decisions)
    if isinstance(answer, Responded):
        return None
    if isinstance(answer, DelegationAnswers):  # the person decided on calls of a subagent, not on this one
        return await gate.answered_below(ctx, call)
    return await gate.ask_again(ctx, call, answer, kind=kind)


def _kind(call: Call, made: ToolCallPart | None, answer: _Decided | None) -> DecisionKind | None:
    """Return the kind of decision on a call; `None` if only calls of its subagent were decided on.

    Args:
        call: The call as it would run.
        made: The call as the model made it; `None` if it is unknown.
        answer: The metadata of the approval; `None` if `answer_approvals` did not create it.
    """
    match answer:
        case Responded():
            return 'respond'
        case Edited():
            return 'edit'
        case DelegationAnswers(request=request) if made is not None and request.edited is not None:
            made = replace(made, args=request.edited)  # edited before the subagent started
        case _:
            pass
    if made is not None and digest_of(made) != digest_of(call.call):
        return 'edit'
    return None if isinstance(answer, DelegationAnswers) else 'approve'


def _denied_in(message: ModelMessage | None) -> frozenset[str]:
    """Return the ids of the calls with a denied result in a message."""
    parts = message.parts if isinstance(message, ModelRequest) else ()
    return frozenset(
        part.tool_call_id for part in parts if isinstance(part, ToolReturnPart) and part.outcome == 'denied'
    )


def _call_in(messages: Sequence[ModelMessage], tool_call_id: str) -> ToolCallPart | None:
    """Return the call with this id from the last response."""
    response = next((message for message in reversed(messages) if isinstance(message, ModelResponse)), None)
    calls = () if response is None else response.tool_calls
    return next((call for call in calls if call.tool_call_id == tool_call_id), None)


async def _run(
    ctx: RunContext[object], gate: Gate, call: Call, handler: WrapToolExecuteHandler, *, edited: dict[str, Any] | None
) -> Any:
    """Run the tool. If a person edited the arguments, add a note with them to the result."""
    try:
        result = await handler(call.args)
    except ApprovalRequired as asked:
        raise await _with_request(ctx, gate, call, asked, edited=edited) from asked
    except (ToolFailed, ModelRetry, ToolFailedError, ToolRetryError) as error:
        if edited is None:
            raise
        raise failure_with_note(error, call.call, edited) from error
    return result if edited is None else with_note(result, call.call, edited)


def _answer_of(ctx: RunContext[object]) -> _Answer | None:
    """Return the answer in the metadata of an approved call.

    Raises:
        MalformedApprovalError: The metadata has an unknown format.
    """
    try:
        return parse_answer(ctx.tool_call_metadata)
    except ValueError as error:
        raise MalformedApprovalError(f'The answer to call {ctx.tool_call_id!r} cannot be read: {error}') from error


def _edited(answer: _Answer | None) -> dict[str, Any] | None:
    """Return the arguments that a person edited, in this answer or an earlier one."""
    match answer:
        case Edited():
            return answer.args
        case DelegationAnswers():
            return answer.request.edited
        case Answered():
            request = parse_request(answer.request)
            return request.edited if request is not None else None
        case _:
            return None


async def _with_request(
    ctx: RunContext[object], gate: Gate, call: Call, asked: ApprovalRequired, *, edited: dict[str, Any] | None
) -> ApprovalRequired:
    """Return the `ApprovalRequired` of a tool with our request added to its own metadata."""
    metadata = asked.metadata or {}
    try:
        request = parse_request(metadata)
    except ValueError as error:
        raise ToolFailed(f'The tool {call.tool_def.name!r} requires approval with invalid metadata: {error}') from error
    if request is None:
        request = await gate.request(ctx, call)
    elif edited is None:
        return asked
    return ApprovalRequired(metadata={**metadata, **dump(request.model_copy(update={'edited': edited}))})
