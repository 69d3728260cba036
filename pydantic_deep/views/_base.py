"""The base class of the views."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class View(BaseModel):
    """A stored object in its JSON form. The validator is built on first use."""

    model_config = ConfigDict(frozen=True, defer_build=True, from_attributes=True)
