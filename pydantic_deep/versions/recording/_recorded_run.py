"""One recorded run: the stored state, and the additions of each commit.

A commit contains only new data: new messages are recognized by identity, changed files by their writes. The whole
history is inspected only once, when the run begins.

Not here: when a commit happens (`_recorder`), and turns (`_turn`).
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, cast

import anyio
from pydantic_ai import AgentRunResult
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.usage import RunUsage

from pydantic_deep._messages.usage_json import dump_usage
from pydantic_deep._run_to_completion import run_to_completion
from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.store import (
    ApprovalRecord,
    BranchRecord,
    CallRecord,
    Commit,
    Committed,
    HeadMove,
    NewAsset,
    RunEnd,
    RunTakenOverError,
    Store,
    StoreClosedError,
    StoreError,
    StoreUnavailableError,
    VersionConflictError,
    VersionKind,
    VersionRecord,
    VersionState,
    WorkspaceRecord,
    now,
)
from pydantic_deep.streaming import dump_failure
from pydantic_deep.versions._instructions_check import warn_of_other_instructions
from pydantic_deep.versions._settings import with_agent_instructions
from pydantic_deep.versions.files._backend_descriptions import describe_unversioned, with_omitted
from pydantic_deep.versions.files._protected_files import protected_changes
from pydantic_deep.versions.files._run_files import OmittedFile
from pydantic_deep.versions.files._turn_files import NewFiles, key_of
from pydantic_deep_backends import ProtectedChange, digest_of

from ._deps_state import DepsState
from ._ledger import Writes, with_deps
from ._run_start import RunStart
from ._stored_history import HistoryChange, StoredHistory, last_response, response_id_of
from ._uncommitted_calls import UncommittedCalls
from ._uncommitted_requests import UncommittedRequests

FAILED = (StoreUnavailableError, StoreClosedError, RunTakenOverError)
"""Errors of a store that accepts no more commits of a run, temporarily or permanently."""


@dataclass(frozen=True, kw_only=True)
class _VersionDraft:
    """A version before its commit."""

    version: VersionRecord
    """The record without its files, which are captured for the commit."""
    change: HistoryChange
    """The change of the history."""
    commit: Commit
    """The commit of the version, without its files and data noted later."""
    deps_state: DepsState
    """The stored deps state after the commit."""


@dataclass(kw_only=True)
class RecordedRun:
    """The state of one recorded run."""

    store: Store
    start: RunStart
    model: str | None = None
    """The model that responded last."""
    usage: RunUsage = field(default_factory=RunUsage)
    """The usage of the run, without its subagents."""
    cost: Decimal | None = None
    """The cost in US dollars; `None` if no request had a known price."""
    deps: object = field(default=None, init=False)
    """The deps of the run. If they are `DeepAgentDeps`, each version contains their state."""
    is_begun: bool = field(default=False, init=False)
    """Whether the recorder has observed the run; from then on, it ends the run."""
    tip: VersionRecord = field(init=False)
    """The newest version of the run, at first its base."""
    conflict: VersionConflictError | None = field(default=None, init=False)
    """The conflict because of which the head of the conversation was not moved."""
    is_ended: bool = field(default=False, init=False)
    """Whether the store has the end of the run. A run that raised without an end in the store is suspended."""
    result: AgentRunResult[Any] | None = field(default=None, init=False)
    """The result of the run, once the store has its end."""
    refused: StoreError | None = field(default=None, init=False)
    """The error of the last commit that failed."""
    history: StoredHistory = field(init=False)
    """The stored messages of the newest version."""
    requests: UncommittedRequests = field(default_factory=UncommittedRequests, init=False)
    """The requests that are not stored in their final form."""
    calls: UncommittedCalls = field(init=False)
    """The ledger entries for the next commit."""
    _has_prompt: bool = field(init=False)
    _settings: str | None = field(default=None, init=False)
    """The settings of the versions of the run; `None` before its first request."""
    _deps_state: DepsState = field(init=False)
    _noted_deps: str | None = field(default=None, init=False)
    """The digest of the deps state that calls without a stored end have left."""
    _first_response_id: str | None = field(init=False)
    _staged: _VersionDraft | None = field(default=None, init=False)
    """The staged step, which the first of its calls commits."""
    _starting: list[CallRecord] = field(default_factory=list[CallRecord], init=False)
    """The calls that start with the commit of the staged step."""
    _reported: set[OmittedFile] = field(default_factory=set[OmittedFile], init=False)
    """The omitted files that were reported to the model, or existed before the run."""
    _staging: anyio.Lock = field(default_factory=lambda: anyio.Lock(fast_acquire=True), init=False)
    """Held while a step or the end is committed; other calls wait for it."""

    def __post_init__(self) -> None:
        """Begin from the base."""
        start = self.start
        self.tip = start.base
        self.history = StoredHistory(
            messages=list(start.messages),
            ids=list(start.message_ids),
            branch_id=start.base.branch_id,
            new_branch=start.branch_name,
            forks=start.branch_name is not None,
        )
        self.calls = UncommittedCalls(files=start.files if start.has_files else None)
        self._has_prompt = start.run_record.prompt is not None
        self._deps_state = DepsState(digest=start.base.deps, fork=start.fork, run_id=start.run_record.id)
        self._first_response_id = response_id_of(start.messages, start.message_ids)
        self._reported.update(() if start.files is None else start.files.omitted)

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self.start.run_record.id

    async def begin_with(self, deps: object) -> None:
        """Set the deps of the run, as they are at its start."""
        self.is_begun = True
        self.deps = deps
        if self.start.has_loaded_deps:
            await self._deps_state.begin(deps)

    async def commit_messages(self, messages: Sequence[ModelMessage]) -> None:
        """Commit messages that no version has before the history is rewritten: rejected responses.

        They create no version, because no run can begin there.
        """
        await self.commit_step()
        change = self.history.change_to(messages, None)
        if change.append is None or not change.append.messages:
            return
        batch = self.requests.answered(change, with_others=False)
        committed = await self._store(
            Commit(
                fence=self.run_id,
                assets=[*change.assets, *batch.assets],
                append=change.append,
                requests=batch.records,
            )
        )
        self.requests.mark_stored(batch)
        self.history.apply(change, cast('BranchRecord', committed.branch).id)

    @property
    def response_id(self) -> str:
        """The id of the last response, whose calls run now."""
        staged = self._staged
        of_staged = None if staged is None else response_id_of(staged.change.messages, staged.change.ids)
        return of_staged or cast('str', response_id_of(self.history.messages, self.history.ids))

    @property
    def is_at_crash(self) -> bool:
        """Whether the last response is the one that a crashed run had last, so that it may have made calls of it."""
        return bool(self.start.crashed.attempts) and self.response_id == self._first_response_id

    @property
    def asked_by(self) -> str:
        """The id of the run under which running calls are recorded: of several attempts, the one that had the
        response.
        """
        messages, attempts = self.start.messages, [attempt.id for attempt in self.start.crashed.attempts]
        if not self.is_at_crash:
            return self.run_id
        owner = messages[last_response(messages)].run_id
        return owner if owner in attempts else attempts[0]

    async def start_call(self, call: CallRecord, writes: Writes | None) -> None:
        """Commit the staged step and the start of a call, with the ends of earlier calls that changed a directory. If
        the call can be repeated, its start is not committed.
        """
        files = self.start.files
        if self.calls.can_repeat(call, writes):
            await self.commit_step()
            if call.effect == 'write':
                self.calls.add(call, writes)
        elif await self.commit_step(call):
            return
        elif files is None or files.is_volatile or not files.has_ended_calls:
            await self._store(Commit(fence=self.run_id, calls=[call]))
        else:
            async with files.lock:
                new = await files.capture()
                commit = Commit(fence=self.run_id, calls=[*new.calls, call], assets=new.assets, nodes=new.nodes)
                await self._store(commit)
                files.stored(new)

    def take_omitted(self) -> list[OmittedFile]:
        """Return omitted files of the last capture that were not reported to the model, and mark them as reported."""
        files = self.start.files
        new = [] if files is None else [file for file in files.omitted if file not in self._reported]
        self._reported.update(new)
        return new

    async def add_end(self, call: CallRecord, writes: Writes | None) -> bool:
        """Add the end of a repeatable call to the next commit. Return whether it can wait until then: not if the call
        has changed the deps beside files.
        """
        if call.effect == 'write':
            digest = (await self._state_of_deps())[0].digest
            if writes == 'deps':
                self._noted_deps = digest
            elif digest != (self._noted_deps or self._deps_state.digest):
                return False
        self.calls.add(call, writes)
        if writes == 'file' and (files := self.calls.files) is not None and not files.is_volatile:
            async with files.lock:
                await files.capture()  # finds files that no version will have
        return True

    async def _state_of_deps(self) -> tuple[DepsState, list[NewAsset]]:
        """Return the present deps state, and its assets that are not stored. Once they are committed, it is the stored
        state.
        """
        state = copy.copy(self._deps_state)
        return state, await state.dump(self.deps)

    async def end_call(self, call: CallRecord) -> None:
        """Commit the end of a call with the deps, the files and the time of the capture."""
        files = self.start.files
        if files is None:
            call, assets, state = await self._with_deps(call)
            calls = [*self.calls.entries.values(), call._replace(ended_at=now())]
            await self._store(Commit(fence=self.run_id, calls=calls, assets=assets))
        else:
            async with files.lock:
                call, assets, state = await self._with_deps(call)
                new = await files.capture()
                call = call._replace(tree=new.tree, ended_at=files.moment(now()))
                calls = [*self.calls.entries.values(), call]  # the deps have the changes of all of them
                commit = Commit(
                    fence=self.run_id, calls=[*new.calls, *calls], assets=[*assets, *new.assets], nodes=new.nodes
                )
                await self._store(commit)
                files.stored(new)
        self.calls.mark_stored(calls)
        self._deps_state, self._noted_deps = state, None

    async def _with_deps(self, call: CallRecord) -> tuple[CallRecord, list[NewAsset], DepsState]:
        """Return a call with the digest of the deps state if that has changed, the new assets, and the state."""
        state, assets = await self._state_of_deps()
        if call.result is not None and state.digest is not None and state.digest != self._deps_state.digest:
            call = call._replace(result=with_deps(call.result, state.digest))
        return call, assets, state

    def note_instructions(self, instructions: str) -> None:
        """Set the agent's literal instructions for the versions of the run, and warn if they have changed."""
        if self._settings is None:
            base = self.start.base
            self._settings = with_agent_instructions(base.model_settings, instructions)
            warn_of_other_instructions(self.store, base, instructions)

    async def commit_requests(self) -> None:
        """Commit answered requests, because their responses are billed even if a crash loses them."""
        batch = self.requests.unanswered()
        if batch.records:
            commit = Commit(fence=self.run_id, assets=batch.assets, requests=batch.records)
            await run_to_completion(self._store(commit))
            self.requests.mark_stored(batch)

    async def stage(self, messages: Sequence[ModelMessage], usage: RunUsage) -> None:
        """Stage the present messages as a step, to be committed before a call of the last message runs, or with the
        end.
        """
        self._staged = await self._draft(messages, usage, kind='step', state='interrupted', parent_id=self.tip.id)

    async def commit_step(self, call: CallRecord | None = None) -> bool:
        """Commit the staged step, with the calls that start now. Return whether it has the start of `call`."""
        is_start = call is not None and self._staged is not None
        if call is not None and is_start:
            self._starting.append(call)
            await asyncio.sleep(0)  # parallel calls of the response start in the same commit
        try:
            async with self._staging:
                if self._staged is not None:
                    await run_to_completion(self._commit(self._staged))
            return is_start and call not in self._starting
        finally:  # it came too late, or the commit failed
            self._starting = [other for other in self._starting if other is not call]

    async def end(
        self,
        messages: Sequence[ModelMessage],
        usage: RunUsage,
        *,
        kind: VersionKind,
        state: VersionState,
        output: str | None = None,
        pending: bytes | None = None,
        approvals: Sequence[ApprovalRecord] = (),
        supersedes: Mapping[str, str] | None = None,
        error: BaseException | None = None,
    ) -> VersionRecord:
        """Commit the end of the run, and return its version, which includes the staged step."""
        start = self.start
        async with self._staging:
            self._deps_state.protected = await self.find_protected_changes()
            draft = await self._draft(
                messages, usage, kind=kind, state=state, parent_id=start.parent_id or start.base.id
            )
            version = draft.version._replace(output=output)
            assets = list(draft.commit.assets)
            if pending is not None:
                assets.append(NewAsset(digest=digest_of(pending), data=pending, media_type='application/json'))
                version = version._replace(pending=assets[-1].digest)
            approvals = [approval._replace(version_id=version.id) for approval in approvals]
            commit = replace(
                draft.commit,
                assets=assets,
                approvals=approvals,
                supersedes=supersedes,
                ends=[self._run_end(state, error)],
                heads=self._heads(version, draft.change),
            )
            ended = await self._commit(replace(draft, version=version, commit=commit))
            self.is_ended = True
            return ended

    @property
    def protected_changes(self) -> tuple[ProtectedChange, ...]:
        """The changes of the turn to protected files, known once it has ended."""
        return self._deps_state.protected

    async def find_protected_changes(self) -> tuple[ProtectedChange, ...]:
        """Return the changes of the turn to protected files so far."""
        start = self.start
        backend = getattr(self.deps, 'backend', None) if start.files is None else start.files.files.backend
        in_place = start.files is None or start.claim is not None
        return await protected_changes(start.protected, backend, in_place=in_place)

    async def end_without_version(self, state: VersionState, error: BaseException | None = None) -> None:
        """Commit the end of the run, without a new version."""
        await self.commit_requests()
        claim = self.start.claim
        workspaces = [] if claim is None else [claim.record(self.tip.id)]
        ends = [self._run_end(state, error)]
        calls = [*self.calls.entries.values()]
        await self._store(Commit(fence=self.run_id, calls=calls, ends=ends, workspaces=workspaces))
        self.is_ended = True

    def _run_end(self, state: VersionState, error: BaseException | None = None) -> RunEnd:
        text = None if error is None else dump_failure(error, max_chars=2000)
        cost = None if self.cost is None else str(self.cost)
        return RunEnd(run_id=self.run_id, state=state, usage=dump_usage(self.usage), cost=cost, error=text)

    def _heads(self, version: VersionRecord, change: HistoryChange) -> list[HeadMove]:
        """Return the head move. The head does not move if the turn ended before any response, so that the prompt can be
        sent again.
        """
        start = self.start
        if start.head_id is None:
            return []
        is_answered = (
            version.state in ('complete', 'awaiting_approval')
            or start.pause_id is not None
            or start.base.kind == 'step'
            or self.tip is not start.base
            or any(
                isinstance(message, ModelResponse) and message.parts
                for message in [*self.history.messages[: change.at], *change.messages][len(start.messages) :]
            )
        )
        move = HeadMove(conversation_id=version.conversation_id, expected_id=start.head_id, version_id=version.id)
        return [move] if is_answered else []

    async def _draft(
        self,
        messages: Sequence[ModelMessage],
        usage: RunUsage,
        *,
        kind: VersionKind,
        state: VersionState,
        parent_id: str,
    ) -> _VersionDraft:
        change = self.history.change_to(messages, None if self._staged is None else self._staged.change)
        deps_state, of_deps = await self._state_of_deps()
        base = self.start.base
        backend = base.backend
        if base.tree is None and self.start.files is None and isinstance(self.deps, DeepAgentDeps):
            backend = await describe_unversioned(self.deps.backend)
        version = base.child(
            kind,
            parent_id=parent_id,
            state=state,
            branch_id=self.history.branch_id,
            message_count=change.at + len(change.messages),
            run_id=self.run_id,
            model=self.model or base.model,
            model_settings=self._settings or base.model_settings,
            usage=dump_usage(usage),
            output=None,
            pending=None,
            deps=deps_state.digest,
            backend=backend,
        )
        commit = Commit(
            fence=self.run_id,
            assets=[*change.assets, *of_deps],
            append=change.append,
            settled_calls=() if change.append is None else tuple(self.calls.in_message),
            clears_prompt_of=self.run_id if self._has_prompt and change.append is not None else None,
        )
        return _VersionDraft(version=version, change=change, commit=commit, deps_state=deps_state)

    async def _commit(self, draft: _VersionDraft) -> VersionRecord:
        """Commit a version with the present files."""
        files = self.start.files
        if files is None or not self.start.has_files:
            return await self._send(draft)
        async with files.lock:
            new = await files.capture(is_full=bool(draft.commit.ends))
            version = await self._send(draft, new)
            files.stored(new)
            return version

    async def _send(self, draft: _VersionDraft, files: NewFiles | None = None) -> VersionRecord:
        version, commit, starting = draft.version, draft.commit, [*self._starting]
        batch = self.requests.answered(draft.change, with_others=True)
        assets = [*commit.assets, *batch.assets]
        calls = self.calls.records(() if files is None else files.calls, commit.settled_calls)
        if files is not None:
            version = version._replace(tree=files.tree, backend=with_omitted(version.backend, files.omitted))
            assets += files.assets
        workspaces: list[WorkspaceRecord] = []
        if self.start.claim is not None:
            workspaces.append(await self.start.claim.note(version.id, None if commit.ends else self.run_id))
        self.tip = await self._commit_version(
            version,
            replace(
                commit,
                assets=assets,
                nodes=None if files is None else files.nodes,
                versions=[version],
                requests=batch.records,
                calls=[*calls, *starting],
                settled_calls=tuple(set(commit.settled_calls) - {key_of(call) for call in calls}),
                workspaces=workspaces,
            ),
        )
        self._staged = None
        self._starting = [call for call in self._starting if call not in starting]
        self._deps_state, self._noted_deps = draft.deps_state, None
        self.calls.mark_stored(calls)
        self.requests.mark_stored(batch)
        if commit.append is not None:
            self._has_prompt = False
            self.history.apply(draft.change, self.tip.branch_id)
            self.calls.in_message = set()
        return self.tip

    async def _store(self, commit: Commit) -> Committed:
        try:
            return await self.store.commit(commit)
        except FAILED as error:
            self.refused = error
            raise

    async def _commit_version(self, version: VersionRecord, commit: Commit) -> VersionRecord:
        """Commit a version, and return its stored record."""
        try:
            committed = await self._store(commit)
        except VersionConflictError as conflict:  # the commit succeeded, except for the head
            self.conflict = conflict
            return await self.store.version(version.id)
        branch = committed.branch
        if branch is not None:
            version = version._replace(branch_id=branch.id, branch=branch.name)
        return version._replace(number=committed.numbers[version.id])
