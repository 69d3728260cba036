"""Connections to PostgreSQL: durable commits, passwords, and a missing driver."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from urllib.parse import quote

import pytest

from pydantic_deep.store.engine import Operation, Row, Statement
from pydantic_deep.store.postgres import PostgresEngine
from pydantic_deep.store.postgres._driver import connect

pytestmark = pytest.mark.anyio


def doing(*statements: Statement) -> Callable[[], Operation[list[list[Row]]]]:
    """Return an operation of statements that returns the rows of each."""

    def operation() -> Operation[list[list[Row]]]:
        rows: list[list[Row]] = []
        for statement in statements:
            rows.append((yield statement))
        return rows

    return operation


async def test_commit_is_durable_even_if_the_url_disables_synchronous_commit(postgres_url: str) -> None:
    engine = await PostgresEngine.open(f'{postgres_url}&synchronous_commit=off')
    assert await engine.read(doing(Statement('SHOW synchronous_commit'))) == [[('on',)]]
    await engine.aclose()
    engine = await PostgresEngine.open(f'{postgres_url}&synchronous_commit=remote_apply')
    assert await engine.read(doing(Statement('SHOW synchronous_commit'))) == [[('remote_apply',)]]
    await engine.aclose()


async def test_password_opens_the_store_and_is_never_shown(postgres_url: str) -> None:
    password = quote('secret/#?@', safe='')
    connection = await connect(postgres_url)
    await connection.execute('GRANT CREATE ON SCHEMA public TO locked')
    await connection.close()
    engine = await PostgresEngine.open(postgres_url.replace('postgres@', f'locked:{password}@'))
    assert engine.url == postgres_url.replace('postgres@', 'locked@')
    await engine.aclose()


@pytest.mark.slow
def test_missing_driver_import_suggests_installing_it() -> None:
    program = "import sys; sys.modules['asyncpg'] = None; import pydantic_deep.store.postgres"
    done = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True, check=False)
    assert "pip install 'versioned-deep-agents[postgres]'" in done.stderr
