"""Selecting the versions and suspended runs that commands list. Nothing here needs a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

import typer

from pydantic_deep.cli._metadata import DIRECTORY, conversation_title
from pydantic_deep.cli.approvals._policy import GATED_TOOLS
from pydantic_deep.cli.render._ids import short_id
from pydantic_deep.cli.render._next_command import next_command
from pydantic_deep.cli.render._terminal_text import escape_invisible
from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.store import SqlStore, Store, VersionFilter, VersionRecord
from pydantic_deep.versions import VISIBLE_KINDS, VersionedAgent, ancestors, attempt_ids, suspended_runs, workspace_key
from pydantic_deep.views import Difference, StoreReader, TurnLineages, Version

from ._pending import can_finish, is_own
from ._revisions import Revisions

MAX_SEARCHED: Final = 1_000
"""Versions, newest first, whose conversations a search reads."""


@dataclass(frozen=True, kw_only=True)
class LogPage:
    """What `log` shows."""

    versions: list[Version]
    """The versions, newest first."""
    turn_bases: dict[str, str]
    """The base version of the turn of each step that represents its turn, by id of the step."""
    head_id: str | None
    """The version whose files the directory has."""
    titles: dict[str, str]
    """The titles of the conversations other than that of `HEAD`, by id."""


@dataclass(kw_only=True)
class VersionReader:
    """Selects versions of a store, relative to a directory, and loads their views."""

    revisions: Revisions
    views: StoreReader = field(init=False)
    """Loads versions, approvals and differences."""
    _turns: TurnLineages = field(init=False)

    def __post_init__(self) -> None:
        self.views = StoreReader(self.store)
        self._turns = TurnLineages(store=self.store)

    @property
    def versions(self) -> VersionedAgent[DeepAgentDeps, Any]:
        """An agent without a model, to load versions and to create versions without a run."""
        return self.views.agent

    @property
    def store(self) -> Store:
        """The store of the versions."""
        return self.revisions.store

    async def head_id(self) -> str | None:
        """Return the id of `HEAD`; `None` if there is no such version."""
        head = await self.revisions.find_head()
        return None if head is None else head.id

    async def log(
        self,
        *,
        conversation_id: str | None = None,
        everything: bool = False,
        steps: bool = False,
        search: str | None = None,
        limit: int,
    ) -> LogPage:
        """Return the newest versions with their positions in the graph.

        Args:
            conversation_id: As for `page`.
            everything: As for `page`.
            steps: As for `page`.
            search: Include only conversations whose name, a prompt or an answer contains this text, in any case, among
                the newest 1,000 versions.
            limit: As for `page`.
        """
        limit_before = limit if search is None else max(limit, MAX_SEARCHED)
        page = await self.page(conversation_id=conversation_id, everything=everything, steps=steps, limit=limit_before)
        if search is not None:
            matching = await self._conversations_with(search, page)
            page = [record for record in page if record.conversation_id in matching][:limit]
        return await self._log_page(page, {} if steps else await self.turn_bases(page))

    async def lineage_log(self, name: str, *, limit: int) -> LogPage:
        """Return a version and its newest ancestors, also through merges, and steps included.

        Raises:
            UnknownVersionError: The revision matches no version, or several.
        """
        found = await ancestors(self.store, await self.revisions.find(name))
        newest = sorted(found.values(), key=lambda record: record.number, reverse=True)[:limit]
        return await self._log_page(newest, {})

    async def difference(self, before: str, after: str | None) -> Difference:
        """Return the changes from one version to another; without the other, those of the turn of the first.

        Raises:
            UnknownVersionError: A revision matches no version, or several.
        """
        one = await self.revisions.find(before)  # an error names what the user wrote
        if after is None:
            one, other = await self.revisions.find(f'{before}~'), one
        else:
            other = await self.revisions.find(after)
        return await self.views.difference(one, other)

    async def page(
        self, *, conversation_id: str | None, everything: bool, steps: bool, limit: int
    ) -> list[VersionRecord]:
        """Return the newest versions.

        Args:
            conversation_id: Include only this conversation.
            everything: Include all directories, not only this one.
            steps: Include all versions within turns. Otherwise, steps are included only if they end an abandoned turn:
                `HEAD`, and the parents of other versions, also of merges.
            limit: The maximum number of versions.
        """
        kinds = None if steps else VISIBLE_KINDS
        if conversation_id is not None:
            wanted = VersionFilter(conversation_id=conversation_id)
        else:
            wanted = VersionFilter() if everything else VersionFilter(metadata={DIRECTORY: self.revisions.directory})
        page = await self.store.versions(replace(wanted, kinds=kinds), limit=limit)
        head = await self.revisions.find_head()
        if not page and head is not None and conversation_id is None:
            wanted = VersionFilter(conversation_id=head.conversation_id)
            page = await self.store.versions(replace(wanted, kinds=kinds), limit=limit)
        return page if steps else await self._with_abandoned_steps(page, head, limit)

    async def _conversations_with(self, text: str, records: Sequence[VersionRecord]) -> set[str]:
        """Return the conversations of versions that contain a text, by one query for those without it in a name."""
        named = {each.conversation_id for each in records if text.casefold() in (each.name or '').casefold()}
        others = {each.conversation_id for each in records} - named
        store = cast('SqlStore', self.store)  # `open_store` returns this type for every URL
        return named | await store.conversations_with(text, others)

    async def turn_bases(self, records: Sequence[VersionRecord]) -> dict[str, str]:
        """Return the base version of the turn of each step that has no parent among the records, by id of the step."""
        shown = {record.id for record in records}
        alone = [record for record in records if record.kind == 'step' and record.parent_id not in shown]
        turn_bases = {record.id: (await self._turns.lineage(record)).base for record in alone}
        return {id: begin.id for id, begin in turn_bases.items() if begin is not None}

    async def ran_without_approvals(self, record: VersionRecord) -> bool:
        """Return whether the run of a version called a gated tool without asking for approval."""
        run_ids = await attempt_ids(self.store, record)
        runs = [run for run_id in run_ids if (run := await self.store.run(run_id)) is not None]
        asked = {
            approval.pending_id
            for base_id in {run.base_id for run in runs if run.base_id is not None}
            for approval in await self.store.approvals(status=None, version_id=base_id, limit=10_000)
        }
        return any(
            call.tool_name in GATED_TOOLS and call.status != 'deferred' and call.tool_call_id not in asked
            for call in await self.store.calls(run_ids)
        )

    async def print_suspended_runs(self, *, agent_name: str | None = None, everything: bool = True) -> None:
        """Print suspended runs to standard error: unfinished runs without a live process.

        Args:
            agent_name: Include only the runs of this agent.
            everything: Include all directories, not only this one.
        """
        for run in await suspended_runs(self.store, agent_name=agent_name):
            version = None if run.version_id is None else await self.store.version(run.version_id)
            place = None if version is None or version.backend is None else workspace_key(version.backend)
            if everything or place == self.revisions.workspace:
                at = 'a version that was deleted' if version is None else f'version {short_id(version.id)}'
                finish = ''
                if version is not None and is_own(version) and can_finish(run, version):
                    finish = f'Finish it with: {next_command("resume", short_id(version.id))}. '
                begun = run.started_at.isoformat(timespec='milliseconds')
                text = (
                    f'Suspended: the run of {run.agent_name} of {begun} did not end. It is at {at}, and '
                    f'no process works on it. {finish}Continue after its last step with: '
                    f'{next_command("run", "--continue", "TASK")}'
                )
                typer.echo(escape_invisible(text), err=True)

    async def _log_page(self, page: Sequence[VersionRecord], turn_bases: dict[str, str]) -> LogPage:
        head = await self.revisions.find_head()
        return LogPage(
            versions=await self.views.versions(page),
            turn_bases=turn_bases,
            head_id=None if head is None else head.id,
            titles={
                record.conversation_id: title
                for record in page
                if (head is None or record.conversation_id != head.conversation_id)
                and (title := conversation_title(record)) is not None
            },
        )

    async def _with_abandoned_steps(
        self, page: Sequence[VersionRecord], head: VersionRecord | None, limit: int
    ) -> list[VersionRecord]:
        """Return versions together with the last steps of abandoned turns, newest first."""
        self._turns.cache(page)
        conversations = {record.conversation_id for record in page}
        parents = [*page, *(record._replace(parent_id=record.merged_from) for record in page)]
        others = [head, *[await self._turns.parent(record) for record in parents]]
        abandoned = [
            record
            for record in others
            if record is not None and record.kind == 'step' and record.conversation_id in conversations
        ]
        shown = {record.id: record for record in [*page, *abandoned]}
        return sorted(shown.values(), key=lambda record: record.number, reverse=True)[:limit]
