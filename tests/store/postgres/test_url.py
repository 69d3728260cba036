"""Parsing of PostgreSQL URLs, without showing any part of a password."""

from __future__ import annotations

from pathlib import Path

import pytest

from pydantic_deep.store import StoreUnavailableError
from pydantic_deep.store.postgres import PostgresEngine
from pydantic_deep.store.postgres._url import without_password


@pytest.mark.parametrize(
    ('url', 'shown'),
    [
        ('postgresql://ann:hush@db:5432/agents', 'postgresql://ann@db:5432/agents'),
        ('postgres://ann:hu%40sh@db/agents?password=hush&sslmode=require', 'postgres://ann@db/agents?sslmode=require'),
        ('postgresql://:hush@db/agents', 'postgresql://db/agents'),
        ('postgresql://ann@/agents?host=/run/postgresql', 'postgresql://ann@/agents?host=/run/postgresql'),
        ('postgresql://ann@[::1]:5432,other:5433/agents', 'postgresql://ann@[::1]:5432,other:5433/agents'),
        ('postgresql://ann:hush@[::1]/agents', 'postgresql://ann@[::1]/agents'),
        ('postgresql:///agents?sslpassword=hush', 'postgresql:///agents'),
        ('postgresql://', 'postgresql://'),
    ],
)
def test_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert without_password(url) == shown


@pytest.mark.parametrize('character', '@/?#[\u2100')
@pytest.mark.parametrize('digits', ['', '5'])
def test_unencoded_password_is_refused_and_not_shown(character: str, digits: str) -> None:
    with pytest.raises(ValueError, match='percent-encode') as caught:
        without_password(f'postgresql://ann:{digits or "hu"}{character}sh@db/agents')
    assert 'sh@' not in str(caught.value)
    assert 'hu' not in str(caught.value)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ('url', 'reason'),
    [('mysql://db/agents', 'begins with `postgresql://`'), ('postgresql://db/agents?sslmode=maybe', 'sslmode')],
)
async def test_unusable_url_is_refused(url: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        await PostgresEngine.open(url)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ('certificate', 'advice'), [('none.pem', 'that files in `sslrootcert`'), ('bad.pem', 'Check `sslmode`')]
)
async def test_unusable_certificate_is_named_as_the_reason(tmp_path: Path, certificate: str, advice: str) -> None:
    (tmp_path / 'bad.pem').write_text('no certificate')
    url = f'postgresql://127.0.0.1:1/agents?sslmode=verify-full&sslrootcert={tmp_path / certificate}'
    with pytest.raises(StoreUnavailableError, match=advice):
        await PostgresEngine.open(url)
