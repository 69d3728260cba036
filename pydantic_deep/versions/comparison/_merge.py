"""The merge of two versions: the conversation of one, with the files and uploads of both."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args

from pydantic_deep.store import Commit, NewAsset, VersionRecord
from pydantic_deep.versions._session import Session
from pydantic_deep.versions.errors import InvalidMergeChoiceError, MergeConflictError, NoCommonVersionError
from pydantic_deep.versions.pauses._answers import fresh_approvals
from pydantic_deep_backends import Tree, digest_of, merge_trees, needed_for_merge

from ._ancestors import ancestors

MergeSide: TypeAlias = Literal['ours', 'theirs']
"""The version whose file a merge keeps: the version that is merged into, or the other one."""


async def merge_versions(
    session: Session[Any, Any],
    ours: VersionRecord,
    theirs: VersionRecord,
    choices: Mapping[str, MergeSide] | None = None,
) -> VersionRecord:
    """Merge `theirs` into `ours`, store the new version and return it; return `ours` if it contains `theirs` already.

    Raises:
        NoCommonVersionError: The versions have no common ancestor.
        MergeConflictError: Both versions changed the same place, and `choices` has no side for it.
        InvalidMergeChoiceError: `choices` contains a path without a conflict, or something else than a side.
    """
    choices = choices or {}
    our_ancestors = await ancestors(session.store, ours)
    if _contain(our_ancestors, theirs):
        return ours
    base = await _common(session, our_ancestors, ours, theirs)
    base_tree, our_tree, their_tree = [await session.trees.load(version.tree) for version in (base, ours, theirs)]
    blobs = {
        digest: await session.store.read_asset(digest)
        for digest in sorted(needed_for_merge(base_tree, our_tree, their_tree))
    }
    result = merge_trees(base_tree, our_tree, their_tree, blobs)
    paths = {conflict.path for conflict in result.conflicts}
    invalid = sorted(path for path, side in choices.items() if path not in paths or side not in get_args(MergeSide))
    if invalid:
        raise InvalidMergeChoiceError(invalid)
    undecided = [conflict for conflict in result.conflicts if conflict.path not in choices]
    if undecided:
        raise MergeConflictError(undecided)
    tree = result.tree
    for path in (path for path, side in choices.items() if side == 'theirs'):
        tree = _with_theirs(tree, path, their_tree)
    deps = await _deps(session, base, ours, theirs)
    merged = ours.child(
        'merge',
        merged_from=theirs.id,
        state='awaiting_approval' if ours.state == 'awaiting_approval' else 'complete',
        output=None,
        deps=ours.deps if deps is None else deps.digest,
        tree=ours.tree if ours.tree is None and theirs.tree is None else tree.digest,
    )
    known = {digest for digest, _ in our_tree.nodes()}
    await session.store.commit(
        Commit(
            assets=[
                *(NewAsset(digest=digest, data=data) for digest, data in result.blobs.items()),
                *(() if deps is None else (deps,)),
            ],
            nodes=dict(tree.nodes(known)),
            versions=[merged],
            approvals=await fresh_approvals(session.store, ours, merged.id),
        )
    )
    return await session.store.version(merged.id)


def _with_theirs(tree: Tree, path: str, theirs: Tree) -> Tree:
    """Return `tree` with the file or the directory that `theirs` has at `path`, or without any if it has none."""
    if tree.get(path) is not None:
        tree = tree.remove(path)
    version = theirs.get(path)
    if version is None:
        return tree.graft(path, theirs.subtree(path))
    return tree.graft(path, Tree()).set(path, version)


async def _deps(
    session: Session[Any, Any], base: VersionRecord, ours: VersionRecord, theirs: VersionRecord
) -> NewAsset | None:
    """Return the deps of `ours` with the uploads of both; `None` if they are equal to those of `ours`, or either has no
    deps.
    """
    if ours.deps is None or theirs.deps is None:
        return None
    digests = [base.deps, ours.deps, theirs.deps]
    states: list[dict[str, Any]] = [
        {} if digest is None else json.loads(await session.store.read_asset(digest)) for digest in digests
    ]
    uploads = _joined(*(state.get('uploads', {}) for state in states))
    if uploads == states[1].get('uploads', {}):
        return None
    data = json.dumps({**states[1], 'uploads': uploads}, ensure_ascii=False).encode()
    return NewAsset(digest=digest_of(data), data=data, media_type='application/json')


def _joined(old: Mapping[str, object], ours: Mapping[str, object], theirs: Mapping[str, object]) -> dict[str, object]:
    """Merge the uploads of two versions. If both changed one, that of `ours` is used."""
    joined = {name: (theirs if ours.get(name) == old.get(name) else ours).get(name) for name in {**ours, **theirs}}
    return {name: upload for name, upload in joined.items() if upload is not None}


def _contain(ancestors: Mapping[str, VersionRecord], other: VersionRecord) -> bool:
    """Return whether a version is one of these, or a step of their turns."""
    ends = {ancestor.run_id: ancestor.number for ancestor in ancestors.values()}
    return other.id in ancestors or (other.kind == 'step' and other.number < ends.get(other.run_id, 0))


async def _common(
    session: Session[Any, Any], our_ancestors: Mapping[str, VersionRecord], ours: VersionRecord, theirs: VersionRecord
) -> VersionRecord:
    """Return the newest common ancestor. The ancestors of a merge include those of both parents."""
    their_ancestors = await ancestors(session.store, theirs)
    common = [version for id, version in our_ancestors.items() if id in their_ancestors]
    if not common:
        raise NoCommonVersionError(ours.id, theirs.id)
    return max(common, key=lambda version: version.number)
