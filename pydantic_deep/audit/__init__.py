"""Audit records: for each run, the prompt, tool calls, output, usage, cost and outcome."""

from ._capability import Audit, ChooseRows
from ._proxied_response import audit_response
from ._redact import Redact, Redactor, redact
from ._rehydrate import rehydrate
from ._stored_records import IsAlive, audit_of_run, finish_crashed
from ._types import (
    AUDIT_FIELDS,
    AuditedCall,
    AuditedError,
    AuditedGrant,
    AuditedUsage,
    AuditRecord,
    Contents,
    Outcome,
    Status,
)
from .errors import AuditError, NoHistoryError, RunNotFoundError

__all__ = (
    'AUDIT_FIELDS',
    'Audit',
    'AuditError',
    'AuditRecord',
    'AuditedCall',
    'AuditedError',
    'AuditedGrant',
    'AuditedUsage',
    'ChooseRows',
    'Contents',
    'IsAlive',
    'NoHistoryError',
    'Outcome',
    'Redact',
    'Redactor',
    'RunNotFoundError',
    'Status',
    'audit_of_run',
    'audit_response',
    'finish_crashed',
    'redact',
    'rehydrate',
)
