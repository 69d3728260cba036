"""Requests in the format of Anthropic."""

from __future__ import annotations

import pytest

from pydantic_deep.server.http._errors import ServerError
from tests.server.compat.conftest import answered, anthropic


def test_decision_with_a_prompt_is_refused() -> None:
    request = answered('approve')[anthropic]
    request['messages'][-1]['content'].append({'type': 'text', 'text': 'And then?'})

    with pytest.raises(ServerError, match='cannot contain both decisions and a prompt'):
        anthropic([], **request)
