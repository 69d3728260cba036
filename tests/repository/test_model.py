"""Models with a key and filterable fields, and encoding of their rows."""

from __future__ import annotations

import math

import pytest
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, computed_field

from pydantic_deep.repository import InvalidFieldError, InvalidRowError, MemoryRepository
from pydantic_deep.repository._model import RowModel

pytestmark = pytest.mark.anyio


class Aliased(BaseModel):
    model_config = ConfigDict(extra='forbid', serialize_by_alias=True)

    id: str = Field(alias='_id')
    size: int = Field(validation_alias=AliasChoices('n', 'N'), serialization_alias='s')

    @computed_field
    @property
    def twice(self) -> int:
        return 2 * self.size


def test_aliases_and_computed_fields_do_not_affect_rows() -> None:
    model = RowModel(Aliased, key='id', fields=('size',))
    item = Aliased.model_validate({'_id': 'a', 'n': 5})
    row = model.encode(item)
    assert (row.key, row.body, row.cells) == ('a', '{"id":"a","size":5}', {'size': 5})
    assert model.decode('a', row.body) == item


def test_cells_are_taken_from_the_stored_json() -> None:
    class Loose(BaseModel):
        id: str
        size: int

    loose = Loose(id='a', size=1).model_copy(update={'size': '7'})
    assert RowModel(Loose, key='id', fields=('size',)).encode(loose).cells == {'size': 7}


def test_row_with_a_field_excluded_from_json_is_refused() -> None:
    class Hidden(BaseModel):
        id: str
        size: int = Field(exclude=True)

    with pytest.raises(InvalidRowError, match="because of 'size': it cannot be read again: Field required") as caught:
        RowModel(Hidden, key='id', fields=()).encode(Hidden(id='a', size=1))
    assert (caught.value.model, caught.value.field) == ('Hidden', 'size')


def test_row_that_cannot_be_serialized_is_refused() -> None:
    class Open(BaseModel):
        id: str
        what: object

    with pytest.raises(InvalidRowError, match='This Open cannot be stored: ') as caught:
        RowModel(Open, key='id', fields=()).encode(Open(id='a', what=object()))
    assert caught.value.field is None


@pytest.mark.parametrize('value', [math.nan, math.inf, -math.inf])
async def test_number_that_would_be_read_as_null_is_refused(value: float) -> None:
    """The JSON of pydantic has null for NaN and infinities, which is valid for an optional field."""

    class Measured(BaseModel):
        id: str
        degrees: float | None = None
        cached: float | None = Field(default=None, exclude=True)

    rows = MemoryRepository(Measured)
    with pytest.raises(InvalidRowError, match=r"because of 'degrees': -?(nan|inf) is not a finite number"):
        await rows.create(Measured(id='a', degrees=value))
    await rows.create(Measured(id='b', cached=1.5))
    assert [row.id for row in (await rows.list()).items] == ['b']


async def test_nan_is_stored_if_the_json_of_the_model_has_it() -> None:
    class Exact(BaseModel):
        model_config = ConfigDict(ser_json_inf_nan='constants')

        id: str
        degrees: float | None = None

    rows = MemoryRepository(Exact)
    await rows.create(Exact(id='a', degrees=math.nan))
    assert math.isnan((await rows.get('a')).degrees or 0)


def test_key_may_be_listed_in_fields() -> None:
    model = RowModel(Aliased, key='id', fields=('id', 'size', 'size'))
    assert list(model.columns) == ['size']


def test_string_passed_as_fields_is_refused() -> None:
    with pytest.raises(InvalidFieldError, match=r"write `fields=\('size',\)`"):
        RowModel(Aliased, key='id', fields='size')
