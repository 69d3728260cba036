"""The deps state in versions: the result of `to_json`, offloaded large results, and the files of a fork.

Each large result and all contents of a fork are assets, stored once. A version refers to all of them; for a fork,
through segments of its list of files.
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
"""The key of the large results, next to the fields of deps: digest and size, keyed by path."""

_FORK = 'fork'
"""The key of the files that a subagent has changed in a fork: the conversation that owns it, its directory, and the
changes.
"""


@dataclass(kw_only=True)
class DepsState:
    """The stored deps state of one run."""

    digest: str | None
    """The digest of its asset; `None` before there is one."""
    fork: str | None = None
    """The conversation that owns the fork with the files of the deps, which a crash loses unless they are stored here;
    `None` without a fork.
    """
    run_id: str | None = None
    """The id of the run. It distinguishes its changes to protected files from those of other runs with the same state.
    """
    protected: tuple[ProtectedChange, ...] = ()
    """The changes of the turn to protected files, known when its run ends."""
    _offloaded: Tree = field(default_factory=Tree)
    """The large results that are stored."""
    _forked: frozenset[str] = frozenset()
    """The digests of stored contents of the fork."""
    _segments: tuple[Segment, ...] = ()
    """The stored changes of the fork."""

    async def begin(self, deps: object) -> None:
        """Mark the large results of deps from `load_deps` as stored."""
        if isinstance(deps, DeepAgentDeps):
            self._offloaded = await offload_of(deps).snapshot()

    async def dump(self, deps: object) -> list[NewAsset]:
        """Return the assets of the present state that are not stored, and set `digest` to that of the state."""
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
            assets += [
                _json_asset(segment.digest, segment.data) for segment in segments if segment not in self._segments
            ]
            self._forked, self._segments = frozenset(contents), segments
            digests = [segment.digest for segment in segments]
            beside[_FORK] = {'of': self.fork, 'working_dir': working_dir, 'changes': digests}
        if self.protected:
            beside[PROTECTED] = dump_changes(self.protected, self.run_id)
        return [*assets, *self._dumped(text, beside)]

    def _dumped(self, text: str, beside: Mapping[str, object]) -> list[NewAsset]:
        """Return the asset with the state, if it is not stored."""
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


async def load_deps(store: Store, digest: str | None, live_deps: object, backend: BackendProtocol | None) -> object:
    """Return deps with the stored state of a version, and with its files.

    Args:
        store: The store.
        digest: The digest of the state; `None` for the state of `live_deps`.
        live_deps: Deps with live handles. Objects other than `DeepAgentDeps` are returned unchanged.
        backend: The files; `None` for those of `live_deps`.
    """
    if not isinstance(live_deps, DeepAgentDeps):
        return live_deps
    document: dict[str, Any] = {}
    deps = live_deps
    if digest is not None:
        document = json.loads(await store.read_asset(digest))
        named = document.pop(_OFFLOAD, {})
        document.pop(_FORK, None)
        document.pop(PROTECTED, None)
        live = {
            deps_field.name: getattr(live_deps, deps_field.name)
            for deps_field in fields(live_deps)
            if deps_field.init and deps_field.metadata.get('live')
        }
        deps = type(live_deps).from_json(json.dumps(document), **live)
        tree = Tree.of({path: FileVersion(digest=digest, size=size) for path, (digest, size) in named.items()})
        offload = StateBackend.of(tree, store.read_asset)
    else:
        offload = offload_of(live_deps)
    loaded = deps if backend is None else replace(deps, backend=backend)
    return loaded.with_offload(offload)


async def restore_deps(store: Store, digest: str | None, deps: object) -> None:
    """Restore the todos and large results of deps in use. Other fields may be shared with other runs."""
    if digest is None or not isinstance(deps, DeepAgentDeps):
        return
    loaded = cast(DeepAgentDeps, await load_deps(store, digest, deps, None))
    deps.todos = loaded.todos
    stored, offload = offload_of(loaded), offload_of(deps)
    for path in (await offload.snapshot()).diff(await stored.snapshot()).added:
        await offload.write_bytes(path, await stored.read_bytes(path))


async def fork_of(store: Store, digest: str) -> str | None:
    """Return the conversation that owns the fork in a deps state; `None` if it has none."""
    document = json.loads(await store.read_asset(digest))
    return document[_FORK]['of'] if _FORK in document else None


async def restore_fork(store: Store, digest: str, fork: OverlayBackend) -> None:
    """Restore the files of a fork from a deps state."""
    stored = json.loads(await store.read_asset(digest))[_FORK]
    segments = await store.assets(stored['changes'])
    changes = joined([segments[digest].data for digest in stored['changes']])
    digests = {
        state['digest'] for entry in changes['entries'] for state in (entry['now'], entry['was']) if _is_file(state)
    }
    assets = await store.assets(digests)
    relocated = relocate(changes, stored['working_dir'], await fork.working_dir())
    fork.restore(relocated, {digest: asset.data for digest, asset in assets.items()})


def _is_file(state: Mapping[str, object] | None) -> bool:
    return state is not None and 'digest' in state
