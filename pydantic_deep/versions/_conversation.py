"""The mutable handle of a conversation. Each turn moves the head, unless it was moved in the meantime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic

from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import UsageLimits
from typing_extensions import Unpack

from pydantic_deep._checks import LOAD_VERSION, check_name, check_object
from pydantic_deep.approvals import Decision
from pydantic_deep.store import BranchRecord, Commit, HeadMove
from pydantic_deep_backends import BackendProtocol

from ._session import DepsT, OutputT, Session
from ._state_edit import with_name
from ._version import AgentVersion, load_current
from .errors import ConversationNotFoundError
from .recording._prompts import Prompt


class VersionedConversation(Generic[DepsT, OutputT]):
    """A conversation whose `head` is the version that the next turn starts from. Any number of handles may be open, in
    any process.

    Turns move the head with compare-and-set. If two begin from the same head, one moves it; the version of the other is
    stored on a branch of its own, and its caller gets a `VersionConflictError`.
    """

    def __init__(self, session: Session[DepsT, OutputT], id: str, backend: BackendProtocol | None) -> None:
        self.id = id
        """The `conversation_id` of all of its versions."""
        self._session = session
        self._backend = backend

    def __repr__(self) -> str:
        return f'<VersionedConversation {self.id}>'

    async def head(self) -> AgentVersion[DepsT, OutputT]:
        """Return the version that the head points to now.

        Raises:
            ConversationNotFoundError: The store has no such conversation.
            LookupError: The head was deleted.
        """
        conversation = await self._session.store.conversation(self.id)
        if conversation is None:
            raise ConversationNotFoundError(self.id)
        if conversation.head_id is None:
            raise LookupError(f'The conversation {self.id!r} has no head: it was deleted. Set one with `move_to`.')
        return await load_current(self._session, conversation.head_id, self._backend)

    async def advance(
        self, prompt: Prompt, *, deps: DepsT | None = None, model: Model | str | None = None,
        usage_limits: UsageLimits | None = None, **settings: Unpack[ModelSettings],
    ) -> AgentVersion[DepsT, OutputT]:  # fmt: skip
        """Run a turn from the head and move the head; see `AgentVersion.advance`.

        Raises:
            VersionConflictError: The head was moved in the meantime. The turn is stored on a branch.
        """
        head = await self.head()
        return await self._move(
            head, await head.advance(prompt, deps=deps, model=model, usage_limits=usage_limits, **settings)
        )

    async def resume(
        self, answers: Mapping[str, Decision] | None = None, *, by: str | None = None, reason: str | None = None,
        deps: DepsT | None = None, usage_limits: UsageLimits | None = None,
    ) -> AgentVersion[DepsT, OutputT]:  # fmt: skip
        """Resume the paused turn at the head and move the head; see `AgentVersion.resume`.

        Raises:
            VersionConflictError: The head was moved in the meantime. The turn is stored on a branch.
        """
        head = await self.head()
        return await self._move(
            head, await head.resume(answers, by=by, reason=reason, deps=deps, usage_limits=usage_limits)
        )

    async def move_to(self, version: AgentVersion[DepsT, OutputT]) -> None:
        """Move the head to a version of the conversation, such as an earlier one or one on another branch. Files stay
        unchanged.

        Raises:
            ValueError: The version belongs to another conversation.
            VersionConflictError: The head was moved in the meantime.
        """
        check_object('version', version, AgentVersion, LOAD_VERSION)
        if version.conversation_id != self.id:
            raise ValueError(f'The version {version.id} belongs to the conversation {version.conversation_id!r}.')
        conversation = await self._session.store.conversation(self.id)
        expected = None if conversation is None else conversation.head_id
        move = HeadMove(conversation_id=self.id, expected_id=expected, version_id=version.id)
        await self._session.store.commit(Commit(heads=[move]))

    async def rename(self, name: str) -> AgentVersion[DepsT, OutputT]:
        """Rename the conversation, and return the new head: a child of the old one with the new name.

        Raises:
            ValidationError: The name is blank.
            ApprovalsPendingError: The head has pending approvals: answer them first.
            VersionConflictError: The head was moved in the meantime. The version is stored on a branch.
        """
        check_name('name', name)
        head = await self.head()
        record = await with_name(self._session, head.record, head.backend, name)
        return await load_current(self._session, record.id, self._backend)

    async def set(self, messages: Sequence[ModelMessage]) -> AgentVersion[DepsT, OutputT]:
        """Replace the history, and return the new head: a child of the old one with these messages.

        If the messages equal the history, the head is returned. The new version has no pending approvals; those of the
        old head stay pending there. Files and todos stay unchanged.

        Raises:
            VersionConflictError: The head was moved in the meantime. The version is stored on a branch.
        """
        return await (await self.head()).with_messages(messages, moves_head=True)

    async def messages(self) -> list[ModelMessage]:
        """Return the history of the head."""
        return await (await self.head()).messages()

    async def branches(self) -> list[BranchRecord]:
        """Return the branches of the conversation, oldest first.

        Raises:
            ConversationNotFoundError: The store has no such conversation.
        """
        branches = await self._session.store.branches(self.id)
        if not branches and await self._session.store.conversation(self.id) is None:
            raise ConversationNotFoundError(self.id)
        return branches

    async def _move(
        self, head: AgentVersion[DepsT, OutputT], version: AgentVersion[DepsT, OutputT]
    ) -> AgentVersion[DepsT, OutputT]:
        move = HeadMove(conversation_id=self.id, expected_id=head.id, version_id=version.id)
        await self._session.store.commit(Commit(heads=[move]))
        return version
