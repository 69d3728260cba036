"""`copy_rows`: copies rows from one repository to another, for example for an export."""

from __future__ import annotations

from typing import TypeVar, cast

from pydantic import BaseModel

from ._protocol import Repository, SupportsTransactions
from ._question import MAX_LIMIT
from ._types import Upsert, Where

T = TypeVar('T', bound=BaseModel)


async def copy_rows(source: Repository[T], target: Repository[T], where: Where | None = None) -> int:
    """Upsert rows of one repository into another; return their number.

    Rows are read in the order of their keys, in pages of a thousand. If the target supports transactions, each page is
    written in one.

    Args:
        source: The repository to read. Rows added meanwhile may or may not be copied.
        target: The repository to write.
        where: Conditions on the rows; all rows by default.
    """
    count, cursor = 0, None
    while True:
        page = await source.list(where, limit=MAX_LIMIT, cursor=cursor)
        if page.items and isinstance(target, SupportsTransactions):
            await cast('SupportsTransactions[T]', target).apply([Upsert(item) for item in page.items])
        else:
            for item in page.items:
                await target.upsert(item)
        count, cursor = count + len(page.items), page.cursor
        if cursor is None:
            return count
