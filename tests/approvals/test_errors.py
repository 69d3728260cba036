"""Errors about decisions and pending approvals."""

from __future__ import annotations

import pytest

from pydantic_deep.approvals import (
    ApprovalError,
    InvalidDecisionError,
    MalformedApprovalError,
    NothingPendingError,
    UnansweredApprovalError,
    UnknownApprovalError,
)
from pydantic_deep.errors import DeepAgentError


@pytest.mark.parametrize(
    'error',
    [
        NothingPendingError,
        UnknownApprovalError,
        InvalidDecisionError,
        UnansweredApprovalError,
        MalformedApprovalError,
    ],
)
def test_approval_errors_share_a_base_class(error: type[Exception]) -> None:
    assert issubclass(error, ApprovalError)
    assert issubclass(error, DeepAgentError)
    assert issubclass(error, ValueError)
