"""One run as it is recorded: what the store has of it already, and what each commit brings.

A commit brings what is new: messages are told from those before by identity, files by what was written. Nothing here
looks at a whole history but once, when the run begins.

Not here: when something happens (`_recorder`), and what a turn is (`_turn`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import takewhile
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.usage import RunUsage

from pydantic_deep.store import (
    Append,
    ApprovalRecord,
    CallRecord,
    Commit,
    NewAsset,
    NewMessage,
    RequestRecord,
    RunEnd,
    RunRecord,
    Store,
    VersionKind,
    VersionRecord,
    VersionState,
    WorkspaceRecord,
    new_id,
)
from pydantic_deep_backends import digest_of

from ._deps_state import DepsState
from ._messages import encode_message
from ._requests import RequestLog
from ._run_files import NewFiles, TurnFiles

CallKey = tuple[str, str]
"""A tool call within a run and those that it goes on with: the id of the message that asked for it, and its own."""


def now() -> int:
    """Return the moment, in microseconds since 1970."""
    return time.time_ns() // 1000


@dataclass(frozen=True, kw_only=True)
class Beginning:
    """What a run begins with."""

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
    workspace: str | None = None
    """The directory in which the run works, if it has claimed one."""
    branch_name: str | None = None
    """How the branch is to be called; `None` to go on with that of the base."""
    settled: Mapping[CallKey, CallRecord] = field(default_factory=dict[CallKey, CallRecord])
    """The calls that the run before, which this one recovers, has begun."""
    has_loaded_deps: bool = False
    """Whether the deps have the state of the base, and nothing besides."""
    has_files: bool = True
    """Whether the deps of the run have the files of the turn."""
    parent_id: str | None = None
    """The parent of the version that the run ends with, if it is not the base: that of the first attempt at it."""
    pause_id: str | None = None
    """The version whose answers the run acts on."""
    requests: RequestLog = field(default_factory=RequestLog)
    """What is known of the requests of the run, and of those before it."""


@dataclass(kw_only=True)
class Recording:
    """The state of one recorded run."""

    store: Store
    begin: Beginning
    model: str | None = None
    """The model that answered last."""
    deps: object = field(default=None, init=False)
    """The deps of the run: if they are ours their state is part of each version."""
    is_begun: bool = field(default=False, init=False)
    """Whether the run has come as far as its recorder, which ends it."""
    tip: VersionRecord = field(init=False)
    """The newest version of the run, at first its base."""
    _messages: list[ModelMessage] = field(init=False)
    _ids: list[str] = field(init=False)
    _branch_id: str = field(init=False)
    _forks: bool = field(init=False)
    _has_prompt: bool = field(init=False)
    _deps_state: DepsState = field(init=False)
    _ended_calls: set[tuple[str, str, str]] = field(default_factory=set[tuple[str, str, str]], init=False)
    """Those whose result no message has yet."""
    _unsent_calls: list[CallRecord] = field(default_factory=list[CallRecord], init=False)
    _requests: list[tuple[RequestRecord, ModelResponse]] = field(
        default_factory=list[tuple[RequestRecord, ModelResponse]], init=False
    )
    _request_assets: list[NewAsset] = field(default_factory=list[NewAsset], init=False)
    _request_count: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        """Begin where the base ends."""
        begin = self.begin
        self.tip = begin.base
        self._messages = list(begin.messages)
        self._ids = list(begin.message_ids)
        self._branch_id = begin.base.branch_id
        self._forks = begin.branch_name is not None
        self._has_prompt = begin.run_record.prompt is not None
        self._deps_state = DepsState(digest=begin.base.deps)

    @property
    def run_id(self) -> str:
        """The run."""
        return self.begin.run_record.id

    async def begin_with(self, deps: object) -> None:
        """Take the deps of the run, as they are when it begins."""
        self.is_begun = True
        self.deps = deps
        if self.begin.has_loaded_deps:
            await self._deps_state.begin(deps)

    def lose_name(self) -> None:
        """Let the branch have any name: somebody has taken its own since the run began."""
        self.begin = replace(self.begin, branch_name=None)

    @property
    def history(self) -> tuple[list[ModelMessage], list[str]]:
        """The messages that the store has of the newest version, and their ids."""
        return self._messages, self._ids

    @property
    def response_id(self) -> str:
        """The message whose calls run now: the last response."""
        return self._ids[last_response(self._messages)]

    async def start_call(self, call: CallRecord) -> None:
        """Note durably that a call may run from now on."""
        await self.store.commit(Commit(fence=self.run_id, calls=[call]))

    def note_call(self, call: CallRecord) -> None:
        """Note with the next commit what became of a call: one that can be repeated."""
        self._unsent_calls.append(call)

    def note_told(self, call: CallRecord) -> None:
        """Note that the next message has all of the result of a call."""
        self._ended_calls.add((call.run_id, call.response_id, call.tool_call_id))

    async def end_call(self, call: CallRecord, *, touches_files: bool) -> None:
        """Note durably what became of a call, and of the files."""
        files = self.begin.files
        if files is None or not touches_files:
            await self.store.commit(Commit(fence=self.run_id, calls=[call]))
            return
        async with files.lock:
            new = await files.capture()
            ended_at = files.moment(now() if call.ended_at is None else call.ended_at)
            call = call._replace(tree=new.tree, ended_at=ended_at)
            await self.store.commit(Commit(fence=self.run_id, calls=[call], assets=new.assets, nodes=new.nodes))
            files.stored(new)

    def note_request(self, request: RequestRecord, response: ModelResponse, assets: Sequence[NewAsset]) -> None:
        """Note a request with the commit of its response."""
        self._request_count += 1
        self._requests.append((request._replace(number=self._request_count), response))
        self._request_assets += assets

    async def step(self, messages: Sequence[ModelMessage], usage: RunUsage) -> None:
        """Commit a step: the messages until now, before any tool of the last one runs."""
        await self._commit(messages, usage, kind='step', state='interrupted')

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
        """Commit the end of the run, and return its version."""
        end = RunEnd(
            run_id=self.run_id,
            state='complete' if state == 'complete' else state,
            usage=dump_usage(run_usage),
            cost=cost,
            error=None if error is None else json.dumps({'type': type(error).__name__, 'message': str(error)[:2000]}),
        )
        return await self._commit(
            messages,
            usage,
            kind=kind,
            state=state,
            output=output,
            pending=pending,
            approvals=approvals,
            supersedes=supersedes,
            end=end,
        )

    async def _commit(
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
        end: RunEnd | None = None,
    ) -> VersionRecord:
        append, ids, assets = self._appended(messages)
        assets += await self._deps_state.dump(self.deps)
        if pending is not None:
            assets.append(NewAsset(digest=digest_of(pending), data=pending, media_type='application/json'))
        begin, files = self.begin, self.begin.files
        version = begin.base._replace(
            id=new_id(),
            number=0,
            parent_id=begin.parent_id or begin.base.id if end is not None else self.tip.id,
            cloned_from=None,
            merged_from=None,
            kind=kind,
            state=state,
            branch_id=self._branch_id if append is None else append.branch_id,
            message_count=len(messages),
            run_id=self.run_id,
            model=self.model or begin.base.model,
            usage=dump_usage(usage),
            output=output,
            pending=None if pending is None else digest_of(pending),
            deps=self._deps_state.digest,
            created_at=now(),
        )
        if files is None or not begin.has_files:
            return await self._send(version, append, ids, messages, assets, None, approvals, supersedes, end)
        async with files.lock:
            new = await files.capture(is_full=end is not None)
            return await self._send(version, append, ids, messages, assets, new, approvals, supersedes, end)

    async def _send(
        self,
        version: VersionRecord,
        append: Append | None,
        ids: list[str],
        messages: Sequence[ModelMessage],
        assets: list[NewAsset],
        files: NewFiles | None,
        approvals: Sequence[ApprovalRecord],
        supersedes: Mapping[str, str] | None,
        end: RunEnd | None,
    ) -> VersionRecord:
        begin = self.begin
        if files is not None:
            version = version._replace(tree=files.tree)
            assets += files.assets
        workspaces: list[WorkspaceRecord] = []
        if begin.workspace is not None:
            workspaces.append(WorkspaceRecord(begin.workspace, version.id, None if end is not None else self.run_id))
        committed = await self.store.commit(
            Commit(
                fence=self.run_id,
                assets=[*assets, *self._request_assets],
                nodes=None if files is None else files.nodes,
                append=append,
                settled_calls=() if append is None else tuple(self._ended_calls),
                clears_prompt_of=self.run_id if self._has_prompt and append is not None else None,
                versions=[version],
                requests=_with_responses(self._requests, messages, ids),
                calls=self._unsent_calls,
                approvals=[approval._replace(version_id=version.id) for approval in approvals],
                supersedes=supersedes,
                ends=() if end is None else [end],
                workspaces=workspaces,
            )
        )
        if files is not None and begin.files is not None:
            begin.files.stored(files)
        self._deps_digest = version.deps
        self._unsent_calls, self._requests, self._request_assets = [], [], []
        if append is not None:
            self._has_prompt = False
            self._messages, self._ids = list(messages), ids
            self._ended_calls = set()
        branch = committed.branch
        if branch is not None:
            self._branch_id, self._forks = branch.id, False
            version = version._replace(branch_id=branch.id, branch=branch.name)
        self.tip = version._replace(number=committed.numbers[version.id])
        return self.tip

    def _appended(self, messages: Sequence[ModelMessage]) -> tuple[Append | None, list[str], list[NewAsset]]:
        """Return what is to be appended, the ids of all messages, and the media in what is new."""
        known = self._messages
        same = sum(1 for _ in takewhile(bool, map(_is_same, known, messages)))
        if same == len(known) == len(messages):
            return None, self._ids, []
        id_by_object = {} if same == len(known) else dict(zip(map(id, known[same:]), self._ids[same:], strict=True))
        is_new_history = same == 0 and bool(known)
        news: list[NewMessage] = []
        assets: list[NewAsset] = []
        ids = self._ids[:same]
        for message in messages[same:]:
            if (known_id := id_by_object.get(id(message))) is not None:
                news.append(NewMessage(id=known_id, body=None))
            else:
                body, media = encode_message(message)
                assets += media
                news.append(NewMessage(id=new_id(), body=body))
            ids.append(news[-1].id)
        append = Append(
            branch_id=self._branch_id,
            at=same,
            messages=news,
            fork_id=new_id(),
            fork_name=self.begin.branch_name if self._forks else None,
            is_fork=self._forks or same < len(known),
            rewrites=len(known) if is_new_history else None,
        )
        return append, ids, assets


def last_response(messages: Sequence[ModelMessage]) -> int:
    """Return the place of the last response; -1 if there is none."""
    indexes = range(len(messages) - 1, -1, -1)
    return next((index for index in indexes if isinstance(messages[index], ModelResponse)), -1)


def response_id_of(messages: Sequence[ModelMessage], ids: Sequence[str]) -> str | None:
    """Return the id of the last response; `None` if there is none."""
    place = last_response(messages)
    return None if place < 0 else ids[place]


def _with_responses(
    requests: Sequence[tuple[RequestRecord, ModelResponse]], messages: Sequence[ModelMessage], ids: Sequence[str]
) -> list[RequestRecord]:
    """Return requests with the id of the message that answered each; one that is gone is left out."""
    if not requests:
        return []
    last = last_response(messages)
    id_by_object = {id(messages[index]): ids[index] for index in range(max(0, last - 2 * len(requests)), last + 1)}
    newest = requests[-1][1]
    id_by_object.setdefault(id(newest), ids[last])  # a hook may have replaced it
    return [
        request._replace(response_id=id_by_object[id(response)])
        for request, response in requests
        if id(response) in id_by_object
    ]


def _is_same(known: ModelMessage, message: ModelMessage) -> bool:
    """Return whether a message is one that is known; a run that is resumed has an equal copy of its last response."""
    return known is message or known == message


def dump_usage(usage: RunUsage) -> str:
    """Return usage as JSON, without what is 0."""
    dumped: dict[str, Any] = _usage_adapter().dump_python(usage, mode='json')
    return json.dumps({key: value for key, value in dumped.items() if value}, separators=(',', ':'))


def load_usage(text: str) -> RunUsage:
    """Return usage from its JSON."""
    return _usage_adapter().validate_json(text)


@cache
def _usage_adapter() -> TypeAdapter[RunUsage]:
    return TypeAdapter(RunUsage)
