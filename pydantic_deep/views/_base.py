"""The base class of the views."""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict


class View(BaseModel):
    """A stored object in its JSON form. The validator is built on first use."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, defer_build=True, from_attributes=True)

    @classmethod
    def of(cls, source: object, /, **values: object) -> Self:
        """Return the view of an object. The fields without a value are the attributes of the same name."""
        return cls.model_validate(
            values | {name: getattr(source, name) for name in cls.model_fields if name not in values}
        )
