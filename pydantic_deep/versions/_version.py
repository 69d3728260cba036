"""`AgentVersion`: the immutable state of a conversation at one moment, with the operations that start from it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Self

from pydantic_ai import CancellationToken
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import UsageLimits
from typing_extensions import Unpack

from pydantic_deep._checks import check_backend, check_messages, check_names, check_object, check_prompt
from pydantic_deep.agent import literal_instructions
from pydantic_deep.approvals import Decision
from pydantic_deep.store import Commit, VersionFilter, VersionRecord, new_id, now
from pydantic_deep_backends import BackendProtocol

from ._history_edit import with_messages
from ._instructions_check import warn_of_other_instructions
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
from ._subagent_threads import attempt_ids
from ._turn import TurnRequest, run_turn, store_answers, turn_request
from ._turn_options import TurnOptions
from ._turn_stream import TurnEvents
from ._version_content import VersionContent, load_assets
from .comparison._merge import MergeSide, merge_versions
from .errors import ApprovalsPendingError
from .files._version_checkout import checkout_version
from .pauses._answers import fresh_approvals
from .recording._prompts import Prompt


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AgentVersion(VersionContent[DepsT, OutputT]):
    """The immutable state of one conversation at one moment: messages, files, todos and pending approvals.

    Every operation that continues from a version creates another one. Versions with the same id are equal.
    """

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
        """Run a turn from this version, and return the version that it ends with.

        Two turns from one version create two children. If the directory has the files of this version and no run works
        there, the turn works in the directory, and edits since then become a version of kind `edit` before the turn.
        Otherwise the turn works on a view of the files, and `checkout` writes its result to the directory.

        A run that fails raises its error. A version contains its work up to then; a note of the error has the id.

        Args:
            prompt: The user prompt.
            deps: The deps of the run, instead of new ones. Todos, uploads and files come from the version.
            model: The model of this turn.
            branch: The name of a branch that begins with this turn.
            usage_limits: The usage limits of the conversation, over all of its turns.
            **settings: Model settings of this turn, such as `temperature=0`, which override those of the version.

        Raises:
            ApprovalsPendingError: The version has pending approvals: `resume` it.
            BranchExistsError: The conversation has a branch of that name.
            UnversionedBackendError: The files are in no version, and the backend that has them was not passed.
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
        """Run a turn from this version, and stream the text of its responses.

        ```text
        async with version.advance_stream('Add a chart') as stream:
            async for text in stream:
                print(text, end='')
        after = stream.version
        ```

        Only completed steps are stored, and the version is created when the run ends. Exiting the `async with` early
        stops the run and creates an `interrupted` version. So does cancelling `cancellation_token`, which then raises
        `RunCancelled`.

        Args:
            prompt: The user prompt.
            deps: The deps of the run, instead of new ones. Todos, uploads and files come from the version.
            model: The model of this turn.
            branch: The name of a branch that begins with this turn.
            usage_limits: The usage limits of the conversation, over all of its turns.
            cancellation_token: Stops the run when it is cancelled.
            run_id: The id of the run, an unused UUIDv7 from `new_id` of the store.
            moves_head: Whether to move the head of the conversation to the new version, if it is at this version. The
                commit that ends the run moves it, also if another process ends the run with `recover`. The head does
                not move if it was moved in the meantime (`TurnStream.conflict`), or if the model has not responded.
            **settings: Model settings of this turn, such as `temperature=0`, which override those of the version.
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

    async def answer(
        self, answers: Mapping[str, Decision], *, by: str | None = None, reason: str | None = None
    ) -> None:
        """Store answers to pending approvals without resuming the turn, as the inbox does.

        Args:
            answers: Answers, keyed by the `id` of each of `pending`.
            by: The person who answers.
            reason: The reason for the answers.

        Raises:
            NothingPendingError: The version has no pending approvals.
            UnknownApprovalError: No pending call has this id.
            ApprovalAnsweredError: An approval is already answered, or a run acts on the answers.
        """
        options = TurnOptions(answers=answers, by=by, reason=reason)
        await store_answers(self._session.store, self.record, options, resumes=False)

    async def resume(
        self,
        answers: Mapping[str, Decision] | None = None,
        *,
        by: str | None = None,
        reason: str | None = None,
        deps: DepsT | None = None,
        usage_limits: UsageLimits | None = None,
    ) -> AgentVersion[DepsT, OutputT]:
        """Resume a paused turn with these answers, in addition to those in the inbox.

        Each approval accepts one answer, the first. Calls without an answer stay pending.

        Args:
            answers: Answers, keyed by the `id` of each of `pending`. Without any, the run uses the answers in the
                inbox.
            by: The person who answers.
            reason: The reason for the answers.
            deps: The deps of the run, instead of new ones.
            usage_limits: The usage limits of the conversation, over all of its turns.

        Raises:
            NothingPendingError: The version has no pending approvals.
            NothingAnsweredError: There is no answer, neither here nor in the inbox.
            VersionNotFoundError: The version was deleted.
            UnknownApprovalError: No pending call has this id.
            ApprovalAnsweredError: An approval is already answered, or another run acts on the answers.
            UnansweredApprovalError: A call that cannot stay pending has no answer.
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
        """Resume a paused turn as `resume` does, and stream the text of its responses as `advance_stream` does.

        Answers are submitted when iteration begins, which also raises their errors.
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
        """Run a turn from this version: `advance` if the options have a prompt, else `resume`."""
        record = await run_turn(self._session, self._request(options))
        return await load_handle(self._session, record, self.backend)

    def stream(self, options: TurnOptions, *, keeps_run: bool = False) -> TurnStream[DepsT, OutputT]:
        """Stream a turn from this version: `advance_stream` if the options have a prompt, else `resume_stream`.

        Args:
            options: The input and options of the turn.
            keeps_run: Whether the run is suspended, to be resumed, if it is stopped or the store fails when it is stored
                and has done nothing. By default, it ends as failed.
        """
        return TurnStream(self._session, replace(self._request(options), keeps_run=keeps_run))

    def _request(self, options: TurnOptions) -> TurnRequest:
        check_object('options', options, TurnOptions, 'To run a turn with a prompt, call `advance(prompt)`.')
        if options.prompt is not None and self.state == 'awaiting_approval':
            raise ApprovalsPendingError(self.id, [pending.id for pending in self.pending])
        return turn_request(self.record, options, self.backend)

    async def lineage(self) -> Lineage[DepsT, OutputT]:
        """Return the versions from the root to this one, both included.

        Raises:
            VersionNotFoundError: An ancestor is missing without having been deleted: the store is damaged.
        """
        lineage = await self._session.store.lineage(self.id)
        return Lineage(await load_handles(self._session, lineage.versions), lineage.truncated_at)

    async def children(self, *, steps: bool = False) -> list[AgentVersion[DepsT, OutputT]]:
        """Return the children of this version, oldest first.

        Args:
            steps: Whether to include versions of kind `step`.
        """
        children = await self._session.store.children(self.id)
        return await load_handles(self._session, [child for child in children if steps or child.kind != 'step'])

    async def steps(self) -> list[AgentVersion[DepsT, OutputT]]:
        """Return the steps of the turn that created this version, in order."""
        store = self._session.store
        versions: list[VersionRecord] = []
        for run_id in await attempt_ids(store, self.record):
            steps = await store.versions(VersionFilter(run_id=run_id, kinds=['step']), limit=1_000_000)
            versions += [step for step in reversed(steps) if step.number < (self.record.number or step.number + 1)]
        return await load_handles(self._session, versions)

    async def clone(self) -> AgentVersion[DepsT, OutputT]:
        """Return a new version with the same content and the same parent: a sibling, unlike `git clone`.

        Its approvals are pending again, and can be answered differently.

        Raises:
            VersionNotFoundError: This version was deleted.
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
        """Return a child with changed metadata, name, default model settings or instructions of the conversation.

        Arguments that are `None` change nothing. `instructions=()` removes the instructions.

        Raises:
            ValidationError: A setting cannot be stored, an instruction is blank, or the metadata is not JSON.
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

    async def with_messages(
        self, messages: Sequence[ModelMessage], *, moves_head: bool = False
    ) -> AgentVersion[DepsT, OutputT]:
        """Return a child with these messages as its history, or this version if they equal its own.

        Messages after the common beginning are stored; if the old history is longer, the child is on a branch of its
        own. It has the same files and todos, and no pending approvals: those of this version stay pending here.

        Args:
            messages: The whole history.
            moves_head: Whether to move the head of the conversation to the child, if it is at this version.

        Raises:
            ValidationError: It is not a list of messages.
            VersionConflictError: The head was moved in the meantime. The child is stored.
        """
        check_messages('messages', messages)
        child = await with_messages(self._session, self.record, messages, moves_head=moves_head)
        return self if child is None else await load_handle(self._session, child, self.backend)

    async def _commit(self, record: VersionRecord, source: VersionRecord) -> AgentVersion[DepsT, OutputT]:
        """Commit a version in which the approvals of `source` are pending again."""
        store = self._session.store
        approvals = await fresh_approvals(store, source, record.id)
        await store.commit(Commit(versions=[record], approvals=approvals))
        return await load_handle(self._session, await store.version(record.id), self.backend)

    async def upload(self, name: str, data: bytes, *, moves_head: bool = False) -> AgentVersion[DepsT, OutputT]:
        """Return a child with an additional upload, which the next turn sees; see `DeepAgentDeps.upload`.

        If the directory has the files of this version and no run works there, the file is also written there.

        Args:
            name: A file name or relative path. It replaces an upload of the same name.
            data: The contents.
            moves_head: Whether to move the head of the conversation to the child, if it is at this version.

        Raises:
            InvalidUploadError: The name is empty, absolute, or outside of the uploads.
            UploadTooLargeError: The contents exceed `pydantic_deep.deps.MAX_FILE_BYTES`.
            ApprovalsPendingError: The version has pending approvals: answer them first.
            UnversionedBackendError: The files are not versioned, versions omit this file, or the agent's deps do not
                support uploads.
            VersionConflictError: The head was moved in the meantime. The child is stored.
        """
        child = await with_upload(self._session, self.record, self.backend, name, data, moves_head=moves_head)
        return await load_handle(self._session, child, self.backend)

    async def remove_upload(self, name: str, *, moves_head: bool = False) -> AgentVersion[DepsT, OutputT]:
        """Return a child without one of the uploads and without its file. Earlier versions still have both.

        Args:
            name: The name of the upload.
            moves_head: Whether to move the head of the conversation to the child, if it is at this version.

        Raises:
            UploadNotFoundError: There is no upload of this name.
            ApprovalsPendingError: The version has pending approvals: answer them first.
            UnversionedBackendError: The files are not versioned, or the agent's deps do not support uploads.
            VersionConflictError: The head was moved in the meantime. The child is stored.
        """
        child = await without_upload(self._session, self.record, self.backend, name, moves_head=moves_head)
        return await load_handle(self._session, child, self.backend)

    async def merge(
        self, other: AgentVersion[DepsT, OutputT], *, choices: Mapping[str, MergeSide] | None = None
    ) -> AgentVersion[DepsT, OutputT]:
        """Return a child that combines the file and upload changes of both versions since their common ancestor.

        Text changed in different places by both is merged line by line. The child has the messages and todos of this
        version. If this version contains the other already, nothing is stored, and this version is returned.

        Args:
            other: The version to merge.
            choices: For each conflict, by its path: whether to use the file of this version (`ours`) or of the other
                (`theirs`).

        Raises:
            MergeConflictError: Both versions changed the same place; the error lists each without a choice. Nothing is
                stored.
            InvalidMergeChoiceError: A path of `choices` has no conflict, or its value is not a side. Nothing is
                stored.
            NoCommonVersionError: The versions have no common ancestor.
        """
        self._check_version(other)
        merged = await merge_versions(self._session, self.record, other.record, choices)
        return await load_handle(self._session, merged, self.backend)

    async def checkout(self, *, force: bool = False, backend: BackendProtocol | None = None) -> None:
        """Replace the files of the directory with those of this version.

        Ignored files and files that are too large for a version stay unchanged. After a crash, repeat the checkout. A
        `ProtectedFilesWarning` names protected files that change, such as an `.envrc`.

        Args:
            force: Whether to store edits that no version has as a version and then continue, instead of raising.
            backend: The directory, if it is not the version's own.

        Raises:
            UnversionedChangesError: The directory has edits that no version has. Nothing was changed.
            WorkspaceBusyError: A run works in the directory.
            NoFilesError: The version has no files, or the target directory is unknown.
        """
        if backend is not None:
            check_backend('backend', backend)
        await checkout_version(self._session.trees, self.record, backend or self.backend, force=force)


class TurnStream(TurnEvents[DepsT, OutputT]):
    """A turn that runs while it is iterated over, and yields the text of its responses.

    Iterate once. Use it with `async with`, so that exiting early stops the run at once.
    """

    _version: AgentVersion[DepsT, OutputT] | None = None

    @property
    def version(self) -> AgentVersion[DepsT, OutputT]:
        """The version that the turn ended with.

        Raises:
            RuntimeError: The run has not ended, or has failed.
        """
        if self._version is None:
            raise RuntimeError('The turn has no version yet. Iterate over the whole stream first.')
        return self._version

    async def _end(self, record: VersionRecord) -> None:
        self._version = await load_handle(self._session, record, self._request.backend)


class Lineage(tuple[AgentVersion[DepsT, OutputT], ...], Generic[DepsT, OutputT]):
    """The versions from a root, or the first that is not deleted, to one of its descendants."""

    _truncated_at: str | None

    def __new__(cls, versions: Iterable[AgentVersion[DepsT, OutputT]] = (), truncated_at: str | None = None) -> Self:
        """Return the lineage of these versions, root first."""
        lineage = super().__new__(cls, versions)
        lineage._truncated_at = truncated_at
        return lineage

    @property
    def truncated_at(self) -> str | None:
        """The id of the deleted version below which the lineage begins; `None` if it begins at a root."""
        return self._truncated_at


async def load_current(
    session: Session[DepsT, OutputT], id: str, backend: BackendProtocol | None = None
) -> AgentVersion[DepsT, OutputT]:
    """Load a version by id. Warns if the agent's instructions have changed since the version was created."""
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
    """Return the handles of versions."""
    loaded = await load_assets(session.store, records)
    return [
        AgentVersion(_session=session, record=record, _loaded=assets, backend=backend)
        for record, assets in zip(records, loaded, strict=True)
    ]
