"""Errors of the audit functions."""

from __future__ import annotations

import pytest

from pydantic_deep.audit import AuditError, AuditRecord, NoHistoryError, RunNotFoundError, rehydrate
from pydantic_deep.errors import DeepAgentError

pytestmark = pytest.mark.anyio


async def test_history_in_a_store_requires_the_store() -> None:
    record = AuditRecord.model_validate(
        {'id': 'a', 'run_id': 'a', 'agent_name': 'x', 'question': '', 'status': 'success', 'started_at': 0}
        | {'version_id': 'v1'}
    )

    with pytest.raises(NoHistoryError, match=r"version 'v1'\. Pass its store") as raised:
        await rehydrate(record)

    assert raised.value.version_id == 'v1'


@pytest.mark.parametrize('error', [NoHistoryError, RunNotFoundError])
def test_audit_errors_derive_from_audit_error(error: type[Exception]) -> None:
    assert issubclass(error, AuditError)
    assert issubclass(AuditError, DeepAgentError)
