"""Uploaded files."""

from __future__ import annotations

from pydantic import BaseModel

from pydantic_deep.views import UploadedFile


class UploadList(BaseModel):
    """The uploads at the head of a conversation."""

    items: list[UploadedFile]
    """The uploads, sorted by name."""
