"""What a fork has changed as the store keeps it: in segments, so that each call brings what is new and not the whole list.

A segment has the entries of some paths, in the form of `OverlayBackend.dump_apart`; of two with a path the later one
counts. A new one takes in those before it that are less than twice as large. So they are few, and an entry is written
again only for a segment that is half as large again. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_deep_backends import digest_of


@dataclass(frozen=True, kw_only=True)
class Segment:
    """Some of what a fork has changed."""

    digest: str
    """Of `data`."""
    data: bytes
    """It, as it is stored."""
    entries: Mapping[str, object]
    """It, by path."""


def segments_with(known: Sequence[Segment], changes: Mapping[str, Any]) -> tuple[Segment, ...]:
    """Return segments that have these changes together: those that are known, as far as they can stay."""
    entries = _by_path([changes])
    had = {path: entry for segment in known for path, entry in segment.entries.items()}
    if not had.keys() <= entries.keys():  # what was merged is forgotten, and a segment cannot say that
        known, had = (), {}
    new = {path: entry for path, entry in entries.items() if had.get(path) != entry}
    if known and not new:
        return tuple(known)
    kept = list(known)
    while kept and len(kept[-1].entries) < 2 * len(new):
        new = {**kept.pop().entries, **new}
    data = json.dumps({**changes, 'entries': list(new.values())}, ensure_ascii=False).encode()
    return (*kept, Segment(digest=digest_of(data), data=data, entries=new))


def joined(segments: Sequence[bytes]) -> dict[str, Any]:
    """Return the changes that stored segments have together, oldest first; there is at least one."""
    parts: list[dict[str, Any]] = [json.loads(data) for data in segments]
    return {**parts[-1], 'entries': list(_by_path(parts).values())}


def _by_path(parts: Iterable[Mapping[str, Any]]) -> dict[str, object]:
    return {entry['path']: entry for part in parts for entry in part['entries']}
