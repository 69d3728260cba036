"""Queries by which a replica follows a store."""

from __future__ import annotations

import pytest

from pydantic_deep.store import SqlStore, new_id
from pydantic_deep.store.analytics import Analytics
from pydantic_deep.store.engine import Operation
from tests.store.analytics.conftest import Counted, Dialogue, user

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.mark.slow
async def test_rows_that_become_visible_late_are_found(store: SqlStore, dialogue: Dialogue) -> None:
    """On PostgreSQL a row may become visible later than one with a higher number."""
    await dialogue.step(user('1'))
    await store.sql('SELECT 1')
    late = Dialogue(store, 'late')
    late.run_id = new_id()
    await late.begin()
    analytics = Analytics(store)
    await analytics.sql('SELECT 1')
    opened = analytics._opened  # pyright: ignore[reportPrivateUsage] - this race does not occur on SQLite
    assert opened is not None
    opened.replica._connection.execute("DELETE FROM runs WHERE agent_name = 'analyst'")  # pyright: ignore[reportPrivateUsage]
    assert (await analytics.sql('SELECT agent_name FROM runs ORDER BY number')).rows == (('analyst',), ('late',))
    await analytics.aclose()


async def test_messages_without_a_branch_are_looked_up_once(store: SqlStore, dialogue: Dialogue) -> None:
    await dialogue.step(user('1'))

    def strand() -> Operation[None]:
        from pydantic_deep.store.engine import Statement

        yield Statement('INSERT INTO message (id, body) VALUES (?1, ?2)', (b'x', b'\0{}'))

    await store.engine.write(strand)
    counted = Counted(store)
    async with Analytics(counted) as analytics:
        assert (await analytics.sql('SELECT count(*) FROM messages')).rows == ((1,),)
        await dialogue.step(user('2'))
        counted.counting.statements.clear()
        assert (await analytics.sql('SELECT count(*) FROM messages')).rows == ((2,),)
    assert not [sql for sql in counted.counting.statements if 'FROM message)' in sql and 'LIMIT' in sql]
