"""`TurnRows`: the rows of a store that one turn needs, as JSON, so that another store can replay it or run it again.

They contain the history before the turn, all runs of the turn with their requests, calls and answers, those of its
subagents, and the files as differences from those before the turn. The files before the turn are not here: they are
files of the case (`_case`), which people may edit.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast

from pydantic import JsonValue

from pydantic_deep.store import (
    Append,
    ApprovalRecord,
    BranchRecord,
    CallRecord,
    Commit,
    ConversationRecord,
    DelegationRecord,
    MessageRecord,
    NewAsset,
    NewMessage,
    RequestRecord,
    RunRecord,
    Store,
    VersionFilter,
    VersionRecord,
    new_id,
)
from pydantic_deep.versions import attempt_ids, runs_commands
from pydantic_deep_backends import FileVersion, Tree

from .errors import CaseError

_TABLES: Final[Mapping[str, type[NamedTuple]]] = {
    'conversations': ConversationRecord,
    'branches': BranchRecord,
    'versions': VersionRecord,
    'runs': RunRecord,
    'requests': RequestRecord,
    'calls': CallRecord,
    'delegations': DelegationRecord,
    'approvals': ApprovalRecord,
}
"""The records of `TurnRows`, by the name of its field and of the argument of `Commit`."""

_DIGEST: Final = re.compile(r'sha256:[0-9a-f]{64}')


@dataclass(kw_only=True)
class TurnRows:
    """The rows of one turn."""

    end: VersionRecord
    """The version that the turn ended with."""
    base: VersionRecord
    """The version that its first run started from."""
    first: VersionRecord
    """The version that its first run ended with: a pause, if it was resumed."""
    versions: list[VersionRecord]
    branches: list[BranchRecord] = field(default_factory=list[BranchRecord])
    conversations: list[ConversationRecord] = field(default_factory=list[ConversationRecord])
    runs: list[RunRecord] = field(default_factory=list[RunRecord])
    requests: list[RequestRecord] = field(default_factory=list[RequestRecord])
    calls: list[CallRecord] = field(default_factory=list[CallRecord])
    delegations: list[DelegationRecord] = field(default_factory=list[DelegationRecord])
    approvals: list[ApprovalRecord] = field(default_factory=list[ApprovalRecord])
    messages: dict[str, list[MessageRecord]] = field(default_factory=dict[str, list[MessageRecord]])
    """The messages of each branch, without those of its parent."""
    trees: dict[str, dict[str, FileVersion | None]] = field(default_factory=dict[str, 'dict[str, FileVersion | None]'])
    """The files of each version that differ from those of `base`, keyed by the digest of its tree."""
    assets: dict[str, bytes] = field(default_factory=dict[str, bytes])

    @classmethod
    async def read(cls, store: Store, end: VersionRecord) -> TurnRows:
        """Read the rows of the turn that ends with a version.

        Raises:
            CaseError: The version is not the end of a turn.
            VersionNotFoundError: A version of the turn was deleted.
        """
        versions = [end]
        run_ids: list[str] = []
        first = end
        while True:
            attempts = await attempt_ids(store, first) if first.kind in ('turn', 'pause') else []
            runs = [run for id in attempts if (run := await store.run(id)) is not None]
            if not runs or runs[0].base_id is None:
                raise CaseError(
                    f'The version {end.id} is not the end of a turn, but of kind {end.kind!r}. Record one that is.'
                )
            base = await store.version(runs[0].base_id)
            run_ids += attempts
            versions.append(base)
            paused_id = json.loads(runs[-1].options).get('resumes')
            if paused_id is None:
                break
            first = await store.version(paused_id)
            while first.kind != 'pause' and first.parent_id is not None:  # an edit of the pause
                versions.append(first)
                first = await store.version(first.parent_id)
            versions.append(first)
        rows = cls(end=end, base=base, first=first, versions=versions)
        await rows._read_runs(store, run_ids)
        await rows._read_messages(store)
        await rows._read_files(store)
        await rows._read_assets(store, rows._texts())
        return rows

    async def _read_runs(self, store: Store, run_ids: list[str]) -> None:
        """Read the runs of the turn and, at any depth, of its subagents."""
        for run_id in run_ids:  # grows
            self.runs += [run._replace(owner=None) for run in [await store.run(run_id)] if run is not None]
            self.requests += await store.requests(run_id)
            self.calls += [call._replace(tree=None) for call in await store.calls([run_id])]
            for link in await store.delegations(parent_run_id=run_id):
                self.delegations.append(link)
                for run in reversed(await store.runs(conversation_id=link.child_conversation_id)):
                    if run.parent_run_id in run_ids and run.id not in run_ids:
                        run_ids.append(run.id)
                        self.versions += await store.versions(VersionFilter(run_id=run.id), limit=1)
                        self.versions.append(await store.version(run.base_id or ''))
        self.versions = list({version.id: version for version in self.versions}.values())
        for version in self.versions:
            if version.state == 'awaiting_approval':
                self.approvals += await store.approvals(status=None, version_id=version.id, limit=10_000)

    async def _read_messages(self, store: Store) -> None:
        """Read the branches of the versions up to their last message, with the branches that they come from."""
        ids = dict.fromkeys(version.conversation_id for version in self.versions)
        conversations = [await store.conversation(id) for id in ids]
        self.conversations = [one._replace(head_id=None) for one in conversations if one is not None]
        branches = {branch.id: branch for id in ids for branch in await store.branches(id)}
        stops: dict[str, int] = {}
        pending = [(version.branch_id, version.message_count) for version in self.versions]
        while pending:
            id, stop = pending.pop()
            if stops.get(id, -1) < stop:
                stops[id] = stop
                branch = branches[id]
                origins = ((branch.parent_id, branch.fork_seq), (branch.rewrites_id, branch.rewrites_seq or 0))
                pending += [(origin, count) for origin, count in origins if origin is not None]
        for branch in branches.values():
            if branch.id in stops:
                self.branches.append(branch._replace(tip_seq=branch.fork_seq))
                self.messages[branch.id] = await store.messages(branch.id, stops[branch.id], start=branch.fork_seq)

    async def _read_files(self, store: Store) -> None:
        digests = {tree for version in self.versions if (tree := version.tree) is not None}
        trees = {digest: Tree.from_nodes(digest, await store.nodes(digest)) for digest in sorted(digests)}
        before = trees.get(self.base.tree or '', Tree())
        for digest, tree in trees.items():
            diff = before.diff(tree)
            self.trees[digest] = {path: tree.get(path) for path in (*diff.added, *diff.changed, *diff.removed)}

    async def _read_assets(self, store: Store, texts: Iterable[str]) -> None:
        """Read the assets that texts mention, and those that these mention."""
        digests = {digest for text in texts for digest in _DIGEST.findall(text)} - self.assets.keys()
        found = {digest: asset.data for digest, asset in (await store.assets(digests)).items()} if digests else {}
        self.assets |= found
        if found:
            await self._read_assets(store, [data.decode('utf-8', 'replace') for data in found.values()])

    def _texts(self) -> list[str]:
        return [json.dumps({**self.to_json(), 'assets': None, 'base': None})]

    def to_json(self) -> dict[str, JsonValue]:
        """Return the rows as JSON."""
        tables = {name: [_row(record) for record in getattr(self, name)] for name in _TABLES}
        return cast(
            'dict[str, JsonValue]',
            {
                'end': self.end.id,
                'base': self.base.id,
                'first': self.first.id,
                **tables,
                'messages': {
                    id: [{'id': message.id, **_encode(message.body)} for message in messages]
                    for id, messages in self.messages.items()
                },
                'trees': {
                    digest: {path: file and [file.digest, file.size, file.mode] for path, file in changes.items()}
                    for digest, changes in self.trees.items()
                },
                'assets': {digest: _encode(data) for digest, data in self.assets.items()},
            },
        )

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> TurnRows:
        """Return the rows from the result of `to_json`.

        Raises:
            LookupError, TypeError, ValueError: It is not such a result.
        """
        tables = {name: [_record(kind, row) for row in document[name]] for name, kind in _TABLES.items()}
        version_by_id = {version.id: version for version in cast('list[VersionRecord]', tables['versions'])}
        return cls(
            end=version_by_id[document['end']],
            base=version_by_id[document['base']],
            first=version_by_id[document['first']],
            **cast('Any', tables),
            messages={
                id: [MessageRecord(message['id'], seq, _decode(message)) for seq, message in enumerate(messages)]
                for id, messages in document['messages'].items()
            },
            trees={
                digest: {
                    path: None if file is None else FileVersion(digest=file[0], size=file[1], mode=file[2])
                    for path, file in changes.items()
                }
                for digest, changes in document['trees'].items()
            },
            assets={digest: _decode(data) for digest, data in document['assets'].items()},
        )

    async def write(self, store: Store, before: Tree, contents: Mapping[str, bytes]) -> None:
        """Write the rows to an empty store.

        Args:
            store: The store.
            before: The files before the turn.
            contents: Their contents, by digest.
        """
        trees = {digest: _changed(before, changes) for digest, changes in self.trees.items()}
        nodes = dict(node for tree in (Tree(), *trees.values()) for node in tree.nodes())
        assets = [NewAsset(digest=digest, data=data) for digest, data in {**self.assets, **contents}.items()]
        await store.commit(Commit(assets=assets, nodes=nodes, conversations=self.conversations, branches=self.branches))
        known: set[str] = set()
        for branch in self.branches:
            messages = self.messages[branch.id]
            new = [
                NewMessage(id=message.id, body=None if message.id in known else message.body) for message in messages
            ]
            known |= {message.id for message in messages}
            append = Append(branch_id=branch.id, at=branch.fork_seq, messages=new, fork_id=new_id())
            await store.commit(Commit(append=append))
        ids = {version.id for version in self.versions}
        versions = [
            version._replace(
                number=0,
                parent_id=version.parent_id if version.parent_id in ids else None,
                cloned_from=None,
                merged_from=None,
                tree=None if version.tree is None else trees[version.tree].digest,
                backend=_detached(version),
            )
            for version in sorted(self.versions, key=lambda version: version.number)  # parents first
        ]
        await store.commit(
            Commit(
                versions=versions,
                runs=self.runs,
                requests=self.requests,
                calls=self.calls,
                delegations=self.delegations,
                approvals=self.approvals,
            )
        )


def _changed(before: Tree, changes: Mapping[str, FileVersion | None]) -> Tree:
    files = {path: before[path] for path in before if path not in changes}
    return Tree.of({**files, **{path: file for path, file in changes.items() if file is not None}})


def _detached(version: VersionRecord) -> str | None:
    """Return the description of a backend that no process opens, so that no run works in the recorded directory."""
    if version.backend is None:
        return None
    return json.dumps({'provider': 'case', 'id': version.id, 'commands': runs_commands(version.backend)})


def _row(record: Any) -> dict[str, JsonValue]:
    values = cast('dict[str, Any]', record._asdict())
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in values.items()}


def _record(kind: type[Any], row: Mapping[str, Any]) -> Any:
    prompt = row.get('prompt')
    return kind(**(row if prompt is None else {**row, 'prompt': prompt.encode()}))


def _encode(data: bytes) -> dict[str, JsonValue]:
    """Return bytes as a JSON object: JSON as it is if it can be restored exactly, other text as text, else base64."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {'base64': base64.b64encode(data).decode()}
    try:
        value: JsonValue = json.loads(text)
    except ValueError:
        return {'text': text}
    return {'json': value} if _dump(value) == text else {'text': text}


def _decode(value: Mapping[str, Any]) -> bytes:
    if 'base64' in value:
        return base64.b64decode(value['base64'])
    return (value['text'] if 'text' in value else _dump(value['json'])).encode()


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(',', ':'))
