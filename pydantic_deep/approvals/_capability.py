"""What the agent plugs in: calls that wait for a person, as one capability for any pydantic-ai agent."""

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

from pydantic_deep._messages.deferred_metadata import (
    DECISIONS,
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

_Decided: TypeAlias = Approved | Edited | Responded | DelegationAnswers
_Answer: TypeAlias = StillPending | _Decided


@dataclass(kw_only=True)
class Approvals(AbstractCapability[object]):
    """Makes calls wait for a person, whoever provides the tool.

    A run that needs an answer ends with `DeferredToolRequests`, which must be among the agent's output types. List
    what waits with `pending_approvals`, answer with `answer_approvals`, and run again. Besides what `interrupt_on`
    names, tools wait that were defined with `requires_approval=True` or ask by themselves, and writes to files that
    another room protects.

    It gates function tools. Output tools and tools that a provider runs itself cannot be gated, and a command can
    write to a protected file without saying so: isolate what runs commands.
    """

    id: str | None = 'approvals'
    interrupt_on: InterruptOn = field(default_factory=dict[str, bool | ApprovalRule])
    """What asks, by the name of the tool as the model sees it: `True` always, a rule as it says, `False` not.

    A name that no tool bears is an error before the first request. In a subagent all that its parent's mapping asks
    for is asked for too; `False` lifts nothing of it.
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
        """Refuse what is no mapping of bools and rules, and to be loaded by the model.

        Raises:
            UserError: `interrupt_on` is none, a value in it is neither, or `defer_loading` is set.
        """
        if self.defer_loading:
            raise UserError('`Approvals` cannot have `defer_loading`: no call would wait until the model loads them.')
        if not isinstance(cast('object', self.interrupt_on), Mapping):
            raise UserError(
                f'`interrupt_on` is {self.interrupt_on!r}. Write a mapping from names of tools: '
                "`{'write_file': True}`."
            )
        for name, rule in self.interrupt_on.items():
            if not isinstance(cast('object', rule), (bool, ApprovalRule)):
                raise UserError(
                    f'`interrupt_on` says {rule!r} for {name!r}. Write `True`, `False` or an `ApprovalRule`.'
                )

    @classmethod
    def combine(cls, capabilities: Sequence[AbstractCapability[object]]) -> Approvals:
        """Return one that asks wherever one of them does.

        Raises:
            UserError: Two of them have different rules for one tool.
        """
        together: dict[str, bool | ApprovalRule] = {}
        for capability in cast('Sequence[Approvals]', capabilities):
            for name, rule in capability.interrupt_on.items():
                before = together.get(name, False)
                if before is not False and rule is not False and before != rule:
                    raise UserError(
                        f'Two `Approvals` of one agent have different rules for {name!r}. Keep one of them.'
                    )
                together[name] = before or rule
        return cls(id=capabilities[0].id, interrupt_on=together)

    def for_subagent(self) -> Approvals:
        """Return what holds in the run of a subagent: all that holds here, beside what it has of its own."""
        inherited = replace(self, id=None)
        inherited._inherited = True
        return inherited

    def may_require_approval(self, tool_name: str) -> bool:
        """Return whether a call of this tool may have to wait."""
        return self.interrupt_on.get(tool_name, False) is not False

    def accepts_grants(self, ctx: RunContext[object], tool_name: str) -> bool:
        """Return whether a grant of a skill would let calls of this tool run that wait without it."""
        gate, tool = self._gate or self._open(ctx), self._tools.get(tool_name)
        rules = gate.rules_by_tool.get(tool_name, ())
        asks = bool(rules) or (tool is not None and is_marked(tool.tool_def) and not gate.inherited)
        return asks and not any(each.inherited for each in rules)

    async def for_run(self, ctx: RunContext[object]) -> Approvals:
        """Return this run's instance."""
        run = replace(self)
        run._inherited = self._inherited
        return run

    def get_ordering(self) -> CapabilityOrdering:
        """Stand outside of others: what they change of the arguments is changed before a person sees the call."""
        return CapabilityOrdering(position='outermost')

    def get_wrapper_toolset(self, toolset: AbstractToolset[object]) -> AbstractToolset[object]:
        """Check the names, and let tools that pydantic-ai would defer itself pass this gate instead."""
        names = () if self._inherited else tuple(self.interrupt_on)
        return _Marked(toolset, names=names, check=self._check_results)

    async def before_node_run(self, ctx: RunContext[object], *, node: AgentNode[object]) -> AgentNode[object]:
        """Take note of results that a person gave in the place of calls: these calls are never validated."""
        if isinstance(node, CallToolsNode) and node.tool_call_results:
            given = node.tool_call_results.items()
            self._given = {id: each for id, each in given if each != 'skip' and not isinstance(each, ToolApproved)}
        return node

    async def after_tool_validate(
        self, ctx: RunContext[object], *, call: ToolCallPart, tool_def: ToolDefinition, args: ValidatedToolArgs
    ) -> ValidatedToolArgs:
        """Let the call run, make it wait, or refuse it."""
        gate = self._gate or self._open(ctx)
        if self._leads and (ctx.tool_call_approved or gate.concerns(tool_def)) and tool_def.kind != 'external':
            found = Call(call=call, tool_def=tool_def, args=args)
            with self._noting(found):
                answer = await _admit(ctx, gate, found, made=self._made(ctx, call))
                self._admitted[call.tool_call_id] = _Admitted(call=found, answer=answer)
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
        """Tell the model whose arguments are not valid, where a person edited them."""
        if not ctx.tool_call_approved:
            raise error
        match _answer_of(ctx):
            case Edited():
                raise ToolFailed(invalid_edit(error.message if isinstance(error, ModelRetry) else error)) from error
            case StillPending() | Responded():
                return call.args_as_dict()  # the tool does not run: a validator may no longer agree
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
        """Run the call, or deliver what a person said in the place of its result."""
        gate = self._gate or self._open(ctx)
        if not self._leads:
            return await handler(args)
        found = Call(call=call, tool_def=tool_def, args=args)
        with self._noting(found):
            return await self._deliver(ctx, gate, found, handler)

    async def after_node_run(
        self, ctx: RunContext[object], *, node: AgentNode[object], result: NodeResult[object]
    ) -> NodeResult[object]:
        """Close calls that were to wait, where the run has ended with an answer instead. Where it has paused, name the
        protected files that it changed: a call beside those that wait, or above them, may have changed them since.
        Refuse denials of a handler within the run that a rule does not take: they pass no other hook.

        pydantic-ai leaves them without a result, which no provider takes in the next request. In `run_stream` it acts on
        calls outside of any node, and they stay so.
        """
        if not isinstance(node, CallToolsNode):
            return result
        waiting, self._waiting = self._waiting, []
        denied = _denied_in(ctx.messages[-1] if isinstance(result, End) else getattr(result, 'request', None))
        for found in waiting if self._leads else ():
            if found.call.tool_call_id in denied:
                await self._check_kind(ctx, found, 'deny')
        if isinstance(result, End):
            output = result.data.output
            if isinstance(output, DeferredToolRequests):
                await self._add_changes(ctx, output)
            elif waiting:
                parts = not_asked([each.call for each in waiting])
                ctx.messages.append(ModelRequest(parts=parts, run_id=ctx.run_id, conversation_id=ctx.conversation_id))
        return result

    async def _add_changes(self, ctx: RunContext[object], requests: DeferredToolRequests) -> None:
        gate = self._gate or self._open(ctx)
        notice = await gate.changes(ctx) if self._leads else None
        if notice is not None:
            add_notice(requests, notice)

    async def _deliver(self, ctx: RunContext[object], gate: Gate, found: Call, handler: WrapToolExecuteHandler) -> Any:
        answer = None
        admitted = self._admitted.pop(found.call.tool_call_id, None)
        if admitted is not None and admitted.call == found:
            answer = admitted.answer
            # a call beside it may have changed what was shown, or where a path leads
            if isinstance(answer, (Approved, Edited)) or (answer is None and has_parallel_calls(ctx)):
                await _admit(ctx, gate, found, made=self._made(ctx, found.call))
        elif ctx.tool_call_approved or gate.concerns(found.tool_def):
            # another capability skipped the validation, or changed the call
            answer = await _admit(ctx, gate, found, made=self._made(ctx, found.call))
        if isinstance(answer, Responded):
            return ToolReturn[Any](answer.content, metadata=ANSWERED)
        return await _run(ctx, gate, found, handler, edited=_edited(answer))

    def _made(self, ctx: RunContext[object], call: ToolCallPart) -> ToolCallPart | None:
        """Return a call as the model made it, without what came with an approval; `None` if nobody knows."""
        if not ctx.tool_call_approved:
            return call
        asked = (each.call for each in reversed(self._waiting) if each.call.tool_call_id == call.tool_call_id)
        return next(asked, None) or _call_in(ctx.messages, call.tool_call_id)

    async def _check_results(self, ctx: RunContext[object], tools: Mapping[str, ToolsetTool[object]]) -> None:
        """Refuse results that a rule does not let a person give, before anything runs.

        Raises:
            InvalidDecisionError: There is one.
        """
        given, self._given = self._given, {}
        self._tools = tools
        if self._gate is None:
            self._open(ctx)
        for id, result in given.items() if self._leads else ():
            call = _call_in(ctx.messages, id)
            tool = None if call is None else tools.get(call.tool_name)
            if call is None or tool is None or tool.tool_def.kind == 'external':
                continue
            kind = 'deny' if isinstance(result, (ToolDenied, ToolFailed)) else 'respond'
            await self._check_kind(ctx, Call(call=call, tool_def=tool.tool_def, args=call.args_as_dict()), kind)

    async def _check_kind(self, ctx: RunContext[object], found: Call, kind: DecisionKind) -> None:
        """Refuse an answer to a call, as the model made it, that no rule lets a person give."""
        gate = self._gate or self._open(ctx)
        decisions = await gate.decisions_on(ctx, found) if gate.concerns(found.tool_def) else DECISIONS
        if kind not in decisions:
            id = found.call.tool_call_id
            raise InvalidDecisionError(
                id,
                f'The call {id!r} of {found.call.tool_name!r} cannot be answered by {kind}, and has not run. '
                f'It takes: {", ".join(decisions)}.',
            )

    @contextmanager
    def _noting(self, call: Call) -> Generator[None]:
        """Note a call that is to wait."""
        try:
            yield
        except ApprovalRequired:
            self._waiting.append(call)
            raise

    def _open(self, ctx: RunContext[object]) -> Gate:
        """Return the gate of this run, which the first `Approvals` of the run keeps for all of them."""
        together = find_capabilities(ctx, Approvals)
        self._leads = all(each is not self for each in together[1:])
        self._gate = open_gate(ctx, [(each.interrupt_on, each._inherited) for each in together])
        return self._gate


@dataclass(frozen=True, kw_only=True)
class _Admitted:
    """A call that may run, or needs not to. Ids repeat, so it is kept which call it was."""

    call: Call
    answer: _Answer | None


@dataclass
class _Marked(WrapperToolset[object]):
    """The tools of a run, with marks instead of pydantic-ai's own deferral, and names that were checked once."""

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
    """Return the answer of a person, if there is one, where the call may run now or needs not to.

    Args:
        ctx: The run.
        gate: What decides.
        call: The call as it would run.
        made: The call as the model made it; `None` if nobody knows.

    Raises:
        ApprovalRequired: It is to wait.
        ToolFailed: It never may run.
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
    """Return what a person is to be asked; `None` if the call may run now, or needs not to."""
    if not ctx.tool_call_approved:
        return await gate.ask(ctx, call)
    kind = _kind(call, made, answer)
    if made is not None and kind is not None:  # other arguments that would not have asked are an edit all the same
        before = Call(call=made, tool_def=call.tool_def, args=made.args_as_dict())
        decisions = await gate.decisions_on(ctx, before)
        if kind not in decisions:
            return CallRequest(preview=await gate.preview(ctx, before), decisions=decisions)
    if isinstance(answer, Responded):
        return None
    if isinstance(
        answer, DelegationAnswers
    ):  # of the call itself a person has seen nothing, unless it is what delegated
        return await gate.answered_below(ctx, call)
    return await gate.ask_again(ctx, call, answer, kind=kind)


def _kind(call: Call, made: ToolCallPart | None, answer: _Decided | None) -> DecisionKind | None:
    """Return what a person has decided about a call; `None` if only about what its subagent asks.

    Args:
        call: The call as it would run.
        made: The call as the model made it; `None` if nobody knows.
        answer: What came with the approval: nothing, where `answer_approvals` did not make it.
    """
    match answer:
        case Responded():
            return 'respond'
        case Edited():
            return 'edit'
        case DelegationAnswers(request=request) if made is not None and request.edited is not None:
            made = replace(made, args=request.edited)  # decided before the subagent began
        case _:
            pass
    if made is not None and digest_of(made) != digest_of(call.call):
        return 'edit'
    return None if isinstance(answer, DelegationAnswers) else 'approve'


def _denied_in(message: ModelMessage | None) -> frozenset[str]:
    """Return the ids of the calls that a message says were denied."""
    parts = message.parts if isinstance(message, ModelRequest) else ()
    return frozenset(
        part.tool_call_id for part in parts if isinstance(part, ToolReturnPart) and part.outcome == 'denied'
    )


def _call_in(messages: Sequence[ModelMessage], tool_call_id: str) -> ToolCallPart | None:
    """Return the call of the last response that has this id."""
    response = next((each for each in reversed(messages) if isinstance(each, ModelResponse)), None)
    calls = () if response is None else response.tool_calls
    return next((each for each in calls if each.tool_call_id == tool_call_id), None)


async def _run(
    ctx: RunContext[object], gate: Gate, call: Call, handler: WrapToolExecuteHandler, *, edited: dict[str, Any] | None
) -> Any:
    """Run the tool, and say with which arguments it ran if a person gave them."""
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
    """Return the answer that came with an approved call.

    Raises:
        MalformedApprovalError: It is not what `answer_approvals` writes.
    """
    try:
        return parse_answer(ctx.tool_call_metadata)
    except ValueError as error:
        raise MalformedApprovalError(f'The answer to call {ctx.tool_call_id!r} cannot be read: {error}') from error


def _edited(answer: _Answer | None) -> dict[str, Any] | None:
    """Return the arguments that a person gave the call, now or before it asked once more."""
    match answer:
        case Edited():
            return answer.args
        case DelegationAnswers():
            return answer.request.edited
        case _:
            return None


async def _with_request(
    ctx: RunContext[object], gate: Gate, call: Call, asked: ApprovalRequired, *, edited: dict[str, Any] | None
) -> ApprovalRequired:
    """Return what the tool raised, with all that a person needs to decide, and its own metadata beside it."""
    metadata = asked.metadata or {}
    try:
        request = parse_request(metadata)
    except ValueError as error:
        raise ToolFailed(f'The tool {call.tool_def.name!r} asked with metadata that is not ours: {error}') from error
    if request is None:
        request = await gate.request(ctx, call)
    elif edited is None:
        return asked
    return ApprovalRequired(metadata={**metadata, **dump(request.model_copy(update={'edited': edited}))})
