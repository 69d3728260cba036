"""Large files as streams between a backend and a store, if both support them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import dataclass, replace

from pydantic_deep.deps import MAX_FILE_BYTES
from pydantic_deep.store import Store, StoreError, SupportsStreams
from pydantic_deep_backends import BackendProtocol, Tree
from pydantic_deep_backends.tracking import STREAMED_BYTES, Captured, OmittedFile, SupportsStreamedPatch


@dataclass(frozen=True, kw_only=True)
class AssetStreams:
    """The streams of a store."""

    store: SupportsStreams

    @classmethod
    def of(cls, store: Store) -> AssetStreams | None:
        """Return the streams of a store; `None` if it has none."""
        return cls(store=store) if isinstance(store, SupportsStreams) and store.max_stream_bytes else None

    @property
    def max_file_bytes(self) -> int:
        """Maximum size of a file in a version."""
        return max(MAX_FILE_BYTES, self.store.max_stream_bytes)

    async def write(self, captured: Captured) -> Captured:
        """Store the streams of a capture. Files that can no longer be read as captured are omitted."""
        for digest, open_stream in captured.streams.items():
            try:
                await self.store.write_asset(digest, open_stream())
            except StoreError:
                raise
            except (ValueError, OSError):
                captured = _without(captured, digest)
        return replace(captured, streams={})

    async def restore(
        self, backend: BackendProtocol, tree: Tree, paths: Iterable[str], *, is_durable: bool = True
    ) -> None:
        """Write `large_files` of a tree into a backend, one by one."""
        for path in sorted(paths):
            assert isinstance(backend, SupportsStreamedPatch)  # noqa: S101 - otherwise there are no such files
            async with aclosing(self.store.stream_asset(tree[path].digest)) as chunks:
                await backend.patch_stream(tree, path, chunks, is_durable=is_durable)


def large_files(streams: AssetStreams | None, backend: BackendProtocol, tree: Tree, paths: Iterable[str]) -> set[str]:
    """Return those files of a tree that are large enough for streams, if there are streams and the backend takes them."""
    if streams is None or not isinstance(backend, SupportsStreamedPatch):
        return set()
    return {path for path in paths if tree[path].size > STREAMED_BYTES}


def _without(captured: Captured, digest: str) -> Captured:
    """Return a capture in which the files with these contents are unreadable."""
    tree, omitted = captured.tree, list(captured.omitted)
    for path, version in captured.tree.items():
        if version.digest == digest:
            tree = tree.remove(path)
            omitted.append(OmittedFile(path=path, reason='unreadable', size_bytes=version.size))
    return replace(captured, tree=tree, omitted=tuple(sorted(omitted, key=lambda file: file.path)))
