"""Rate limits of keys, and of wrong keys from an address."""

from __future__ import annotations

import tracemalloc

import pytest

from pydantic_deep.server import ServerSettings
from pydantic_deep.server._rate_limits import RateLimit, WrongKeyLimit
from pydantic_deep.testing import FakeClock
from tests.server.conftest import Serve


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def rate(clock: FakeClock) -> RateLimit:
    return RateLimit(per_second=2, burst=3, clock=clock.monotonic)


def test_burst_is_allowed_and_the_next_request_is_delayed(rate: RateLimit) -> None:
    assert [rate.take('a') for _ in range(4)] == [0, 0, 0, 0.5]


def test_tokens_refill_steadily_up_to_the_burst(rate: RateLimit, clock: FakeClock) -> None:
    for _ in range(3):
        rate.take('a')
    clock.advance(0.5)
    assert [rate.take('a'), rate.take('a')] == [0, 0.5]
    clock.advance(3600)
    assert [rate.take('a') for _ in range(4)] == [0, 0, 0, 0.5]


def test_refused_requests_do_not_extend_the_delay(rate: RateLimit, clock: FakeClock) -> None:
    for _ in range(50):
        rate.take('a')
    clock.advance(0.5)
    assert rate.take('a') == 0


def test_wrong_keys_are_limited_per_address_or_ipv6_network(clock: FakeClock) -> None:
    limit = WrongKeyLimit(per_minute=60, burst=2, clock=clock.monotonic)

    assert [limit.take('192.0.2.1') for _ in range(4)] == [0, 0, 1, 1]
    assert limit.take('192.0.2.2') == 0
    assert [limit.take(f'2001:db8::{host:x}') for host in range(3)] == [0, 0, 1]
    assert [limit.take('2001:db8:0:1::'), limit.take('::ffff:192.0.2.1')] == [0, 1]
    assert [limit.take('/run/server.sock') for _ in range(3)] == [0, 0, 1]
    clock.advance(1)
    assert [limit.take('192.0.2.1') for _ in range(2)] == [0, 1]


def test_wrong_key_limit_has_bounded_memory(clock: FakeClock) -> None:
    limit = WrongKeyLimit(per_minute=60, burst=2, clock=clock.monotonic)
    tracemalloc.start()
    try:
        for number in range(10_000):
            limit.take(f'10.0.{number >> 8}.{number & 255}')
        assert tracemalloc.get_traced_memory()[0] < 20_000
    finally:
        tracemalloc.stop()


def test_keys_have_separate_limits(rate: RateLimit) -> None:
    for _ in range(4):
        rate.take('a')
    assert rate.take('b') == 0


async def test_rate_limit_returns_retry_after(serve: Serve) -> None:
    async with (
        serve(settings=ServerSettings(requests_per_second=0.1, request_burst=2)) as served,
        served.client(await served.key()) as client,
        served.client(await served.key()) as other,
    ):
        answers = [await client.get('/api/me') for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert answers[2].headers['retry-after'] == '10'
        assert answers[2].json()['error']['type'] == 'rate_limited'
        assert (await other.get('/api/me')).status_code == 200


async def test_wrong_keys_do_not_consume_the_rate_limit_of_a_key(serve: Serve) -> None:
    async with serve(settings=ServerSettings(requests_per_second=0.1, request_burst=1)) as served:
        key = await served.key()
        async with served.client() as nobody, served.client(key) as client:
            wrong = {'authorization': f'Bearer {key[:-1]}!'}
            assert {(await nobody.get('/api/me', headers=wrong)).status_code for _ in range(5)} == {401}
            assert (await client.get('/api/me')).status_code == 200


async def test_wrong_keys_are_limited_per_address_without_locking_out_valid_ones(serve: Serve) -> None:
    """After several wrong keys, an address receives 429. Valid keys from the same address are still accepted."""
    async with serve(settings=ServerSettings(wrong_keys_per_minute=1, wrong_key_burst=3)) as served:
        key = await served.key()
        async with served.client() as nobody, served.client(key) as client:
            wrong = [{'x-api-key': key[:-1] + '!'}, {'authorization': 'Bearer guess'}] * 3
            answers = [await nobody.get('/api/me', headers=each) for each in wrong]
            assert [each.status_code for each in answers] == [401, 401, 401, 429, 429, 429]
            assert answers[-1].headers['retry-after'] == '60'
            assert answers[-1].json()['error']['type'] == 'rate_limited'
            assert (await nobody.get('/api/me')).status_code == 401, 'requests without a key are not counted'
            assert (await client.get('/api/me')).status_code == 200
