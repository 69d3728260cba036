"""Versions, their files, and the differences between them."""

from __future__ import annotations

from pydantic import BaseModel

from pydantic_deep.views import Version

from ._fields import EXAMPLE_ID, Id, example_config


class VersionPage(BaseModel):
    """Some of the versions that were asked for."""

    items: list[Version]
    """Newest first."""
    cursor: str | None
    """What to ask the next page with; null if this is the last."""


class FileShape(BaseModel):
    """A file of a version."""

    path: str
    """Its absolute path."""
    size_bytes: int
    """Its size."""
    digest: str
    """Of its contents: `sha256:` and 64 hexadecimal digits."""
    is_executable: bool
    """Whether its owner may execute it."""


class FileList(BaseModel):
    """The files of a version."""

    model_config = example_config(
        {'items': [{'path': '/a.txt', 'size_bytes': 2, 'digest': f'sha256:{"0" * 64}', 'is_executable': False}]}
    )

    items: list[FileShape]
    """By path."""


class HeadChange(BaseModel):
    """Where the head of a conversation is to go."""

    model_config = example_config({'version': EXAMPLE_ID}, extra='forbid')

    version: Id
    """A version of the conversation: one before, or one of another branch."""
    expected: Id | None = None
    """Where the head is thought to be; refused if it is elsewhere. If left out it moves from wherever it is."""


class Merge(BaseModel):
    """Another version, whose files are to be joined."""

    model_config = example_config({'other': EXAMPLE_ID}, extra='forbid')

    other: Id
    """The version whose files come in. The dialogue stays that of the one that is merged into."""
