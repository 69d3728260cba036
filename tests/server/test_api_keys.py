"""Keys are shown once, kept as digests, and worth nothing from the moment they expire or are revoked."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from pydantic_deep.repository import MemoryRepository, RowNotFoundError
from pydantic_deep.server._api_keys import (
    ApiKey,
    InvalidKeyError,
    KeyRing,
    KeyUse,
    create_api_key,
    list_api_keys,
    open_keys,
    revoke_api_key,
)
from pydantic_deep.store import SqlStore
from pydantic_deep.testing import FakeClock

pytestmark = pytest.mark.anyio


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def ring(clock: FakeClock) -> KeyRing:
    return KeyRing(keys=MemoryRepository(ApiKey), uses=MemoryRepository(KeyUse), clock=clock.now)


async def test_a_key_is_found_by_what_was_shown(ring: KeyRing) -> None:
    shown = await ring.create(name='laptop', scopes=['run', 'approve', 'run'], agents=['analyst'])
    key = await ring.find(shown)
    assert key is not None
    assert (key.name, key.scopes, key.agents) == ('laptop', ('run', 'approve'), ('analyst',))
    assert key.owner == key.id


async def test_the_secret_has_256_bits_and_is_nowhere_but_in_what_was_shown(ring: KeyRing) -> None:
    shown = await ring.create(name='laptop', scopes=['run'])
    assert re.fullmatch(r'pd_[0-9a-f-]{36}_[A-Za-z0-9_-]{43}', shown)
    key = await ring.find(shown)
    assert key is not None
    secret = shown.split('_', 2)[2]
    assert secret not in key.model_dump_json()
    assert key.digest not in repr(key)
    assert shown not in repr(ring)


async def test_several_keys_may_be_of_one_owner(ring: KeyRing) -> None:
    found = [await ring.find(await ring.create(name=name, scopes=['run'], owner='ada')) for name in ('a', 'b')]
    assert [key.owner for key in found if key is not None] == ['ada', 'ada']


async def test_what_is_no_key_is_not_found(ring: KeyRing) -> None:
    shown = await ring.create(name='laptop', scopes=['run'])
    other = await ring.create(name='phone', scopes=['run'])
    mixed = f'{shown[:40]}{other[40:]}'
    wrong = [
        '',
        'pd_',
        shown[:-1],
        f'{shown}x',
        f' {shown}',
        f'{shown}\n',
        shown.upper(),
        mixed,
        f'pd_{"0" * 36}_{"x" * 43}',
        'pd_\0',
    ]
    assert [await ring.find(each) for each in wrong] == [None] * len(wrong)


async def test_a_key_expires_at_once(ring: KeyRing, clock: FakeClock) -> None:
    shown = await ring.create(name='laptop', scopes=['run'], expires_in_seconds=60)
    clock.advance(59.9)
    assert await ring.find(shown) is not None
    clock.advance(0.1)
    assert await ring.find(shown) is None


async def test_a_key_is_revoked_at_once_and_for_good(ring: KeyRing, clock: FakeClock) -> None:
    shown = await ring.create(name='laptop', scopes=['run'])
    key = await ring.find(shown)
    assert key is not None
    revoked = await ring.revoke(key.id)
    clock.advance(10)
    assert (revoked.revoked_at, await ring.find(shown)) == (clock.now() - timedelta(seconds=10), None)
    assert (await ring.revoke(key.id)).revoked_at == revoked.revoked_at


async def test_revoking_what_is_not_there_is_an_error(ring: KeyRing) -> None:
    with pytest.raises(RowNotFoundError):
        await ring.revoke('nobody')


async def test_the_last_use_is_noted_once_an_hour(ring: KeyRing, clock: FakeClock) -> None:
    shown = await ring.create(name='laptop', scopes=['run'])
    [key] = await ring.list()
    assert await ring.last_used_at(key.id) is None
    begin = clock.now()
    await ring.find(shown)
    clock.advance(3599)
    await ring.find(shown)
    assert await ring.last_used_at(key.id) == begin
    clock.advance(1)
    await ring.find(shown)
    assert await ring.last_used_at(key.id) == clock.now()


async def test_a_refused_key_is_not_noted_as_used(ring: KeyRing, clock: FakeClock) -> None:
    shown = await ring.create(name='laptop', scopes=['run'], expires_in_seconds=1)
    clock.advance(1)
    await ring.find(shown)
    assert await ring.uses.count() == 0


@pytest.mark.parametrize(
    ('options', 'said'),
    [
        ({'name': 'a', 'scopes': []}, 'without scopes has no permissions. Scopes: run, approve, audit, admin'),
        ({'name': 'a', 'scopes': ['run', 'root']}, "no scope 'root'"),
        ({'name': 'a', 'scopes': ['run'], 'expires_in_seconds': 0}, 'expires after 0 seconds'),
        ({'name': 'a', 'scopes': ['run'], 'expires_in_seconds': 1e12}, '1000000000000.0 seconds from now'),
        ({'name': 'a', 'scopes': ['run'], 'expires_in_seconds': float('inf')}, 'inf seconds from now'),
        ({'name': 'a', 'scopes': ['run'], 'expires_in_seconds': float('nan')}, 'nan seconds from now'),
    ],
)
async def test_a_key_that_would_be_worth_nothing_is_refused(
    ring: KeyRing, options: dict[str, object], said: str
) -> None:
    with pytest.raises(InvalidKeyError, match=said):
        await ring.create(**options)  # pyright: ignore[reportArgumentType]  # what is wrong with it is the test
    assert await ring.list() == []


async def test_more_keys_than_a_page_are_listed_oldest_first(ring: KeyRing) -> None:
    for number in range(1001):
        await ring.create(name=str(number), scopes=['run'])
    assert [key.name for key in await ring.list()] == [str(number) for number in range(1001)]


async def test_keys_are_in_the_store_and_not_in_its_tables_for_queries(store: SqlStore) -> None:
    shown = await create_api_key(store, name='laptop', scopes=['run'], owner='ada')
    [key] = await list_api_keys(store)
    assert (key.name, key.owner, key.revoked_at) == ('laptop', 'ada', None)
    async with open_keys(store) as ring:
        assert await ring.find(shown) == key
        revoked = await revoke_api_key(store, key.id)
        assert (await ring.find(shown), await list_api_keys(store)) == (None, [revoked])


async def test_only_the_digest_is_in_the_database(store: SqlStore) -> None:
    shown = await create_api_key(store, name='laptop', scopes=['run'])
    async with open_keys(store) as ring:
        row = (await ring.keys.get(shown[3:39])).model_dump_json()
    assert shown[40:] not in row
    assert '"digest":' in row
