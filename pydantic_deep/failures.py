"""A tool that fails is a result that the model sees; it never ends the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.capabilities import AbstractCapability, RawToolArgs, ValidatedToolArgs
from pydantic_ai.exceptions import ModelRetry, RunCancelled, ToolFailed, UnexpectedModelBehavior, UsageLimitExceeded
from pydantic_ai.messages import ToolCallPart


@dataclass(kw_only=True)
class ToolFailures(AbstractCapability[object]):
    """Turns what a tool raises into a failed result: the name of the exception and its message.

    Where pydantic-ai would end the run because a tool used up its retries, the last answer is a failed result too.
    Cancellation, deferral and a used-up budget are no failures of a tool and pass.
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
        """Fail the call with what was raised."""
        if isinstance(error, (RunCancelled, UsageLimitExceeded, *self.propagate)):
            raise error
        if isinstance(error, UnexpectedModelBehavior) and isinstance(error.__cause__, ModelRetry):
            raise ToolFailed(error.__cause__.message) from error  # how core reports that the retries are used up
        raise ToolFailed(f'{type(error).__name__}: {error}') from error

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
