"""What to tell a person about a turn that ended without an answer: pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

from pydantic_ai.exceptions import (
    AgentRunError,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelHTTPError,
    ModelNotFoundError,
    RunCancelled,
    UsageLimitExceeded,
    UserError,
)

from pydantic_deep.errors import DeepAgentError
from pydantic_deep_backends import BackendUnavailableError

from ._events import Status
from ._printable import first_line

EXIT_CODES: dict[Status, int] = {'done': 0, 'failed': 1, 'no_model': 3, 'limit': 4, 'paused': 5, 'interrupted': 130}
"""By status. 2, wrong usage, is said before a turn begins; 130 is what shells give for SIGINT (128 + 2)."""

FORESEEN = (AgentRunError, UserError, DeepAgentError, BackendUnavailableError)
"""What can end a turn without a defect in this program: a sentence tells more than a traceback. All else is raised."""

MAX_CHARS = 500
"""How much is shown of what a provider says."""

_SECRET = re.compile(r'\b(sk-|AIza|xai-|gsk_)[-_A-Za-z0-9*]{6,}')
"""Keys as providers quote them when they refuse one."""


def describe_failure(error: Exception) -> tuple[Status, str]:
    """Return how the turn ended, and what happened and what to do."""
    said = first_line(_SECRET.sub('…', _message_of(error)), MAX_CHARS)
    match error:
        case RunCancelled():
            return 'interrupted', 'Interrupted. What was done stays done.'
        case UsageLimitExceeded():
            return 'limit', 'The budget of tokens is used up. Raise it with --max-tokens, or give a smaller task.'
        case ModelAuthenticationError():
            return 'no_model', f'The provider refuses the key for {error.model_name!r}: {said}'
        case ModelNotFoundError():
            return 'no_model', f'The provider has no model {error.model_name!r}: {said}'
        case ModelConnectionError():
            return (
                'failed',
                f'{error.model_name!r} cannot be reached: {said} Check the network, and the base URL if you set one.',
            )
        case ModelAPIError():
            return 'failed', f'{error.model_name!r} did not answer: {said}'
        case _:
            return 'failed', said


def describe_pause(count: int, version: str) -> str:
    """Return what a person is told of a turn that waits, and what to do."""
    calls = '1 call waits' if count == 1 else f'{count} calls wait'
    return f'Paused: {calls} for an approval. Answer with: pydantic-deep resume {version}'


def _message_of(error: Exception) -> str:
    """Return the message; of an HTTP error the status and what the provider says, without the rest of the body."""
    if not isinstance(error, ModelHTTPError):
        return str(error)
    suggestion = f' Did you mean {error.suggested_model_id!r}?' if error.suggested_model_id else ''
    return f'HTTP {error.status_code}. {_find_message(error.body) or error.body}{suggestion}'


def _find_message(body: object) -> str | None:
    """Return the `message` of a JSON body, at the top or in its `error`, where every large provider has it."""
    if not isinstance(body, Mapping):
        return None
    fields = cast('Mapping[str, object]', body)
    found = fields.get('message')
    return found if isinstance(found, str) else _find_message(fields.get('error'))
