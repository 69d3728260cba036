"""The combined identity of the parts of a composite."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

from pydantic_deep_backends.protocol import SupportsIdentity


class CompositeIdentity:
    """`SupportsIdentity` of a composite. It matches if every part matches.

    Args:
        places: The parts that support identities, by mount point.
    """

    def __init__(self, places: Mapping[str, SupportsIdentity]) -> None:
        self._places = places

    async def identity(self) -> str | None:
        """Return the identities of the parts as JSON; `None` if the location of a part is missing."""
        identities = {path: await place.identity() for path, place in self._places.items()}
        return None if None in identities.values() else json.dumps(identities, sort_keys=True)

    async def has_identity(self, identity: str) -> bool | None:
        """Return whether all parts match; `None` if one is undetermined and no other differs."""
        try:
            known = cast('dict[str, str]', json.loads(identity))
            answers = [await place.has_identity(known[path]) for path, place in self._places.items()]
        except (ValueError, LookupError, TypeError):
            return None
        return False if False in answers else None if None in answers else True

    async def make_root(self) -> None:
        """Create the locations that are missing."""
        for place in self._places.values():
            await place.make_root()
