"""`copy_rows`: from one repository to another, as for an export."""

from __future__ import annotations

from typing import TypeVar, cast

from pydantic import BaseModel

from ._protocol import Repository, SupportsTransactions
from ._question import MAX_LIMIT
from ._types import Upsert, Where

T = TypeVar('T', bound=BaseModel)


async def copy_rows(source: Repository[T], target: Repository[T], where: Where | None = None) -> int:
    """Add rows of one repository to another, in place of those with their keys; return how many.

    They are read in pages of a thousand, by key. Where the target has transactions, a page is one.

    Args:
        source: Where they are. What is added meanwhile may be copied or not.
        target: Where they go.
        where: Which; all if left out.
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
