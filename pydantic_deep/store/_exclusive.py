"""Writes that are refused while a run is active, and the orphans among these runs, of which only a store knows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeAlias, TypeVar

from .errors import VersionBusyError
from .records import RunRecord

T = TypeVar('T')

Orphans: TypeAlias = Callable[[], Awaitable[Sequence[RunRecord]]]
"""Returns the `running` runs that no process executes."""


async def no_orphans() -> Sequence[RunRecord]:
    """Return nothing, for a queue without a store."""
    return ()


async def write_unless_busy(write: Callable[[Collection[str]], Awaitable[T]], orphans: Orphans) -> T:
    """Write, and again if an orphan was the reason for the refusal.

    Args:
        write: Writes unless a run is active, apart from those with the given ids.
        orphans: Only called after a refusal.

    Raises:
        VersionBusyError: A run is active.
    """
    try:
        return await write(())
    except VersionBusyError as error:
        ids = {run.id for run in await orphans()}
        if error.run_id not in ids:
            raise
    return await write(ids)
