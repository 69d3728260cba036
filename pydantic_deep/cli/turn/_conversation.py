"""One conversation in a directory: the version that its next turn continues, and its head.

If the directory has the files of the version, a turn works in the directory and moves the head of the conversation. A
turn from another version works on a copy of its files, and the directory and the head do not change.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from pydantic import ValidationError
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.usage import RunUsage

from pydantic_deep.approvals import Deny
from pydantic_deep.cli._metadata import DIRECTORY, SESSION, SETTINGS, TITLE
from pydantic_deep.cli.history._pending import can_finish
from pydantic_deep.cli.history._revisions import Revisions
from pydantic_deep.cli.render._ids import short_id
from pydantic_deep.cli.render._next_command import next_command
from pydantic_deep.cli.render._terminal_text import first_line_of_prose
from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.errors import DeepAgentError
from pydantic_deep.plan_mode import PlanMode, has_plan_mode, is_planning
from pydantic_deep.store import ApprovalAnsweredError, Commit, Store, VersionNotFoundError, VersionRecord, new_id
from pydantic_deep.streaming import FileEvent
from pydantic_deep.versions import (
    AgentVersion,
    ApprovalInbox,
    SuspendedRun,
    UnversionedFilesWarning,
    VersionedAgent,
)
from pydantic_deep.views import TurnLineages, is_pending

from ._change_tracker import UnversionedBackend, UnversionedSandbox
from ._own_agent import OwnAgent
from ._runtime import AgentRuntime, Output, Settings
from ._size_check import fits_in_versions

Version = AgentVersion[DeepAgentDeps, Output]
"""A version that the command line created."""

MAX_TITLE_CHARS = 200
"""Maximum length of the title of a conversation in its metadata, as that of a prompt in the log."""

ABANDONED_REASON = 'The turn was stopped, and the person went on without this call.'
"""The recorded reason for denying pending calls when the user continues with another prompt."""


class PendingVersionError(DeepAgentError):
    """A turn cannot continue a version with pending approvals or with a live run."""


class ForeignVersionError(DeepAgentError):
    """The version belongs to another program, with an agent that the command line cannot create."""


@dataclass(kw_only=True)
class Conversation:
    """A conversation of the command line, and the state that its turns share."""

    runtime: AgentRuntime
    store: Store
    versions: VersionedAgent[DeepAgentDeps, Output]
    """The agent, bound to the store."""
    revisions: Revisions
    """Finds versions by name, relative to the directory."""
    metadata: Mapping[str, object]
    """Stored with each version: the directory and the settings of the agent."""
    tip: Version | None = None
    """The version that the next turn continues; `None` before the first turn."""
    unfinished_version_id: str | None = None
    """The version that a suspended run can continue, if it has been selected. The next turn ends that run first."""
    is_in_directory: bool = True
    """Whether the next turn works in the directory, even if that has been edited since, or on a copy."""
    is_persistent: bool = True
    """Whether the store outlives this process."""
    instructions: str | None = None
    """Additional instructions for all turns of a new conversation."""

    async def continue_from(self, name: str) -> None:
        """Continue from a version with the next turn.

        Args:
            name: The revision. If the directory does not have its files, the turn works on a copy of them.

        Raises:
            UnknownVersionError: No version, or more than one, has this name.
            PendingVersionError: The version paused for approvals, whether or not they are answered; or it is `HEAD`,
                and a run is still working there.
        """
        record, head = await self.revisions.find(name), await self.revisions.find_head()
        if record.state == 'awaiting_approval':
            raise PendingVersionError(await _describe_paused(self.store, record))
        loaded = await self.versions.load(record.id, backend=self.runtime.backend)
        tip = await self.versions.finish_crashed(loaded)  # so that no other process resumes its run
        is_head = head is not None and head.id == record.id
        run = None if tip.run_id is None or tip.kind != 'step' else await self.store.run(tip.run_id)
        if is_head and run is not None and run.state == 'running':
            shown = short_id(tip.id)
            raise PendingVersionError(
                f'Another run is working in this directory: {shown} is its last step. Wait until it ends, or '
                f'continue before it with `--from {shown}~`.'
            )
        self.is_in_directory = is_head
        self.runtime.deps.todos = (await self._keep_plan_mode(tip)).todos

    async def select(self, record: VersionRecord) -> None:
        """Continue from a version with the next turn. Unlike with `continue_from`, its approvals may be pending, or its turn
        may not have ended because its process stopped.

        Raises:
            PendingVersionError: Its approvals were answered, or it is `HEAD` and a run is still working there.
        """
        if await is_pending(self.store, record):
            await self.resume_from(record)
        elif await self.select_suspended(record) is None:
            await self.continue_from(record.id)

    async def suspended_run(self, record: VersionRecord) -> SuspendedRun | None:
        """Return the suspended run that can continue a version; `None` if there is none.

        Args:
            record: The last step of the run, or the answered version that it resumes.
        """
        suspended = await self.versions.suspended(record.conversation_id)
        return next((run for run in suspended if can_finish(run, record)), None)

    async def select_suspended(self, record: VersionRecord) -> SuspendedRun | None:
        """Make a version the tip if a suspended run can continue it, and return the run; `None` otherwise."""
        run = await self.suspended_run(record)
        if run is not None:
            await self.resume_from(record)
            self.unfinished_version_id = record.id
        return run

    @property
    def settings(self) -> Settings:
        """The settings of the agent."""
        return Settings.model_validate(self.metadata[SETTINGS])

    async def use_model(self, name: str, model: Model) -> None:
        """Use another model in the next turns, and store its name with them.

        Args:
            name: The name of the model, as given by the user.
            model: The model.
        """
        self.runtime = replace(self.runtime, model=name)
        await self._use_agent(OwnAgent(self.runtime.agent, model=model, capabilities=()), 'model', value=name)

    async def _keep_plan_mode(self, tip: Version) -> Version:
        """Return the tip with an agent that plans, if the conversation is in plan mode: no option ends that."""
        self.tip = tip
        agent = self.runtime.agent
        if not self.settings.plan_mode and not has_plan_mode(agent) and is_planning(await tip.messages()):
            planning = OwnAgent(agent, model=None, capabilities=[PlanMode(starts_on=False)])
            await self._use_agent(planning, 'plan_mode', value=True)
        return self.tip

    async def _use_agent(self, agent: OwnAgent, setting: str, *, value: object) -> None:
        """Use another agent in the next turns, and store the setting that it follows from with them."""
        self.runtime = replace(self.runtime, agent=agent)
        self.versions = self.versions.with_agent(agent)
        settings = self.settings.model_copy(update={setting: value})
        self.metadata = {**self.metadata, SETTINGS: settings.model_dump(mode='json')}
        if self.tip is not None:
            self.tip = await self.versions.load(self.tip.id, backend=self.runtime.backend)

    async def replace_history(self, messages: Sequence[ModelMessage]) -> Version:
        """Continue from a version with these messages, and the files and todos of the current one, and return it.

        Raises:
            VersionConflictError: Another process has moved the head of the conversation.
        """
        tip = await self.prepare_turn()
        self.tip = await tip.with_messages(messages, moves_head=self.is_in_directory)
        if self.is_in_directory:
            await self._mark_workspace(self.tip)
        return self.tip

    def check_settings(self, record: VersionRecord) -> None:
        """Check that the agent of this conversation can answer the pending calls of a version.

        Raises:
            ForeignVersionError: Another program created the version, or it has another directory, agent or sandbox.
        """
        settings, own = settings_of(record), self.settings
        different = [
            name for name in ('directory', 'agent', 'sandbox') if getattr(settings, name) != getattr(own, name)
        ]
        if different:
            name = short_id(record.id)
            place = {'--agent': settings.agent, **({'--dir': settings.directory} if 'directory' in different else {})}
            raise ForeignVersionError(
                f'The turn of the version {name} has another {" and ".join(different)} than this conversation. Resume it '
                f'with `{next_command("resume", name, instead=place)}`.'
            )

    async def resume_from(self, record: VersionRecord) -> Version:
        """Make a version with pending approvals the tip, in the directory if its turn ran there, and return it."""
        loaded = await self.versions.load(record.id, backend=self.runtime.backend)
        self.tip = await self._keep_plan_mode(loaded)
        self.runtime.deps.todos = self.tip.todos
        conversation = await self.store.conversation(record.conversation_id)
        # The head does not move with turns on copies.
        self.is_in_directory = conversation is not None and conversation.head_id == record.id
        if self.is_in_directory:
            await self._mark_workspace(self.tip)
        return self.tip

    async def prepare_turn(self, prompt: str = '') -> Version:
        """Return the version that the next turn continues, with the current settings in its metadata.

        Args:
            prompt: The prompt of the turn, which becomes the title of a new conversation or session.
        """
        title = {TITLE: first_line_of_prose(prompt, MAX_TITLE_CHARS)}
        if self.tip is None:
            self.tip = await self._create({**self.metadata, **title})
        elif self.tip.id == self.unfinished_version_id:
            # Its prompt and its work become part of the dialogue.
            self.tip = await self.versions.finish_crashed(self.tip)
        if self.is_in_directory:
            await self._mark_workspace(self.tip)
        known: dict[str, object] = json.loads(self.tip.record.metadata)
        is_fork = self.metadata.get(SESSION) not in (None, known.get(SESSION, self.tip.conversation_id))
        if known != (wanted := {**known, **self.metadata, **(title if is_fork else {})}):
            self.tip = await self.tip.with_metadata(wanted)
            if self.is_in_directory:
                await self._mark_workspace(self.tip)
        return self.tip

    async def advance_to(self, version_id: str, *, is_in_directory: bool) -> Version:
        """Make a version the tip. If the directory has its files, also move the head of the conversation to it."""
        self.tip = await self.versions.load(version_id, backend=self.runtime.backend)
        self.is_in_directory = is_in_directory
        if is_in_directory:
            await self.versions.conversation(self.tip.conversation_id).move_to(self.tip)
        return self.tip

    async def abandon_pending(self, version: Version) -> None:
        """Abandon the pending calls of a version, so that the conversation can continue without them.

        If they are answered elsewhere, the turn goes on there, and this conversation is a branch.
        """
        inbox = ApprovalInbox(self.store)
        for item in await self.store.approvals(version_id=version.id):
            with suppress(ApprovalAnsweredError):
                await inbox.answer(item.id, Deny(ABANDONED_REASON), reason=ABANDONED_REASON)
        with suppress(ApprovalAnsweredError):
            await self.store.claim_approvals(version.id, new_id())  # so that it cannot be resumed
        record = version.record.child('edit', state='interrupted', pending=None)
        await self.store.commit(Commit(versions=[record]))
        self.tip = await self.versions.load(record.id, backend=self.runtime.backend)

    async def usage_before(self, version: Version) -> RunUsage:
        """Return the usage of the conversation before the turn that a version is part of."""
        while (version.state == 'awaiting_approval' or version.kind == 'step') and version.parent_id is not None:
            try:
                version = await self.versions.load(version.parent_id)
            except VersionNotFoundError:
                return RunUsage()
        return version.usage

    async def changes(self, before: Version, after: Version) -> list[FileEvent]:
        """Return the files that a turn on a copy changed, sorted by path."""
        top = (await self.runtime.backend.working_dir()).rstrip('/')
        kinds = {'added': 'created', 'changed': 'changed', 'removed': 'removed'}
        diff = await before.diff(after)
        return [
            FileEvent(
                path=f'{top}{file.path}',
                change=kinds[file.kind],  # pyright: ignore[reportArgumentType] - all of them
                added_lines=None if file.view is None else file.view.added,
                removed_lines=None if file.view is None else file.view.removed,
            )
            for file in diff.files
        ]

    def reset(self) -> None:
        """Start a new conversation with the next turn."""
        self.tip, self.is_in_directory = None, True

    async def _create(self, metadata: Mapping[str, object]) -> Version:
        backend = self.runtime.backend
        if self.is_persistent and not await fits_in_versions(backend):
            backend.leave_unversioned()
        with warnings.catch_warnings():
            if isinstance(backend, (UnversionedBackend, UnversionedSandbox)):
                warnings.simplefilter('ignore', UnversionedFilesWarning)  # the end of the turn reports it
            return await self.versions.create(
                metadata=metadata,
                backend=backend,
                deps=self.runtime.deps,
                instructions=() if self.instructions is None else self.instructions,
            )

    async def _mark_workspace(self, version: Version) -> None:
        """Assign the directory to a version, so that later edits in it become children of this version."""
        workspace = self.revisions.workspace
        workspace_record = await self.store.workspace(workspace)
        if workspace_record is None or workspace_record.version_id == version.id or version.tree is None:
            return
        if await self.store.claim_workspace(workspace, new_id(), workspace_record.version_id):
            await self.store.commit(Commit(workspaces=[workspace_record._replace(version_id=version.id, run_id=None)]))


async def _describe_paused(store: Store, record: VersionRecord) -> str:
    """Return why a turn cannot continue a version that paused for approvals, and what to do instead."""
    shown = short_id(record.id)
    before = f'continue before it with `--from {shown}~`'
    if await is_pending(store, record):
        return (
            f'The version {shown} has pending approvals. Answer them with '
            f'`{next_command("resume", shown)}`, or {before}.'
        )
    newest = await TurnLineages(store=store).latest_continuation(record)
    name = short_id(newest.id)
    if newest.state != 'awaiting_approval':
        return (
            f'The version {shown} was answered, and {name} continues it. Continue from that version with '
            f'`--from {name}`, or {before}.'
        )
    if await is_pending(store, newest):
        return (
            f'The version {shown} was answered, and {name}, which continues it, has pending approvals. Answer them '
            f'with `{next_command("resume", name)}`, or {before}.'
        )
    return (
        f'The version {shown} was answered, and the run that continues it has no version yet. Wait for that '
        f'run, or {before}.'
    )


def open_conversation(
    runtime: AgentRuntime,
    settings: Settings,
    store: Store,
    *,
    is_persistent: bool = True,
    instructions: str | None = None,
) -> Conversation:
    """Return a conversation without turns.

    Args:
        runtime: The agent and its directory.
        settings: The settings from which the runtime was created.
        store: The store of its versions.
        is_persistent: Whether the store outlives the process. If not, versions have no files.
        instructions: Additional instructions for all its turns.
    """
    if not is_persistent:
        runtime.backend.leave_unversioned()
    absolute = settings.absolute()
    return Conversation(
        runtime=runtime,
        store=store,
        versions=VersionedAgent(runtime.agent, store),
        revisions=Revisions(store=store, directory=absolute.directory),
        metadata={DIRECTORY: absolute.directory, SETTINGS: absolute.model_dump(mode='json')},
        is_persistent=is_persistent,
        instructions=instructions,
    )


def settings_of(record: VersionRecord) -> Settings:
    """Return the settings of the agent that created a version.

    Raises:
        ForeignVersionError: Another program created it.
    """
    settings: object = json.loads(record.metadata).get(SETTINGS)
    try:
        return Settings.model_validate(settings)
    except ValidationError:
        raise ForeignVersionError(
            f'The version {short_id(record.id)} was created by another program, with the agent {record.agent_name!r}. '
            'Only that program can continue it.'
        ) from None
