"""Conversations as one writes them: `prompt(agent).user(…).start()`."""

from ._exchanges import ToolExchange
from ._format import FORMAT_VERSION
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
    'ConversationBusyError',
    'EmptyMessageError',
    'MessageList',
    'NothingToAnswerError',
    'ToolExchange',
    'TranscriptError',
    'TurnStoppedError',
)
