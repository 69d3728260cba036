"""Errors of repositories."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from pydantic_deep.repository import UnreadableRowError
from pydantic_deep.repository._model import RowModel


def test_unreadable_row_error_names_key_and_field() -> None:
    class Inner(BaseModel):
        size: int

    class Outer(BaseModel):
        id: str
        inner: list[Inner]

    with pytest.raises(
        UnreadableRowError, match=r"'a' is no longer a valid Outer, because of 'inner\.0\.size'"
    ) as caught:
        RowModel(Outer, key='id', fields=()).decode('a', '{"id": "a", "inner": [{"size": "x"}]}')
    assert (caught.value.model, caught.value.key, caught.value.field) == ('Outer', 'a', 'inner.0.size')
