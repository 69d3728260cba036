"""`VersionedAgent`: an agent and a store. Creates and finds versions, and recovers crashed runs."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from types import NoneType
from typing import Generic

from pydantic_ai import CancellationToken
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.messages import ModelMessage
from pydantic_ai.settings import ModelSettings

from pydantic_deep._checks import (
    CREATE_AGENT,
    check_backend,
    check_functions,
    check_name,
    check_names,
    check_object,
    check_seconds,
    check_store,
)
from pydantic_deep.deps import DeepAgentDeps, is_deps_type
from pydantic_deep.store import (
    BranchExistsError,
    Commit,
    GarbageReport,
    HeadMove,
    NewAsset,
    Store,
    UnfinishedCheckoutError,
    VersionFilter,
    VersionKind,
    VersionNotFoundError,
    VersionRecord,
    WorkspaceRecord,
    checkout_claim,
    new_id,
)
from pydantic_deep_backends import BackendProtocol, Tree

from ._conversation import VersionedConversation
from ._session import DepsT, OutputT, Session
from ._settings import dump_metadata, dump_settings, listed
from ._subagent_threads import ThreadEvent, load_events
from ._version import AgentVersion, TurnStream, load_current, load_handle, load_handles
from .errors import ConversationNotFoundError, ValidationError
from .files._backend_descriptions import describe_backend, describe_unversioned, with_omitted, workspace_key
from .files._directory_claim import DirectoryClaim
from .files._open_files import open_files_of
from .files._run_files import warn_of_omitted
from .recording._deps_state import DepsState
from .recording._run_creation import first_branch, new_conversation, root_version
from .recovery import _recovery
from .recovery._suspended_runs import SuspendedRun, suspended_runs

VISIBLE_KINDS: tuple[VersionKind, ...] = ('root', 'turn', 'pause', 'edit', 'merge')
"""The kinds of versions that lists show by default: all but steps."""


class VersionedAgent(Generic[DepsT, OutputT]):
    """An agent with version control: every step is stored, and you can continue from, compare, merge and restore
    versions.

    The agent is any pydantic-ai agent and stays stateless; all state is in the store. One object serves any number of
    conversations and users concurrently.

    Args:
        agent: The agent. The conversations that it begins and all of their versions have its name, even where an agent
            of another name continues one. `list`, `count` and `recover` filter by it.
        store: The store of the versions.
        make_deps: Creates the deps of each run with their live handles; todos, uploads and files come from the version.
            By default `agent.deps_type()` if that is `DeepAgentDeps` or a subclass, else none.
        approval_timeout_seconds: The age at which a pending approval counts as denied; `None` for never.
    """

    def __init__(
        self,
        agent: AbstractAgent[DepsT, OutputT],
        store: Store,
        *,
        make_deps: Callable[[], DepsT] | None = None,
        approval_timeout_seconds: float | None = None,
    ) -> None:
        check_object('agent', agent, AbstractAgent, CREATE_AGENT)
        check_store(store)
        check_functions(make_deps=make_deps)
        if approval_timeout_seconds is not None:
            check_seconds('approval_timeout_seconds', approval_timeout_seconds)
        self.agent = agent
        """The agent that runs the turns."""
        self.store = store
        """The store of the versions."""
        self.approval_timeout_seconds = approval_timeout_seconds
        """The age at which a pending approval counts as denied; `None` for never."""
        self._make_deps = make_deps
        self._session = Session(agent, store, make_deps=make_deps, approval_timeout_seconds=approval_timeout_seconds)
        self.session: Session[DepsT, OutputT] = self._session
        """The shared state of its versions, for higher layers of this framework."""

    def __repr__(self) -> str:
        return f'VersionedAgent({self.agent.name!r}, {self.store.url!r})'

    @property
    def name(self) -> str:
        """The name of the agent; `agent` if it has none."""
        return self.agent.name or 'agent'

    def with_agent(self, agent: AbstractAgent[DepsT, OutputT]) -> VersionedAgent[DepsT, OutputT]:
        """Return a `VersionedAgent` for another agent, such as a wrapper around this one's, with the same store, deps
        and timeout.
        """
        return VersionedAgent(
            agent, self.store, make_deps=self._make_deps, approval_timeout_seconds=self.approval_timeout_seconds
        )

    async def create(
        self,
        *,
        name: str | None = None,
        metadata: Mapping[str, object] | None = None,
        backend: BackendProtocol | None = None,
        deps: DepsT | None = None,
        model: str | None = None,
        model_settings: ModelSettings | None = None,
        instructions: str | Sequence[str] = (),
        conversation_id: str | None = None,
    ) -> AgentVersion[DepsT, OutputT]:
        """Create a conversation with the files as they are, and return its root.

        Args:
            name: A name to find the version by, which its descendants inherit.
            metadata: Metadata, as JSON, which its descendants inherit.
            backend: The files; by default those of the deps.
            deps: Deps to begin with: their todos, uploads and metadata become part of the version.
            model: The name of the model of all turns, instead of the agent's.
            model_settings: Model settings of all turns.
            instructions: Instructions for all turns, in addition to the agent's own: one text or several. They are
                stored in versions, so they apply wherever and under whichever agent the conversation is loaded.
            conversation_id: Your own id for the conversation.

        Raises:
            ValidationError: A name, the model or the id is blank, a setting cannot be stored, the metadata is not JSON,
                or the store has a conversation of this id.
            UnfinishedCheckoutError: A checkout into the directory was interrupted.
        """
        check_names(name=name, model=model, conversation_id=conversation_id)
        if backend is not None:
            check_backend('backend', backend)
        if deps is not None and is_deps_type(self.agent.deps_type):
            check_object('deps', deps, self.agent.deps_type, 'Pass an object of it.')
        id = conversation_id or new_id()
        if conversation_id is not None and await self.store.conversation(id) is not None:
            raise _taken(id)
        branch = first_branch(id)
        is_made = backend is None and deps is None
        initial_deps = deps if deps is not None else self._session.make_deps()
        root = root_version(self.name, branch)._replace(
            name=name,
            metadata=dump_metadata(metadata),
            model=model,
            model_settings=dump_settings(model_settings, model, listed(instructions)),
        )
        assets: list[NewAsset] = []
        if isinstance(initial_deps, DeepAgentDeps):
            state = DepsState(digest=None)
            assets += await state.dump(initial_deps)
            root = root._replace(deps=state.digest)
            backend = backend or initial_deps.backend
        nodes: Mapping[str, bytes] = {}
        if backend is not None:
            turn_files = await open_files_of(backend, self._session.trees)
            if turn_files is not None:
                try:
                    new = await turn_files.capture(is_full=True)
                finally:
                    await turn_files.files.aclose()
                warn_of_omitted(turn_files.omitted)
                assets += new.assets
                nodes = {**dict(Tree().nodes()), **new.nodes}
                described = with_omitted(describe_backend(backend), new.omitted)
                root = root._replace(tree=new.tree, backend=described)
            else:
                root = root._replace(backend=await describe_unversioned(backend))
                if is_made:
                    backend = None  # every turn has that of the deps that `make_deps` returns for it
        commit = Commit(
            assets=assets,
            nodes=nodes,
            conversations=[new_conversation(id, self.name)],
            branches=[branch],
            versions=[root],
            heads=[HeadMove(conversation_id=id, expected_id=None, version_id=root.id)],
            workspaces=await _workspaces_of(self.store, root, backend),
        )
        try:
            await self.store.commit(commit)
        except BranchExistsError:  # another process has created it meanwhile
            raise _taken(id) from None
        return await load_handle(self._session, await self.store.version(root.id), backend)

    async def load(self, id: str, *, backend: BackendProtocol | None = None) -> AgentVersion[DepsT, OutputT]:
        """Return a version.

        Args:
            id: The id, or an unambiguous prefix of at least 8 characters.
            backend: The files, if the store cannot open them itself: it can for `LocalBackend`, and for
                `SandboxBackend` with its default limits. Otherwise, without `backend`, turns work on a view of them, or
                raise `UnversionedBackendError` if no version has them.

        Raises:
            VersionNotFoundError: No version matches, or several do.

        Warns:
            InstructionsWarning: The version was created with other instructions than the agent's. For an agent that was
                not created by `create_deep_agent`, the first request of the next turn warns instead.
        """
        check_name('id', id)
        if backend is not None:
            check_backend('backend', backend)
        return await load_current(self._session, id, backend)

    async def wrap(
        self, records: Collection[VersionRecord], *, backend: BackendProtocol | None = None
    ) -> builtins.list[AgentVersion[DepsT, OutputT]]:
        """Return handles for records that were read from the store, in their order.

        Args:
            records: The records.
            backend: Their files, as for `load`.
        """
        return await load_handles(self._session, records, backend)

    async def list(
        self,
        *,
        limit: int = 100,
        offset: int = 0,
        name: str | None = None,
        model: str | None = None,
        metadata: Mapping[str, str | int | float | bool | None] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        conversation_id: str | None = None,
        steps: bool = False,
    ) -> list[AgentVersion[DepsT, OutputT]]:
        """Return versions of this agent, newest first.

        Args:
            limit: The maximum number of versions.
            offset: The number of versions to skip.
            name: A part of the name. Case does not matter.
            model: The model of the version.
            metadata: Required values of metadata keys.
            since: The earliest creation time, inclusive.
            until: The latest creation time, exclusive.
            conversation_id: The conversation of the versions.
            steps: Whether to include versions of kind `step`.
        """
        records = await self.store.versions(
            self._filter(name, model, metadata, since, until, conversation_id, steps=steps),
            limit=limit,
            offset=offset,
        )
        return await load_handles(self._session, records)

    async def count(
        self,
        *,
        name: str | None = None,
        model: str | None = None,
        metadata: Mapping[str, str | int | float | bool | None] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        conversation_id: str | None = None,
        steps: bool = False,
    ) -> int:
        """Return the number of versions of this agent; the arguments are those of `list`."""
        return await self.store.count(self._filter(name, model, metadata, since, until, conversation_id, steps=steps))

    async def find_by_name(
        self, name: str, *, limit: int = 100, offset: int = 0
    ) -> builtins.list[AgentVersion[DepsT, OutputT]]:
        """Return the versions with exactly this name, newest first, without those of failed turns.

        Args:
            name: The name. Case matters.
            limit: The maximum number of versions.
            offset: The number of versions to skip.
        """
        check_name('name', name)
        records = await self.store.versions(
            VersionFilter(
                agent_name=self.name,
                exact_name=name,
                kinds=VISIBLE_KINDS,
                states=('complete', 'awaiting_approval', 'interrupted'),
            ),
            limit=limit,
            offset=offset,
        )
        return await load_handles(self._session, records)

    def conversation(self, id: str, *, backend: BackendProtocol | None = None) -> VersionedConversation[DepsT, OutputT]:
        """Return the handle of a conversation, whose head moves with each turn.

        Args:
            id: The `conversation_id` of any of its versions.
            backend: Its files, as for `load`.
        """
        check_name('id', id)
        if backend is not None:
            check_backend('backend', backend)
        return VersionedConversation(self._session, id, backend)

    async def thread(self, conversation_id: str) -> list[ModelMessage]:
        """Return the newest messages of a conversation or of a subagent's thread, which has a `sub_agent_thread_id`.

        Raises:
            ConversationNotFoundError: The store has no such conversation.
        """
        check_name('conversation_id', conversation_id)
        newest = await self.store.versions(VersionFilter(conversation_id=conversation_id), limit=1)
        if not newest:
            raise ConversationNotFoundError(conversation_id)
        return (await self._session.history(newest[0]))[0]

    async def events(self, conversation_id: str) -> list[ThreadEvent]:
        """Return the delegations of a conversation: `tool_call` with the link to the thread, and `tool_response`.

        Raises:
            ConversationNotFoundError: The store has no such conversation.
        """
        check_name('conversation_id', conversation_id)
        events = await load_events(self.store, conversation_id)
        if not events and await self.store.conversation(conversation_id) is None:
            raise ConversationNotFoundError(conversation_id)
        return events

    async def delete(self, version: AgentVersion[DepsT, OutputT] | str) -> None:
        """Delete one version. Its children stay, and their lineage begins after it.

        Raises:
            VersionNotFoundError: There is no such version.
        """
        id = version.id if isinstance(version, AgentVersion) else version
        check_name('id', id)
        await self.store.delete(id)

    async def delete_line(self, head: AgentVersion[DepsT, OutputT] | str) -> int:
        """Delete a version and its ancestors, up to but not including the first with another child; return how many
        were deleted.

        Raises:
            VersionNotFoundError: There is no such version.
        """
        head_id = head.id if isinstance(head, AgentVersion) else head
        check_name('head_id', head_id)
        return await self.store.delete_line(head_id)

    async def gc(self, grace_seconds: float = 3600) -> GarbageReport:
        """Remove data that no version references; see `Store.gc`."""
        return await self.store.gc(grace_seconds)

    async def recover(
        self, run_id: str | None = None, *, make_token: Callable[[str], CancellationToken] | None = None
    ) -> list[AgentVersion[DepsT, OutputT]]:
        """Resume the suspended runs of this agent, and return the versions that they end with.

        Calls with a stored result do not run again. Others run again if they only read; a call that may have run and
        has side effects becomes an approval. Call this when a program starts: if several processes do, each run is
        recovered by one.
        A run that fails again is stored as a failed version and does not prevent the recovery of others.
        A run whose conversation has moved on stays suspended until it is named here, or cancelled.

        Args:
            run_id: The suspended run to resume, even if its conversation has moved on. By default, all runs whose
                conversation has not moved on are resumed.
            make_token: Returns the token that cancels a run, by the id of the suspended run. Called before each resumes.
        """
        check_names(run_id=run_id)
        return await load_handles(self._session, await _recovery.recover(self._session, run_id, make_token))

    async def recover_stream(
        self,
        run_id: str,
        *,
        deps: DepsT | None = None,
        backend: BackendProtocol | None = None,
        cancellation_token: CancellationToken | None = None,
    ) -> TurnStream[DepsT, OutputT] | None:
        """Claim one suspended run as `recover` does, and return the stream of its rest.

        Args:
            run_id: The suspended run.
            deps: The deps of the run; by default new ones.
            backend: Its files, as for `load`.
            cancellation_token: Stops the run when it is cancelled.

        Returns:
            The stream, which must be iterated over; `None` if the run has ended, is alive in another process, or cannot
            resume because its answers or its base are gone, in which case it was ended.
        """
        check_name('run_id', run_id)
        request = await _recovery.claim_rest(self._session, run_id)
        if request is None:
            return None
        options = replace(request.options, deps=deps, cancellation_token=cancellation_token)
        return TurnStream(self._session, replace(request, options=options, backend=backend))

    async def suspended(self, conversation_id: str | None = None) -> list[SuspendedRun]:
        """Return the suspended runs of this agent, oldest first: runs without an end in the store that no process works
        on.

        Args:
            conversation_id: Only those of one conversation.
        """
        check_names(conversation_id=conversation_id)
        return await suspended_runs(self.store, agent_name=self.name, conversation_id=conversation_id)

    async def cancel(self, run_id: str) -> bool:
        """End a suspended run, so that it cannot be resumed, and return whether it was suspended.

        When this returns, the cancellation is stored, with an `interrupted` version that has the results, files and
        todos of all calls whose end is stored; the next turn in a directory stores its other files as an edit. To stop
        a run of this process, use its cancellation token.

        Raises:
            StoreUnavailableError: The store is unavailable. The run is still suspended.
        """
        check_name('run_id', run_id)
        return await _recovery.cancel(self._session, run_id)

    async def finish_crashed(self, version: AgentVersion[DepsT, OutputT]) -> AgentVersion[DepsT, OutputT]:
        """End the crashed run whose newest version is this one, and return the version that it ends with.

        The result is the same as if the run had been cancelled: a version in state `interrupted`, with the prompt, and
        the results, files and todos of all calls whose end is stored. No model is called, no tool runs, and `recover`
        no longer resumes the run. If no crashed run ends at this version, the version is returned unchanged.

        Runs that began from this version and have no version yet end too. One that was to begin a branch ends on that
        branch, and is not returned.
        """
        record = await _recovery.finish_crashed(self._session, version.record)
        return version if record is version.record else await load_handle(self._session, record, version.backend)

    def _filter(
        self,
        name: str | None,
        model: str | None,
        metadata: Mapping[str, str | int | float | bool | None] | None,
        since: datetime | None,
        until: datetime | None,
        conversation_id: str | None,
        *,
        steps: bool,
    ) -> VersionFilter:
        check_names(name=name, model=model, conversation_id=conversation_id)
        for field, time in (('since', since), ('until', until)):
            check_object(field, time, (datetime, NoneType), 'For example, `datetime.now(UTC) - timedelta(days=1)`.')
        return VersionFilter(
            kinds=None if steps else VISIBLE_KINDS,
            agent_name=self.name,
            name=name,
            model=model,
            metadata=metadata,
            since=None if since is None else int(since.timestamp() * 1e6),
            until=None if until is None else int(until.timestamp() * 1e6),
            conversation_id=conversation_id,
        )


def _taken(id: str) -> ValidationError:
    return ValidationError(
        'conversation_id', f'There is a conversation {id!r} already. Omit the id, or continue that conversation.'
    )


async def _workspaces_of(store: Store, root: VersionRecord, backend: BackendProtocol | None) -> list[WorkspaceRecord]:
    """Return the record that the directory of a new root has its files.

    Empty if a run works there: the directory belongs to that run, and turns from the root work on views.
    """
    if root.backend is None or root.tree is None:
        return []
    key = workspace_key(root.backend)
    workspace = await store.workspace(key)
    if not await _claim(store, key, root.id, None if workspace is None else workspace.version_id):
        return []
    return [await DirectoryClaim(store=store, workspace=key, run_id=root.id, backend=backend).note(root.id)]


async def _claim(store: Store, key: str, root_id: str, held_id: str | None) -> bool:
    """Claim a directory for a new root, even after an interrupted checkout that cannot be repeated because its version
    was deleted.

    Raises:
        UnfinishedCheckoutError: The interrupted checkout can be repeated.
    """
    try:
        return await store.claim_workspace(key, f'create:{root_id}', held_id)
    except UnfinishedCheckoutError as error:
        await _raise_if_repeatable(store, error)
    return await store.claim_workspace(key, checkout_claim(root_id), held_id)


async def _raise_if_repeatable(store: Store, error: UnfinishedCheckoutError) -> None:
    with suppress(VersionNotFoundError):
        await store.version(error.version_id)
        raise error
