"""Describe a failed run by the type of its error, without secrets or tracebacks. Pure."""

from __future__ import annotations

import asyncio
import json
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
from pydantic_deep.errors import DeepAgentError, TurnOptionError
from pydantic_deep.retries import CutAnswerError
from pydantic_deep_backends import BackendUnavailableError, ScanLimitError

from ._events import ErrorEvent, RunStatus

MAX_CHARS = 500
"""Maximum length of an error message: a few sentences of a provider, but no page of HTML."""

_KEY = re.compile(r'\b(sk-|AIza|xai-|gsk_|pd_)[-_A-Za-z0-9*.]{6,}|(?i:\bbearer\s+)[-_A-Za-z0-9.=+/]{6,}')
"""Keys of providers and of ours, recognized by their prefixes."""

_BUSY = frozenset((429, 503, 529))
"""Statuses of an overloaded provider; 529 is specific to Anthropic."""

EXPECTED_ERRORS = (
    AgentRunError,
    FallbackExceptionGroup,
    UserError,
    DeepAgentError,
    BackendUnavailableError,
    ScanLimitError,
)
"""Errors with messages for readers. The message of any other error may reveal internals of the application."""


def describe_failure(error: BaseException) -> ErrorEvent:
    """Return the event for an error that ended a run. If several models failed, the last error is described."""
    if isinstance(error, FallbackExceptionGroup):
        return describe_failure(error.exceptions[-1])
    kind, status = _kind_of(error)
    return ErrorEvent(kind=kind, message=_message_of(error), status=status)


def dump_failure(error: BaseException, *, max_chars: int | None = None) -> str:
    """Return an error as the store has it: a JSON object with its type, its message, and the event of `describe_failure`.

    Args:
        error: The error that ended a run.
        max_chars: Maximum length of the message in characters.
    """
    event = describe_failure(error)
    shown = {'kind': event.kind, 'message': event.message, 'status': event.status}
    return json.dumps({'type': type(error).__name__, 'message': str(error)[:max_chars], 'event': shown})


def load_failure(dumped: str) -> ErrorEvent:
    """Return the event of a stored error. Errors of older releases have no event; their message is not for readers.

    Args:
        dumped: The JSON object of `dump_failure`.
    """
    error = json.loads(dumped)
    if 'event' in error:
        return ErrorEvent(**error['event'])
    return ErrorEvent(kind='run_failed', message=_unexpected(error['type']), status=500)


def without_keys(text: str) -> str:
    """Remove keys from a provider's message: some messages quote the rejected key."""
    return _KEY.sub('…', text)


def suspended_event() -> ErrorEvent:
    """Return the error event of a run that has no end in the store."""
    return ErrorEvent(
        kind='run_suspended',
        message='The store did not take the end of the run, so it is suspended. Resume it, or cancel it.',
        status=503,
    )


def status_after(error: BaseException) -> RunStatus:
    """Return the status of a run that ended with this error."""
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
        case TurnOptionError():
            return 'invalid', 400
        case _:
            return 'run_failed', 500


def _status_of(error: ModelAPIError) -> int:
    """Return the status that a gateway answers with: a bad key or request of ours is not the client's fault."""
    if isinstance(error, ModelTimeoutError):
        return 504
    is_busy = isinstance(error, (ModelRateLimitError, ModelUnavailableError))
    return 503 if is_busy or (isinstance(error, ModelHTTPError) and error.status_code in _BUSY) else 502


def _message_of(error: BaseException) -> str:
    if _kind_of(error)[0] == 'cancelled':
        return 'The run was cancelled. Completed work is preserved.'
    if not isinstance(error, EXPECTED_ERRORS):
        return _unexpected(type(error).__name__)
    match error:
        case ModelHTTPError():
            message = _provider_message(error)
        case UnexpectedModelBehavior():
            message = error.message  # without the body of the answer, which `str` appends
        case _:
            message = str(error)
    line = ' '.join(without_keys(message).split())
    return line if len(line) <= MAX_CHARS else f'{line[: MAX_CHARS - 1]}…'


def _unexpected(name: str) -> str:
    return f'The run failed with {name}. The log of the application has the details.'


def _provider_message(error: ModelHTTPError) -> str:
    """Return the status and the message of the provider, without the rest of the body."""
    suggestion = f' Did you mean {error.suggested_model_id!r}?' if error.suggested_model_id else ''
    message = _find_message(error.body)
    ending = '.' if message is None else f': {message}'
    return f'{error.model_name!r} answered with HTTP {error.status_code}{ending}{suggestion}'


def _find_message(body: object) -> str | None:
    """Return the `message` of a JSON body, at the top level or in its `error`, or an `error` or `detail` that is a
    string.
    """
    if not isinstance(body, Mapping):
        return None
    fields = cast('Mapping[str, object]', body)
    message, error = fields.get('message'), fields.get('error')
    if isinstance(message, str):
        return message
    texts = [text for text in (error, fields.get('detail')) if isinstance(text, str)]
    return texts[0] if texts else _find_message(error)
