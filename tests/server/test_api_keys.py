"""API keys: shown once, stored as digests, and invalid after they expire or are revoked."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from pydantic_deep.errors import ValidationError
from pydantic_deep.repository import MemoryRepository, RowNotFoundError
from pydantic_deep.server import (
    ApiKey,
    InvalidKeyError,
    KeyRing,
    create_api_key,
    list_api_keys,
    open_keys,
    revoke_api_key,
)
from pydantic_deep.server._api_keys import KeyUse
from pydantic_deep.store import SqlStore
from pydantic_deep.testing import FakeClock

pytestmark = pytest.mark.anyio


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def ring(clock: FakeClock) -> KeyRing:
    return KeyRing(keys=MemoryRepository(ApiKey), uses=MemoryRepository(KeyUse), clock=clock.now)


async def test_key_is_found_by_the_created_text(ring: KeyRing) -> None:
    shown = await ring.create(name='laptop', scopes=['run', 'approve', 'run'], agents=['analyst'])
    key = await ring.find(shown)
    assert key is not None
    assert (key.name, key.scopes, key.agents) == ('laptop', ('run', 'approve'), ('analyst',))
    assert key.owner == key.id


async def test_agents_of_a_key_are_a_list(ring: KeyRing) -> None:
    with pytest.raises(ValidationError, match=r'^agents: it is "analyst"\. Pass a list of names\.$'):
        await ring.create(name='laptop', scopes=['run'], agents='analyst')


async def test_secret_has_256_bits_and_is_not_stored(ring: KeyRing) -> None:
    shown = await ring.create(name='laptop', scopes=['run'])
    assert re.fullmatch(r'pd_[0-9a-f-]{36}_[A-Za-z0-9_-]{43}', shown)
    key = await ring.find(shown)
    assert key is not None
    secret = shown.split('_', 2)[2]
    assert secret not in key.model_dump_json()
    assert key.digest not in repr(key)
    assert shown not in repr(ring)


async def test_owner_may_have_several_keys(ring: KeyRing) -> None:
    found = [await ring.find(await ring.create(name=name, scopes=['run'], owner='ada')) for name in ('a', 'b')]
    assert [key.owner for key in found if key is not None] == ['ada', 'ada']


async def test_invalid_keys_are_not_found(ring: KeyRing) -> None:
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


async def test_key_is_not_found_after_its_expiry(ring: KeyRing, clock: FakeClock) -> None:
    shown = await ring.create(name='laptop', scopes=['run'], expires_in_seconds=60)
    clock.advance(59.9)
    assert await ring.find(shown) is not None
    clock.advance(0.1)
    assert await ring.find(shown) is None


async def test_revoked_key_is_not_found(ring: KeyRing, clock: FakeClock) -> None:
    shown = await ring.create(name='laptop', scopes=['run'])
    key = await ring.find(shown)
    assert key is not None
    revoked = await ring.revoke(key.id)
    clock.advance(10)
    assert (revoked.revoked_at, await ring.find(shown)) == (clock.now() - timedelta(seconds=10), None)
    assert (await ring.revoke(key.id)).revoked_at == revoked.revoked_at


async def test_revoking_an_unknown_key_raises(ring: KeyRing) -> None:
    with pytest.raises(RowNotFoundError):
        await ring.revoke('nobody')


async def test_last_use_is_recorded_once_an_hour(ring: KeyRing, clock: FakeClock) -> None:
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


async def test_use_of_an_expired_key_is_not_recorded(ring: KeyRing, clock: FakeClock) -> None:
    shown = await ring.create(name='laptop', scopes=['run'], expires_in_seconds=1)
    clock.advance(1)
    await ring.find(shown)
    assert await ring.uses.count() == 0


@pytest.mark.parametrize(
    ('options', 'said'),
    [
        ({'name': 'a', 'scopes': []}, 'at least one scope is required. Scopes: run, approve, audit, admin'),
        ({'name': 'a', 'scopes': ['run', 'root']}, "no scope 'root'"),
        ({'name': 'a', 'scopes': ['run'], 'expires_in_seconds': 0}, 'expires after 0 seconds'),
        ({'name': 'a', 'scopes': ['run'], 'expires_in_seconds': 1e12}, '1000000000000.0 seconds from now'),
        ({'name': 'a', 'scopes': ['run'], 'expires_in_seconds': float('inf')}, 'inf seconds from now'),
        ({'name': 'a', 'scopes': ['run'], 'expires_in_seconds': float('nan')}, 'nan seconds from now'),
    ],
)
async def test_invalid_key_options_raise(ring: KeyRing, options: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidKeyError, match=said):
        await ring.create(**options)  # pyright: ignore[reportArgumentType]  # invalid on purpose
    assert await ring.list() == []


async def test_keys_of_several_pages_are_listed_oldest_first(ring: KeyRing) -> None:
    for number in range(1001):
        await ring.create(name=str(number), scopes=['run'])
    assert [key.name for key in await ring.list()] == [str(number) for number in range(1001)]


async def test_stored_keys_are_found_listed_and_revoked(store: SqlStore) -> None:
    shown = await create_api_key(store, name='laptop', scopes=['run'], owner='ada')
    [key] = await list_api_keys(store)
    assert (key.name, key.owner, key.revoked_at) == ('laptop', 'ada', None)
    async with open_keys(store) as ring:
        assert await ring.find(shown) == key
        revoked = await revoke_api_key(store, key.id)
        assert (await ring.find(shown), await list_api_keys(store)) == (None, [revoked])


async def test_database_contains_only_the_digest(store: SqlStore) -> None:
    shown = await create_api_key(store, name='laptop', scopes=['run'])
    async with open_keys(store) as ring:
        row = (await ring.keys.get(shown[3:39])).model_dump_json()
    assert shown[40:] not in row
    assert '"digest":' in row
