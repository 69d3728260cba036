"""Requests to webhooks: only to public addresses, in limited time, without redirects."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import Any

import anyio
import pytest

from pydantic_deep.server.webhooks import _requests
from pydantic_deep.server.webhooks._requests import RequestFailedError, is_public, post
from pydantic_deep.server.webhooks._webhooks import url_problem

from .conftest import Receiver

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    'address',
    [
        '127.0.0.1', '10.1.2.3', '172.16.0.1', '192.168.1.1', '169.254.169.254', '100.64.0.1', '0.0.0.0', '224.0.0.1',
        '255.255.255.255', '::1', '::', 'fe80::1', 'fc00::1', 'ff02::1', '::ffff:10.0.0.1', '::ffff:127.0.0.1',
        '64:ff9b::7f00:1', '64:ff9b::a9fe:a9fe', '2002:7f00:1::', '2001:db8::1', '64:ff9b:1::7f00:1', '::7f00:1',
        '::ffff:0:7f00:1', 'fec0::1',
    ],
)  # fmt: skip
def test_private_addresses_are_not_public(address: str):
    """Loopback, private, link-local, shared, multicast and reserved addresses are private, in IPv6 forms too."""
    assert not is_public(ip_address(address))


@pytest.mark.parametrize('address', ['93.184.216.34', '2606:4700::1111', '64:ff9b::5db8:d822', '::ffff:93.184.216.34'])
def test_public_addresses_are_public(address: str):
    """Addresses of the internet are public."""
    assert is_public(ip_address(address))


@pytest.mark.parametrize(
    ('url', 'problem'),
    [
        ('http://example.com/', 'is not encrypted'),
        ('ftp://example.com/', 'is not a URL of a web server'),
        ('https:///path', 'is not a URL of a web server'),
        ('hook', 'is not a URL of a web server'),
        ('https://example.com:65536/', 'is not a URL of a web server'),
        ('https://example.com:port/', 'is not a URL'),
        ('https://ada:secret@example.com/', 'contains a user'),
        ('https://example.com/#part', 'contains a user, a password or a fragment'),
        ('https://10.0.0.1/', '10.0.0.1 is a private address'),
        ('https://[::1]/', '::1 is a private address'),
        ('https://example.com/' + 'a' * 2000, 'has 2020 characters'),
    ],
)
def test_unusable_urls_are_refused(url: str, problem: str):
    """A URL that cannot or must not be used is refused with the reason."""
    assert problem in (url_problem(url, []) or '')


def test_usable_urls_are_accepted():
    """Encrypted URLs of public hosts are accepted, and hosts that the operator names."""
    assert url_problem('https://example.com/hook?a=b', []) is None
    assert url_problem('https://93.184.216.34/', []) is None
    assert url_problem('http://127.0.0.1:8000/hook', ['127.0.0.1']) is None


def resolving_to(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> list[str]:
    """Let every host have these addresses, and return the hosts that are looked up."""
    asked: list[str] = []

    async def getaddrinfo(host: str, port: object, **options: Any) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, '', (address, 0)) for address in addresses]

    monkeypatch.setattr(_requests.anyio, 'getaddrinfo', getaddrinfo)
    return asked


async def test_host_with_a_private_address_gets_no_request(receiver: Receiver, monkeypatch: pytest.MonkeyPatch):
    """A host whose name stands for a private address is refused, also beside a public one."""
    resolving_to(monkeypatch, '93.184.216.34', '127.0.0.1')
    url = receiver.url.replace('127.0.0.1', 'hooks.example')
    with pytest.raises(RequestFailedError, match=r'hooks\.example has the private address 127\.0\.0\.1'):
        await post(url, '{}', {}, [])
    assert receiver.requests == []


async def test_request_goes_to_the_checked_address(receiver: Receiver, monkeypatch: pytest.MonkeyPatch):
    """The host is looked up once, and the request goes to that address, with the name in `Host`."""
    asked = resolving_to(monkeypatch, '127.0.0.1')
    url = receiver.url.replace('127.0.0.1', 'hooks.example')
    reply = await post(url, '{}', {'webhook-id': 'msg_1'}, ['hooks.example'])
    assert (reply.status_code, asked) == (204, ['hooks.example'])
    [(headers, body)] = receiver.requests
    assert headers['host'].startswith('hooks.example:')
    assert (headers['webhook-id'], body) == ('msg_1', '{}')


async def test_host_with_public_addresses_gets_the_request(monkeypatch: pytest.MonkeyPatch):
    """The request goes to the first of the public addresses."""
    resolving_to(monkeypatch, '93.184.216.34', '2606:4700::1111')
    sent: list[object] = []

    async def note(*arguments: object) -> _requests.Reply:
        sent.extend(arguments[:2])
        return _requests.Reply(200, None)

    monkeypatch.setattr(_requests, '_post', note)
    await post('https://hooks.example/a', '{}', {}, [])
    assert sent == ['https://hooks.example/a', '93.184.216.34']


async def test_proxies_of_the_environment_are_not_used(receiver: Receiver, monkeypatch: pytest.MonkeyPatch):
    """A proxy would connect to an address that was not checked."""
    monkeypatch.setenv('HTTP_PROXY', 'http://127.0.0.1:9')
    assert (await post(receiver.url, '{}', {}, ['127.0.0.1'])).status_code == 204


async def test_host_without_an_address_is_reported():
    """A name that cannot be resolved is a sentence."""
    with pytest.raises(RequestFailedError, match='The request failed: '):
        await post('https://hooks.invalid/', '{}', {}, [])


async def test_closed_port_is_reported():
    """A refused connection is a sentence."""
    with pytest.raises(RequestFailedError, match='The request failed: '):
        await post('http://127.0.0.1:9/', '{}', {}, ['127.0.0.1'])


async def test_slow_receiver_is_given_up(monkeypatch: pytest.MonkeyPatch):
    """A receiver that does not respond in time is reported with the time."""
    monkeypatch.setattr(_requests, 'TIMEOUT_SECONDS', 0)

    async def hang(*args: object) -> str:
        await anyio.sleep_forever()
        raise AssertionError

    monkeypatch.setattr(_requests, '_resolve', hang)
    with pytest.raises(RequestFailedError, match=r'hooks\.example did not respond within 0 seconds'):
        await post('https://hooks.example/', '{}', {}, [])
