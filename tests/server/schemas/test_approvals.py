"""Answers of clients as decisions."""

from __future__ import annotations

from typing import Any

import pytest

from pydantic_deep.approvals import Approve, Decision, Deny, Edit, Respond
from pydantic_deep.server.http._errors import ServerError
from pydantic_deep.server.schemas._approvals import Answer, to_decision

DIGEST = 64 * '0'


@pytest.mark.parametrize(
    ('answer', 'decision'),
    [
        ({'decision': 'approve', 'digest': DIGEST}, Approve(digest=DIGEST)),
        ({'decision': 'deny'}, Deny()),
        ({'decision': 'deny', 'reason': 'Not today.', 'digest': DIGEST}, Deny('Not today.', digest=DIGEST)),
        ({'decision': 'respond', 'content': [1], 'digest': DIGEST}, Respond([1], digest=DIGEST)),
        ({'decision': 'edit', 'args': {'path': '/a'}, 'digest': DIGEST}, Edit({'path': '/a'}, digest=DIGEST)),
    ],
)
def test_answer_is_a_decision(answer: dict[str, Any], decision: Decision) -> None:
    assert to_decision(Answer.model_validate(answer)) == decision


@pytest.mark.parametrize(
    ('answer', 'message'),
    [
        ({'decision': 'approve'}, "'approve' requires `digest`"),
        ({'decision': 'edit', 'args': {}}, "'edit' requires `digest`"),
        ({'decision': 'edit', 'digest': DIGEST}, '`edit` requires `args`'),
        ({'decision': 'approve', 'args': {}, 'digest': DIGEST}, 'Only the decision `edit` accepts `args`'),
    ],
)
def test_incomplete_or_contradicting_answer_is_refused(answer: dict[str, Any], message: str) -> None:
    with pytest.raises(ServerError, match=message) as error:
        to_decision(Answer.model_validate(answer))
    assert error.value.type == 'invalid'
