"""Uploads."""

from __future__ import annotations

from pydantic import BaseModel

from ._fields import example_config


class UploadShape(BaseModel):
    """A file that the user gave."""

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
    """The name that it was given."""
    path: str
    """Where the agent finds it."""
    size_bytes: int
    """Its size."""
    encoding: str | None
    """The codec of a text; null for what is no text."""
    line_count: int | None
    """The number of lines of a text."""
    media_type: str
    """By the name first, then by the contents."""


class UploadList(BaseModel):
    """The uploads at the head of a conversation."""

    items: list[UploadShape]
    """By name."""


class NewUpload(BaseModel):
    """An upload, and the version that has it."""

    upload: UploadShape
    """It."""
    version_id: str
    """The version, which is the head now."""
