"""The table of verbs: their names, arguments and help lines."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, Literal, TypeAlias, TypeVar

from pydantic_deep.errors import DeepAgentError

ChatT = TypeVar('ChatT')
"""The type of the chat, which imports this module."""

Completion: TypeAlias = Literal['version', 'model']
"""The kind of names that complete the arguments of a verb."""

HELP_COLUMNS = 24
"""Width of the column of verbs in the help."""

HELP_WIDTH = 80
"""Maximum length of a line of the help."""


_COMMAND: Final = re.compile(r'/([^\s\[]*)\s*(.*)', re.DOTALL)
"""A command. Editors may add a link to its name without a space: `/review[@poem.txt](file:///poem.txt)`."""


class WrongVerbError(DeepAgentError):
    """A verb has too few or too many arguments, or cannot be used now."""


class ChatEndedError(Exception):
    """The user ends the chat."""


@dataclass(frozen=True, kw_only=True)
class Verb(Generic[ChatT]):
    """A command of the chat."""

    name: str
    """The name without the slash."""
    summary: str
    """The line of `/help`, without a period."""
    run: Callable[[ChatT, Sequence[str]], Awaitable[None]]
    """Runs the verb with its arguments."""
    arguments: str = ''
    """The arguments as in help texts, such as `A [B]`. The last one takes the rest of the line if it ends with `…`."""
    completion: Completion | None = None
    """The names that complete its arguments."""
    is_listed: bool = True
    """Whether `/help` and the completion have it. Other verbs are second names."""

    @property
    def usage(self) -> str:
        """The verb with its arguments, as the user types it."""
        return f'/{self.name} {self.arguments}'.rstrip()

    def parse(self, text: str) -> list[str]:
        """Split the text after the name into arguments.

        Raises:
            WrongVerbError: There are too few or too many.
        """
        names = self.arguments.split()
        takes_rest = self.arguments.endswith(('…', '…]'))
        words = text.split(maxsplit=len(names) - 1) if takes_rest else text.split()
        required = sum(not name.startswith('[') for name in names)
        if not required <= len(words) <= len(names):
            raise WrongVerbError(f'Usage: {self.usage}')
        return [word.strip() for word in words]


def split_command(line: str) -> tuple[str, str]:
    """Return the name in a line that starts with a slash, and the text after it; empty ones for any other line."""
    found = _COMMAND.fullmatch(line)
    return ('', '') if found is None else (found[1], found[2])


@dataclass(frozen=True)
class VerbTable(Generic[ChatT]):
    """The verbs of a chat, in the order of the help."""

    verbs: Sequence[Verb[ChatT]]
    _by_name: dict[str, Verb[ChatT]] = field(init=False, default_factory=dict[str, 'Verb[ChatT]'])

    def __post_init__(self) -> None:
        self._by_name.update({verb.name: verb for verb in self.verbs})

    @property
    def listed(self) -> list[Verb[ChatT]]:
        """The verbs that the help and the completion show."""
        return [verb for verb in self.verbs if verb.is_listed]

    def find(self, name: str) -> Verb[ChatT] | None:
        """Return the verb with a name; `None` if there is none."""
        return self._by_name.get(name)

    def help(self, width: int = HELP_WIDTH) -> list[str]:
        """Return the lines of `/help`, wrapped beside the column of verbs if a terminal has fewer than 80 columns."""
        lines = [*(f'{verb.usage:{HELP_COLUMNS - 1}} {verb.summary}' for verb in self.listed), *HELP_NOTES]
        indents = [' ' * HELP_COLUMNS if line.startswith(('/', '@', '!')) else '' for line in lines]
        return [
            part
            for line, indent in zip(lines, indents, strict=True)
            for part in textwrap.wrap(line, width, subsequent_indent=indent)
        ]


HELP_NOTES = (
    f'{"/NAME [PROMPT…]":{HELP_COLUMNS}}load the skill NAME with this prompt, or the next one',
    f'{"@PATH":{HELP_COLUMNS}}attach a text file or an image to the prompt',
    f'{"!COMMAND":{HELP_COLUMNS}}run a command in the sandbox; the agent does not see it',
    'Ctrl-C stops the agent. Alt-Enter or a backslash before Enter starts a line.',
    'Other lines that start with / are refused; everything else is a prompt.',
)
"""The end of the help: lines that are no verbs."""
