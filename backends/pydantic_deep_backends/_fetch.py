"""Contents for a restore: all are fetched before the first change, and each is checked by its digest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from ._scan_budget import scan_budget
from .errors import MissingBlobError
from .paths import parse_path
from .protocol import ReadBlob
from .trees._blobs import StoredVersion
from .trees._nodes import FileVersion, digest_of
from .trees._tree import Tree, TreeDiff, versions_at


def files_to_write(tree: Tree, diff: TreeDiff) -> dict[str, FileVersion]:
    """Return the files of `tree` that must be written, by path.

    Args:
        tree: The desired files.
        diff: The changes from the current files to `tree`.

    Raises:
        InvalidPathError: The tree has a path that no backend accepts.
    """
    versions = versions_at(tree, map(parse_path, (*diff.changed, *diff.added)))
    return {path: version for path, version in versions.items() if version is not None}


async def fetch_contents(wanted: Mapping[str, FileVersion], *sources: ReadBlob | None) -> dict[str, bytes]:
    """Return the contents of files, by digest.

    Args:
        wanted: The files, by path. A version that carries its contents is not fetched.
        sources: Readers to try in this order, until one has the contents.

    Raises:
        MissingBlobError: No source has some of the contents.
        ScanLimitError: The fetch takes too long.
    """
    contents: dict[str, bytes] = {}
    with scan_budget() as budget:
        for version in wanted.values():
            if version.digest not in contents:
                budget.check_time()
                data = await _find(version, sources)
                if data is not None:
                    contents[version.digest] = data
    missing = sorted(path for path, version in wanted.items() if version.digest not in contents)
    if missing:
        raise MissingBlobError(tuple(missing))
    return contents


def contents_of(files: Tree, read_bytes: Callable[[str], Awaitable[bytes]]) -> ReadBlob:
    """Return a reader for the contents of existing files, valid for files that have not changed.

    Args:
        files: The files a moment ago.
        read_bytes: Reads one file by path.
    """
    path_by_digest = {version.digest: path for path, version in files.items()}

    async def read_blob(digest: str) -> bytes:
        try:
            return await read_bytes(path_by_digest[digest])
        except OSError:  # changed since, so the contents must come from another source
            raise KeyError(digest) from None

    return read_blob


async def _find(version: FileVersion, sources: tuple[ReadBlob | None, ...]) -> bytes | None:
    if isinstance(version, StoredVersion):
        return version.blob.data
    for read_blob in sources:
        if read_blob is not None:
            with suppress(KeyError):
                data = await read_blob(version.digest)
                if digest_of(data) == version.digest:
                    return data
    return None
