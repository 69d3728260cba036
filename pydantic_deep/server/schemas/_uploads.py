"""Uploaded files."""

from __future__ import annotations

from pydantic import BaseModel

from pydantic_deep._examples import example_config


class UploadShape(BaseModel):
    """A file that a user uploaded."""

    model_config = example_config(
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


class UploadList(BaseModel):
    """The uploads at the head of a conversation."""

    items: list[UploadShape]
    """The uploads, sorted by name."""


class NewUpload(BaseModel):
    """An upload, and the version that contains it."""

    upload: UploadShape
    """The upload that was stored."""
    version_id: str
    """The version that contains the upload, which is the new head."""
