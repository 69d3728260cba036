"""The changes of a fork in segments, so that a call stores only new changes and not the whole list.

A segment contains the entries of some paths, in the form of `OverlayBackend.dump_apart`; a later segment overrides an
earlier one. A new segment absorbs the preceding ones that are less than twice as large. Therefore segments are few, and
an entry is written again only into a segment of at least 1.5 times the size. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_deep_backends import digest_of


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A part of the changes of a fork."""

    digest: str
    """The digest of `data`."""
    data: bytes
    """The stored form of the segment."""
    entries: Mapping[str, object]
    """The entries, keyed by path."""


def segments_with(known: Sequence[Segment], changes: Mapping[str, Any]) -> tuple[Segment, ...]:
    """Return segments that contain these changes, reusing known segments as far as possible."""
    entries = _by_path([changes])
    had = {path: entry for segment in known for path, entry in segment.entries.items()}
    if not had.keys() <= entries.keys():  # merging removes entries, which a segment cannot express
        known, had = (), {}
    new = {path: entry for path, entry in entries.items() if had.get(path) != entry}
    if known and not new:
        return tuple(known)
    reused = list(known)
    while reused and len(reused[-1].entries) < 2 * len(new):
        new = {**reused.pop().entries, **new}
    data = json.dumps({**changes, 'entries': list(new.values())}, ensure_ascii=False).encode()
    return (*reused, Segment(digest=digest_of(data), data=data, entries=new))


def joined(segments: Sequence[bytes]) -> dict[str, Any]:
    """Return the combined changes of stored segments, oldest first. There must be at least one."""
    parts: list[dict[str, Any]] = [json.loads(data) for data in segments]
    return {**parts[-1], 'entries': list(_by_path(parts).values())}


def _by_path(parts: Iterable[Mapping[str, Any]]) -> dict[str, object]:
    return {entry['path']: entry for part in parts for entry in part['entries']}
