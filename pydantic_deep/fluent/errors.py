"""Errors of conversations and transcripts."""

from __future__ import annotations

from pydantic_deep.errors import DeepAgentError, ValidationError


class TranscriptError(DeepAgentError, ValueError):
    """The value is not a transcript, or one that this release cannot read.

    Attributes:
        index: The index of the invalid message, from 0; `None` if the error concerns the whole document.
        role: The `kind` of that message, `request` or `response`; `None` if it has none.
        field: The location within the message, such as `parts[0].content`, or the key in the document.
        value: The invalid value.
    """

    def __init__(
        self,
        problem: str,
        *,
        index: int | None = None,
        role: str | None = None,
        field: str | None = None,
        value: object = None,
    ) -> None:
        self.index = index
        self.role = role
        self.field = field
        self.value = value
        super().__init__(problem)


class EmptyMessageError(ValidationError):
    """A message is empty.

    Attributes:
        role: The role of the message: `user`, `assistant` or `instructions`.
        field: The same, except `prompt` for the user.
    """

    def __init__(self, role: str) -> None:
        self.role = role
        super().__init__(
            'prompt' if role == 'user' else role, f'The message of the {role} is empty. Remove it, or pass some text.'
        )


class ConversationBusyError(DeepAgentError, RuntimeError):
    """A turn of the conversation is being awaited, so no other can start on this object. Nothing has changed.

    Attributes:
        conversation_id: The id of the conversation.
    """

    def __init__(self, conversation_id: str) -> None:
        self.conversation_id = conversation_id
        super().__init__(
            f'A turn of the conversation {conversation_id} is running and being awaited. Wait for its end, '
            'call `await conversation.stop()`, or continue separately with `conversation.branch()`. The builder can be used '
            'again.'
        )


class TurnStoppedError(DeepAgentError, RuntimeError):
    """A turn was stopped, but its next item was requested. Its messages so far are in `conversation.messages`.

    Attributes:
        conversation_id: The id of the conversation.
    """

    def __init__(self, conversation_id: str) -> None:
        self.conversation_id = conversation_id
        super().__init__(
            f'This turn of the conversation {conversation_id} was stopped, or another one was started. Its messages are in '
            '`conversation.messages`. Iterate over the conversation again for the next turn.'
        )


class NothingToAnswerError(DeepAgentError, ValueError):
    """A conversation has no new user message, so there is nothing to respond to.

    Attributes:
        conversation_id: The id of the conversation.
    """

    def __init__(self, conversation_id: str) -> None:
        self.conversation_id = conversation_id
        super().__init__(
            f'The conversation {conversation_id} has nothing to respond to: its last message is not from the user. '
            "Add one with `conversation.continuation.user('…')`."
        )
