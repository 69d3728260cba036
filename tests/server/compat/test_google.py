"""Requests in the format of Google."""

from __future__ import annotations

import pytest

from pydantic_deep.server.compat._dialogue import DialogueMessage
from pydantic_deep.server.http._errors import ServerError
from tests.server.compat.conftest import google


def test_google_decision_without_call_id_is_refused() -> None:
    parts = [{'functionResponse': {'name': 'approval_required', 'response': {'result': 'approve'}}}]

    with pytest.raises(ServerError, match="'approval_required' has no `id`"):
        google([], contents=[{'role': 'user', 'parts': parts}])


def test_thoughts_are_dropped() -> None:
    thought = {'role': 'model', 'parts': [{'text': 'Hm.', 'thought': True}, {'text': 'Yes.'}]}
    found = google([], contents=[{'parts': [{'text': 'A?'}]}, thought, {'parts': [{'text': 'B?'}]}])

    assert found.messages[1] == DialogueMessage(role='assistant', content=('Yes.',))
