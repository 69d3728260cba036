"""One recorded run: what the store already has of it, and what each commit adds.

A commit brings what is new: messages are told from those before by identity, files by what was written. Nothing here
looks at a whole history but once, when the run begins.

Not here: when something happens (`_recorder`), and what a turn is (`_turn`).
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import cast

import anyio
from pydantic import TypeAdapter
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.usage import RunUsage
from pydantic_core import to_json

from pydantic_deep._messages.coalesced_requests import common, merged, rest_of
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
"""What a store says that takes nothing more of a run, for now or for good."""

CallKey = tuple[str, str]
"""A tool call within a run and those that it goes on with: the id of the message that asked for it, and its own."""


@dataclass(frozen=True, kw_only=True)
class CrashedRun:
    """A crashed run that another run resumes, with all attempts at it; empty for a run that resumes none."""

    attempts: Sequence[RunRecord] = ()
    """The run after those that it resumed itself, oldest first."""
    settled: Mapping[CallKey, CallRecord] = field(default_factory=dict[CallKey, CallRecord])
    """The ledger entries of the calls that these have begun."""
    asked_by: str | None = None
    """The attempt that has the ledger entries of the calls of the last response of the base."""
    lost: RunUsage = field(default_factory=RunUsage)
    """The usage of the attempts that is neither in that of the base nor recorded again."""
    earlier: RunUsage = field(default_factory=RunUsage)
    """The usage of the attempts up to the base, `lost` included."""


@dataclass(frozen=True, kw_only=True)
class RunStart:
    """The state in which a run starts: its base version, history, files and earlier attempts."""

    base: VersionRecord
    """The version that it goes on from."""
    messages: Sequence[ModelMessage] = ()
    """Its history, the same objects that the run is given."""
    message_ids: Sequence[str] = ()
    """The ids of these."""
    run_record: RunRecord
    """The run, as it is to be stored."""
    files: TurnFiles | None = None
    """The files of the turn; `None` where nothing is known of files."""
    claim: DirectoryClaim | None = None
    """Of the directory in which the run works, if it has claimed one."""
    branch_name: str | None = None
    """How the branch is to be called; `None` to go on with that of the base."""
    crashed: CrashedRun = field(default_factory=CrashedRun)
    """The crashed run that it resumes."""
    has_loaded_deps: bool = False
    """Whether the deps have the state of the base, and nothing besides."""
    has_files: bool = True
    """Whether the deps of the run have the files of the turn."""
    fork: str | None = None
    """Whose fork the files of the deps are, by the conversation; it is kept with their state. `None` if they are none."""
    parent_id: str | None = None
    """The parent of the version that the run ends with, if it is not the base: that of the first attempt at it."""
    pause_id: str | None = None
    """The version whose answers the run acts on."""
    head_id: str | None = None
    """Where the head of the conversation is, if the end of the run is to move it from there."""
    protected: Mapping[str, str] | None = None
    """The states of protected files when the turn began; `None` if they are not looked at."""
    requests: RequestLog = field(default_factory=RequestLog)
    """What is known of the requests of the run, and of those before it."""


@dataclass(frozen=True, kw_only=True)
class _VersionDraft:
    """A version that is not committed yet."""

    version: VersionRecord
    """It, without its files: they are taken when it is made."""
    at: int
    """With how many of the messages of the newest version it begins."""
    messages: Sequence[ModelMessage]
    """What comes after these."""
    ids: Sequence[str]
    """The ids of that."""
    commit: Commit
    """What makes it, but for its files and what is noted until it is made."""
    deps_state: DepsState
    """The state of deps that the store has then."""


@dataclass(kw_only=True)
class RecordedRun:
    """The state of one recorded run."""

    store: Store
    start: RunStart
    model: str | None = None
    """The model that answered last."""
    deps: object = field(default=None, init=False)
    """The deps of the run: if they are ours their state is part of each version."""
    is_begun: bool = field(default=False, init=False)
    """Whether the run has come as far as its recorder, which ends it."""
    tip: VersionRecord = field(init=False)
    """The newest version of the run, at first its base."""
    conflict: VersionConflictError | None = field(default=None, init=False)
    """Why the head of the conversation has not come along, where it was to."""
    is_ended: bool = field(default=False, init=False)
    """Whether the store has the end of the run. A run that raised and has no end there is suspended."""
    refused: StoreError | None = field(default=None, init=False)
    """What the store said to the last commit that it did not make."""
    _messages: list[ModelMessage] = field(init=False)
    _ids: list[str] = field(init=False)
    _branch_id: str = field(init=False)
    _forks: bool = field(init=False)
    _has_prompt: bool = field(init=False)
    _settings: str | None = field(default=None, init=False)
    """The settings of the versions of the run; `None` before its first request."""
    _deps_state: DepsState = field(init=False)
    _ended_calls: set[tuple[str, str, str]] = field(default_factory=set[tuple[str, str, str]], init=False)
    """Those whose result no message has yet."""
    _unsent_calls: list[CallRecord] = field(default_factory=list[CallRecord], init=False)
    _requests: list[RequestEntry] = field(default_factory=list[RequestEntry], init=False)
    """Those that the store does not have as they stay."""
    _request_assets: list[NewAsset] = field(default_factory=list[NewAsset], init=False)
    _request_count: int = field(default=0, init=False)
    _first_response_id: str | None = field(init=False)
    _staged: _VersionDraft | None = field(default=None, init=False)
    """The step that whoever runs the first of its calls makes durable."""
    _reported: set[OmittedFile] = field(default_factory=set[OmittedFile], init=False)
    """The files without a version that the model knows of, or that were there before the run."""
    _staging: anyio.Lock = field(default_factory=lambda: anyio.Lock(fast_acquire=True), init=False)
    """Held while a step or the end is made: other calls wait until it is."""

    def __post_init__(self) -> None:
        """Begin where the base ends."""
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
        """The run."""
        return self.start.run_record.id

    async def begin_with(self, deps: object) -> None:
        """Take the deps of the run, as they are when it begins."""
        self.is_begun = True
        self.deps = deps
        if self.start.has_loaded_deps:
            await self._deps_state.begin(deps)

    def lose_name(self) -> None:
        """Let the branch have any name: somebody has taken its own since the run began."""
        self.start = replace(self.start, branch_name=None)

    @property
    def history(self) -> tuple[list[ModelMessage], list[str]]:
        """The messages that the store has of the newest version, and their ids."""
        return self._messages, self._ids

    async def keep_messages(self, messages: Sequence[ModelMessage]) -> None:
        """Make messages durable that no version has yet, before they are told anew: answers that were rejected.

        They make no version, for no run could go on from there.
        """
        await self.keep_step()
        append, new, ids, assets = self._appended(messages)
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
        self._go_on(append.at, new, ids)
        self._branch_id, self._forks = cast('BranchRecord', committed.branch).id, False

    @property
    def response_id(self) -> str:
        """The message whose calls run now: the last response."""
        staged = self._staged
        newest = [self.history] if staged is None else [(staged.messages, staged.ids), self.history]
        return next(found for messages, ids in newest if (found := response_id_of(messages, ids)) is not None)

    @property
    def asked_by(self) -> str:
        """The run under which the calls that run now are noted: of several attempts, the one that had the response."""
        asked_by = self.start.crashed.asked_by
        return asked_by if asked_by is not None and self.response_id == self._first_response_id else self.run_id

    def catch_up(self, response: ModelResponse) -> list[ModelMessage]:
        """Make a response that was told again the last one that the store has, and return the history up to it.

        It stays the same object: pydantic-ai looks for it in the history.
        """
        place = last_response(self._messages)
        for each in fields(response):
            setattr(response, each.name, getattr(self._messages[place], each.name))
        self._messages[place] = response
        return self._messages[: place + 1]

    async def end_as_before(self, run_usage: RunUsage, cost: str | None) -> None:
        """Commit the end of the run where the base, which the run before has made, is its end already."""
        base = self.start.base
        state = 'awaiting_approval' if base.state == 'awaiting_approval' else 'complete'
        end = RunEnd(run_id=self.run_id, state=state, usage=dump_usage(run_usage), cost=cost)
        await self._store(Commit(fence=self.run_id, calls=self._unsent_calls, ends=[end]))

    def _go_on(self, at: int, messages: Sequence[ModelMessage], ids: Sequence[str]) -> None:
        """Take what was committed as what the store has: what is new costs, not the history."""
        del self._messages[at:], self._ids[at:]
        self._messages += messages
        self._ids += ids

    async def start_call(self, call: CallRecord) -> None:
        """Note that a call may run from now on, durably unless it can be repeated; the step that asks for it is."""
        if self.can_repeat(call):
            await self.keep_step()
            if call.effect == 'write':
                self.note_call(call)
        elif not await self.keep_step(call):
            await self._store(Commit(fence=self.run_id, calls=[call]))

    def can_repeat(self, call: CallRecord) -> bool:
        """Return whether a call that no commit tells of can be made again after a crash.

        One that reads can, and one that changes files which are gone with the process.
        """
        return call.effect == 'read' or (call.effect == 'write' and self._volatile_files is not None)

    def take_omitted(self) -> list[OmittedFile]:
        """Return the files that the last capture left out and that the model has not been told of; it is told now."""
        files = self.start.files
        new = [] if files is None else [each for each in files.omitted if each not in self._reported]
        self._reported.update(new)
        return new

    @property
    def _volatile_files(self) -> TurnFiles | None:
        files = self.start.files
        return files if files is not None and files.is_volatile and self.start.has_files else None

    def note_call(self, call: CallRecord) -> None:
        """Note with the next commit what became of a call: one that can be repeated."""
        files = self._volatile_files
        if call.effect == 'write' and files is not None:
            files.note(call)
        else:
            self._unsent_calls.append(call)

    def supersede(self, call: CallRecord) -> None:
        """Note with the next commit that a call is made again."""
        self._unsent_calls.append(call._replace(status='superseded'))

    def note_told(self, call: CallRecord) -> None:
        """Note that the next message has all of the result of a call."""
        self._ended_calls.add(key_of(call))

    async def changed_deps(self) -> bool:
        """Return whether the store has another state of the deps."""
        state, _ = await self._state_of_deps()
        return state.digest != self._deps_state.digest

    async def _state_of_deps(self) -> tuple[DepsState, list[NewAsset]]:
        """Return the state of the deps now, and what the store has not of it. It has it when that is committed."""
        state = copy.copy(self._deps_state)
        return state, await state.dump(self.deps)

    async def end_call(self, call: CallRecord) -> None:
        """Note durably what became of a call, of the deps and of the files, and when they were looked at."""
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
        """Return a call with the state of the deps, if the store has another one, what it lacks of it, and the state."""
        state, assets = await self._state_of_deps()
        if call.result is not None and state.digest is not None and state.digest != self._deps_state.digest:
            call = call._replace(result=with_deps(call.result, state.digest))
        return call, assets, state

    def note_instructions(self, instructions: str) -> None:
        """Keep the literal instructions of the agent with the versions of the run; warn if they were others before."""
        if self._settings is None:
            base = self.start.base
            self._settings = with_agent_instructions(base.model_settings, instructions)
            warn_of_other_instructions(self.store, base, instructions)

    def note_request(self, request: RequestEntry, assets: Sequence[NewAsset] = ()) -> None:
        """Note a request with the commit of the message that has its answer."""
        self._request_count += 1
        request.record = request.record._replace(number=self._request_count)
        self._requests.append(request)
        self._request_assets += assets

    def note_assets(self, assets: Sequence[NewAsset]) -> None:
        """Note contents that requests refer to."""
        self._request_assets += assets

    async def keep_requests(self) -> None:
        """Make requests durable that were answered: their answers are lost if the process crashes, and billed."""
        new = [each for each in self._requests if not each.is_stored]
        if not new:
            return
        lost = [each.lost() for each in new]
        assets = [*self._request_assets, *(asset for _, each in lost for asset in each)]
        await run_to_completion(
            self._store(Commit(fence=self.run_id, assets=assets, requests=[record for record, _ in lost]))
        )
        for each in new:
            each.is_stored = True
        self._request_assets = []

    async def stage(self, messages: Sequence[ModelMessage], usage: RunUsage) -> None:
        """Take the messages until now for a step: it is kept before any call of the last one runs, or with the end."""
        self._staged = await self._draft(messages, usage, kind='step', state='interrupted', parent_id=self.tip.id)

    async def keep_step(self, call: CallRecord | None = None) -> bool:
        """Make the step durable that is staged, with a call that it starts; return whether there was one."""
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
        """Commit the end of the run, and return its version. What was staged and not kept is part of it."""
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
        """What the turn changed in protected files, once it has ended."""
        return self._deps_state.protected

    async def find_protected_changes(self) -> tuple[ProtectedChange, ...]:
        """Return what the turn has changed in protected files so far."""
        start = self.start
        backend = getattr(self.deps, 'backend', None) if start.files is None else start.files.files.backend
        in_place = start.files is None or start.claim is not None
        return await protected_changes(start.protected, backend, in_place=in_place)

    async def abandon(self, error: BaseException, run_usage: RunUsage, cost: str | None) -> None:
        """Commit that the run has failed, and no version: the newest one stays the last."""
        await self.keep_requests()
        claim = self.start.claim
        held = [] if claim is None else [claim.record(self.tip.id)]
        end = RunEnd(
            run_id=self.run_id, state='failed', usage=dump_usage(run_usage), cost=cost, error=_dump_error(error)
        )
        await self._store(Commit(fence=self.run_id, ends=[end], workspaces=held))
        self.is_ended = True

    def _heads(self, version: VersionRecord, draft: _VersionDraft) -> list[HeadMove]:
        """Return how the head moves. It stays where a turn ended before it was answered: the prompt can be sent again."""
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
        append, new, ids, assets = self._appended(messages)
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
        """Make a version, with the files as they are now."""
        files = self.start.files
        if files is None or not self.start.has_files:
            return await self._send(draft, started)
        async with files.lock:
            new = await files.capture(is_full=bool(draft.commit.ends))
            kept = await self._send(draft, started, new)
            files.stored(new)
            return kept

    async def _send(
        self, draft: _VersionDraft, started: CallRecord | None, files: NewFiles | None = None
    ) -> VersionRecord:
        version, commit = draft.version, draft.commit
        requests, left, of_requests = _with_responses(self._requests, draft.messages, draft.ids)
        for each in left:
            record, new = each.finished(None)
            requests.append(record)
            of_requests += new
        assets = [*commit.assets, *self._request_assets, *of_requests]
        calls = self._unsent_calls
        if files is not None:
            version = version._replace(tree=files.tree, backend=with_omitted(version.backend, files.omitted))
            assets += files.assets
            calls = [*files.calls, *calls]
        told = set(commit.settled_calls)
        settled = told - {key_of(call) for call in calls}
        workspaces: list[WorkspaceRecord] = []
        if self.start.claim is not None:
            workspaces.append(await self.start.claim.note(version.id, None if commit.ends else self.run_id))
        self.tip = await self._made(
            version,
            replace(
                commit,
                assets=assets,
                nodes=None if files is None else files.nodes,
                versions=[version],
                requests=requests,
                # The message has their results; before it had, only another commit could have kept them.
                calls=[
                    *(call._replace(result=None) if key_of(call) in told else call for call in calls),
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
            self._go_on(draft.at, draft.messages, draft.ids)
            self._ended_calls = set()
            self._branch_id, self._forks = self.tip.branch_id, False
        return self.tip

    async def _store(self, commit: Commit) -> Committed:
        try:
            return await self.store.commit(commit)
        except FAILED as error:
            self.refused = error
            raise

    async def _made(self, version: VersionRecord, commit: Commit) -> VersionRecord:
        """Commit what makes a version, and return it as the store has it."""
        try:
            committed = await self._store(commit)
        except VersionConflictError as conflict:  # all of the commit is true but the head
            self.conflict = conflict
            return await self.store.version(version.id)
        branch = committed.branch
        if branch is not None:
            version = version._replace(branch_id=branch.id, branch=branch.name)
        return version._replace(number=committed.numbers[version.id])

    def _appended(
        self, messages: Sequence[ModelMessage]
    ) -> tuple[Append | None, list[ModelMessage], list[str], list[NewAsset]]:
        """Return what is to be appended, the messages after `at` as the store has them then, their ids, and new media.

        A message that is staged has its id already: calls are noted under it.
        """
        known = self._messages
        at, first_new = common(known, messages)
        said = list(messages[first_new:])
        if said and (more := rest_of(said[0], known[at:])) is not None:
            at, said[0] = len(known), more
        stored, ids = list[ModelMessage](), list[str]()
        news: list[NewMessage] = []
        assets: list[NewAsset] = []
        rest = list(zip(self._ids[at:], known[at:], strict=True))
        staged = () if self._staged is None else zip(self._staged.messages, self._staged.ids, strict=True)
        staged_ids = {id(message): staged_id for message, staged_id in staged}
        for message in said:
            again = _take(message, rest)
            if again:
                news += (NewMessage(id=known_id, body=None) for known_id, _ in again)
            else:
                body, media = encode_message(message)
                assets += media
                again = [(staged_ids.get(id(message)) or new_id(), message)]
                news.append(NewMessage(id=again[0][0], body=body))
            ids += (known_id for known_id, _ in again)
            stored += (each for _, each in again)
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


def _take(message: ModelMessage, rest: list[tuple[str, ModelMessage]]) -> list[tuple[str, ModelMessage]]:
    """Take out of known messages those that come again as this one, and return them; none if it is new."""
    same = next((index for index, (_, each) in enumerate(rest) if each is message), None)
    count = 1
    if same is None:
        same = next((index for index, (_, each) in enumerate(rest) if each == message), None)
    if same is None:
        counts = (merged(message, [each for _, each in rest[index:]]) for index in range(len(rest)))
        same, count = next(((index, count) for index, count in enumerate(counts) if count), (0, 0))
    taken = rest[same : same + count]
    del rest[same : same + count]
    return taken


def last_response(messages: Sequence[ModelMessage]) -> int:
    """Return the place of the last response; -1 if there is none."""
    indexes = range(len(messages) - 1, -1, -1)
    return next((index for index in indexes if isinstance(messages[index], ModelResponse)), -1)


def response_id_of(messages: Sequence[ModelMessage], ids: Sequence[str]) -> str | None:
    """Return the id of the last response; `None` if there is none."""
    place = last_response(messages)
    return None if place < 0 else ids[place]


def _with_responses(
    requests: Sequence[RequestEntry], messages: Sequence[ModelMessage], ids: Sequence[str]
) -> tuple[list[RequestRecord], list[RequestEntry], list[NewAsset]]:
    """Return requests with the id of the message that has the answer of each, those of which none has, and new assets."""
    id_by_object = {id(message): message_id for message, message_id in zip(messages, ids, strict=True)}
    last = last_response(messages)
    newest = next((each.response for each in reversed(requests) if each.response is not None), None)
    if newest is not None and last >= 0:
        id_by_object.setdefault(id(newest), ids[last])  # a hook may have replaced it
    found: list[RequestRecord] = []
    left: list[RequestEntry] = []
    assets: list[NewAsset] = []
    for request in requests:
        response_id = None if request.response is None else id_by_object.get(id(request.response))
        if response_id is None:
            left.append(request)
        else:
            record, new = request.finished(response_id)
            found.append(record)
            assets += new
    return found, left, assets


def _dump_error(error: BaseException) -> str:
    return json.dumps({'type': type(error).__name__, 'message': str(error)[:2000]})


def dump_usage(usage: RunUsage) -> str:
    """Return usage as JSON, without what is 0."""
    return to_json({key: value for key, value in vars(usage).items() if value}).decode()


def load_usage(text: str) -> RunUsage:
    """Return usage from its JSON."""
    return _usage_adapter().validate_json(text)


@cache
def _usage_adapter() -> TypeAdapter[RunUsage]:
    return TypeAdapter(RunUsage)
