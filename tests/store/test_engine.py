"""Operations that seldom write take no write lock: opening and reading work while another process writes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pydantic import BaseModel

from pydantic_deep.repository import open_repository
from pydantic_deep.store import open_store
from pydantic_deep.store._samples import Dialogue
from pydantic_deep.store.engine import Operation, Statement
from tests.store.forks import stopped_child

pytestmark = pytest.mark.anyio


async def _stop_inside_a_write(url: str, stop: Callable[[], None]) -> None:  # pragma: no cover - in another process
    def write() -> Operation[None]:
        yield Statement('CREATE TABLE unfinished (a BIGINT)')
        stop()

    async with open_store(url) as store:
        await store.engine.write(write)


@pytest.fixture(params=['sqlite', 'postgres'])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == 'sqlite':
        return f'sqlite:///{tmp_path}/agents.db'
    return str(request.getfixturevalue('postgres_url'))


async def test_process_stopped_during_a_write_does_not_block_opening_or_reading(url: str) -> None:
    """Opening and reading a store take no write lock: both work while another process holds it indefinitely."""
    async with open_store(url) as store:
        version = await Dialogue(store).begin()
    with stopped_child(partial(_stop_inside_a_write, url)):
        for read_only in (False, True):
            async with open_store(url, read_only=read_only) as store:
                assert (await store.version(version.id)) == version
                assert await store.orphans() == []


class Note(BaseModel):
    """A row."""

    id: str


async def test_repository_can_be_opened_and_read_during_a_write_of_another_process(url: str) -> None:
    """The same for a repository with an existing table."""
    async with open_store(url), open_repository(url, Note) as notes:
        await notes.upsert(Note(id='a'))
    with stopped_child(partial(_stop_inside_a_write, url)):
        async with open_repository(url, Note) as notes:
            assert await notes.get('a') == Note(id='a')
