"""Files of versions, and uploads."""

from __future__ import annotations

from typing import ClassVar

from pydantic import ConfigDict

from pydantic_deep._examples import example_config

from ._base import View


class VersionFile(View):
    """A file of a version."""

    path: str
    """The absolute path of the file."""
    size_bytes: int
    """The size of the file in bytes."""
    digest: str
    """The digest of the contents: `sha256:` and 64 hexadecimal digits."""
    is_executable: bool
    """Whether the owner of the file may execute it."""


class UploadedFile(View):
    """A file that a user uploaded."""

    model_config: ClassVar[ConfigDict] = example_config(
        {
            'name': 'sales.csv',
            'path': '/uploads/sales.csv',
            'size_bytes': 12,
            'encoding': 'ascii',
            'line_count': 2,
            'media_type': 'text/csv',
        }
    )

    name: str
    """The name that the user gave the file."""
    path: str
    """The path at which the agent finds the file."""
    size_bytes: int
    """The size of the file in bytes."""
    encoding: str | None
    """The encoding of a text file; null for a binary file."""
    line_count: int | None
    """The number of lines of a text file; null for a binary file."""
    media_type: str
    """The media type, detected from the name, then from the contents."""


class NewUpload(View):
    """An upload, and the version that contains it."""

    upload: UploadedFile
    """The upload that was stored."""
    version_id: str
    """The version that contains the upload, which is the new head."""
