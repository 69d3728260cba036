"""Errors of repositories."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, create_model

from pydantic_deep.repository import UnreadableRowError, open_repository
from pydantic_deep.store import new_id

pytestmark = pytest.mark.anyio


async def test_unreadable_row_error_names_key_and_field() -> None:
    class Inner(BaseModel):
        size: int

    url, before = f'memory:{new_id()}', create_model('Outer', id=str, inner=list[dict[str, str]])
    now = create_model('Outer', id=str, inner=list[Inner])
    async with open_repository(url, before) as old, open_repository(url, now) as rows:
        await old.create(before(id='a', inner=[{'size': 'x'}]))
        with pytest.raises(
            UnreadableRowError, match=r"'a' is no longer a valid Outer, because of 'inner\.0\.size'"
        ) as caught:
            await rows.get('a')
    assert (caught.value.model, caught.value.key, caught.value.field) == ('Outer', 'a', 'inner.0.size')
