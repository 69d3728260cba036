"""Versions, their files, and differences between them."""

from __future__ import annotations

from pydantic import BaseModel, Field

from pydantic_deep._examples import EXAMPLE_ID, example_config
from pydantic_deep.versions import MergeSide
from pydantic_deep.views import Version, VersionFile

from ._fields import Id


class VersionPage(BaseModel):
    """A page of versions."""

    items: list[Version]
    """The versions, newest first."""
    cursor: str | None
    """The cursor of the next page; null for the last page."""


class FileList(BaseModel):
    """The files of a version."""

    model_config = example_config(
        {'items': [{'path': '/a.txt', 'size_bytes': 2, 'digest': f'sha256:{"0" * 64}', 'is_executable': False}]}
    )

    items: list[VersionFile]
    """The files, sorted by path."""


class HeadChange(BaseModel):
    """A new head for a conversation."""

    model_config = example_config({'version': EXAMPLE_ID}, extra='forbid')

    version: Id
    """A version of the conversation: an earlier one, or one of another branch."""
    expected: Id | None = None
    """The expected current head. If the head differs, the request fails. If omitted, the head moves unconditionally."""


class Merge(BaseModel):
    """The other version of a merge."""

    model_config = example_config({'other': EXAMPLE_ID}, extra='forbid')

    other: Id
    """The version to merge the files from. The messages remain those of the version that is merged into."""
    choices: dict[str, MergeSide] = Field(default_factory=dict[str, MergeSide], max_length=10_000)
    """For each conflict, by its path: whether to use the file of the version that is merged into, or of the other."""
