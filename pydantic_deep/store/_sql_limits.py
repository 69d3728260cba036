"""`SqlLimits`: bounds on the queries of callers."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from pydantic_deep.errors import ValidationError

_LEAST_BYTES = 16 * 2**20
"""With less memory DuckDB answers nothing."""


@dataclass(frozen=True, kw_only=True)
class SqlLimits:
    """What one query may take. Each runs in a process of its own, which the kernel holds to it.

    Raises:
        ValidationError: A limit is not a number above 0, or allows less than any query needs.
    """

    timeout_seconds: float = 60
    """How long it may run; then it is killed."""
    memory_bytes: int = 2**30
    """How much memory it may take beside the tables, which all queries share; at least 16 MiB."""
    max_bytes: int = 256 * 2**20
    """How large its result may be, in Python."""
    at_once: int = 2
    """How many queries of one store may run at once; what comes then waits."""
    wait_seconds: float = 10
    """How long it may wait for others."""

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
