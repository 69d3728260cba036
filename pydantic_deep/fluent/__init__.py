"""A fluent interface for conversations: `prompt(agent).user(…).start()`."""

from ._builder import PromptBuilder
from ._conversation import Conversation, ConversationState
from ._exchanges import ToolExchange
from ._format import FORMAT_VERSION
from ._prompt import prompt
from ._transcript import MessageList
from .errors import (
    ConversationBusyError,
    EmptyMessageError,
    NothingToAnswerError,
    TranscriptError,
    TurnStoppedError,
)

__all__ = (
    'FORMAT_VERSION',
    'Conversation',
    'ConversationBusyError',
    'ConversationState',
    'EmptyMessageError',
    'MessageList',
    'NothingToAnswerError',
    'PromptBuilder',
    'ToolExchange',
    'TranscriptError',
    'TurnStoppedError',
    'prompt',
)
