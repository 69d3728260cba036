"""Exit codes, and error events with messages that name the command to continue with. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pydantic_ai.exceptions import ModelAuthenticationError, ModelConnectionError, ModelHTTPError, RunCancelled

from pydantic_deep.audit import redact
from pydantic_deep.cli.render._budget_amounts import BudgetMeasure, BudgetUsage, render_amount
from pydantic_deep.cli.render._ids import short_id
from pydantic_deep.cli.render._next_command import next_command
from pydantic_deep.cli.render._terminal_text import first_line
from pydantic_deep.retries import CutAnswerError
from pydantic_deep.streaming import EXPECTED_ERRORS, EndEvent, ErrorEvent, RunStatus
from pydantic_deep.streaming import describe_failure as describe_run_failure
from pydantic_deep.versions import WorkspaceReplacedError

EXIT_CODES: dict[RunStatus, int] = {
    'complete': 0,
    'failed': 1,
    'awaiting_approval': 5,
    'suspended': 6,
    'interrupted': 130,
}
"""Exit codes by status of the `end` event; `ERROR_EXIT_CODES` takes precedence. Wrong usage, 2, ends the program
before a turn starts. 130 is the code of shells for SIGINT (128 + 2)."""

ERROR_EXIT_CODES: dict[str, int] = {'unusable_model': 3, 'budget_exceeded': 4, 'limit_exceeded': 4}
"""Exit codes by the kind of the `error` event."""

EXIT_CODE_MEANINGS: Mapping[int, tuple[str | None, str]] = {
    0: ('complete', 'The agent answered, or the command succeeded.'),
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
    3: (
        'unusable_model',
        'No usable model: none is named, or it is unknown, or its key or package is missing or refused.',
    ),
    4: (
        'budget_exceeded',
        'The budget is used up. If there is an answer, it is the last one that fitted into it.',
    ),
    5: ('awaiting_approval', 'Calls need approval. `pydantic-deep resume` answers them.'),
    6: ('suspended', 'The store did not accept the end of the turn.'),
    130: ('interrupted', 'You pressed Ctrl-C.'),
}
"""The meaning of each exit code, as Markdown, with the status of the `end` event or the kind of the `error` event."""

MAX_CHARS = 500
"""Maximum number of characters of an error message that is quoted."""

BUDGET_OPTIONS: Mapping[BudgetMeasure, str] = {'tokens': '--max-tokens', 'cost': '--max-cost'}
"""The option that sets each limit."""


def exit_code_of_turn(end: EndEvent, error: ErrorEvent | None) -> int:
    """Return the exit code for the last events of a turn."""
    code = None if error is None else ERROR_EXIT_CODES.get(error.kind)
    return EXIT_CODES[end.status or 'complete'] if code is None else code


def describe_failure(error: Exception) -> ErrorEvent:
    """Return the error event for an error that ended a turn."""
    event = describe_run_failure(error)
    return replace(event, message=_message_of(error, event.message))


def _message_of(error: Exception, message: str) -> str:
    match error:
        case RunCancelled():
            return 'Interrupted. Completed work is not undone.'
        case ModelAuthenticationError():
            return f'The provider refuses the key. {message}'
        case CutAnswerError():
            return (
                f'The response of {error.model_name!r} is incomplete: its stream ended without a finish reason. '
                'Try again. A server that never sends one cannot be used here: its complete answers look like '
                'truncated ones.'
            )
        case ModelConnectionError():
            return (
                f'{error.model_name!r} cannot be reached: {message} Check the network, and the base URL if you set one.'
            )
        case WorkspaceReplacedError():
            return _describe_replaced(error)
        case ModelHTTPError(body=str(body)):
            return f'{message.removesuffix(".")}: {_redacted(body)}'
        case _ if isinstance(error, EXPECTED_ERRORS):
            return message
        case _:
            # Unlike a server, the command line has no log and no reader but its user.
            return _redacted(f'{type(error).__name__}: {error}')


def _redacted(text: str) -> str:
    return first_line(redact(text), MAX_CHARS)


def _describe_replaced(error: WorkspaceReplacedError) -> str:
    advice = (
        'Empty it, or store them as a version first: '
        f'{next_command("checkout", short_id(error.version_id), "--force")} (then check that version out to continue with them)'
        if error.can_be_stored
        else 'Move them away: some of them cannot be stored in a version.'
    )
    return f'{first_line(error.describe(), MAX_CHARS)} {advice}'


def describe_suspension(error: Exception) -> str:
    """Return the message for a turn that the store could not complete."""
    return (
        f'Suspended: the store did not accept the end of the turn. {first_line(str(error), MAX_CHARS)} Continue after '
        f'the last stored step with: {next_command("run", "--continue", "TASK")}'
    )


def describe_interrupted_prompt(version: str) -> str:
    """Return the message for a turn that was interrupted at a prompt."""
    return (
        f'Interrupted. Completed work is not undone. The version {version} is still pending: answer with '
        f'`{next_command("resume", version)}`, in a chat with `/resume`, or continue in a chat with another prompt.'
    )


def describe_exceeded_budget(use: BudgetUsage, *, is_persistent: bool, pending: str | None) -> str:
    """Return the message for a turn that exceeded its budget.

    Args:
        use: The usage of the turn.
        is_persistent: Whether the turn is stored as a version.
        pending: The version with pending approvals, if the turn ends with one.
    """
    limit, used = render_amount(use.measure, use.limit), render_amount(use.measure, use.used)
    sentence = f'The budget of {limit} for a turn is used up: {used} used.'
    if pending is None:
        return f'{sentence} {_continue_advice(use.measure, is_persistent=is_persistent)}'
    return f'{sentence} Raise it: {next_command("resume", pending, BUDGET_OPTIONS[use.measure], "…")}'


def describe_last_answer(use: BudgetUsage, *, is_persistent: bool) -> str:
    """Return the message for a turn that ends with the last answer that its budget allows.

    Args:
        use: The usage of the turn, including that answer.
        is_persistent: Whether the turn is stored as a version.
    """
    limit, used = render_amount(use.measure, use.limit), render_amount(use.measure, use.used)
    return (
        f'The budget of {limit} for a turn allows no further answer: {used} used, and the task may not be done. '
        f'{_continue_advice(use.measure, is_persistent=is_persistent)}'
    )


def _continue_advice(measure: BudgetMeasure, *, is_persistent: bool) -> str:
    advice = (
        f'Continue with `{next_command("run", "--continue", "TASK")}`, or in a chat with another prompt; '
        if is_persistent
        else ''
    )
    return f'{advice}{BUDGET_OPTIONS[measure]} raises it.'
