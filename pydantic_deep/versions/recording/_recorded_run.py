"""One recorded run: the stored state, and the additions of each commit.

A commit contains only new data: new messages are recognized by identity, changed files by their writes. The whole
history is inspected only once, when the run begins.

Not here: when a commit happens (`_recorder`), and turns (`_turn`).
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import cast

import anyio
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.usage import RunUsage

from pydantic_deep._messages.coalesced_requests import common, merged, rest_of
from pydantic_deep._messages.usage_json import dump_usage
from pydantic_deep._run_to_completion import run_to_completion
from pydantic_deep.store import (
    Append,
    ApprovalRecord,
    BranchRecord,
    CallRecord,
    Commit,
    Committed,
    HeadMove,
    NewAsset,
    NewMessage,
    RequestRecord,
    RunEnd,
    RunRecord,
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
    new_id,
    now,
)
from pydantic_deep.versions._instructions_check import warn_of_other_instructions
from pydantic_deep.versions._messages import encode_message
from pydantic_deep.versions._settings import with_agent_instructions
from pydantic_deep.versions.files._backend_descriptions import with_omitted
from pydantic_deep.versions.files._directory_claim import DirectoryClaim
from pydantic_deep.versions.files._protected_files import protected_changes
from pydantic_deep.versions.files._run_files import OmittedFile
from pydantic_deep.versions.files._turn_files import NewFiles, TurnFiles, key_of
from pydantic_deep_backends import ProtectedChange, digest_of

from ._deps_state import DepsState
from ._ledger import with_deps
from ._request_log import RequestEntry, RequestLog

FAILED = (StoreUnavailableError, StoreClosedError, RunTakenOverError)
"""Errors of a store that accepts no more commits of a run, temporarily or permanently."""

CallKey = tuple[str, str]
"""The key of a tool call within a run and those that it resumes: the id of the message with the call, and its own id.
"""


@dataclass(frozen=True, kw_only=True)
class CrashedRun:
    """A crashed run that another run resumes, with all attempts at it; empty for a run that resumes none."""

    attempts: Sequence[RunRecord] = ()
    """The crashed run, after those that it resumed itself, oldest first."""
    settled: Mapping[CallKey, CallRecord] = field(default_factory=dict[CallKey, CallRecord])
    """The ledger entries of calls that the attempts have begun, keyed by call."""
    asked_by: str | None = None
    """The attempt with the ledger entries for calls of the base's last response; `None` without attempts."""
    lost: RunUsage = field(default_factory=RunUsage)
    """The usage of the attempts that is neither part of the usage of the base nor recorded again by this run."""
    earlier: RunUsage = field(default_factory=RunUsage)
    """The usage of the attempts up to the base, including `lost`."""


@dataclass(frozen=True, kw_only=True)
class RunStart:
    """The state in which a run starts: its base version, history, files and earlier attempts."""

    base: VersionRecord
    """The version that the run begins from."""
    messages: Sequence[ModelMessage] = ()
    """The history of the base. The run gets the same objects."""
    message_ids: Sequence[str] = ()
    """The ids of these messages."""
    run_record: RunRecord
    """The record of the run, as it is stored."""
    files: TurnFiles | None = None
    """The files of the turn; `None` if they are not versioned."""
    claim: DirectoryClaim | None = None
    """The claim of the directory in which the run works, if any."""
    branch_name: str | None = None
    """The name of a new branch; `None` to continue that of the base."""
    crashed: CrashedRun = field(default_factory=CrashedRun)
    """The crashed run that it resumes."""
    has_loaded_deps: bool = False
    """Whether the deps have exactly the state of the base."""
    has_files: bool = True
    """Whether the deps of the run have the files of the turn."""
    fork: str | None = None
    """The conversation that owns the fork with the files of the deps; its files are stored with the deps state. `None`
    without a fork.
    """
    parent_id: str | None = None
    """The parent of the version that the run ends with, if it is not the base: the base of the first attempt."""
    pause_id: str | None = None
    """The version with the answers that the run uses."""
    head_id: str | None = None
    """The present head of the conversation, if the end of the run moves it from there."""
    protected: Mapping[str, str] | None = None
    """The states of protected files when the turn began; `None` if they are unknown."""
    requests: RequestLog = field(default_factory=RequestLog)
    """The log of the requests of this run and earlier ones."""


@dataclass(frozen=True, kw_only=True)
class _VersionDraft:
    """A version before its commit."""

    version: VersionRecord
    """The record without its files, which are captured for the commit."""
    at: int
    """The number of messages of the newest version that it begins with."""
    messages: Sequence[ModelMessage]
    """The messages after these."""
    ids: Sequence[str]
    """The ids of `messages`."""
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
    refused: StoreError | None = field(default=None, init=False)
    """The error of the last commit that failed."""
    _messages: list[ModelMessage] = field(init=False)
    _ids: list[str] = field(init=False)
    _branch_id: str = field(init=False)
    _forks: bool = field(init=False)
    _has_prompt: bool = field(init=False)
    _settings: str | None = field(default=None, init=False)
    """The settings of the versions of the run; `None` before its first request."""
    _deps_state: DepsState = field(init=False)
    _ended_calls: set[tuple[str, str, str]] = field(default_factory=set[tuple[str, str, str]], init=False)
    """The keys of finished calls whose results are not in a stored message."""
    _unsent_calls: list[CallRecord] = field(default_factory=list[CallRecord], init=False)
    _requests: list[RequestEntry] = field(default_factory=list[RequestEntry], init=False)
    """The requests that are not stored in their final form."""
    _request_assets: list[NewAsset] = field(default_factory=list[NewAsset], init=False)
    _request_count: int = field(default=0, init=False)
    _first_response_id: str | None = field(init=False)
    _staged: _VersionDraft | None = field(default=None, init=False)
    """The staged step, which the first of its calls commits."""
    _reported: set[OmittedFile] = field(default_factory=set[OmittedFile], init=False)
    """The omitted files that were reported to the model, or existed before the run."""
    _staging: anyio.Lock = field(default_factory=lambda: anyio.Lock(fast_acquire=True), init=False)
    """Held while a step or the end is committed; other calls wait for it."""

    def __post_init__(self) -> None:
        """Begin from the base."""
        start = self.start
        self.tip = start.base
        self._messages = list(start.messages)
        self._ids = list(start.message_ids)
        self._branch_id = start.base.branch_id
        self._forks = start.branch_name is not None
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

    def drop_branch_name(self) -> None:
        """Drop the name of the new branch, which another branch has taken since the run began."""
        self.start = replace(self.start, branch_name=None)

    @property
    def history(self) -> tuple[list[ModelMessage], list[str]]:
        """The stored messages of the newest version, and their ids."""
        return self._messages, self._ids

    async def commit_messages(self, messages: Sequence[ModelMessage]) -> None:
        """Commit messages that no version has before the history is rewritten: rejected responses.

        They create no version, because no run can begin there.
        """
        await self.commit_step()
        append, new, ids, assets = self._prepare_append(messages)
        if append is None or not append.messages:
            return
        requests, left, of_requests = _with_responses(self._requests, new, ids)
        committed = await self._store(
            Commit(
                fence=self.run_id,
                assets=[*assets, *self._request_assets, *of_requests],
                append=append,
                requests=requests,
            )
        )
        self._requests, self._request_assets = left, []
        self._mark_stored(append.at, new, ids)
        self._branch_id, self._forks = cast('BranchRecord', committed.branch).id, False

    @property
    def response_id(self) -> str:
        """The id of the last response, whose calls run now."""
        staged = self._staged
        newest = [self.history] if staged is None else [(staged.messages, staged.ids), self.history]
        return next(
            response_id for messages, ids in newest if (response_id := response_id_of(messages, ids)) is not None
        )

    @property
    def asked_by(self) -> str:
        """The id of the run under which running calls are recorded: of several attempts, the one that had the
        response.
        """
        asked_by = self.start.crashed.asked_by
        return asked_by if asked_by is not None and self.response_id == self._first_response_id else self.run_id

    def catch_up(self, response: ModelResponse) -> list[ModelMessage]:
        """Make a recorded response the last stored one, and return the history up to it.

        The response stays the same object, because pydantic-ai looks for it in the history.
        """
        place = last_response(self._messages)
        for response_field in fields(response):
            setattr(response, response_field.name, getattr(self._messages[place], response_field.name))
        self._messages[place] = response
        return self._messages[: place + 1]

    async def end_as_before(self, run_usage: RunUsage, cost: str | None) -> None:
        """Commit the end of a run whose base, created by the crashed run, is already its end."""
        base = self.start.base
        state = 'awaiting_approval' if base.state == 'awaiting_approval' else 'complete'
        end = RunEnd(run_id=self.run_id, state=state, usage=dump_usage(run_usage), cost=cost)
        await self._store(Commit(fence=self.run_id, calls=self._unsent_calls, ends=[end]))

    def _mark_stored(self, at: int, messages: Sequence[ModelMessage], ids: Sequence[str]) -> None:
        """Mark committed messages as stored. The cost depends only on new messages."""
        del self._messages[at:], self._ids[at:]
        self._messages += messages
        self._ids += ids

    async def start_call(self, call: CallRecord) -> None:
        """Commit the staged step and the start of a call. If the call can be repeated, its start is not committed."""
        if self.can_repeat(call):
            await self.commit_step()
            if call.effect == 'write':
                self.note_call(call)
        elif not await self.commit_step(call):
            await self._store(Commit(fence=self.run_id, calls=[call]))

    def can_repeat(self, call: CallRecord) -> bool:
        """Return whether an uncommitted call can run again after a crash.

        A call can if it only reads, or changes only files that a crash loses.
        """
        return call.effect == 'read' or (call.effect == 'write' and self._volatile_files is not None)

    def take_omitted(self) -> list[OmittedFile]:
        """Return omitted files of the last capture that were not reported to the model, and mark them as reported."""
        files = self.start.files
        new = [] if files is None else [file for file in files.omitted if file not in self._reported]
        self._reported.update(new)
        return new

    @property
    def _volatile_files(self) -> TurnFiles | None:
        files = self.start.files
        return files if files is not None and files.is_volatile and self.start.has_files else None

    def note_call(self, call: CallRecord) -> None:
        """Add the start or the end of a repeatable call to the next commit."""
        files = self._volatile_files
        if call.effect == 'write' and files is not None:
            files.note(call)
        else:
            self._unsent_calls.append(call)

    def supersede(self, call: CallRecord) -> None:
        """Add to the next commit that a call runs again."""
        self._unsent_calls.append(call._replace(status='superseded'))

    def note_in_message(self, call: CallRecord) -> None:
        """Record that the next message has the whole result of a call."""
        self._ended_calls.add(key_of(call))

    async def changed_deps(self) -> bool:
        """Return whether the deps state differs from the stored one."""
        state, _ = await self._state_of_deps()
        return state.digest != self._deps_state.digest

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
            call = call._replace(ended_at=now())
            await self._store(Commit(fence=self.run_id, calls=[call], assets=assets))
        else:
            async with files.lock:
                call, assets, state = await self._with_deps(call)
                new = await files.capture()
                call = call._replace(tree=new.tree, ended_at=files.moment(now()))
                commit = Commit(
                    fence=self.run_id, calls=[*new.calls, call], assets=[*assets, *new.assets], nodes=new.nodes
                )
                await self._store(commit)
                files.stored(new)
        self._deps_state = state

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

    def note_request(self, request: RequestEntry, assets: Sequence[NewAsset] = ()) -> None:
        """Add a request to the commit of the message with its response."""
        self._request_count += 1
        request.record = request.record._replace(number=self._request_count)
        self._requests.append(request)
        self._request_assets += assets

    def note_assets(self, assets: Sequence[NewAsset]) -> None:
        """Add assets that requests refer to, for the next commit."""
        self._request_assets += assets

    async def commit_requests(self) -> None:
        """Commit answered requests, because their responses are billed even if a crash loses them."""
        new = [entry for entry in self._requests if not entry.is_stored]
        if not new:
            return
        lost = [entry.lost() for entry in new]
        assets = [*self._request_assets, *(asset for _, of_entry in lost for asset in of_entry)]
        await run_to_completion(
            self._store(Commit(fence=self.run_id, assets=assets, requests=[record for record, _ in lost]))
        )
        for entry in new:
            entry.is_stored = True
        self._request_assets = []

    async def stage(self, messages: Sequence[ModelMessage], usage: RunUsage) -> None:
        """Stage the present messages as a step, to be committed before a call of the last message runs, or with the
        end.
        """
        self._staged = await self._draft(messages, usage, kind='step', state='interrupted', parent_id=self.tip.id)

    async def commit_step(self, call: CallRecord | None = None) -> bool:
        """Commit the staged step, with the call that it starts. Return whether there was one."""
        async with self._staging:
            if self._staged is None:
                return False
            await run_to_completion(self._commit(self._staged, started=call))
            return True

    async def end(
        self,
        messages: Sequence[ModelMessage],
        usage: RunUsage,
        *,
        kind: VersionKind,
        state: VersionState,
        run_usage: RunUsage,
        cost: str | None = None,
        output: str | None = None,
        pending: bytes | None = None,
        approvals: Sequence[ApprovalRecord] = (),
        supersedes: Mapping[str, str] | None = None,
        error: BaseException | None = None,
    ) -> VersionRecord:
        """Commit the end of the run, and return its version, which includes the staged step."""
        end = RunEnd(
            run_id=self.run_id,
            state='complete' if state == 'complete' else state,
            usage=dump_usage(run_usage),
            cost=cost,
            error=None if error is None else _dump_error(error),
        )
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
                ends=[end],
                heads=self._heads(version, draft),
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

    async def abandon(self, error: BaseException, run_usage: RunUsage, cost: str | None) -> None:
        """Commit that the run has failed, without a new version."""
        await self.commit_requests()
        claim = self.start.claim
        workspaces = [] if claim is None else [claim.record(self.tip.id)]
        end = RunEnd(
            run_id=self.run_id, state='failed', usage=dump_usage(run_usage), cost=cost, error=_dump_error(error)
        )
        await self._store(Commit(fence=self.run_id, ends=[end], workspaces=workspaces))
        self.is_ended = True

    def _heads(self, version: VersionRecord, draft: _VersionDraft) -> list[HeadMove]:
        """Return the head move. The head stays if the turn ended before any response, so that the prompt can be sent
        again.
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
                for message in [*self._messages[: draft.at], *draft.messages][len(start.messages) :]
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
        append, new, ids, assets = self._prepare_append(messages)
        at = len(self._messages) if append is None else append.at
        deps_state, of_deps = await self._state_of_deps()
        assets += of_deps
        base = self.start.base
        version = base.child(
            kind,
            parent_id=parent_id,
            state=state,
            branch_id=self._branch_id if append is None else append.branch_id,
            message_count=at + len(new),
            run_id=self.run_id,
            model=self.model or base.model,
            model_settings=self._settings or base.model_settings,
            usage=dump_usage(usage),
            output=None,
            pending=None,
            deps=deps_state.digest,
        )
        commit = Commit(
            fence=self.run_id,
            assets=assets,
            append=append,
            settled_calls=() if append is None else tuple(self._ended_calls),
            clears_prompt_of=self.run_id if self._has_prompt and append is not None else None,
        )
        return _VersionDraft(version=version, at=at, messages=new, ids=ids, commit=commit, deps_state=deps_state)

    async def _commit(self, draft: _VersionDraft, *, started: CallRecord | None = None) -> VersionRecord:
        """Commit a version with the present files."""
        files = self.start.files
        if files is None or not self.start.has_files:
            return await self._send(draft, started)
        async with files.lock:
            new = await files.capture(is_full=bool(draft.commit.ends))
            version = await self._send(draft, started, new)
            files.stored(new)
            return version

    async def _send(
        self, draft: _VersionDraft, started: CallRecord | None, files: NewFiles | None = None
    ) -> VersionRecord:
        version, commit = draft.version, draft.commit
        requests, left, of_requests = _with_responses(self._requests, draft.messages, draft.ids)
        for entry in left:
            record, new = entry.finished(None)
            requests.append(record)
            of_requests += new
        assets = [*commit.assets, *self._request_assets, *of_requests]
        calls = self._unsent_calls
        if files is not None:
            version = version._replace(tree=files.tree, backend=with_omitted(version.backend, files.omitted))
            assets += files.assets
            calls = [*files.calls, *calls]
        in_messages = set(commit.settled_calls)
        settled = in_messages - {key_of(call) for call in calls}
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
                requests=requests,
                # The message of this commit has their results, so the ledger does not need them.
                calls=[
                    *(call._replace(result=None) if key_of(call) in in_messages else call for call in calls),
                    *(() if started is None else (started,)),
                ],
                settled_calls=tuple(settled),
                workspaces=workspaces,
            ),
        )
        self._staged = None
        self._deps_state = draft.deps_state
        self._unsent_calls, self._requests, self._request_assets = [], [], []
        if commit.append is not None:
            self._has_prompt = False
            self._mark_stored(draft.at, draft.messages, draft.ids)
            self._ended_calls = set()
            self._branch_id, self._forks = self.tip.branch_id, False
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

    def _prepare_append(
        self, messages: Sequence[ModelMessage]
    ) -> tuple[Append | None, list[ModelMessage], list[str], list[NewAsset]]:
        """Return the messages to append, the messages after `at` as they will be stored, their ids, and new media.

        A staged message already has its id, which ledger entries refer to.
        """
        known = self._messages
        at, first_new = common(known, messages)
        new = list(messages[first_new:])
        if new and (more := rest_of(new[0], known[at:])) is not None:
            at, new[0] = len(known), more
        stored, ids = list[ModelMessage](), list[str]()
        news: list[NewMessage] = []
        assets: list[NewAsset] = []
        rest = list(zip(self._ids[at:], known[at:], strict=True))
        staged = () if self._staged is None else zip(self._staged.messages, self._staged.ids, strict=True)
        staged_ids = {id(message): staged_id for message, staged_id in staged}
        for message in new:
            again = _pop_known(message, rest)
            if again:
                news += (NewMessage(id=known_id, body=None) for known_id, _ in again)
            else:
                body, media = encode_message(message)
                assets += media
                again = [(staged_ids.get(id(message)) or new_id(), message)]
                news.append(NewMessage(id=again[0][0], body=body))
            ids += (known_id for known_id, _ in again)
            stored += (known_message for _, known_message in again)
        if at == len(known) and not news:
            return None, stored, ids, []
        append = Append(
            branch_id=self._branch_id,
            at=at,
            messages=news,
            fork_id=new_id(),
            fork_name=self.start.branch_name if self._forks else None,
            is_fork=self._forks or at < len(known),
            rewrites=len(known) if at < len(known) else None,
        )
        return append, stored, ids, assets


def _pop_known(message: ModelMessage, rest: list[tuple[str, ModelMessage]]) -> list[tuple[str, ModelMessage]]:
    """Remove and return the known messages that a message repeats or merges; return none if the message is new."""
    same = next((index for index, (_, known_message) in enumerate(rest) if known_message is message), None)
    count = 1
    if same is None:
        same = next((index for index, (_, known_message) in enumerate(rest) if known_message == message), None)
    if same is None:
        counts = (merged(message, [known_message for _, known_message in rest[index:]]) for index in range(len(rest)))
        same, count = next(((index, count) for index, count in enumerate(counts) if count), (0, 0))
    taken = rest[same : same + count]
    del rest[same : same + count]
    return taken


def last_response(messages: Sequence[ModelMessage]) -> int:
    """Return the index of the last response; -1 if there is none."""
    indexes = range(len(messages) - 1, -1, -1)
    return next((index for index in indexes if isinstance(messages[index], ModelResponse)), -1)


def response_id_of(messages: Sequence[ModelMessage], ids: Sequence[str]) -> str | None:
    """Return the id of the last response; `None` if there is none."""
    place = last_response(messages)
    return None if place < 0 else ids[place]


def _with_responses(
    requests: Sequence[RequestEntry], messages: Sequence[ModelMessage], ids: Sequence[str]
) -> tuple[list[RequestRecord], list[RequestEntry], list[NewAsset]]:
    """Return requests with the id of the message with their response, those without such a message, and new assets."""
    id_by_object = {id(message): message_id for message, message_id in zip(messages, ids, strict=True)}
    last = last_response(messages)
    newest = next((request.response for request in reversed(requests) if request.response is not None), None)
    if newest is not None and last >= 0:
        id_by_object.setdefault(id(newest), ids[last])  # a hook may have replaced the response
    records: list[RequestRecord] = []
    left: list[RequestEntry] = []
    assets: list[NewAsset] = []
    for request in requests:
        response_id = None if request.response is None else id_by_object.get(id(request.response))
        if response_id is None:
            left.append(request)
        else:
            record, new = request.finished(response_id)
            records.append(record)
            assets += new
    return records, left, assets


def _dump_error(error: BaseException) -> str:
    return json.dumps({'type': type(error).__name__, 'message': str(error)[:2000]})
