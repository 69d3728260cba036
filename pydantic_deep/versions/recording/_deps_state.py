"""The state of deps in versions: what `to_json` writes, the large results that are offloaded in them, and a fork's files.

Each large result, and all contents of a fork, are assets, stored once; a version has the names of all of them, of a
fork by segments of the list of its files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, cast

from pydantic_deep.deps import DeepAgentDeps, offload_of
from pydantic_deep.store import NewAsset, Store
from pydantic_deep.versions.files._protected_files import PROTECTED, dump_changes
from pydantic_deep_backends import BackendProtocol, FileVersion, ProtectedChange, StateBackend, Tree, digest_of
from pydantic_deep_backends.overlay import OverlayBackend, relocate

from ._overlay_deltas import Segment, joined, segments_with

_OFFLOAD = 'offload'
"""The key of the large results beside the fields of deps: digest and size by path."""

_FORK = 'fork'
"""The key of the files that a subagent has changed in a fork: whose fork it is, its directory, and what it holds."""


@dataclass(kw_only=True)
class DepsState:
    """The state of the deps of one run, as the store has it."""

    digest: str | None
    """Of the asset with it; `None` before there is one."""
    fork: str | None = None
    """Whose fork the files of the deps are, which is gone with the process but for what is kept here; `None` if none."""
    run_id: str | None = None
    """The run, so that what it changed is not taken for what another one did that keeps the state."""
    protected: tuple[ProtectedChange, ...] = ()
    """What the turn changed in protected files; known when its run ends."""
    _offloaded: Tree = field(default_factory=Tree)
    """The large results that the store has."""
    _forked: frozenset[str] = frozenset()
    """The contents of the fork that the store has."""
    _segments: tuple[Segment, ...] = ()
    """What the fork has changed, as the store has it."""

    async def begin(self, deps: object) -> None:
        """Take note of what deps from `load_deps` have: the store has that."""
        if isinstance(deps, DeepAgentDeps):
            self._offloaded = await offload_of(deps).snapshot()

    async def dump(self, deps: object) -> list[NewAsset]:
        """Return what the store has not of the state now; `digest` is that of the state then."""
        if not isinstance(deps, DeepAgentDeps):
            return self._dumped('{}', {PROTECTED: dump_changes(self.protected, self.run_id)}) if self.protected else []
        offload = offload_of(deps)
        files = await offload.snapshot()
        assets = [
            NewAsset(digest=files[path].digest, data=await offload.read_bytes(path))
            for path in self._offloaded.diff(files).added
        ]
        self._offloaded = files
        text = deps.to_json()
        beside: dict[str, object] = {}
        if files:
            beside[_OFFLOAD] = {path: [version.digest, version.size] for path, version in files.items()}
        if self.fork is not None and isinstance(deps.backend, OverlayBackend):
            working_dir = await deps.backend.working_dir()
            changes, contents = deps.backend.dump_apart()
            segments = segments_with(self._segments, cast('Mapping[str, Any]', changes))
            assets += [NewAsset(digest=digest, data=contents[digest]) for digest in contents.keys() - self._forked]
            assets += [_json_asset(each.digest, each.data) for each in segments if each not in self._segments]
            self._forked, self._segments = frozenset(contents), segments
            digests = [each.digest for each in segments]
            beside[_FORK] = {'of': self.fork, 'working_dir': working_dir, 'changes': digests}
        if self.protected:
            beside[PROTECTED] = dump_changes(self.protected, self.run_id)
        return [*assets, *self._dumped(text, beside)]

    def _dumped(self, text: str, beside: Mapping[str, object]) -> list[NewAsset]:
        """Return the asset with the state, if the store does not have it."""
        if beside:
            text = json.dumps({**json.loads(text), **beside}, ensure_ascii=False)
        data = text.encode()
        digest = digest_of(data)
        if digest == self.digest:
            return []
        self.digest = digest
        return [_json_asset(digest, data)]


def _json_asset(digest: str, data: bytes) -> NewAsset:
    return NewAsset(digest=digest, data=data, media_type='application/json')


async def load_deps(store: Store, digest: str | None, given: object, backend: BackendProtocol | None) -> object:
    """Return deps with the state that a version has of them, and with its files.

    Args:
        store: The store.
        digest: The asset with the state; `None` to take that of `given`.
        given: Deps with the live handles. What is not `DeepAgentDeps` is returned as it is.
        backend: The files; `None` for those of `given`.
    """
    if not isinstance(given, DeepAgentDeps):
        return given
    document: dict[str, Any] = {}
    deps = given
    if digest is not None:
        document = json.loads((await store.asset(digest)).data)
        named = document.pop(_OFFLOAD, {})
        document.pop(_FORK, None)
        document.pop(PROTECTED, None)
        live = {
            each.name: getattr(given, each.name) for each in fields(given) if each.init and each.metadata.get('live')
        }
        deps = type(given).from_json(json.dumps(document), **live)

        async def read_blob(digest: str) -> bytes:
            return (await store.asset(digest)).data

        tree = Tree.of({path: FileVersion(digest=digest, size=size) for path, (digest, size) in named.items()})
        offload = StateBackend.of(tree, read_blob)
    else:
        offload = offload_of(given)
    loaded = deps if backend is None else replace(deps, backend=backend)
    return loaded.with_offload(offload)


async def restore_deps(store: Store, digest: str | None, deps: object) -> None:
    """Give deps that are in use the todos and the long results of a state; what else they have may be others' too."""
    if digest is None or not isinstance(deps, DeepAgentDeps):
        return
    loaded = cast(DeepAgentDeps, await load_deps(store, digest, deps, None))
    deps.todos = loaded.todos
    kept, offload = offload_of(loaded), offload_of(deps)
    for path in (await offload.snapshot()).diff(await kept.snapshot()).added:
        await offload.write_bytes(path, await kept.read_bytes(path))


async def fork_of(store: Store, digest: str) -> str | None:
    """Return of whose fork a state of deps has the files; `None` if of none."""
    document = json.loads((await store.asset(digest)).data)
    return document[_FORK]['of'] if _FORK in document else None


async def restore_fork(store: Store, digest: str, fork: OverlayBackend) -> None:
    """Let a fork have the files that a state of deps has of one."""
    kept = json.loads((await store.asset(digest)).data)[_FORK]
    segments = await store.assets(kept['changes'])
    changes = joined([segments[digest].data for digest in kept['changes']])
    wanted = {
        state['digest'] for entry in changes['entries'] for state in (entry['now'], entry['was']) if _is_file(state)
    }
    found = await store.assets(wanted)
    moved = relocate(changes, kept['working_dir'], await fork.working_dir())
    fork.restore(moved, {digest: asset.data for digest, asset in found.items()})


def _is_file(state: Mapping[str, object] | None) -> bool:
    return state is not None and 'digest' in state
