"""Messages and exit codes of failed turns."""

from __future__ import annotations

import pytest
from pydantic_ai.exceptions import (
    ModelAuthenticationError,
    ModelConnectionError,
    ModelHTTPError,
    ModelNotFoundError,
    RunCancelled,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
)

from pydantic_deep.cli.turn._failures import describe_failure, exit_code_of_turn
from pydantic_deep.retries import CutAnswerError
from pydantic_deep.streaming import EndEvent

REFUSED = ModelHTTPError.for_category(
    ModelAuthenticationError,
    status_code=401,
    model_name='m',
    body={'error': {'message': 'Incorrect API key provided: sk-proj-abcdefgh.', 'code': 401}},
)
MISSPELT = ModelHTTPError.for_category(
    ModelNotFoundError,
    status_code=404,
    model_name='gpt-51',
    body={'message': 'No such model.'},
    suggested_model_id='openai:gpt-5.1',
)


@pytest.mark.parametrize(
    ('error', 'code', 'sentence'),
    [
        (RunCancelled('x'), 130, 'Interrupted. Completed work is not undone.'),
        (
            UsageLimitExceeded('Exceeded the total_tokens_limit of 5.'),
            4,
            'Exceeded the total_tokens_limit of 5. Consider raising the limit, or see the docs on usage limits for '
            'budget-aware patterns: https://pydantic.dev/docs/ai/core-concepts/agent/#usage-limits',
        ),
        (REFUSED, 3, "The provider refuses the key. 'm' answered with HTTP 401: Incorrect API key provided: …"),
        (
            MISSPELT,
            3,
            "'gpt-51' answered with HTTP 404: No such model. Did you mean 'openai:gpt-5.1'?",
        ),
        (ModelHTTPError(500, 'm', 'No GPU.'), 1, "'m' answered with HTTP 500: No GPU."),
        (ModelHTTPError(400, 'm', {'detail': 'too long'}), 1, "'m' answered with HTTP 400: too long"),
        (ValueError(f'Not ghp_{"a1B2" * 9}'), 1, 'ValueError: Not [redacted: github token]'),
        (ModelHTTPError(500, 'm', {'error': 'overloaded'}), 1, "'m' answered with HTTP 500: overloaded"),
        (
            ModelConnectionError('m', 'Connection error.'),
            1,
            "'m' cannot be reached: Connection error. Check the network, and the base URL if you set one.",
        ),
        (
            CutAnswerError('m', 'openai'),
            1,
            "The response of 'm' is incomplete: its stream ended without a finish reason. Try again. A server that never sends "
            'one cannot be used here: its complete answers look like truncated ones.',
        ),
        (UnexpectedModelBehavior('It said\x1b[31m nothing.'), 1, 'It said\x1b[31m nothing.'),
    ],
)
def test_failures_have_a_message_and_an_exit_code(error: Exception, code: int, sentence: str) -> None:
    event = describe_failure(error)
    end = EndEvent(status='interrupted' if isinstance(error, RunCancelled) else 'failed')
    assert (exit_code_of_turn(end, event), event.message) == (code, sentence)
