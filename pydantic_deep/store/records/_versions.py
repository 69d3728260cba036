"""Versions, and how they are found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, TypedDict

from typing_extensions import Unpack

from pydantic_deep.store._ids import new_id

from ._basics import Json, now

VersionKind: TypeAlias = Literal['root', 'step', 'turn', 'pause', 'edit', 'merge']
"""How a version came to be: with its conversation; in the middle of a turn; as the end of one; as the end of one that
waits for a person; without a turn; from two others."""


VersionState: TypeAlias = Literal['complete', 'awaiting_approval', 'interrupted', 'failed']
"""What became of the turn that it ends; a step is `interrupted` until its turn has another end."""


class VersionChanges(TypedDict, total=False):
    """The fields in which a child of a version may differ from its parent: see `VersionRecord`."""

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
    """A version as it is stored: what was true of one conversation, its files and its todos, at one moment."""

    id: str
    """A UUIDv7 (RFC 9562): whoever sees it learns when it was made."""
    number: int
    """Its place in the order of commits, from 1; 0 before it is stored. It grows, and may leave gaps."""
    parent_id: str | None
    """The version that it came from, also when that one was deleted since; `None` for a root."""
    cloned_from: str | None
    """The version that it is a clone of."""
    merged_from: str | None
    """The second parent of a merge."""
    kind: VersionKind
    """How it came to be."""
    state: VersionState
    """What became of the turn that it ends."""
    conversation_id: str
    """The conversation."""
    branch_id: str
    """The branch that its messages are on."""
    branch: str
    """The name of the branch; a name is unique within its conversation."""
    message_count: int
    """How many messages its history has: it ends after as many on its branch."""
    run_id: str | None
    """The run that made it."""
    agent_name: str
    """The name of the agent."""
    name: str | None
    """The name that it was given."""
    metadata: Json
    """An object."""
    model: str | None
    """The model that answered last, as `provider:name`."""
    model_settings: Json
    """The defaults of its turns, an object."""
    usage: Json
    """What the conversation has used up to here, an object."""
    output: Json | None
    """What the turn answered with."""
    pending: str | None
    """The digest of the asset with the calls that wait."""
    deps: str | None
    """The digest of the asset with the deps: todos and uploads among them."""
    tree: str | None
    """The digest of the tree of files."""
    backend: Json | None
    """Which backend the files belong to: an object with `provider` and `id`."""
    created_at: int
    """When it was made."""

    def child(self, kind: VersionKind, **changes: Unpack[VersionChanges]) -> VersionRecord:
        """Return a new version that continues this one, to be committed.

        It has an id of its own, and no run, clone or second parent unless `changes` says so. Everything else is as in
        this version.

        Args:
            kind: How it comes to be.
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
    """Which versions are wanted; what is `None` does not matter."""

    kinds: Sequence[VersionKind] | None = None
    """How they came to be."""
    name: str | None = None
    """A part of the name, whatever the case."""
    exact_name: str | None = None
    """The name, and the case matters."""
    agent_name: str | None = None
    """The name of the agent."""
    model: str | None = None
    """The model."""
    metadata: Mapping[str, str | int | float | bool | None] | None = None
    """Values that keys of the metadata have."""
    conversation_id: str | None = None
    """The conversation."""
    run_id: str | None = None
    """The run that made them."""
    states: Sequence[VersionState] | None = None
    """What became of their turns."""
    since: int | None = None
    """Made at this moment or later."""
    until: int | None = None
    """Made before this moment."""


@dataclass(frozen=True, kw_only=True)
class LineageRecord:
    """The way from the root to a version."""

    versions: tuple[VersionRecord, ...]
    """Root first."""
    truncated_at: str | None
    """The id of the deleted version at which it ends; `None` if it reaches a root."""
