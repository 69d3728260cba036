"""Helpers of the tests in this folder."""

from __future__ import annotations

from collections.abc import Mapping

from backends.tests.conftest import replaced
from pydantic_deep_backends import Tree, digest_of


class Blobs:
    """Contents by digest, with a record of the requests."""

    def __init__(self, *data: bytes) -> None:
        self.data = {digest_of(each): each for each in data}
        self.asked: list[bytes | None] = []

    async def __call__(self, digest: str) -> bytes:
        self.asked.append(self.data.get(digest))
        return self.data[digest]


def tree_of(files: Mapping[str, bytes]) -> Tree:
    return Tree.of({path: replaced(digest_of(data), len(data)) for path, data in files.items()})
