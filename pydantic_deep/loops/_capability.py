"""The capability that ends runs which repeat a call with the same result, for any pydantic-ai agent."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from pydantic_ai import ModelRequestContext, ModelRetry, RunContext, ToolDefinition, ToolReturn
from pydantic_ai.capabilities import (
    CapabilityOrdering,
    ValidatedToolArgs,
    WrapToolExecuteHandler,
)
from pydantic_ai.exceptions import ToolFailed, ToolFailedError, ToolRetryError
from pydantic_ai.messages import ModelMessage, SystemPromptPart, ToolCallPart, ToolReturnPart, UserContent

from pydantic_deep._capabilities.base import BaseCapability
from pydantic_deep._checks import check_strings
from pydantic_deep._requests.last_answer import LastAnswer

from ._errors import RepeatedCallsError
from ._events import RepeatedCallEvent
from ._repetitions import (
    ADVICE,
    LIMIT,
    NEXT_NOTICE,
    NOTICE,
    Repetition,
    TurnResults,
    has_results,
    is_notice,
    starts_turn,
)

REPEATED = f'`{{tool}}` had the same result {LIMIT} times. {ADVICE}'
"""The message to the model about a repeated result that no notice has replaced, such as that of an invalid call."""

LAST_ANSWER = '`{tool}` had the same result {count} times: this is your last answer, without tools. Say what is done and what is left.'
"""The message to the model when it repeats a call in spite of a notice."""

NO_TOOLS = 'The run ends: no tool runs any more.'
"""The tool result if the model calls a tool anyway."""


@dataclass(kw_only=True)
class LoopDetection(BaseCapability[object]):
    """Ends runs that repeat a call with the same result, instead of using up their budget.

    When a call with the same arguments has the same result for the third time in a turn, and no call has had a new
    result since the first, the model gets a short text instead of the result, which it has twice already. The text asks
    for other arguments, another tool, or an answer. When the call has this result for the fourth time, the model is
    instructed to give its final answer and cannot call tools any more. If it calls one nevertheless, or its answer is
    rejected, `RepeatedCallsError` is raised before the next request.

    Failed, invalid and denied calls count by their error; those that did not run keep it, and the text follows. Work
    that makes progress is not a loop: a test that fails after each edit, or a file that is read after each command.
    Calls of one response count once. A new message of the user and a summary start the counts again.

    Tools that are called repeatedly by design, to wait for a change or to act once more, are exempt by their metadata,
    `@agent.tool_plain(metadata={'polls': True})`, or with `exclude`. Output tools have retries of their own.

    Raises:
        TypeError: `exclude` is not a list of names.
    """

    id: str | None = 'loop_detection'
    exclude: Collection[str] = ()
    """The names of tools whose calls may be repeated."""
    _results: TurnResults = field(default_factory=TurnResults, init=False, repr=False, compare=False)
    _sent: Sequence[ModelMessage] = field(default=(), init=False, repr=False, compare=False)
    """The messages of the last request, of which capabilities may have removed some."""
    _loop: Repetition | None = field(default=None, init=False, repr=False, compare=False)
    """The repetition that ends the run."""
    _last_answer: LastAnswer = field(
        default_factory=lambda: LastAnswer(refusal=NO_TOOLS), init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        check_strings('exclude', self.exclude)

    def get_ordering(self) -> CapabilityOrdering:
        """Run innermost, to see which results other capabilities have removed from the request."""
        return CapabilityOrdering(position='innermost')

    async def for_run(self, ctx: RunContext[object]) -> LoopDetection:
        """Return a copy with the state of this run."""
        return replace(self)

    async def before_model_request(
        self, ctx: RunContext[object], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Count the results of the last calls, and end the run if the model continues to repeat one.

        Raises:
            RepeatedCallsError: The model was asked for its last answer before.
        """
        results = self._results.read(ctx.messages)
        if self._loop is not None:
            if not starts_turn(ctx.messages[-1]):
                raise RepeatedCallsError(
                    tool=self._loop.part.tool_name, arguments=self._loop.arguments, count=self._loop.count
                )
            self._loop, self._last_answer = None, LastAnswer(refusal=NO_TOOLS)
        self._sent = request_context.messages
        for result in results:
            tool = result.part.tool_name
            if result.count >= LIMIT and not self._is_exempt(tool, _find_tool(request_context, tool)):
                await self._note(ctx, result)
        if self._loop is not None:
            text = LAST_ANSWER.format(tool=self._loop.part.tool_name, count=self._loop.count)
            self._last_answer.announce(ctx, request_context, text)
        return request_context

    async def wrap_tool_execute(
        self,
        ctx: RunContext[object],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: ValidatedToolArgs,
        handler: WrapToolExecuteHandler,
    ) -> Any:
        """Replace a repeated result or failure by a notice."""
        try:
            result = await handler(args)
        except (ToolFailed, ModelRetry, ToolFailedError, ToolRetryError) as error:
            reason = error.__cause__ if isinstance(error, (ToolFailedError, ToolRetryError)) else error
            outcome = 'failed' if isinstance(error, (ToolFailed, ToolFailedError)) else 'retried'
            part = ToolReturnPart(call.tool_name, str(reason), call.tool_call_id, outcome=outcome)
            if (notice := self._notice(ctx, call, tool_def, part)) is None:
                raise
            raise ToolFailed(notice) from error  # not a retry, which would ask for the same call
        is_wrapped = isinstance(result, ToolReturn)
        returned = cast('ToolReturn[object]', result) if is_wrapped else ToolReturn[object](result)
        part = ToolReturnPart(call.tool_name, returned.return_value, call.tool_call_id)
        if (notice := self._notice(ctx, call, tool_def, part, returned.content)) is None:
            return result
        return replace(returned, return_value=notice, content=None) if is_wrapped else notice

    async def after_tool_validate(
        self, ctx: RunContext[object], *, call: ToolCallPart, tool_def: ToolDefinition, args: ValidatedToolArgs
    ) -> ValidatedToolArgs:
        """Fail tool calls of the final response, which the model was instructed not to make."""
        self._last_answer.refuse_call()
        return args

    async def _note(self, ctx: RunContext[object], result: Repetition) -> None:
        """Inform the model of a repetition once, unless it does not have the result any more."""
        if not is_notice(result.part) and not has_results(self._sent[:-1], result.part):
            self._results.restart(result)
            return
        tool = result.part.tool_name
        if result.count > LIMIT:
            self._loop = self._loop or result
        elif not is_notice(result.part):
            ctx.enqueue(SystemPromptPart(REPEATED.format(tool=tool)))
        await ctx.emit(RepeatedCallEvent(tool=tool, count=result.count))

    def _notice(
        self,
        ctx: RunContext[object],
        call: ToolCallPart,
        tool_def: ToolDefinition,
        part: ToolReturnPart,
        content: str | Sequence[UserContent] | None = None,
    ) -> str | None:
        """Return the notice that replaces a result; `None` if it is not repeated."""
        self._results.read(ctx.messages)
        if (
            self._is_exempt(call.tool_name, tool_def)
            or (count := self._results.next_count(call, part, content)) < LIMIT
            or not has_results(self._sent or ctx.messages, part)
        ):
            return None
        return NOTICE if count == LIMIT else NEXT_NOTICE

    def _is_exempt(self, name: str, tool: ToolDefinition | None) -> bool:
        """Return whether a tool may be called repeatedly. pydantic-ai reads the results of tools with a kind."""
        return name in self.exclude or (
            tool is not None
            and (tool.kind == 'output' or tool.tool_kind is not None or bool((tool.metadata or {}).get('polls')))
        )


def _find_tool(request_context: ModelRequestContext, name: str) -> ToolDefinition | None:
    parameters = request_context.model_request_parameters
    tools = (*parameters.function_tools, *parameters.output_tools)
    return next((tool for tool in tools if tool.name == name), None)
