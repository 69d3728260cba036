"""What conversations and transcripts refuse."""

from __future__ import annotations

from pydantic_deep.errors import DeepAgentError, ValidationError


class TranscriptError(DeepAgentError, ValueError):
    """Something is no transcript, or one that this release cannot read.

    Attributes:
        index: Which message is wrong, from 0; `None` if it is not a message that is.
        role: The `kind` of that message, `request` or `response`; `None` if it has none.
        field: Where in it, such as `parts[0].content`, or which key of the document.
        value: What stands there.
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
    """A message was to say nothing.

    Attributes:
        role: Whose: `user`, `assistant` or `instructions`.
        field: The same, but `prompt` for the user.
    """

    def __init__(self, role: str) -> None:
        self.role = role
        super().__init__(
            'prompt' if role == 'user' else role, f'The message of the {role} is empty. Leave it out, or give it words.'
        )


class ConversationBusyError(DeepAgentError, RuntimeError):
    """A turn of the conversation is being waited for, so no other can begin on this handle. Nothing has changed.

    Attributes:
        conversation_id: The conversation.
    """

    def __init__(self, conversation_id: str) -> None:
        self.conversation_id = conversation_id
        super().__init__(
            f'A turn of the conversation {conversation_id} is running, and somebody waits for it. Wait for its end, '
            '`await conversation.stop()` it, or go on beside it with `conversation.branch()`. The builder can be used '
            'again.'
        )


class TurnStoppedError(DeepAgentError, RuntimeError):
    """A turn was stopped, and somebody asked it for more. What it did until then is in `conversation.messages`.

    Attributes:
        conversation_id: The conversation.
    """

    def __init__(self, conversation_id: str) -> None:
        self.conversation_id = conversation_id
        super().__init__(
            f'This turn of the conversation {conversation_id} was stopped, or another one was begun. What it did is in '
            '`conversation.messages`. Iterate over the conversation again for what comes next.'
        )


class NothingToAnswerError(DeepAgentError, ValueError):
    """A conversation has no new words of a user, so there is nothing to answer.

    Attributes:
        conversation_id: The conversation.
    """

    def __init__(self, conversation_id: str) -> None:
        self.conversation_id = conversation_id
        super().__init__(
            f'Nothing in the conversation {conversation_id} is to be answered: its last message is none of the user. '
            "Say something with `conversation.continuation.user('…')`."
        )
