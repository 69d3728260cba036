"""`AgentVersion`: everything that was true of one conversation at one moment, and what can be done from there."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Generic, Self, cast

from pydantic import JsonValue
from pydantic_ai import CancellationToken, DeferredToolRequests
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RunUsage, UsageLimits
from typing_extensions import Unpack

from pydantic_deep._checks import check_index, check_names, check_prompt
from pydantic_deep.agent import literal_instructions
from pydantic_deep.approvals import Decision, PendingApproval, pending_approvals
from pydantic_deep.deps import Upload
from pydantic_deep.store import (
    Commit,
    RequestRecord,
    VersionFilter,
    VersionKind,
    VersionRecord,
    VersionState,
    new_id,
    now,
)
from pydantic_deep.todos import Todo
from pydantic_deep_backends import BackendProtocol, ProtectedChange, ReadOnlyBackend, StateBackend, Tree
from pydantic_deep_backends.tracking import OmittedFile

from ._frozen_json import FrozenJson, freeze
from ._instructions_check import warn_of_other_instructions
from ._messages import decode_messages, load_history
from ._session import DepsT, OutputT, Session
from ._settings import (
    dump_metadata,
    dump_settings,
    listed,
    load_agent_instructions,
    load_instructions,
    load_settings,
    with_agent_instructions,
)
from ._state_edit import with_upload, without_upload
from ._subagent_threads import SubagentThread, attempt_ids, load_requests, load_subagents
from ._turn import TurnRequest, run_turn, turn_request
from ._turn_options import TurnOptions
from ._turn_stream import TurnEvents
from .comparison._merge import merge_versions
from .comparison._replay import replay
from .comparison._version_diff import FileDiff, Replay, VersionDiff, diff_files, usage_between
from .errors import ApprovalsPendingError
from .files._backend_descriptions import omitted_in
from .files._open_files import refuse_replaced
from .files._protected_files import load_changes
from .files._version_checkout import checkout_version
from .pauses._answers import fresh_approvals
from .pauses._pause import decode_pause
from .recording._prompts import Prompt
from .recording._recorded_run import load_usage


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """What a version refers to that was read with it."""

    deps: bytes | None = None
    pending: bytes | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AgentVersion(Generic[DepsT, OutputT]):
    """What was true of one conversation at one moment: messages, files, todos, what waits. It never changes.

    Everything that goes on from it makes another version: what was there stays, so nothing can be lost by trying.
    Versions are equal if they are the same one.
    """

    _session: Session[DepsT, OutputT]
    _record: VersionRecord
    _loaded: Loaded = field(default_factory=Loaded)
    _backend: BackendProtocol | None = None
    """The files that the caller has open."""

    @property
    def id(self) -> str:
        """A UUIDv7: whoever sees it learns when it was made. It is identity and no permission."""
        return self._record.id

    @property
    def parent_id(self) -> str | None:
        """The version that it came from, also if that one was deleted since; `None` for a root."""
        return self._record.parent_id

    @property
    def cloned_from(self) -> str | None:
        """The version that it is a clone of."""
        return self._record.cloned_from

    @property
    def merged_from(self) -> str | None:
        """The second parent of a merge."""
        return self._record.merged_from

    @property
    def kind(self) -> VersionKind:
        """How it came to be: `root`, `step`, `turn`, `pause`, `edit` or `merge`."""
        return self._record.kind

    @property
    def state(self) -> VersionState:
        """What became of its turn: `complete`, `awaiting_approval`, `interrupted` or `failed`."""
        return self._record.state

    @property
    def conversation_id(self) -> str:
        """The conversation."""
        return self._record.conversation_id

    @property
    def branch(self) -> str:
        """The name of the branch that its messages are on; the first one is `main`."""
        return self._record.branch

    @property
    def run_id(self) -> str | None:
        """The run that made it."""
        return self._record.run_id

    @property
    def agent_name(self) -> str:
        """The name of the agent that its conversation began with, also if one of another name has gone on with it."""
        return self._record.agent_name

    @property
    def name(self) -> str | None:
        """The name that it was given; children have it too."""
        return self._record.name

    @property
    def metadata(self) -> Mapping[str, FrozenJson]:
        """What it was given to keep; children have it too. It cannot be changed at any level."""
        return cast('Mapping[str, FrozenJson]', freeze(json.loads(self._record.metadata)))

    @property
    def model(self) -> str | None:
        """The model that answered, as `provider:name`; before any has, the one that was asked for."""
        return self._record.model

    @property
    def model_settings(self) -> ModelSettings:
        """The defaults of its turns."""
        return load_settings(self._record.model_settings)[0]

    @property
    def instructions(self) -> Sequence[str]:
        """What the agent is told in its turns besides its own instructions; see `VersionedAgent.create`."""
        return load_instructions(self._record.model_settings)

    @property
    def agent_instructions(self) -> str:
        """The agent's own literal instructions in the turn that it was made with; empty if there were none."""
        return load_agent_instructions(self._record.model_settings)

    @property
    def usage(self) -> RunUsage:
        """What the conversation has used up to here."""
        return load_usage(self._record.usage)

    @property
    def output(self) -> OutputT | None:
        """What the turn answered with; `None` for a version that answers nothing."""
        text = self._record.output
        return None if text is None else self._session.parse_output(text)

    @property
    def pending(self) -> list[PendingApproval]:
        """What waits for a person, subagents included."""
        return pending_approvals(self.deferred_tool_requests)

    @property
    def deferred_tool_requests(self) -> DeferredToolRequests | None:
        """What waits, as pydantic-ai has it, without the histories of subagents: `resume` has them."""
        return None if self._loaded.pending is None else decode_pause(self._loaded.pending)

    @property
    def todos(self) -> list[Todo]:
        """The plan."""
        if self._loaded.deps is None:
            return []
        return [Todo(**todo) for todo in json.loads(self._loaded.deps).get('todos', [])]

    @property
    def uploads(self) -> Mapping[str, Upload]:
        """The files that the user gave, by name."""
        if self._loaded.deps is None:
            return {}
        return {name: Upload(**each) for name, each in json.loads(self._loaded.deps).get('uploads', {}).items()}

    @property
    def protected_changes(self) -> tuple[ProtectedChange, ...]:
        """What its turn made of files that programs of the host run or obey, such as `.git/config`.

        Versions hold nothing of `.git`, so no diff shows it and no checkout takes it back.
        """
        return () if self._loaded.deps is None else load_changes(json.loads(self._loaded.deps), self.run_id)

    @property
    def tree(self) -> str | None:
        """The digest of its files; `None` where files are not versioned."""
        return self._record.tree

    @property
    def omitted_files(self) -> Sequence[OmittedFile]:
        """The files of its directory that it does not have, because they are too large, unreadable or badly named.

        The first hundred by path. Files that a `.gitignore` names are left out on purpose and are not among them.
        """
        return omitted_in(self._record.backend)

    @property
    def message_count(self) -> int:
        """How many messages its history has."""
        return self._record.message_count

    @property
    def created_at(self) -> datetime:
        """When it was made."""
        return datetime.fromtimestamp(self._record.created_at / 1e6, UTC)

    @property
    def backend(self) -> BackendProtocol | None:
        """The files, if the caller has them open."""
        return self._backend

    @property
    def record(self) -> VersionRecord:
        """It, as the store has it."""
        return self._record

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, AgentVersion) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        name = f' {self.name!r}' if self.name else ''
        return (
            f'<AgentVersion {self.id}{name}: {self.kind}, {self.state}, {self.message_count} messages, {self.branch}>'
        )

    async def advance(
        self,
        prompt: Prompt,
        *,
        deps: DepsT | None = None,
        model: Model | str | None = None,
        branch: str | None = None,
        usage_limits: UsageLimits | None = None,
        **settings: Unpack[ModelSettings],
    ) -> AgentVersion[DepsT, OutputT]:
        """Run a turn from here, and return the version that it ends with.

        Two turns from one version are two children of it. If the directory of the files holds this version and nobody
        works in it, the turn works there; what was edited there since becomes a version of its own, before the turn.
        Otherwise it works on a view of the files, and `checkout` puts them into the directory.

        A run that fails raises its error, and what it did until then is a version: its id is in a note of the error.

        Args:
            prompt: What the user says.
            deps: The deps of the run instead of fresh ones. Todos, uploads and files are those of the version.
            model: The model of this turn.
            branch: A name for a branch that begins with this turn.
            usage_limits: What the conversation may use, all of its turns together.
            **settings: Settings of this turn, such as `temperature=0`; they win over those of the version.

        Raises:
            ApprovalsPendingError: The version waits for a person: `resume` it.
            BranchExistsError: The conversation has a branch of that name.
        """
        check_prompt('prompt', prompt)
        return await self.run(
            TurnOptions(
                prompt=prompt, deps=deps, model=model, branch=branch, usage_limits=usage_limits, model_settings=settings
            )
        )

    def advance_stream(
        self,
        prompt: Prompt,
        *,
        deps: DepsT | None = None,
        model: Model | str | None = None,
        branch: str | None = None,
        usage_limits: UsageLimits | None = None,
        cancellation_token: CancellationToken | None = None,
        run_id: str | None = None,
        moves_head: bool = False,
        **settings: Unpack[ModelSettings],
    ) -> TurnStream[DepsT, OutputT]:
        """Run a turn from here, and yield the text of its answers as it comes.

        ```text
        async with version.advance_stream('Add a chart') as stream:
            async for text in stream:
                print(text, end='')
        after = stream.version
        ```

        Nothing of a stream is stored but whole steps; the version is made when the run ends. Leaving the `async with`
        early stops the run, and what it did is an `interrupted` version; so does cancelling `cancellation_token`, which
        then raises `RunCancelled`.

        Args:
            prompt: What the user says.
            deps: The deps of the run instead of fresh ones. Todos, uploads and files are those of the version.
            model: The model of this turn.
            branch: A name for a branch that begins with this turn.
            usage_limits: What the conversation may use, all of its turns together.
            cancellation_token: Stops the run when it is cancelled.
            run_id: The id of the run, a UUIDv7 of `new_id` of the store that was not used before.
            moves_head: Whether the head of the conversation goes along, if it is at this version. It does so in the
                commit that ends the run, also if another process ends it by `recover`. Where somebody else has moved it
                meanwhile it stays there (`TurnStream.conflict`), and where the model has not answered at all.
            **settings: Settings of this turn, such as `temperature=0`; they win over those of the version.
        """
        check_prompt('prompt', prompt)
        return self.stream(
            TurnOptions(
                prompt=prompt,
                deps=deps,
                model=model,
                model_settings=settings,
                branch=branch,
                usage_limits=usage_limits,
                cancellation_token=cancellation_token,
                run_id=run_id,
                moves_head=moves_head,
            )
        )

    async def resume(
        self,
        answers: Mapping[str, Decision] | None = None,
        *,
        by: str | None = None,
        reason: str | None = None,
        deps: DepsT | None = None,
        usage_limits: UsageLimits | None = None,
    ) -> AgentVersion[DepsT, OutputT]:
        """Go on with a turn that waits, with these answers and those that were given before.

        Each approval is answered once, by whoever is first. What is not answered waits on.

        Args:
            answers: By the `id` of each of `pending`; without any, those that the inbox has are acted on.
            by: Who answers.
            reason: Why.
            deps: The deps of the run instead of fresh ones.
            usage_limits: What the conversation may use, all of its turns together.

        Raises:
            NothingPendingError: The version waits for nothing.
            NothingAnsweredError: There is no answer, neither here nor in the inbox.
            VersionNotFoundError: The version was deleted.
            UnknownApprovalError: No pending call has such an id.
            ApprovalAnsweredError: Somebody was faster, or another run acts on the answers already.
            UnansweredApprovalError: A call that cannot wait on has no answer.
        """
        return await self.run(
            TurnOptions(answers=answers or {}, by=by, reason=reason, deps=deps, usage_limits=usage_limits)
        )

    def resume_stream(
        self,
        answers: Mapping[str, Decision] | None = None,
        *,
        by: str | None = None,
        reason: str | None = None,
        deps: DepsT | None = None,
        usage_limits: UsageLimits | None = None,
        cancellation_token: CancellationToken | None = None,
        run_id: str | None = None,
        moves_head: bool = False,
    ) -> TurnStream[DepsT, OutputT]:
        """Go on as `resume` does, and yield the text of the answers as it comes, as `advance_stream` does.

        The answers are given when the iteration begins, and errors of them raised there.
        """
        return self.stream(
            TurnOptions(
                answers=answers or {},
                by=by,
                reason=reason,
                deps=deps,
                usage_limits=usage_limits,
                cancellation_token=cancellation_token,
                run_id=run_id,
                moves_head=moves_head,
            )
        )

    async def run(self, options: TurnOptions) -> AgentVersion[DepsT, OutputT]:
        """Run a turn from here: `advance` if the options have a prompt, else `resume`."""
        record = await run_turn(self._session, self._request(options))
        return await load_handle(self._session, record, self._backend)

    def stream(self, options: TurnOptions) -> TurnStream[DepsT, OutputT]:
        """Stream a turn from here: `advance_stream` if the options have a prompt, else `resume_stream`."""
        return TurnStream(self._session, self._request(options))

    def _request(self, options: TurnOptions) -> TurnRequest:
        if options.prompt is not None and self.state == 'awaiting_approval':
            raise ApprovalsPendingError(self.id, [pending.id for pending in self.pending])
        return turn_request(self._record, options, self._backend)

    async def check_directory(self) -> None:
        """Check that a turn can work in the directory of the files, before one is started.

        Raises:
            WorkspaceReplacedError: The path leads to another directory now, which has files of its own.
        """
        await refuse_replaced(self._session.trees, self._record, self._backend)

    async def messages(self, *, start: int = 0, stop: int | None = None) -> list[ModelMessage]:
        """Return the history, or the messages of it from the `start`th to before the `stop`th.

        Raises:
            ValidationError: One of them is negative, or no whole number.
        """
        check_index('start', start)
        if stop is not None:
            check_index('stop', stop)
        # Read again: the caller may change them, and those in the cache must not change.
        end = self.message_count if stop is None else min(stop, self.message_count)
        records = await self._session.store.messages(self._record.branch_id, end, start=start)
        return await decode_messages(records, self._session.read_asset)

    async def lineage(self) -> Lineage[DepsT, OutputT]:
        """Return the versions from the root to this one, both included.

        Raises:
            VersionNotFoundError: One on the way is missing, and nobody has deleted it: the store is damaged.
        """
        found = await self._session.store.lineage(self.id)
        return Lineage(await load_handles(self._session, found.versions), found.truncated_at)

    async def children(self, *, steps: bool = False) -> list[AgentVersion[DepsT, OutputT]]:
        """Return the versions that came from this one, oldest first.

        Args:
            steps: Also those in the middle of turns.
        """
        found = await self._session.store.children(self.id)
        return await load_handles(self._session, [child for child in found if steps or child.kind != 'step'])

    async def steps(self) -> list[AgentVersion[DepsT, OutputT]]:
        """Return the versions in the middle of the turn that made this one, in their order."""
        store = self._session.store
        found: list[VersionRecord] = []
        for run_id in await attempt_ids(store, self._record):
            steps = await store.versions(VersionFilter(run_id=run_id, kinds=['step']), limit=1_000_000)
            found += [step for step in reversed(steps) if step.number < (self._record.number or step.number + 1)]
        return await load_handles(self._session, found)

    async def clone(self) -> AgentVersion[DepsT, OutputT]:
        """Return a new version with all that this one has and the same parent: a sibling. (Not what `git clone` does.)

        What waits in it waits once more, to be answered otherwise.

        Raises:
            VersionNotFoundError: This one was deleted.
        """
        record = await self._session.store.version(self.id)
        clone = record._replace(id=new_id(), number=0, cloned_from=record.id, created_at=now())
        return await self._commit(clone, record)

    async def with_metadata(
        self,
        metadata: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        model_settings: ModelSettings | None = None,
        instructions: str | Sequence[str] | None = None,
    ) -> AgentVersion[DepsT, OutputT]:
        """Return a child with other metadata, another name, other default settings or other instructions of its
        conversation; what is `None` stays, and `instructions=()` removes them.

        Raises:
            ValidationError: A setting cannot be kept, or an instruction is blank.
            ValidationError: The metadata are no JSON.
        """
        check_names(name=name)
        record = await self._session.store.version(self.id)
        settings, model = load_settings(record.model_settings)
        texts = load_instructions(record.model_settings) if instructions is None else listed(instructions)
        child = record.child(
            'edit',
            name=record.name if name is None else name,
            metadata=record.metadata if metadata is None else dump_metadata(metadata),
            model_settings=with_agent_instructions(
                dump_settings(settings if model_settings is None else model_settings, model, texts),
                load_agent_instructions(record.model_settings),
            ),
        )
        return await self._commit(child, record)

    async def _commit(self, record: VersionRecord, source: VersionRecord) -> AgentVersion[DepsT, OutputT]:
        """Commit a version in which the approvals of another one are pending once more."""
        store = self._session.store
        approvals = await fresh_approvals(store, source, record.id)
        await store.commit(Commit(versions=[record], approvals=approvals))
        return await load_handle(self._session, await store.version(record.id), self._backend)

    async def upload(self, name: str, data: bytes, *, moves_head: bool = False) -> AgentVersion[DepsT, OutputT]:
        """Return a child with one more file among its uploads, where the next turn finds it: see `DeepAgentDeps.upload`.

        If the directory of the files holds this version and nobody works in it, the file is written there too.

        Args:
            name: A file name, or a relative path. An upload of the same name is replaced.
            data: The contents.
            moves_head: Whether the head of the conversation goes along, if it is at this version.

        Raises:
            InvalidUploadError: The name is empty, absolute, or leaves the uploads.
            UploadTooLargeError: The contents have more than `pydantic_deep.deps.MAX_FILE_BYTES`.
            ApprovalsPendingError: The version waits for a person: answer first.
            UnversionedBackendError: Its files are not versioned, or the file would be in no version, or the agent's deps
                hold no uploads.
            VersionConflictError: Somebody else moved the head meanwhile. The child is kept.
        """
        child = await with_upload(self._session, self._record, self._backend, name, data, moves_head=moves_head)
        return await load_handle(self._session, child, self._backend)

    async def remove_upload(self, name: str, *, moves_head: bool = False) -> AgentVersion[DepsT, OutputT]:
        """Return a child without one of the uploads and without its file. Earlier versions still have both.

        Args:
            name: The name of the upload.
            moves_head: Whether the head of the conversation goes along, if it is at this version.

        Raises:
            UploadNotFoundError: There is no upload of that name.
            ApprovalsPendingError: The version waits for a person: answer first.
            UnversionedBackendError: Its files are not versioned, or the agent's deps hold no uploads.
            VersionConflictError: Somebody else moved the head meanwhile. The child is kept.
        """
        child = await without_upload(self._session, self._record, self._backend, name, moves_head=moves_head)
        return await load_handle(self._session, child, self._backend)

    async def diff(self, other: AgentVersion[DepsT, OutputT]) -> VersionDiff:
        """Return what is different in `other`: messages, files as unified diffs, todos, usage."""
        old, old_ids = await load_history(self._session.store, self._record)
        new, new_ids = await load_history(self._session.store, other._record)
        common = next(
            (index for index, (a, b) in enumerate(zip(old_ids, new_ids, strict=False)) if a != b),
            min(len(old_ids), len(new_ids)),
        )
        return VersionDiff(
            messages_common=common,
            messages_removed=old[common:],
            messages_added=new[common:],
            files=await self.diff_files(other),
            todos_before=self.todos,
            todos_after=other.todos,
            usage=usage_between(self.usage, other.usage),
        )

    async def diff_files(self, other: AgentVersion[DepsT, OutputT]) -> list[FileDiff]:
        """Return the files that differ in `other`, as unified diffs. Unlike `diff`, this reads no messages."""
        return await diff_files(await self.file_tree(), await other.file_tree(), self._session.read_asset)

    async def merge(self, other: AgentVersion[DepsT, OutputT]) -> AgentVersion[DepsT, OutputT]:
        """Return a child with the files and uploads of both: what each changed since they parted.

        Text that both changed in different places is joined line by line. The conversation is this one's.

        Raises:
            MergeConflictError: Both changed the same; it lists where. Nothing is made.
            NoCommonVersionError: They come from no common version.
        """
        merged = await merge_versions(self._session, self._record, other._record)
        return await load_handle(self._session, merged, self._backend)

    async def checkout(self, *, force: bool = False, backend: BackendProtocol | None = None) -> None:
        """Make the files of the directory those of this version.

        Files that are ignored, or too large for a version, stay as they are. Repeat it after a crash. Protected files that
        change, such as an `.envrc`, are named in a `ProtectedFilesWarning`.

        Args:
            force: Keep edits that no version has as a version of its own first, and go on.
            backend: The directory, if it is another than the version's own.

        Raises:
            UnversionedChangesError: The directory has edits that no version has. Nothing was changed.
            WorkspaceBusyError: A run works in the directory.
            NoFilesError: The version has no files, or it is not known where they go.
        """
        await checkout_version(self._session.trees, self._record, backend or self._backend, force=force)

    async def files(self) -> BackendProtocol:
        """Return its files, to be read; contents are fetched when they are."""
        return ReadOnlyBackend(StateBackend.of(await self.file_tree(), self._session.read_asset))

    async def file_tree(self) -> Tree:
        """Return the tree of its files; empty where files are not versioned."""
        return await self._session.trees.load(self.tree)

    async def requests(self) -> Sequence[RequestRecord]:
        """Return the requests to models of its turn: model, effective settings, tokens, cost, duration of each."""
        return await load_requests(self._session.store, self._record)

    async def request_parameters(self) -> Mapping[str, JsonValue] | None:
        """Return what the last request up to here said besides messages; `None` if there was none.

        Under `instructions` is a text, under `tools` their schemas, and under `options` what else shapes an answer.
        """
        store = self._session.store
        for record in reversed((await store.lineage(self.id)).versions):
            requests = [each for each in await load_requests(store, record) if each.kind != 'summary']
            found = [request.parameters for request in requests if request.parameters]
            if found:
                return json.loads(await self._session.read_asset(found[-1]))
        return None

    async def subagents(self, *, whole_conversation: bool = False) -> Sequence[SubagentThread]:
        """Return the delegations of its turn as a tree: each thread has the threads that it delegated to.

        Args:
            whole_conversation: Return those of all turns up to this version, oldest first.
        """
        store = self._session.store
        records = (await store.lineage(self.id)).versions if whole_conversation else (self._record,)
        records = {each.run_id: each for each in records}.values()
        run_ids = [run_id for each in records for run_id in await attempt_ids(store, each)]
        return await load_subagents(store, list(dict.fromkeys(run_ids)))

    async def replay(self) -> Replay:
        """Run its turn again with the answers and results that were recorded: no model, no tool.

        Returns whether every request was the same as then, and the first difference if one was not.

        Raises:
            ValueError: It is no end of a turn.
        """
        return await replay(self._session, self._record)


class TurnStream(TurnEvents[DepsT, OutputT]):
    """A turn that runs while it is iterated over: yields the text of the answers as it comes.

    Iterate once. Use it as `async with`, so that leaving early stops the run at once.
    """

    _version: AgentVersion[DepsT, OutputT] | None = None

    @property
    def version(self) -> AgentVersion[DepsT, OutputT]:
        """The version that the turn ended with.

        Raises:
            RuntimeError: The run has not ended, or it failed.
        """
        if self._version is None:
            raise RuntimeError('The turn has no version yet. Iterate over the stream to its end first.')
        return self._version

    async def _end(self, record: VersionRecord) -> None:
        self._version = await load_handle(self._session, record, self._request.backend)


class Lineage(tuple[AgentVersion[DepsT, OutputT], ...], Generic[DepsT, OutputT]):
    """Versions from the root to one of them."""

    _truncated_at: str | None

    def __new__(cls, versions: Iterable[AgentVersion[DepsT, OutputT]] = (), truncated_at: str | None = None) -> Self:
        """Return the lineage of these versions, root first."""
        lineage = super().__new__(cls, versions)
        lineage._truncated_at = truncated_at
        return lineage

    @property
    def truncated_at(self) -> str | None:
        """The id of the deleted version at which it ends; `None` if it reaches a root."""
        return self._truncated_at


async def load_current(
    session: Session[DepsT, OutputT], id: str, backend: BackendProtocol | None = None
) -> AgentVersion[DepsT, OutputT]:
    """Return the version of an id, with a warning if the instructions of the agent have changed since it was made."""
    record = await session.store.version(id)
    instructions = literal_instructions(session.agent)
    if instructions is not None:
        warn_of_other_instructions(session.store, record, instructions)
    return await load_handle(session, record, backend)


async def load_handle(
    session: Session[DepsT, OutputT], record: VersionRecord, backend: BackendProtocol | None = None
) -> AgentVersion[DepsT, OutputT]:
    """Return the handle of a version."""
    return (await load_handles(session, [record], backend))[0]


async def load_handles(
    session: Session[DepsT, OutputT], records: Collection[VersionRecord], backend: BackendProtocol | None = None
) -> list[AgentVersion[DepsT, OutputT]]:
    """Return the handles of versions. Deps and approvals that several share are read once."""
    wanted = {digest for record in records for digest in (record.deps, record.pending) if digest is not None}
    found = await session.store.assets(wanted) if wanted else {}
    data = {digest: asset.data for digest, asset in found.items()}
    # Thousands of versions refer to the same few: a lineage makes these once.
    loaded = {
        key: Loaded(deps=data.get(key[0] or ''), pending=data.get(key[1] or ''))
        for key in {(record.deps, record.pending) for record in records}
    }
    return [
        AgentVersion(_session=session, _record=record, _loaded=loaded[record.deps, record.pending], _backend=backend)
        for record in records
    ]
