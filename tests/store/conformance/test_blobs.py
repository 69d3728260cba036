"""The rules about blobs fail for storage that violates them."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence

import pytest
from obstore.store import MemoryStore

from pydantic_deep.store import BlobEntry, BlobStore
from pydantic_deep.store.conformance import BlobStoreSuite
from pydantic_deep.store.object_storage import ObjectStorage
from tests.store.conformance.conftest import FAILURES

pytestmark = pytest.mark.anyio

RULES = BlobStoreSuite()


class Partial(ObjectStorage):
    """Stores the chunks before an error, and hides the error."""

    async def put(self, name: str, contents: bytes | AsyncIterable[bytes]) -> None:
        received: list[bytes] = [contents] if isinstance(contents, bytes) else []
        try:
            if not isinstance(contents, bytes):
                async for chunk in contents:
                    received.append(chunk)
        finally:
            await super().put(name, b''.join(received)[:-1])


class Whole(ObjectStorage):
    """Yields contents as one chunk, and nothing for a missing blob."""

    async def get(self, name: str) -> AsyncIterator[bytes]:
        try:
            yield b''.join([chunk async for chunk in super().get(name)])
        except FileNotFoundError:
            return


class Careless(ObjectStorage):
    """Lists everything, without times, and removes only the first blob."""

    async def list(self, prefix: str) -> AsyncIterator[Sequence[BlobEntry]]:
        async for page in super().list(''):
            yield [entry._replace(modified_at=0) for entry in page]

    async def delete(self, names: Sequence[str]) -> None:
        await super().delete(names[:1])


class Forgetful(ObjectStorage):
    """Loses blobs."""

    async def list(self, prefix: str) -> AsyncIterator[Sequence[BlobEntry]]:
        async for page in super().list(prefix):
            yield page[1:]


@pytest.mark.parametrize(
    ('kind', 'rule'),
    [
        (Partial, RULES.test_contents_are_read_unchanged),
        (Partial, RULES.test_chunks_are_stored_as_one),
        (Partial, RULES.test_failed_chunks_store_nothing_and_raise_their_error),
        (Partial, RULES.test_cancelled_upload_stores_nothing),
        (Whole, RULES.test_large_contents_are_read_in_chunks),
        (Whole, RULES.test_missing_blob_is_not_found),
        (Careless, RULES.test_blobs_below_a_prefix_are_listed_with_size_and_time),
        (Careless, RULES.test_deleted_blobs_are_gone_and_missing_ones_are_ignored),
        (Forgetful, RULES.test_concurrent_uploads_are_all_stored),
    ],
)
async def test_other_behavior_violates_a_rule(
    kind: type[ObjectStorage], rule: Callable[[BlobStore], Awaitable[None]]
) -> None:
    with pytest.raises(FAILURES):
        await rule(kind(MemoryStore()))
