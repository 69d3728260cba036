"""The version that two others make: the conversation of the one, and the files and uploads of both."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic_deep.store import Commit, NewAsset, VersionRecord
from pydantic_deep.versions._session import Session
from pydantic_deep.versions.errors import MergeConflictError, NoCommonVersionError
from pydantic_deep.versions.pauses._answers import fresh_approvals
from pydantic_deep_backends import digest_of, merge_trees, needed_for_merge


async def merge_versions(session: Session[Any, Any], ours: VersionRecord, theirs: VersionRecord) -> VersionRecord:
    """Store and return the version that `ours` and `theirs` make.

    Raises:
        NoCommonVersionError: They come from no common version.
        MergeConflictError: Both changed the same.
    """
    base = await _common(session, ours, theirs)
    base_tree, our_tree, their_tree = [await session.trees.load(each.tree) for each in (base, ours, theirs)]
    blobs = {
        digest: await session.read_asset(digest) for digest in sorted(needed_for_merge(base_tree, our_tree, their_tree))
    }
    result = merge_trees(base_tree, our_tree, their_tree, blobs)
    if result.conflicts:
        raise MergeConflictError(result.conflicts)
    deps = await _deps(session, base, ours, theirs)
    merged = ours.child(
        'merge',
        merged_from=theirs.id,
        state='awaiting_approval' if ours.state == 'awaiting_approval' else 'complete',
        output=None,
        deps=ours.deps if deps is None else deps.digest,
        tree=ours.tree if ours.tree is None and theirs.tree is None else result.tree.digest,
    )
    known = {digest for digest, _ in our_tree.nodes()}
    await session.store.commit(
        Commit(
            assets=[
                *(NewAsset(digest=digest, data=data) for digest, data in result.blobs.items()),
                *(() if deps is None else (deps,)),
            ],
            nodes=dict(result.tree.nodes(known)),
            versions=[merged],
            approvals=await fresh_approvals(session.store, ours, merged.id),
        )
    )
    return await session.store.version(merged.id)


async def _deps(
    session: Session[Any, Any], base: VersionRecord, ours: VersionRecord, theirs: VersionRecord
) -> NewAsset | None:
    """Return the deps of `ours` with the uploads of both; `None` if it has these, or one of them cannot have any."""
    if ours.deps is None or theirs.deps is None:
        return None
    digests = [base.deps, ours.deps, theirs.deps]
    states: list[dict[str, Any]] = [
        {} if digest is None else json.loads(await session.read_asset(digest)) for digest in digests
    ]
    uploads = _joined(*(state.get('uploads', {}) for state in states))
    if uploads == states[1].get('uploads', {}):
        return None
    data = json.dumps({**states[1], 'uploads': uploads}, ensure_ascii=False).encode()
    return NewAsset(digest=digest_of(data), data=data, media_type='application/json')


def _joined(old: Mapping[str, object], ours: Mapping[str, object], theirs: Mapping[str, object]) -> dict[str, object]:
    """Return the uploads of two with what each has changed; where both have, it is as in `ours`."""
    joined = {name: (theirs if ours.get(name) == old.get(name) else ours).get(name) for name in {**ours, **theirs}}
    return {name: upload for name, upload in joined.items() if upload is not None}


async def _common(session: Session[Any, Any], ours: VersionRecord, theirs: VersionRecord) -> VersionRecord:
    """Return the newest version that both come from; a merge comes from both of its parents."""
    above = await _ancestors(session, theirs)
    found = [each for id, each in (await _ancestors(session, ours)).items() if id in above]
    if not found:
        raise NoCommonVersionError(ours.id, theirs.id)
    return max(found, key=lambda each: each.number)


async def _ancestors(session: Session[Any, Any], record: VersionRecord) -> dict[str, VersionRecord]:
    found: dict[str, VersionRecord] = {}
    waiting = [record.id]
    while waiting:
        id = waiting.pop()
        if id in found:
            continue
        for each in (await session.store.lineage(id)).versions:
            if each.id not in found:
                found[each.id] = each
                if each.merged_from is not None:
                    waiting.append(each.merged_from)
    return found
