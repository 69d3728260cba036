"""`ObjectStorage` satisfies the contract of `BlobStore` in memory, in a directory and on S3, and reports bad URLs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from obstore.store import MemoryStore, S3Store

import pydantic_deep.store as package
from pydantic_deep.store import BlobStore, StoreUnavailableError, new_id, object_storage, open_store
from pydantic_deep.store.conformance import BlobStoreSuite
from pydantic_deep.store.object_storage import ObjectStorage

pytestmark = pytest.mark.anyio


class TestMemory(BlobStoreSuite):
    @pytest.fixture
    def blobs(self) -> BlobStore:
        return ObjectStorage(MemoryStore())


class TestDirectory(BlobStoreSuite):
    @pytest.fixture
    def blobs(self, tmp_path: Path) -> BlobStore:
        return ObjectStorage.open(f'file://{tmp_path}/new%20directory')


@pytest.mark.slow
class TestS3(BlobStoreSuite):
    @pytest.fixture
    def blobs(self, s3_url: str) -> BlobStore:
        return ObjectStorage.open(f'{s3_url}/{new_id()}')


@pytest.mark.parametrize(
    'url', ['', 's3', 's3:bucket', 'memory:name', 'file:blobs', 'file:///', 'ftp://host/blobs', 's3://']
)
async def test_invalid_url_is_refused_with_examples(url: str) -> None:
    with pytest.raises(ValueError, match='s3://bucket/prefix') as caught:
        async with open_store('memory:', blobs=url):
            pass
    assert repr(url) in str(caught.value)


async def test_directory_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / 'blobs').write_text('a file')
    url = f'file://{tmp_path}/blobs'
    with pytest.raises(StoreUnavailableError, match=f'{url!r} cannot be used: .*Name a directory that can be written'):
        async with open_store('memory:', blobs=url):
            pass


def test_missing_settings_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv('AZURE_STORAGE_ACCOUNT_NAME', raising=False)
    with pytest.raises(ValueError, match='Account must be specified'):
        ObjectStorage.open('az://container/prefix')


@pytest.mark.parametrize('url', ['s3://bucket/prefix', 'gs://bucket/prefix', 'memory:'])
def test_location_is_that_of_the_url(url: str) -> None:
    assert ObjectStorage.open(url).url == url
    assert 'MemoryStore' in ObjectStorage(MemoryStore()).url


@pytest.mark.parametrize(
    'url', ['s3://KEY:HUSH@bucket/prefix', 's3://bucket/prefix?sig=HUSH', 'az://container/prefix#HUSH']
)
async def test_url_with_credentials_is_refused_without_repeating_them(url: str) -> None:
    with pytest.raises(ValueError, match='has credentials or options') as caught:
        async with open_store('memory:', blobs=url):
            pass
    assert 'HUSH' not in str(caught.value)
    with pytest.raises(ValueError, match='There is no object storage at') as caught:
        ObjectStorage.open(url.replace('://', 'x://'))
    assert 'HUSH' not in str(caught.value)


async def test_password_of_an_endpoint_is_not_in_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('AWS_ENDPOINT_URL', 'http://user:HUSH@127.0.0.1:1')
    monkeypatch.setenv('AWS_ALLOW_HTTP', 'true')
    monkeypatch.setenv('AWS_ACCESS_KEY_ID', 'key')
    monkeypatch.setenv('AWS_SECRET_ACCESS_KEY', 'key')
    storage = ObjectStorage(S3Store('bucket', retry_config={'max_retries': 0}))
    with pytest.raises(OSError, match='S3Store') as caught:
        await storage.put('name', b'contents')
    assert 'HUSH' not in str(caught.value)
    assert caught.value.__cause__ is None


async def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, 'pydantic_deep.store.object_storage')
    monkeypatch.delattr(package, 'object_storage')  # the import also sets the attribute
    monkeypatch.setitem(sys.modules, 'obstore', None)
    monkeypatch.setitem(sys.modules, 'obstore.store', None)
    with pytest.raises(ImportError, match=r'versioned-deep-agents\[blobs\]'):
        async with open_store('memory:', blobs='memory:'):
            pass


async def test_files_of_a_directory_are_synchronized_with_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit survives a power loss, so its blobs must: the file and every directory that leads to it."""
    synchronized: list[str] = []
    fsync = os.fsync

    def recorded(descriptor: int) -> None:
        synchronized.append(os.readlink(f'/proc/self/fd/{descriptor}'))
        fsync(descriptor)

    monkeypatch.setattr(object_storage.os, 'fsync', recorded)
    await ObjectStorage.open(f'file://{tmp_path}').put('s/aa/1', b'x')
    assert synchronized == [str(tmp_path / part) for part in ('s/aa/1', 's/aa', 's', '')]


async def test_all_pages_of_a_list_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_storage, '_PAGE', 10)
    blobs = ObjectStorage.open('memory:')
    for number in range(25):
        await blobs.put(f's/{number}', b'x')
    assert [len(page) async for page in blobs.list('s')] == [10, 10, 5]


async def test_unreachable_storage_is_an_error_of_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('AWS_ENDPOINT_URL', 'http://127.0.0.1:9')
    monkeypatch.setenv('AWS_SKIP_SIGNATURE', 'true')
    with pytest.raises(OSError, match='s3://bucket: Generic S3 error'):  # without TLS, which the URL lacks
        await ObjectStorage.open('s3://bucket').put('s/aa/1', b'x')
