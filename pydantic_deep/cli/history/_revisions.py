"""Revisions as in git: `HEAD`, an unambiguous beginning or end of an id, or a branch, each optionally with `~2`.

Ids start with their time of creation, so ids of one hour share a prefix. The random end of an id is displayed.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace

from pydantic_deep.cli._metadata import DIRECTORY, conversation_title
from pydantic_deep.cli.render._ids import HEAD, short_id
from pydantic_deep.cli.render._terminal_text import first_line_of_prose
from pydantic_deep.errors import DeepAgentError
from pydantic_deep.store import Store, VersionFilter, VersionNotFoundError, VersionRecord
from pydantic_deep.versions import workspace_key
from pydantic_deep.views import TurnLineages

_MIN_CHARS = 4
_MAX_CANDIDATES = 5
_PAGE = 1000
_REVISION = re.compile(r'(?P<name>[^~]+)(?P<above>(~\d*)*)')
_ID_PART = re.compile(r'[0-9a-f-]+')


class UnknownVersionError(DeepAgentError, LookupError):
    """A revision matches no version, or several."""


@dataclass(frozen=True, kw_only=True)
class Revisions:
    """Finds versions of a store by revision, relative to a directory."""

    store: Store
    directory: str
    """The absolute path of the directory, without symbolic links."""

    @property
    def workspace(self) -> str:
        """The key of the directory in the store."""
        return workspace_key(json.dumps({'provider': 'local', 'id': self.directory}))

    @property
    def _here(self) -> VersionFilter:
        return VersionFilter(metadata={DIRECTORY: self.directory})

    async def find_head(self) -> VersionRecord | None:
        """Return the version that `HEAD` refers to; `None` if the store has no version of this directory."""
        workspace = await self.store.workspace(self.workspace)
        if workspace is not None and workspace.version_id is not None:
            try:
                return await self.store.version(workspace.version_id)
            except VersionNotFoundError:
                pass  # the version was deleted
        newest = await self.store.versions(self._here, limit=1)
        if not newest:
            return None
        conversation = await self.store.conversation(newest[0].conversation_id)
        head_id = None if conversation is None else conversation.head_id
        return newest[0] if head_id is None else await self.store.version(head_id)

    async def find(self, name: str) -> VersionRecord:
        """Return the version that a revision refers to.

        Raises:
            UnknownVersionError: The revision matches no version, or several.
        """
        match = _REVISION.fullmatch(name)
        if match is None:
            raise UnknownVersionError(
                f'{name!r} names no version. Write HEAD, HEAD~2, or an id or a branch that `log` shows.'
            )
        record = await self._find_base(match['name'])
        for step in re.findall(r'~(\d*)', match['above']):
            for _ in range(int(step or 1)):
                record = await self._before_turn(record, name)
        return record

    async def _find_base(self, name: str) -> VersionRecord:
        if name == HEAD:
            head = await self.find_head()
            if head is None:
                raise UnknownVersionError(
                    f'There is no HEAD: {self.store.url} has no version of {self.directory}. Choose another directory '
                    'with --dir, or another store with --store.'
                )
            return head
        matches = await self._with_id_suffix(name.lower())
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise UnknownVersionError(
                f'Several versions end with {name!r}: {", ".join(record.id for record in matches[:5])}. Write more of '
                'the id.'
            )
        try:
            return await self.store.version(name.lower())
        except VersionNotFoundError as error:
            record = await self._on_branch(name) or await self._with_name(name)
            if record is not None:
                return record
            raise UnknownVersionError(await self._describe_unknown(name, error)) from None

    async def _with_id_suffix(self, text: str) -> list[VersionRecord]:
        """Return the versions with this id suffix in the directory, or in the whole store if the directory has none."""
        if not _MIN_CHARS <= len(text) < 36 or _ID_PART.fullmatch(text) is None:
            return []
        for scope in (self._here, VersionFilter()):
            matches = [record async for record in self.walk(scope) if record.id.endswith(text)]
            if matches:
                return matches
        return []

    async def _on_branch(self, name: str) -> VersionRecord | None:
        """Return the newest version of a branch in the conversation of `HEAD`, or else in the directory.

        Raises:
            UnknownVersionError: Several other conversations have a branch of this name.
        """
        head = await self.find_head()
        scopes = [self._here] if head is None else [VersionFilter(conversation_id=head.conversation_id), self._here]
        tips: dict[str, VersionRecord] = {}
        for scope in scopes:
            async for record in self.walk(scope):
                if record.branch == name:
                    tips.setdefault(record.conversation_id, record)
            if tips:
                break
        if len(tips) > 1:
            raise UnknownVersionError(
                f'Several conversations have a branch {name!r}. Write the id of one: '
                f'{"; ".join(map(_describe_tip, list(tips.values())[:_MAX_CANDIDATES]))}.'
            )
        return next(iter(tips.values()), None)

    async def _with_name(self, name: str) -> VersionRecord | None:
        """Return the newest version with a name in the directory, or else in the whole store."""
        for scope in (self._here, VersionFilter()):
            named = await self.store.versions(replace(scope, exact_name=name), limit=1)
            if named:
                return named[0]
        return None

    async def walk(self, wanted: VersionFilter) -> AsyncGenerator[VersionRecord]:
        """Yield all versions that match a filter, newest first."""
        before: int | None = None
        while page := await self.store.versions(wanted, limit=_PAGE, before=before):
            for record in page:
                yield record
            before = page[-1].number

    async def _before_turn(self, record: VersionRecord, name: str) -> VersionRecord:
        """Return the version before the turn of a version."""
        lineage = await TurnLineages(store=self.store).lineage(record)
        first = lineage.versions[0]
        if lineage.base is not None:
            return lineage.base
        reason = 'is the first version' if first.parent_id is None else 'continues a version that was deleted'
        raise UnknownVersionError(
            f'{name!r} names no version: {short_id(first.id)} {reason}. `pydantic-deep log` lists the versions.'
        )

    async def _describe_unknown(self, name: str, error: VersionNotFoundError) -> str:
        """Return why a name matches no version, and which names do."""
        head = await self.find_head()
        branches = [] if head is None else await self.store.branches(head.conversation_id)
        names = ', '.join(repr(branch.name) for branch in branches[-_MAX_CANDIDATES:])
        shows = (f'Branches: {names}. ' if names else '') + '`pydantic-deep log` shows ids and branches.'
        if _ID_PART.fullmatch(name.lower()) is None:
            return f'There is no version {name!r}. {shows}'
        if len(name) < _MIN_CHARS:
            reason = f'and an id needs at least the last {_MIN_CHARS} of its characters.'
            return f'There is no branch {name!r}, {reason} {shows}'
        return f'{error} {shows}'


def _describe_tip(record: VersionRecord) -> str:
    title = conversation_title(record)
    return short_id(record.id) + (f' (“{first_line_of_prose(title, 30)}”)' if title else '')
