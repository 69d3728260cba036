"""The error of an incomplete response."""

from __future__ import annotations

import pickle

from pydantic_deep.retries import CutAnswerError


def test_truncated_answer_error_survives_pickle() -> None:
    error = pickle.loads(pickle.dumps(CutAnswerError('gpt-5.2', 'openai')))
    assert (error.model_name, error.provider_name, error.phase, error.in_stream) == ('gpt-5.2', 'openai', 'read', True)
    assert "remove 'openai' from" in str(error)
