"""The analytics guide names every table, column and macro, and its queries run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pydantic_deep.store import open_store
from pydantic_deep.store.analytics._schema import MACROS, PUBLIC

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

GUIDE = (Path(__file__).parents[3] / 'docs/guides/analytics.md').read_text()
QUERIES = re.findall(r'```sql\n(.*?)```', GUIDE, re.DOTALL)
ROWS = {
    row[0].strip(' `'): row[2] for row in (line.strip('|').split('|') for line in GUIDE.splitlines()) if len(row) == 3
}


async def test_every_query_of_the_guide_runs() -> None:
    async with open_store('memory:') as store:
        for query in QUERIES:
            assert (await store.sql(query)).columns, query
    assert len(QUERIES) == len(MACROS) + 10


async def test_guide_describes_every_table_with_all_columns_except_ids() -> None:
    assert [name for name in ROWS if name in PUBLIC] == list(PUBLIC)
    async with open_store('memory:') as store:
        for table in PUBLIC:
            columns = {str(row[0]) for row in await store.sql(f'DESCRIBE {table}')}
            named = set(re.findall(r'`(\w+)`', re.sub(r'\(.*?\)', '', ROWS[table])))
            ids = {name for name in columns if re.search(r'(^|_)id$|^(number|deps|tree|.*_(from|of|by))$', name)}
            assert named <= columns, table
            assert columns - named <= ids, table


def test_every_macro_has_a_heading() -> None:
    headings = re.findall(r'^### `(\w+)\(', GUIDE, re.MULTILINE)
    assert headings == [signature.partition('(')[0] for signature in MACROS]
