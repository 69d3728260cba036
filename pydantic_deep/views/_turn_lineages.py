"""The versions of one turn: one for each step and each pause for approvals, then the final one.

This module is the single definition of which versions form a turn, where its messages start, and which prompt started
it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic_deep._messages.loaded_skills import typed_prompt
from pydantic_deep.store import Store, VersionFilter, VersionNotFoundError, VersionRecord
from pydantic_deep.versions import attempt_ids, replaced_messages


@dataclass(frozen=True, kw_only=True)
class TurnLineage:
    """The versions of a turn up to one of them."""

    base: VersionRecord | None
    """The version that the turn started from; `None` at the start of a conversation, or if it was deleted."""
    versions: Sequence[VersionRecord]
    """The versions of the turn, oldest first."""


@dataclass(frozen=True, kw_only=True)
class TurnLineages:
    """Determines the versions of turns in a store. Loaded versions are cached."""

    store: Store
    """The store that versions are loaded from."""
    _record_by_id: dict[str, VersionRecord | None] = field(default_factory=dict[str, 'VersionRecord | None'])
    _attempts_by_run: dict[str | None, list[str]] = field(default_factory=dict['str | None', list[str]])
    _prompt_by_version: dict[str, str | None] = field(default_factory=dict[str, 'str | None'])

    def cache(self, records: Iterable[VersionRecord]) -> None:
        """Cache versions that are already loaded."""
        self._record_by_id.update({record.id: record for record in records})

    async def parent(self, record: VersionRecord) -> VersionRecord | None:
        """Return the parent, or `None` if there is none or it was deleted."""
        return None if record.parent_id is None else await self.version(record.parent_id)

    async def version(self, id: str) -> VersionRecord | None:
        """Return a version; `None` if it was deleted."""
        if id not in self._record_by_id:
            try:
                self._record_by_id[id] = await self.store.version(id)
            except VersionNotFoundError:
                self._record_by_id[id] = None
        return self._record_by_id[id]

    async def lineage(self, record: VersionRecord) -> TurnLineage:
        """Return the versions of the turn that a version belongs to, up to that version."""
        versions, parent = [record], await self.parent(record)
        while parent is not None and await self._is_same_turn(parent, versions[-1]):
            versions.append(parent)
            parent = await self.parent(parent)
        return TurnLineage(base=parent, versions=versions[::-1])

    async def first_message_index(self, lineage: TurnLineage) -> int:
        """Return the index of the first message of a turn in the history of its last version."""
        base, last = lineage.base, lineage.versions[-1]
        if base is not None and base.branch_id == last.branch_id:
            return min(base.message_count, last.message_count)
        if lineage.versions[0].parent_id is None:
            return 0
        messages, runs = await self.message_bodies(last, 0, last.message_count), await self._runs(lineage)
        return _first_index(runs, messages)

    async def prompt(self, record: VersionRecord) -> str | None:
        """Return the prompt of the turn of a version, as the user typed it: that of its first run. `None` if it had none.

        Prompts of later runs of the turn are generated, such as a note that a person changed the arguments of a call.
        """
        lineage = await self.lineage(record)
        first = lineage.versions[0]
        if first.id not in self._prompt_by_version:
            self._prompt_by_version[first.id] = await self._read_prompt(lineage)
        return self._prompt_by_version[first.id]

    async def latest_continuation(self, record: VersionRecord) -> VersionRecord:
        """Return the newest version of the run that resumed a version, or the version itself if none did."""
        while record.state == 'awaiting_approval' and (children := await self.store.children(record.id)):
            child = children[-1]
            if child.kind == 'edit' and (below := await self.store.children(child.id)):
                child = below[-1] if await self._is_same_turn(child, below[-1]) else child
            versions = (
                await self.store.versions(VersionFilter(run_id=child.run_id), limit=1) if child.run_id else [child]
            )
            record = versions[0]
        return record

    async def message_bodies(self, record: VersionRecord, start: int, stop: int) -> list[dict[str, Any]]:
        """Return messages of a version in their stored form."""
        messages = await self.store.messages(record.branch_id, stop, start=start)
        return [json.loads(message.body) for message in messages]

    async def _is_same_turn(self, version: VersionRecord, later: VersionRecord) -> bool:
        """Return whether a version and its child belong to the same turn."""
        if version.state == 'awaiting_approval':
            return True
        if version.kind == 'edit' and version.parent_id is not None:  # made in the directory while the turn was pending
            answered = await self.store.approvals(status=None, version_id=version.parent_id, limit=10_000)
            resumed_by = {approval.resumed_by for approval in answered if approval.resumed_by is not None}
            return bool(resumed_by) and not resumed_by.isdisjoint(await self._attempts(later))
        if version.kind != 'step':
            return False
        return version.run_id == later.run_id or version.run_id in await self._attempts(later)

    async def _attempts(self, record: VersionRecord) -> list[str]:
        """Return the run of a version, preceded by the crashed runs that it resumed."""
        if record.run_id not in self._attempts_by_run:
            self._attempts_by_run[record.run_id] = await attempt_ids(self.store, record)
        return self._attempts_by_run[record.run_id]

    async def _runs(self, lineage: TurnLineage) -> list[str]:
        """Return the runs of a turn, oldest first. Runs with deleted versions are taken from the messages."""
        runs = [id for version in lineage.versions for id in await self._attempts(version)]
        if lineage.base is not None:
            return runs
        first = lineage.versions[0]
        messages = await self.message_bodies(first, 0, first.message_count)
        while runs and (before := await self._asking_run(runs, messages)) is not None:
            runs = [*await self._attempts(first._replace(run_id=before)), *runs]
        return runs

    async def _asking_run(self, runs: Sequence[str], messages: Sequence[Mapping[str, Any]]) -> str | None:
        """Return the run that paused before the first of these runs, or `None` if that run started the turn."""
        first = await self.store.run(runs[0])
        is_resumption = first is not None and json.loads(first.options).get('resumes') is not None
        before = [message['run_id'] for message in messages[: _first_index(runs, messages)] if message.get('run_id')]
        return before[-1] if is_resumption and before else None

    async def _read_prompt(self, lineage: TurnLineage) -> str | None:
        """Return the prompt of the first run, which is near the end of the base's messages: a repair may change their
        number.

        If a summary was created during the turn, the prompt follows the summary, or is among the replaced messages.
        """
        first, base, runs = lineage.versions[0], lineage.base, await self._runs(lineage)
        start = 0 if base is None else max(0, base.message_count - 2)
        prompt = _find_prompt(
            await self.message_bodies(first, start, min(start + 6, first.message_count)),
            runs,
        )
        is_elsewhere = base is None or first.branch_id != base.branch_id
        if prompt is None and is_elsewhere:
            prompt = _find_prompt(await self.message_bodies(first, 0, first.message_count), runs)
        if prompt is None and is_elsewhere:
            earlier = await replaced_messages(self.store, first)
            prompt = _find_prompt([json.loads(message.body) for message in earlier], runs)
        return prompt


async def is_pending(store: Store, record: VersionRecord) -> bool:
    """Return whether a version has approvals that no run has resumed with."""
    if record.state != 'awaiting_approval':
        return False
    approvals = await store.approvals(status=None, version_id=record.id, limit=10_000)
    return any(each.resumed_by is None and each.status != 'superseded' for each in approvals)


def _first_index(run_ids: Collection[str], messages: Sequence[Mapping[str, Any]]) -> int:
    """Return the index of the first message of the runs, or the number of messages if there is none."""
    places = (place for place, message in enumerate(messages) if message.get('run_id') in run_ids)
    return next(places, len(messages))


def _find_prompt(messages: Sequence[Mapping[str, Any]], run_ids: Collection[str]) -> str | None:
    """Return the first prompt of the runs in stored messages, with loaded skills as `/NAME`, or `None`."""
    for message in messages:
        if message.get('kind') == 'request' and message.get('run_id') in run_ids:
            for part in cast('list[dict[str, Any]]', message.get('parts', [])):
                if part.get('part_kind') == 'user-prompt':
                    return typed_prompt(prompt_text(part.get('content')))
    return None


def prompt_text(content: object) -> str:
    """Return the text of a stored prompt, with `[media]` for each media part."""
    if isinstance(content, str):
        return content
    return '\n'.join(map(_piece_text, cast('Sequence[object]', content) if isinstance(content, Sequence) else []))


def _piece_text(piece: object) -> str:
    if isinstance(piece, str):
        return piece
    tagged = cast('dict[str, object]', piece) if isinstance(piece, dict) else {}
    return str(tagged['content']) if tagged.get('kind') in ('text-content', 'structured-content') else '[media]'
