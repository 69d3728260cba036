"""`ancestors`: the versions from which a version descends, also through merges."""

from __future__ import annotations

from pydantic_deep.store import Store, VersionNotFoundError, VersionRecord


async def ancestors(store: Store, record: VersionRecord) -> dict[str, VersionRecord]:
    """Return a version and its ancestors by id, also those of merged versions. Deleted versions are missing.

    Raises:
        VersionNotFoundError: The version itself was deleted.
    """
    found = {version.id: version for version in (await store.lineage(record.id)).versions}
    remaining = [version.merged_from for version in found.values()]
    while remaining:
        id = remaining.pop()
        if id is None or id in found:
            continue
        try:
            line = (await store.lineage(id)).versions
        except VersionNotFoundError:  # a deleted version leaves its children
            continue
        new = {version.id: version for version in line if version.id not in found}
        remaining += [version.merged_from for version in new.values()]
        found |= new
    return found
