"""`SqlLimits`: limits on a caller's queries."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from pydantic_deep.errors import ValidationError

_LEAST_BYTES = 16 * 2**20
"""DuckDB cannot run any query with less memory."""


@dataclass(frozen=True, kw_only=True)
class SqlLimits:
    """Limits for one query. Each query runs in a process of its own, on which the kernel enforces them.

    Raises:
        ValidationError: A limit is not a positive number, or is below the minimum of any query.
    """

    timeout_seconds: float = 60
    """Maximum running time; a longer query is killed."""
    memory_bytes: int = 2**30
    """Maximum memory, excluding the tables, which all queries share; at least 16 MiB."""
    max_bytes: int = 256 * 2**20
    """Maximum size of the result, as Python objects."""
    at_once: int = 2
    """Maximum number of concurrent queries of one store; further queries are queued."""
    wait_seconds: float = 10
    """Maximum time in the queue."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            kind, wanted = (int, 'a whole number') if isinstance(field.default, int) else (int | float, 'a number')
            if field.name.endswith('seconds'):
                kind, wanted = int | float, 'a number'
            if isinstance(value, bool) or not isinstance(value, kind) or not 0 < value < math.inf:
                raise ValidationError(field.name, f'it is {value!r}, and it must be {wanted} above 0.')
        if self.memory_bytes < _LEAST_BYTES:
            raise ValidationError('memory_bytes', f'it is {self.memory_bytes}, and it must be {_LEAST_BYTES} or more.')
