"""Exit codes, and messages about turns that ended without an answer. Pure."""

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

from pydantic_deep.cli._events import BudgetMeasure, Status
from pydantic_deep.cli.render._budget_amounts import BudgetUsage, render_amount
from pydantic_deep.cli.render._ids import short_id
from pydantic_deep.cli.render._terminal_text import first_line
from pydantic_deep.errors import DeepAgentError
from pydantic_deep.retries import CutAnswerError
from pydantic_deep.versions import WorkspaceReplacedError
from pydantic_deep_backends import BackendUnavailableError, ScanLimitError

EXIT_CODES: dict[Status, int] = {
    'done': 0,
    'failed': 1,
    'no_model': 3,
    'limit': 4,
    'paused': 5,
    'suspended': 6,
    'interrupted': 130,
}
"""By status. Wrong usage, 2, ends a command before a turn starts. 130 is what shells return for SIGINT (128 + 2)."""

EXIT_CODE_MEANINGS: Mapping[int, tuple[Status | None, str]] = {
    0: ('done', 'The agent answered, or the command succeeded.'),
    1: (
        'failed',
        'The run failed, or the command could not be carried out: a merge with conflicts, a checkout that would lose '
        'edits, a replay with a difference, damage in a store. The last line on standard error gives the reason.',
    ),
    2: (
        None,
        'Wrong usage: an unknown option, a missing directory, version or store, an empty task, a sandbox that cannot '
        'isolate, or an extra that is not installed.',
    ),
    3: ('no_model', 'No usable model: none is named, or it is unknown, or its key or package is missing or refused.'),
    4: ('limit', 'The budget is used up. If there is an answer, it is the last one that fitted into it.'),
    5: ('paused', 'Calls need approval. `pydantic-deep resume` answers them.'),
    6: ('suspended', 'The store did not accept the end of the turn.'),
    130: ('interrupted', 'You pressed Ctrl-C.'),
}
"""The status of the `result` event and the meaning of each exit code, as Markdown."""

EXPECTED_ERRORS = (AgentRunError, UserError, DeepAgentError, BackendUnavailableError, ScanLimitError)
"""Errors that end a turn without a defect in this program. They become a message; any other error is raised."""

MAX_CHARS = 500
"""How much is shown of what a provider says."""

BUDGET_OPTIONS: Mapping[BudgetMeasure, str] = {'tokens': '--max-tokens', 'cost': '--max-cost'}
"""The option for each limit."""

_SECRET = re.compile(r'\b(sk-|AIza|xai-|gsk_)[-_A-Za-z0-9*]{6,}')
"""Keys as providers quote them when they refuse one."""


def describe_failure(error: Exception) -> tuple[Status, str]:
    """Return how the turn ended, and what happened and what to do."""
    message = first_line(_SECRET.sub('…', _message_of(error)), MAX_CHARS)
    match error:
        case RunCancelled():
            return 'interrupted', 'Interrupted. What was done stays done.'
        case UsageLimitExceeded():  # that of a turn is described better: `describe_exceeded_budget`
            return 'limit', message
        case ModelAuthenticationError():
            return 'no_model', f'The provider refuses the key for {error.model_name!r}: {message}'
        case ModelNotFoundError():
            return 'no_model', f'The provider has no model {error.model_name!r}: {message}'
        case CutAnswerError():
            return (
                'failed',
                f'The answer of {error.model_name!r} was cut: its stream ended without a finish reason. Try again. A '
                'server that never sends one cannot be used here: its whole answers look like cut ones.',
            )
        case ModelConnectionError():
            return (
                'failed',
                f'{error.model_name!r} cannot be reached: {message} Check the network, and the base URL if you set one.',
            )
        case ModelAPIError():
            return 'failed', f'{error.model_name!r} did not answer: {message}'
        case WorkspaceReplacedError():
            return 'failed', _describe_replaced(error)
        case _:
            return 'failed', message


def _describe_replaced(error: WorkspaceReplacedError) -> str:
    advice = (
        'Empty it, or keep them as a version first: pydantic-deep checkout '
        f'{short_id(error.version_id)} --force (then check that version out to continue with them)'
        if error.can_be_kept
        else 'Move them away: some of them no version can hold.'
    )
    return f'{first_line(error.describe(), MAX_CHARS)} {advice}'


def describe_suspension(error: Exception) -> str:
    """Return what a person is told of a turn whose end the store did not take."""
    return (
        f'Suspended: the store did not take the end of the turn. {first_line(str(error), MAX_CHARS)} Continue after the '
        'last stored step with: pydantic-deep run --continue'
    )


def describe_interrupted_prompt(version: str) -> str:
    """Return what a person is told who stopped a turn at a question, and what to do."""
    return (
        f'Interrupted. What was done stays done. The version {version} waits on: answer with `pydantic-deep resume '
        f'{version}`, or go on in a chat with another prompt.'
    )


def describe_pause(count: int, version: str) -> str:
    """Return what a person is told of a turn that waits, and what to do."""
    calls = '1 call waits' if count == 1 else f'{count} calls wait'
    return f'Paused: {calls} for an approval. Answer with: pydantic-deep resume {version}'


def describe_exceeded_budget(use: BudgetUsage, *, is_persistent: bool, waiting: str | None) -> str:
    """Return what a person is told of a turn whose budget is used up, and what to do.

    Args:
        use: What was used.
        is_persistent: Whether a version has what was done.
        waiting: The version that waits for approvals, if the turn ends with one.
    """
    limit, used = render_amount(use.measure, use.limit), render_amount(use.measure, use.used)
    happened = f'The budget of {limit} for a turn is used up: {used} used.'
    if waiting is None:
        return f'{happened} {_continue_advice(use.measure, is_persistent=is_persistent)}'
    return f'{happened} Raise it: pydantic-deep resume {waiting} {BUDGET_OPTIONS[use.measure]} …'


def describe_last_answer(use: BudgetUsage, *, is_persistent: bool) -> str:
    """Return what a person is told of a turn whose answer is the last that fitted into the budget, and what to do.

    Args:
        use: What was used, that answer included.
        is_persistent: Whether a version has what was done.
    """
    limit, used = render_amount(use.measure, use.limit), render_amount(use.measure, use.used)
    return (
        f'The budget of {limit} for a turn ended: {used} used with this answer, and the task may not be done. '
        f'{_continue_advice(use.measure, is_persistent=is_persistent)}'
    )


def _continue_advice(measure: BudgetMeasure, *, is_persistent: bool) -> str:
    kept = 'Go on with `pydantic-deep run --continue`, or in a chat with another prompt; ' if is_persistent else ''
    return f'{kept}{BUDGET_OPTIONS[measure]} raises it.'


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
