"""Sample records with all fields set, for the conformance suites and for tests, which override the relevant fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic_deep_backends.snapshots import digest_of

from ._ids import new_id
from ._protocol import Store
from .records import (
    Append,
    ApprovalRecord,
    BranchRecord,
    CallRecord,
    Commit,
    Committed,
    ConversationRecord,
    DelegationRecord,
    HeadMove,
    NewAsset,
    NewMessage,
    RequestRecord,
    RunRecord,
    VersionRecord,
)

MOMENT = 1_767_225_600_000_000
"""2026-01-01, in microseconds."""


def sample_run(conversation_id: str, **fields: object) -> RunRecord:
    """Return a running run."""
    run = RunRecord(
        *(new_id(), conversation_id, None, 'analyst', None, None, 'running', None, b'"hello"', '{"depth":1}', '{}'),
        *(None, None, None, MOMENT, None),
    )
    return run._replace(**fields)


def sample_request(run_id: str, number: int = 1) -> RequestRecord:
    """Return a request."""
    return RequestRecord(
        *(run_id, number, new_id(), 'test:model', '{"temperature":0}', None, digest_of(b'request'), None, 10, 20, 3, 4),
        *('0.25', 1_500, MOMENT),
    )


def sample_call(run_id: str, response_id: str, tool_call_id: str, **fields: object) -> CallRecord:
    """Return a call with the status `started`."""
    call = CallRecord(
        *(run_id, response_id, tool_call_id, 'write_file', '{"path": "/a"}', 'write', 'started', None, None, None),
        *(MOMENT, None),
    )
    return call._replace(**fields)


def sample_delegation(parent_run_id: str, child_conversation_id: str) -> DelegationRecord:
    """Return a delegation."""
    return DelegationRecord(
        *(parent_run_id, new_id(), 'call_1', child_conversation_id, 'researcher', 'look it up', '{}', MOMENT)
    )


def sample_approval(version: VersionRecord, **fields: object) -> ApprovalRecord:
    """Return a pending approval of a version."""
    approval = ApprovalRecord(
        *(new_id(), version.id, 'call_1', version.conversation_id, version.agent_name, '[]', 'execute', '{"a":1}'),
        *(digest_of(b'arguments'), None, 'pending', None, None, None, None, None, None, None, MOMENT),
    )
    return approval._replace(**fields)


def sample_asset(data: bytes, media_type: str = 'application/octet-stream') -> NewAsset:
    """Return an asset to store."""
    return NewAsset(digest=digest_of(data), data=data, media_type=media_type)


@dataclass
class Dialogue:
    """A conversation that a test writes to a store."""

    store: Store
    id: str = field(default_factory=new_id)
    branch_id: str = field(default_factory=new_id)

    def version(self, **fields: object) -> VersionRecord:
        """Return a version of the conversation, on its first branch."""
        version = VersionRecord(
            *(new_id(), 0, None, None, None, 'turn', 'complete', self.id, self.branch_id, 'main', 0, None),
            *('analyst', None, '{}', 'test:model', '{}', '{"requests":1}', None, None, None, None, None, MOMENT),
        )
        return version._replace(**fields)

    async def begin(self, **fields: object) -> VersionRecord:
        """Commit the conversation, its branch, its root and its head."""
        root = self.version(kind='root', **fields)
        committed = await self.store.commit(
            Commit(
                conversations=[ConversationRecord(self.id, 'analyst', None, MOMENT)],
                branches=[BranchRecord(self.branch_id, self.id, 'main', None, 0, 0, None, None, MOMENT)],
                versions=[root],
                heads=[HeadMove(conversation_id=self.id, expected_id=None, version_id=root.id)],
            )
        )
        return root._replace(number=committed.numbers[root.id])

    async def add(
        self, parent: VersionRecord, *bodies: bytes, commit: Mapping[str, object] | None = None, **fields: object
    ) -> VersionRecord:
        """Commit a child with new messages on the branch of its parent, or on a fork; return it as stored."""
        child = self.version(
            parent_id=parent.id,
            branch_id=parent.branch_id,
            message_count=parent.message_count + len(bodies),
            **fields,
        )
        append = Append(
            branch_id=parent.branch_id,
            at=parent.message_count,
            messages=[NewMessage(id=new_id(), body=body) for body in bodies],
            fork_id=new_id(),
        )
        new = Commit(append=append, versions=[child], **(commit or {}))  # pyright: ignore[reportArgumentType] - as above
        committed = await self.store.commit(new)
        return stored(child, committed)

    async def delegate(
        self, parent: VersionRecord, *, parent_run_id: str | None = None
    ) -> tuple[VersionRecord, VersionRecord]:
        """Commit a turn that delegates to a subagent; return it and the subagent's turn.

        Args:
            parent: The version that the turn continues.
            parent_run_id: The parent run of the turn's run, if that is itself the run of a subagent.
        """
        thread = Dialogue(self.store)
        run = sample_run(self.id, base_id=parent.id, state='complete', parent_run_id=parent_run_id)
        turn = await self.add(parent, thread.id.encode(), commit={'runs': [run]}, run_id=run.id)
        message = (await self.store.messages(turn.branch_id, turn.message_count))[-1]
        root = await thread.begin()
        below = sample_run(thread.id, base_id=root.id, state='complete', parent_run_id=run.id)
        link = sample_delegation(run.id, thread.id)._replace(response_id=message.id)
        child_turn = await thread.add(root, b'told', commit={'runs': [below], 'delegations': [link]}, run_id=below.id)
        return turn, child_turn

    async def history(self, version: VersionRecord) -> list[bytes]:
        """Return the bodies of the messages of a version."""
        return [message.body for message in await self.store.messages(version.branch_id, version.message_count)]


def stored(version: VersionRecord, committed: Committed) -> VersionRecord:
    """Return a version as a commit stored it: with its number, on the branch that received the messages."""
    branch = committed.branch
    assert branch is not None  # noqa: S101 - callers pass commits with an append
    return version._replace(number=committed.numbers[version.id], branch_id=branch.id, branch=branch.name)
