"""Convert exceptions of tools into failed results for the model, so that they do not end the run.

A tool's `prepare` function is not covered: it runs before there is a call that could have a result.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

from pydantic import ValidationError
from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.capabilities import RawToolArgs, ValidatedToolArgs
from pydantic_ai.exceptions import (
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    RunCancelled,
    ToolFailed,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
)
from pydantic_ai.messages import ToolCallPart, ToolReturn, ToolReturnPart
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset

from pydantic_deep._capabilities.base import BaseCapability

from ._messages.half_characters import repair_result
from ._messages.iterators import drained
from ._toolsets.sequential_toolset import with_sequential_toolsets

_LOGGER = logging.getLogger('pydantic_deep')

_MAX_CHARS = 4_000
"""Maximum length of a message for the model, in characters. It fits a traceback of some depth."""

_TAIL_CHARS = 1_000
"""The part of this length for the end of a message, which often names the cause."""

_MAX_LEAVES = 5
"""Maximum number of exceptions of a group to show."""


@dataclass(kw_only=True)
class ToolFailures(BaseCapability[object]):
    """Converts exceptions of tools into failed results with the name of the exception and its message.

    When a tool has used up its retries, the last error also becomes a failed result, where pydantic-ai would end the
    run. So does a result that JSON cannot represent. Cancellation, deferral and exceeded limits are not failures of a
    tool, and are raised. Each failure is logged as a warning with its traceback, by the logger `pydantic_deep`.
    """

    id: str | None = 'tool_failures'
    propagate: tuple[type[Exception], ...] = ()
    """Exceptions that end the run nevertheless, such as `(AssertionError,)` for debugging."""

    def __post_init__(self) -> None:
        """Validate the exceptions.

        Raises:
            TypeError: They are not a tuple of classes, or one is not an exception.
        """
        kinds = self.propagate if isinstance(cast('object', self.propagate), tuple) else (self.propagate,)
        if not all(
            isinstance(kind, type) and issubclass(kind, Exception) for kind in cast('tuple[object, ...]', kinds)
        ):
            raise TypeError(f'`propagate` is {self.propagate!r}. Pass a tuple of exceptions: `(AssertionError,)`.')

    async def on_tool_execute_error(
        self,
        ctx: RunContext[object],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: ValidatedToolArgs,
        error: Exception,
    ) -> Any:
        """Fail the call with the exception, and log the traceback."""
        failed = self._failed(error)
        _LOGGER.warning('Tool %r failed with %s', call.tool_name, type(error).__name__, exc_info=error)
        raise failed from error

    async def after_tool_execute(
        self,
        ctx: RunContext[object],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: ValidatedToolArgs,
        result: Any,
    ) -> Any:
        """Fail the call if its result cannot be sent: otherwise, the next request would end the run."""
        try:
            return _sendable(result)
        except (ValueError, RecursionError) as error:
            _LOGGER.warning('The result of tool %r cannot be sent to a model', call.tool_name, exc_info=error)
            raise ToolFailed(f'The call ran, but its result cannot be shown. {_describe(error)}') from error

    async def on_tool_validate_error(
        self,
        ctx: RunContext[object],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: RawToolArgs,
        error: ValidationError | ModelRetry,
    ) -> ValidatedToolArgs:
        """Fail the call if another retry would end the run."""
        if ctx.retry < ctx.max_retries:
            raise error
        raise ToolFailed(error.message if isinstance(error, ModelRetry) else str(error)) from error

    def get_wrapper_toolset(self, toolset: AbstractToolset[object]) -> AbstractToolset[object]:
        """Fail the call if a tool's own `args_validator`, or an iterator that it returns, raises an exception."""
        return _GuardedTools(with_sequential_toolsets(toolset), failed=self._failed)

    def _failed(self, error: Exception) -> ToolFailed:
        """Return the failed result for an exception; raise the exception if it is not a failure of the tool."""
        if isinstance(error, (RunCancelled, UsageLimitExceeded, *self.propagate)):
            raise error
        if isinstance(error, UnexpectedModelBehavior) and isinstance(error.__cause__, ModelRetry):
            return ToolFailed(error.__cause__.message)  # pydantic-ai reports exhausted retries like this
        return ToolFailed(_describe(error))


@dataclass
class _GuardedTools(WrapperToolset[object]):
    """The tools of a toolset, with validators that raise only exceptions that pydantic-ai expects, and results without
    iterators, which the first serialization would consume.
    """

    failed: Callable[[Exception], ToolFailed]

    async def get_tools(self, ctx: RunContext[object]) -> dict[str, ToolsetTool[object]]:
        tools = await super().get_tools(ctx)
        return {name: self._guarded(tool) for name, tool in tools.items()}

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[object], tool: ToolsetTool[object]
    ) -> object:
        return drained(await super().call_tool(name, tool_args, ctx, tool))

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
            except Exception as error:  # user code, which may raise anything
                raise self.failed(error) from error

        return replace(tool, args_validator_func=guarded)


def _sendable(result: object) -> object:
    """Return a result that JSON can represent, without halves of surrogate pairs. Raises if there is none."""
    try:
        _serialize(result)
    except ValueError:
        result = repair_result(result)
        _serialize(result)
    return result


def _serialize(result: object) -> None:
    value = cast('ToolReturn[object]', result).return_value if isinstance(result, ToolReturn) else result
    if isinstance(value, str):
        value.encode()
    else:
        ToolReturnPart(tool_name='', content=value, tool_call_id='').model_response_str()


def _describe(error: BaseException) -> str:
    """Return the name and message of an exception, printable and with bounded length. Never raises."""
    described = f'{type(error).__name__}: {_message(error)}'.removesuffix(': ')
    if isinstance(error, BaseExceptionGroup):
        leaves = list(_leaves(cast('BaseExceptionGroup[BaseException]', error)))
        shown = [_describe(leaf) for leaf in leaves[:_MAX_LEAVES]]
        rest = [f'and {len(leaves) - _MAX_LEAVES} more'] if len(leaves) > _MAX_LEAVES else []
        described = '\n- '.join([described, *shown, *rest])
    described = described.encode(errors='backslashreplace').decode()  # a lone surrogate would break the next request
    if len(described) <= _MAX_CHARS:
        return described
    head, tail = described[: _MAX_CHARS - _TAIL_CHARS], described[-_TAIL_CHARS:]
    return f'{head}… [{len(described) - _MAX_CHARS:,} characters left out] …{tail}'


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - user code, which may raise anything
        return 'its message cannot be shown'


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(cast('BaseExceptionGroup[BaseException]', error))
        else:
            yield error
