"""What is told of a run that failed: a kind and a sentence, by the type of the error. Pure; no secrets, no tracebacks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import cast

from pydantic_ai.exceptions import (
    AgentRunError,
    ContentFilterError,
    FallbackExceptionGroup,
    IncompleteToolCall,
    ModelAPIError,
    ModelAuthenticationError,
    ModelHTTPError,
    ModelNotFoundError,
    ModelRateLimitError,
    ModelTimeoutError,
    ModelUnavailableError,
    RunCancelled,
    RunTimedOut,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
    UserError,
)

from pydantic_deep.budgets import BudgetExceededError
from pydantic_deep.errors import DeepAgentError
from pydantic_deep.retries import CutAnswerError
from pydantic_deep_backends import BackendUnavailableError, ScanLimitError

from ._events import ErrorEvent, RunStatus

MAX_CHARS = 500
"""How much is told of what an error says: some sentences of a provider, never a page of HTML."""

_SECRET = re.compile(r'\b(sk-|AIza|xai-|gsk_|pd_)[-_A-Za-z0-9*.]{6,}|(?i:\bbearer\s+)[-_A-Za-z0-9.=+/]{6,}')
"""Keys as providers quote them when they refuse one."""

_BUSY = frozenset((429, 503, 529))
"""What a provider that is asked too much answers with; 529 is Anthropic's."""

EXPECTED_ERRORS = (
    AgentRunError,
    FallbackExceptionGroup,
    UserError,
    DeepAgentError,
    BackendUnavailableError,
    ScanLimitError,
)
"""Errors whose messages are meant for readers. The message of any other may reveal the application's internals."""


def describe_failure(error: BaseException) -> ErrorEvent:
    """Return what is told of an error that ended a run; of several models that failed, the error of the last."""
    if isinstance(error, FallbackExceptionGroup):
        return describe_failure(error.exceptions[-1])
    kind, status = _kind_of(error)
    return ErrorEvent(kind=kind, message=_message_of(error), status=status)


def suspended_event() -> ErrorEvent:
    """Return the error of a run whose end the store does not have."""
    return ErrorEvent(
        kind='run_suspended',
        message='The store did not take the end of the run, so it is suspended. Resume it, or cancel it.',
        status=503,
    )


def status_after(error: BaseException) -> RunStatus:
    """Return what became of a run that an error ended."""
    return 'interrupted' if isinstance(error, (RunCancelled, asyncio.CancelledError)) else 'failed'


def _kind_of(error: BaseException) -> tuple[str, int | None]:
    """Return the kind of an error, and the HTTP status that fits."""
    match error:
        case RunTimedOut():
            return 'timed_out', 504
        case RunCancelled() | asyncio.CancelledError():
            return 'cancelled', None
        case BudgetExceededError():
            return 'budget_exceeded', 429
        case UsageLimitExceeded():
            return 'limit_exceeded', 429
        case CutAnswerError() | IncompleteToolCall():
            return 'truncated', 502
        case ModelAuthenticationError() | ModelNotFoundError():
            return 'unusable_model', 502
        case ModelAPIError():
            return 'provider_error', _status_of(error)
        case ContentFilterError():
            return 'content_filter', 422
        case UnexpectedModelBehavior():
            return 'unexpected_answer', 502
        case _:
            return 'run_failed', 500


def _status_of(error: ModelAPIError) -> int:
    """Return the status of a gateway: whoever asked us is not to blame for a key or a request that is ours."""
    if isinstance(error, ModelTimeoutError):
        return 504
    is_busy = isinstance(error, (ModelRateLimitError, ModelUnavailableError))
    return 503 if is_busy or (isinstance(error, ModelHTTPError) and error.status_code in _BUSY) else 502


def _message_of(error: BaseException) -> str:
    if isinstance(error, asyncio.CancelledError):
        return 'The run was cancelled. What was done stays done.'
    if not isinstance(error, EXPECTED_ERRORS):
        return f'The run failed with {type(error).__name__}. The log of the application has the details.'
    said = _said_by_provider(error) if isinstance(error, ModelHTTPError) else str(error)
    line = ' '.join(_SECRET.sub('…', said).split())
    return line if len(line) <= MAX_CHARS else f'{line[: MAX_CHARS - 1]}…'


def _said_by_provider(error: ModelHTTPError) -> str:
    """Return the status and what the provider says, without the rest of the body."""
    suggestion = f' Did you mean {error.suggested_model_id!r}?' if error.suggested_model_id else ''
    said = _find_message(error.body)
    return (
        f'{error.model_name!r} answered with HTTP {error.status_code}{"." if said is None else f": {said}"}{suggestion}'
    )


def _find_message(body: object) -> str | None:
    """Return the `message` of a JSON body, at the top or in its `error`, or an `error` or a `detail` that is text."""
    if not isinstance(body, Mapping):
        return None
    fields = cast('Mapping[str, object]', body)
    message, error = fields.get('message'), fields.get('error')
    if isinstance(message, str):
        return message
    texts = [text for text in (error, fields.get('detail')) if isinstance(text, str)]
    return texts[0] if texts else _find_message(error)
