"""The places of the parts of a composite, as one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

from pydantic_deep_backends.protocol import SupportsIdentity


class CompositeIdentity:
    """`SupportsIdentity` of a composite. It matches if each mounted backend matches.

    Args:
        places: The parts that can be identified, by mount point.
    """

    def __init__(self, places: Mapping[str, SupportsIdentity]) -> None:
        self._places = places

    async def identity(self) -> str | None:
        """Return the identities of the parts as JSON; `None` if the place of one is missing."""
        found = {path: await place.identity() for path, place in self._places.items()}
        return None if None in found.values() else json.dumps(found, sort_keys=True)

    async def has_identity(self, identity: str) -> bool | None:
        """Return whether each part is where it was; `None` if that cannot be told of one, and the others are."""
        try:
            known = cast('dict[str, str]', json.loads(identity))
            found = [await place.has_identity(known[path]) for path, place in self._places.items()]
        except (ValueError, LookupError, TypeError):
            return None
        return False if False in found else None if None in found else True

    async def make_root(self) -> None:
        """Make the places that are missing."""
        for place in self._places.values():
            await place.make_root()
