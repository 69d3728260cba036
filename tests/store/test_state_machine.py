"""Any order of operations: a store returns the same results as a model in plain Python."""

# ruff: noqa: PT017 - whether an error is right depends on the model, so it is caught, not expected

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from pydantic_deep.store import (
    Append,
    ApprovalAnsweredError,
    ApprovalRecord,
    Commit,
    Decision,
    HeadMove,
    NewMessage,
    RunEnd,
    RunRecord,
    Store,
    VersionConflictError,
    VersionFilter,
    VersionNotFoundError,
    VersionRecord,
    new_id,
    open_store,
)
from pydantic_deep.store._samples import (
    Dialogue,
    sample_approval,
    sample_asset,
    sample_run,
)

T = TypeVar('T')

_NAMES = st.sampled_from([None, 'alpha', 'Alphabet', 'b%', 'ß'])
_BODIES = st.lists(st.binary(min_size=1, max_size=40), max_size=3)
_INDEX = st.integers(min_value=0, max_value=10**6)


@dataclass
class Branch:
    """A branch of the model, with a copy of its whole history."""

    conversation_id: str
    name: str
    messages: list[bytes]


@dataclass
class Model:
    """Expected contents of a store."""

    versions: dict[str, VersionRecord] = field(default_factory=dict[str, VersionRecord])
    deleted: set[str] = field(default_factory=set[str])
    branches: dict[str, Branch] = field(default_factory=dict[str, Branch])
    heads: dict[str, str | None] = field(default_factory=dict[str, 'str | None'])
    runs: dict[str, RunRecord] = field(default_factory=dict[str, RunRecord])
    approvals: dict[str, ApprovalRecord] = field(default_factory=dict[str, ApprovalRecord])
    threads: dict[str, str] = field(default_factory=dict[str, str])
    """The conversations of subagents, and the run that delegated to each. Its message contains the conversation's id.
    """

    def lineage(self, id: str) -> tuple[list[VersionRecord], str | None]:
        line = [self.versions[id]]
        while (parent := line[0].parent_id) is not None and parent not in self.deleted:
            line.insert(0, self.versions[parent])
        return line, line[0].parent_id

    def history(self, version: VersionRecord) -> list[bytes]:
        return self.branches[version.branch_id].messages[: version.message_count]

    def delete(self, id: str) -> None:
        gone = self.versions.pop(id)
        self.deleted.add(id)
        waits = {each.id for each in self.approvals.values() if each.version_id == id and each.status == 'pending'}
        self.approvals = {key: each for key, each in self.approvals.items() if key not in waits}
        parent = self.versions.get(gone.parent_id or '')
        head = parent.id if parent is not None and parent.conversation_id == gone.conversation_id else None
        self.heads.update({each: head for each, at in self.heads.items() if at == id})

    def reached(self) -> set[str]:
        """Return the conversations that a user, a run or an approval needs, and the subagent threads reachable from
        them.
        """
        working = {run.conversation_id for run in self.runs.values() if run.state == 'running'}
        alive = working | {each.conversation_id for each in self.approvals.values() if each.status == 'pending'}
        alive |= {each.conversation_id for each in self.versions.values() if not self.is_of_subagent(each)}
        while True:
            live = [each for each in self.versions.values() if each.conversation_id in alive]
            told = [body for each in live for body in self.history(each)]
            told += [
                body for each in self.branches.values() if each.conversation_id in working for body in each.messages
            ]
            runs = {each.run_id for each in live}
            more = {id for id, run_id in self.threads.items() if id.encode() in told or run_id in runs} - alive
            if not more:
                return alive
            alive |= more

    def is_of_subagent(self, version: VersionRecord) -> bool:
        if version.name is not None or version.conversation_id not in self.threads:
            return False
        run = self.runs.get(version.run_id or '')
        return version.kind == 'root' if run is None else run.parent_run_id is not None

    def has_children(self, id: str) -> bool:
        return any(id in (each.parent_id, each.merged_from) for each in self.versions.values())


class StoreMachine(RuleBasedStateMachine):
    """Applies the same operations to a store and to a model."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.model = Model()
        self.opened = open_store(self.new_url())
        self.store: Store = self.run(self.opened.__aenter__())

    def new_url(self) -> str:
        """Return the URL of a new store."""
        raise NotImplementedError

    def run(self, waiting: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(waiting)

    def teardown(self) -> None:
        self.run(self.opened.__aexit__(None, None, None))
        self.loop.close()

    def pick(self, index: int) -> VersionRecord:
        versions = list(self.model.versions.values())
        return versions[index % len(versions)]

    @rule(name=_NAMES)
    def begin(self, name: str | None) -> None:
        dialogue = Dialogue(self.store)
        root = self.run(dialogue.begin(name=name))
        self.model.versions[root.id] = root
        self.model.branches[root.branch_id] = Branch(dialogue.id, 'main', [])
        self.model.heads[dialogue.id] = root.id

    @precondition(lambda self: self.model.versions)
    @rule(index=_INDEX, other=_INDEX, bodies=_BODIES, name=_NAMES, merges=st.booleans(), is_fork=st.booleans())
    def advance(
        self, index: int, other: int, bodies: list[bytes], name: str | None, merges: bool, is_fork: bool
    ) -> None:
        parent = self.pick(index)
        history = self.model.history(parent)
        child = Dialogue(self.store, parent.conversation_id, parent.branch_id).version(
            parent_id=parent.id,
            merged_from=self.pick(other).id if merges else None,
            message_count=len(history) + len(bodies),
            name=name,
        )
        append = Append(
            branch_id=parent.branch_id,
            at=len(history),
            messages=[NewMessage(id=new_id(), body=body) for body in bodies],
            fork_id=new_id(),
            is_fork=is_fork,
        )
        committed = self.run(self.store.commit(Commit(append=append, versions=[child])))
        branch = committed.branch
        assert branch is not None
        origin = self.model.branches[parent.branch_id]
        stays = not is_fork and len(origin.messages) == len(history)
        assert (branch.id == parent.branch_id) is stays
        if stays:
            origin.messages += bodies
        else:
            names = {
                each.name for each in self.model.branches.values() if each.conversation_id == child.conversation_id
            }
            assert branch.name not in names
            self.model.branches[branch.id] = Branch(child.conversation_id, branch.name, [*history, *bodies])
        number = committed.numbers[child.id]
        assert number > max(each.number for each in self.model.versions.values())
        self.model.versions[child.id] = child._replace(number=number, branch_id=branch.id, branch=branch.name)

    @precondition(lambda self: self.model.versions)
    @rule(index=_INDEX)
    def delegate(self, index: int) -> None:
        parent = self.pick(index)
        above = self.model.runs.get(parent.run_id or '')
        dialogue = Dialogue(self.store, parent.conversation_id, parent.branch_id)
        turn, told = self.run(dialogue.delegate(parent, parent_run_id=None if above is None else above.parent_run_id))
        root = self.run(self.store.lineage(told.id)).versions[0]
        self.model.versions |= {each.id: each for each in (turn, root, told)}
        for version in (turn, told):
            run = self.run(self.store.run(version.run_id or ''))
            assert run is not None
            self.model.runs[run.id] = run
        told_of = told.conversation_id.encode()
        history = self.model.history(parent)
        if turn.branch_id == parent.branch_id:
            self.model.branches[turn.branch_id].messages.append(told_of)
        else:
            self.model.branches[turn.branch_id] = Branch(turn.conversation_id, turn.branch, [*history, told_of])
        self.model.branches[told.branch_id] = Branch(told.conversation_id, 'main', [b'told'])
        self.model.heads[told.conversation_id] = root.id
        self.model.threads[told.conversation_id] = str(turn.run_id)

    @precondition(lambda self: self.model.versions)
    @rule(index=_INDEX, expected=_INDEX)
    def move_head(self, index: int, expected: int) -> None:
        version, thought = self.pick(index), self.pick(expected)
        head = self.model.heads[version.conversation_id]
        move = HeadMove(conversation_id=version.conversation_id, expected_id=thought.id, version_id=version.id)
        asset = sample_asset(new_id().encode())
        try:
            self.run(self.store.commit(Commit(assets=[asset], heads=[move])))
            assert head == thought.id
            self.model.heads[version.conversation_id] = version.id
        except VersionConflictError as error:
            assert head != thought.id
            assert (error.head, error.yours) == (head, version.id)
        assert self.run(self.store.has_assets([asset.digest])) == {asset.digest}

    @precondition(lambda self: self.model.versions)
    @rule(index=_INDEX)
    def delete(self, index: int) -> None:
        id = self.pick(index).id
        self.run(self.store.delete(id))
        self.model.delete(id)

    @precondition(lambda self: self.model.versions)
    @rule(index=_INDEX)
    def delete_line(self, index: int) -> None:
        id: str | None = self.pick(index).id
        running = {run.base_id for run in self.model.runs.values() if run.state == 'running'}
        count = 0
        head = id
        while id is not None and id in self.model.versions:
            if count and (self.model.has_children(id) or id in running):
                break
            above = self.model.versions[id].parent_id
            self.model.delete(id)
            id = above
            count += 1
        assert self.run(self.store.delete_line(str(head))) == count

    @rule(grace=st.sampled_from([0.0, 0.000001, 3600.0]))
    def gc(self, grace: float) -> None:
        report = self.run(self.store.gc(grace))
        alive = self.model.reached()
        found = {each.id for each in self.run(self.store.conversations(limit=10**6))}
        assert alive & self.model.heads.keys() <= found <= self.model.heads.keys()
        if grace == 0:
            assert report.condemned == 0
            assert found <= alive
        self.forget(self.model.heads.keys() - found)
        self.trim()

    def forget(self, conversations: set[str]) -> None:
        """Remove everything that belongs to the conversations."""
        for id in conversations:
            del self.model.heads[id]
            self.model.threads.pop(id, None)
        gone = {id for id, each in self.model.versions.items() if each.conversation_id in conversations}
        self.model.deleted |= gone
        self.model.versions = {id: each for id, each in self.model.versions.items() if id not in gone}
        self.model.runs = {id: run for id, run in self.model.runs.items() if run.conversation_id not in conversations}
        self.model.approvals = {
            id: each for id, each in self.model.approvals.items() if each.conversation_id not in conversations
        }

    def trim(self) -> None:
        """Trim histories like the store: messages that no version reaches may or may not exist."""
        for conversation_id in {branch.conversation_id for branch in self.model.branches.values()}:
            found = {each.id: each for each in self.run(self.store.branches(conversation_id))}
            mine = {id for id, each in self.model.branches.items() if each.conversation_id == conversation_id}
            assert found.keys() <= mine
            for id in mine - found.keys():
                assert all(version.branch_id != id for version in self.model.versions.values())
                del self.model.branches[id]
            for id, branch in found.items():
                needed = [each.message_count for each in self.model.versions.values() if each.branch_id == id]
                assert max(needed, default=0) <= branch.tip_seq <= len(self.model.branches[id].messages)
                del self.model.branches[id].messages[branch.tip_seq :]

    @precondition(lambda self: self.model.versions)
    @rule(index=_INDEX)
    def start_run(self, index: int) -> None:
        base = self.pick(index)
        run = sample_run(base.conversation_id, base_id=base.id)
        self.run(self.store.commit(Commit(runs=[run])))
        self.model.runs[run.id] = run._replace(owner=self.store.owner)

    @precondition(lambda self: self.model.runs)
    @rule(index=_INDEX)
    def end_run(self, index: int) -> None:
        runs = list(self.model.runs.values())
        run = runs[index % len(runs)]
        self.run(self.store.commit(Commit(ends=[RunEnd(run_id=run.id, state='complete')])))
        self.model.runs[run.id] = run._replace(state='complete', owner=None)

    @precondition(lambda self: self.model.versions)
    @rule(index=_INDEX)
    def ask(self, index: int) -> None:
        approval = sample_approval(self.pick(index))
        self.run(self.store.commit(Commit(approvals=[approval])))
        self.model.approvals[approval.id] = approval

    @precondition(lambda self: self.model.approvals)
    @rule(indexes=st.lists(_INDEX, min_size=1, max_size=3))
    def decide(self, indexes: list[int]) -> None:
        approvals = list(self.model.approvals.values())
        chosen = [approvals[index % len(approvals)] for index in indexes]
        decisions = [
            Decision(approval_id=each.id, status='denied', decision='{}', arguments_digest=each.arguments_digest)
            for each in chosen
        ]
        is_open = len({each.id for each in chosen}) == len(chosen) and all(each.status == 'pending' for each in chosen)
        try:
            self.run(self.store.decide(decisions))
            assert is_open
            for each in chosen:
                self.model.approvals[each.id] = each._replace(status='denied')
        except ApprovalAnsweredError:
            assert not is_open

    @invariant()
    def versions_are_equal(self) -> None:
        newest = sorted(self.model.versions.values(), key=lambda each: -each.number)
        assert self.run(self.store.versions(limit=10**6)) == newest
        assert self.run(self.store.count()) == len(newest)
        named = VersionFilter(name='ALPHA')
        assert self.run(self.store.versions(named, limit=10**6)) == [
            each for each in newest if 'alpha' in (each.name or '').lower()
        ]

    @invariant()
    def histories_and_lineages_are_equal(self) -> None:
        for version in self.model.versions.values():
            found = self.run(self.store.messages(version.branch_id, version.message_count))
            assert [each.body for each in found] == self.model.history(version)
            assert [each.seq for each in found] == list(range(version.message_count))
            lineage = self.run(self.store.lineage(version.id))
            assert (list(lineage.versions), lineage.truncated_at) == self.model.lineage(version.id)
            children = [each for each in self.model.versions.values() if each.parent_id == version.id]
            assert self.run(self.store.children(version.id)) == sorted(children, key=lambda each: each.number)

    @invariant()
    def deleted_versions_are_gone(self) -> None:
        for id in sorted(self.model.deleted)[:3]:
            with pytest.raises(VersionNotFoundError):
                self.run(self.store.version(id))

    @invariant()
    def heads_runs_and_approvals_are_equal(self) -> None:
        for id, head in self.model.heads.items():
            conversation = self.run(self.store.conversation(id))
            assert conversation is not None
            assert conversation.head_id == head
        for run in self.model.runs.values():
            found = self.run(self.store.run(run.id))
            assert found is not None
            assert (found.state, found.owner) == (run.state, run.owner)
        statuses = {each.id: each.status for each in self.run(self.store.approvals(status=None, limit=10**6))}
        assert statuses == {each.id: each.status for each in self.model.approvals.values()}


def check_store(url: Callable[[], str], examples: int = 30, steps: int = 25) -> None:
    """Run the machine on stores at the URLs that `url` returns, a new one at each call."""

    class Machine(StoreMachine):
        def new_url(self) -> str:
            return url()

    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    chosen = settings(max_examples=examples, stateful_step_count=steps, suppress_health_check=slow)
    run_state_machine_as_test(Machine, settings=chosen)


@pytest.mark.slow
def test_memory_store_matches_the_model() -> None:
    check_store(lambda: 'memory:')


@pytest.mark.slow
def test_sqlite_store_matches_the_model(tmp_path_factory: pytest.TempPathFactory) -> None:
    check_store(lambda: f'sqlite:///{tmp_path_factory.mktemp("store")}/agents.db', examples=10)


@pytest.mark.slow
def test_postgresql_store_matches_the_model(ask_postgres: Callable[[str], str]) -> None:
    check_store(lambda: ask_postgres('database'), examples=5)
