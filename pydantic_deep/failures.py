"""A tool that fails is a result that the model sees; it never ends the run.

Not here: a tool's `prepare`, which fails before there is a call that could have a result, and ends the run.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

from pydantic import ValidationError
from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.capabilities import AbstractCapability, RawToolArgs, ValidatedToolArgs
from pydantic_ai.exceptions import (
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    RunCancelled,
    ToolFailed,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
)
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset

from ._toolsets.sequential_toolset import with_sequential_toolsets

_LOGGER = logging.getLogger('pydantic_deep')

_MAX_CHARS = 4_000
"""How much of a message the model is shown: a traceback of some depth, and a bound on what a request costs."""

_TAIL_CHARS = 1_000
"""How much of that comes from the end, where a long message often says what went wrong."""

_MAX_LEAVES = 5
"""How many of the exceptions of a group are shown."""


@dataclass(kw_only=True)
class ToolFailures(AbstractCapability[object]):
    """Turns what a tool raises into a failed result: the name of the exception and its message.

    Where pydantic-ai would end the run because a tool used up its retries, the last answer is a failed result too.
    Cancellation, deferral and a used-up budget are no failures of a tool and pass.
    Each failure is logged with its traceback by the logger `pydantic_deep`, as a warning.
    """

    id: str | None = 'tool_failures'
    propagate: tuple[type[Exception], ...] = ()
    """Exceptions that end the run after all, such as `(AssertionError,)` while you look for a bug."""

    async def on_tool_execute_error(
        self,
        ctx: RunContext[object],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: ValidatedToolArgs,
        error: Exception,
    ) -> Any:
        """Fail the call with what was raised, and log it: the model sees a sentence, the developer the traceback."""
        failed = self._failed(error)
        _LOGGER.warning('Tool %r failed with %s', call.tool_name, type(error).__name__, exc_info=error)
        raise failed from error

    async def on_tool_validate_error(
        self,
        ctx: RunContext[object],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: RawToolArgs,
        error: ValidationError | ModelRetry,
    ) -> ValidatedToolArgs:
        """Fail the call where another retry would end the run."""
        if ctx.retry < ctx.max_retries:
            raise error
        raise ToolFailed(error.message if isinstance(error, ModelRetry) else str(error)) from error

    def get_wrapper_toolset(self, toolset: AbstractToolset[object]) -> AbstractToolset[object]:
        """Fail the call where a tool's own `args_validator` raises what is no judgement of the arguments."""
        return _WithFailingValidators(with_sequential_toolsets(toolset), failed=self._failed)

    def _failed(self, error: Exception) -> ToolFailed:
        """Return what the model is told of an exception; raise the exception if it is no failure of the tool."""
        if isinstance(error, (RunCancelled, UsageLimitExceeded, *self.propagate)):
            raise error
        if isinstance(error, UnexpectedModelBehavior) and isinstance(error.__cause__, ModelRetry):
            return ToolFailed(error.__cause__.message)  # how core reports that the retries are used up
        return ToolFailed(_describe(error))


@dataclass
class _WithFailingValidators(WrapperToolset[object]):
    """The tools of a toolset, with validators that raise nothing but what pydantic-ai expects of them."""

    failed: Callable[[Exception], ToolFailed]

    async def get_tools(self, ctx: RunContext[object]) -> dict[str, ToolsetTool[object]]:
        tools = await super().get_tools(ctx)
        return {name: self._guarded(tool) for name, tool in tools.items()}

    def _guarded(self, tool: ToolsetTool[object]) -> ToolsetTool[object]:
        validate = tool.args_validator_func
        if validate is None:
            return tool

        async def guarded(ctx: RunContext[object], **args: object) -> None:
            try:
                judgement = validate(ctx, **args)
                if inspect.isawaitable(judgement):
                    await judgement
            except (ValidationError, ModelRetry, ToolFailed, CallDeferred, ApprovalRequired):
                raise
            except Exception as error:  # the code is the user's, and may raise anything
                raise self.failed(error) from error

        return replace(tool, args_validator_func=guarded)


def _describe(error: BaseException) -> str:
    """Return the name of an exception and its message: bounded, printable, and never an error of its own."""
    described = f'{type(error).__name__}: {_message(error)}'.removesuffix(': ')
    if isinstance(error, BaseExceptionGroup):
        leaves = list(_leaves(cast('BaseExceptionGroup[BaseException]', error)))
        shown = [_describe(leaf) for leaf in leaves[:_MAX_LEAVES]]
        rest = [f'and {len(leaves) - _MAX_LEAVES} more'] if len(leaves) > _MAX_LEAVES else []
        described = '\n- '.join([described, *shown, *rest])
    described = described.encode(errors='backslashreplace').decode()  # half a character would break the next request
    if len(described) <= _MAX_CHARS:
        return described
    head, tail = described[: _MAX_CHARS - _TAIL_CHARS], described[-_TAIL_CHARS:]
    return f'{head}… [{len(described) - _MAX_CHARS:,} characters left out] …{tail}'


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - the code is the user's, and may raise anything
        return 'it has no message that can be shown'


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(cast('BaseExceptionGroup[BaseException]', error))
        else:
            yield error
