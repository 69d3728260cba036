"""A store made by an older release opens and reads the same. It was made by `older/make_store.py`.

`older/b578597.json.gz` has the results of `older/read_store.py` in that release, and the results of recovering its
crashed runs. Intended differences are in `ADDED` and `CHANGED`, each with its reason.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, cast

import pytest

from pydantic_deep import open_store

from .older.read_store import read_recovered, read_store

pytestmark = pytest.mark.anyio

OLDER: Final = Path(__file__).parent / 'older'

ADDED: Final[dict[str, tuple[object, str]]] = {
    'audit/*/grants': ([], 'records list the grants of skills, and these runs had none'),
    'repositories/audited/*/grants': ([], 'likewise'),
    'repositories/served/*/grants': ([], 'likewise'),
    'inbox/*/decision/digest': (None, 'a decision names what was shown; older ones do not'),
    'inbox/*/preview/choices': ([], 'a question has choices; older previews are none'),
    'inbox/*/preview/diff': (None, 'a preview has its diff in parts, too; older ones do not'),
    'inbox/*/preview/failure': (None, 'a preview says that a call would fail; older ones do not'),
    'inbox/*/preview/fields': ([], 'the answer to a question has fields; older previews are none'),
    'inbox/*/preview/has_form': (False, 'the answer to a question may have to fit a form; older previews have none'),
    'inbox/*/preview/link': ('', 'a question may have an address; older previews are none'),
    'inbox/*/preview/notice': ('', 'a notice has a field of its own; older ones have none'),
    'versions/by_id/*/pending/*/preview/choices': ([], 'as in the inbox'),
    'versions/by_id/*/pending/*/preview/diff': (None, 'as in the inbox'),
    'versions/by_id/*/pending/*/preview/failure': (None, 'as in the inbox'),
    'versions/by_id/*/pending/*/preview/fields': ([], 'as in the inbox'),
    'versions/by_id/*/pending/*/preview/has_form': (False, 'as in the inbox'),
    'versions/by_id/*/pending/*/preview/link': ('', 'as in the inbox'),
    'versions/by_id/*/pending/*/preview/notice': ('', 'as in the inbox'),
    'requests/*/*/kind': ('answer', 'requests have kinds; all older ones are answers'),
    'sql/requests/*/kind': ('answer', 'likewise'),
    'workspaces/*/identity': (None, 'directories are told apart; it is not known of older ones'),
}
"""Values that were added since, with the only value allowed for older rows."""

CHANGED: Final = {
    'versions/by_agent/by-hand/named/By hand': '`find_by_name` leaves out versions of failed turns',
    'versions/by_agent/clerk/named/Served: fail': 'likewise',
}
"""Values that differ today."""

ONCE: Final = {
    'calls of crash parallel': [['look', 'done'], ['note', 'done'], ['send', 'started']],
    'calls of crash subagent': [['task', 'deferred']],
}
"""Calls after a recovery. Each call is stored once today, with the run that requested it; it was stored with each
attempt before.
"""


def differences(then: object, now: object, path: str = '') -> Iterator[tuple[str, object, object]]:
    """Yield the paths at which two JSON documents differ, with both values; `...` is a missing value."""
    if isinstance(then, dict) and isinstance(now, dict):
        before, after = cast('dict[str, object]', then), cast('dict[str, object]', now)
        for key in sorted({*before, *after}):
            yield from differences(before.get(key, ...), after.get(key, ...), f'{path}/{key}'.lstrip('/'))
    elif (
        isinstance(then, list)
        and isinstance(now, list)
        and len(cast('list[object]', then)) == len(cast('list[object]', now))
    ):
        for index, (one, two) in enumerate(zip(cast('list[object]', then), cast('list[object]', now), strict=True)):
            yield from differences(one, two, f'{path}/{index}')
    elif then != now:
        yield path, then, now


def added(path: str, now: object) -> str | None:
    """Return the pattern that allows an added value."""
    return next((each for each, (value, _) in ADDED.items() if fnmatchcase(path, each) and value == now), None)


@pytest.fixture(scope='module')
def known() -> dict[str, Any]:
    """Results read by the older release."""
    return json.loads(gzip.decompress((OLDER / 'b578597.json.gz').read_bytes()))


@pytest.fixture
def url(tmp_path: Path) -> str:
    """URL of a copy of the store, which may be migrated."""
    path = tmp_path / 'agents.db'
    path.write_bytes(gzip.decompress((OLDER / 'b578597.db.gz').read_bytes()))
    return f'sqlite:///{path}'


@pytest.mark.slow
async def test_store_of_an_older_release_reads_the_same(url: str, known: dict[str, Any]) -> None:
    async with open_store(url) as store:
        found = json.loads(json.dumps(await read_store(store)))
        problems = await store.check()

    wrong: list[object] = []
    used: set[str] = set()
    for path, then, now in differences(known['read'], found):
        pattern = path if path in CHANGED else added(path, now) if then is ... else None
        if pattern is None:
            wrong.append((path, then, now))
        else:
            used.add(pattern)
    assert wrong == []
    assert used == {*ADDED, *CHANGED}
    assert problems == []


async def test_crashed_runs_of_an_older_release_recover_the_same(url: str, known: dict[str, Any]) -> None:
    async with open_store(url) as store:
        found = json.loads(json.dumps(await read_recovered(store)))
        problems = await store.check()

    assert {path: now for path, _, now in differences(known['recovered'], found)} == ONCE
    assert problems == []


async def test_migrated_store_can_be_reopened_read_only(url: str, known: dict[str, Any]) -> None:
    """The first opening migrates the tables; the second, read-only, reads the same versions."""
    async with open_store(url) as store:
        versions = len(await store.versions(limit=1_000_000))
    async with open_store(url, read_only=True) as store:
        assert len(await store.versions(limit=1_000_000)) == versions == len(known['read']['records'])
