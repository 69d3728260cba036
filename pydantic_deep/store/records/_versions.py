"""Versions, and the filter that selects them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, TypedDict

from typing_extensions import Unpack

from pydantic_deep.store._ids import new_id

from ._basics import Json, now

VersionKind: TypeAlias = Literal['root', 'step', 'turn', 'pause', 'edit', 'merge']
"""Origin of a version. `root`: the start of a conversation. `step`: the middle of a turn. `turn`: the end of a turn.
`pause`: the end of a turn with pending approvals. `edit`: a change outside of a turn. `merge`: a merge of two versions.
"""


VersionState: TypeAlias = Literal['complete', 'awaiting_approval', 'interrupted', 'failed']
"""State of the turn that the version ends. A step is `interrupted` until its turn ends otherwise."""


class VersionChanges(TypedDict, total=False):
    """The fields in which a child may differ from its parent; see `VersionRecord`."""

    parent_id: str
    merged_from: str
    state: VersionState
    branch_id: str
    message_count: int
    run_id: str | None
    name: str | None
    metadata: Json
    model: str | None
    model_settings: Json
    usage: Json
    output: Json | None
    pending: str | None
    deps: str | None
    tree: str | None
    backend: Json | None


class VersionRecord(NamedTuple):
    """A stored version: the state of a conversation, its files and its todos at one moment."""

    id: str
    """A UUIDv7 (RFC 9562), which reveals the creation time."""
    number: int
    """Position in the order of commits, from 1; 0 before it is stored. Numbers increase and may have gaps."""
    parent_id: str | None
    """The parent version, even if it has been deleted since; `None` for a root."""
    cloned_from: str | None
    """The version that this one is a clone of."""
    merged_from: str | None
    """The second parent of a merge."""
    kind: VersionKind
    """The origin of the version."""
    state: VersionState
    """The state of the turn that the version ends."""
    conversation_id: str
    """The conversation that the version belongs to."""
    branch_id: str
    """The branch with its messages."""
    branch: str
    """Name of the branch, unique within its conversation."""
    message_count: int
    """Length of its history: the version ends after this many messages of its branch."""
    run_id: str | None
    """The run that made the version."""
    agent_name: str
    """The name of the agent that made the version."""
    name: str | None
    """A name given by a person."""
    metadata: Json
    """A JSON object of the caller's own data."""
    model: str | None
    """The model that responded last, as `provider:name`."""
    model_settings: Json
    """A JSON object with the default model settings of its turns."""
    usage: Json
    """A JSON object with the usage of the conversation up to this version."""
    output: Json | None
    """The output of the turn."""
    pending: str | None
    """Digest of the asset with the pending calls."""
    deps: str | None
    """Digest of the asset with the deps, including todos and uploads."""
    tree: str | None
    """Digest of the file tree."""
    backend: Json | None
    """A JSON object with the `provider` and `id` of the backend that the files belong to, and with its type as
    `unversioned` if no version has them.
    """
    created_at: int
    """When the version was created."""

    def child(self, kind: VersionKind, **changes: Unpack[VersionChanges]) -> VersionRecord:
        """Return a new, uncommitted version that continues this one.

        It has an id of its own, and no run, clone or second parent unless `changes` sets them. All other fields are
        those of this version.

        Args:
            kind: The origin of the new version.
            **changes: The fields that differ.
        """
        child = self._replace(
            id=new_id(),
            number=0,
            parent_id=self.id,
            cloned_from=None,
            merged_from=None,
            kind=kind,
            run_id=None,
            created_at=now(),
        )
        return child._replace(**changes)


@dataclass(frozen=True, kw_only=True)
class VersionFilter:
    """Conditions on versions; a field that is `None` imposes none."""

    kinds: Sequence[VersionKind] | None = None
    """The accepted origins of versions."""
    name: str | None = None
    """A substring of the name, case-insensitive."""
    exact_name: str | None = None
    """The whole name, case-sensitive."""
    agent_name: str | None = None
    """The whole name of the agent, case-sensitive."""
    model: str | None = None
    """The whole `model` of the version, as `provider:name`."""
    metadata: Mapping[str, str | int | float | bool | None] | None = None
    """Required values of metadata keys."""
    metadata_keys: Sequence[str] | None = None
    """Metadata keys that must be present, with any value."""
    conversation_id: str | None = None
    """The conversation of the versions."""
    run_id: str | None = None
    """The run that made the versions."""
    states: Sequence[VersionState] | None = None
    """States of the turns that the versions end."""
    since: int | None = None
    """Earliest creation time, inclusive."""
    until: int | None = None
    """Latest creation time, exclusive."""


@dataclass(frozen=True, kw_only=True)
class LineageRecord:
    """The ancestry of a version."""

    versions: tuple[VersionRecord, ...]
    """The versions, root first."""
    truncated_at: str | None
    """Id of the deleted version at which the lineage ends; `None` if it reaches a root."""
