"""What a continued conversation was about: its last prompts, and the last answer."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from pydantic_deep.cli.history._reader import VersionReader
from pydantic_deep.cli.render._event_lines import main_arguments
from pydantic_deep.cli.render._markdown import markdown_lines
from pydantic_deep.cli.render._terminal_text import escape_prose, first_line_of_prose
from pydantic_deep.cli.render._wrapping import print_truncated
from pydantic_deep.store import VersionRecord
from pydantic_deep.views import stored_output_text

from ._session import ChatSession

MAX_PROMPTS = 3
"""Maximum number of prompts that are shown, newest last."""

PROMPT_CHARS = 200
"""Maximum number of characters of a prompt."""

ANSWER_LINES = 8
"""Maximum number of lines of the last answer."""


async def recap(chat: ChatSession, record: VersionRecord) -> None:
    """Print what the conversation of a version was about, and whether its last turn has ended."""
    await print_recap(chat.console, chat.reader, record, theme=chat.runtime.theme)
    tip = chat.conversation.tip
    if tip is not None and tip.pending:
        calls = ', '.join(' '.join([call.tool, *main_arguments(call.arguments)]) for call in tip.pending)
        chat.warn(f'Pending calls: {calls}. /resume asks about them; another prompt continues without them.')
    if await chat.conversation.suspended_run(record) is not None:
        chat.warn(
            'The last turn did not end, because its process stopped. /resume finishes it; a prompt continues after its '
            'last stored step.'
        )


async def print_recap(
    console: Console, reader: VersionReader, record: VersionRecord, *, theme: str | None = None
) -> None:
    """Print the last prompts of the conversation of a version, and the beginning of its last answer."""
    lineage = await reader.store.lineage(record.id)
    paused = record.id if record.kind == 'pause' else None
    turns = [version for version in lineage.versions if version.kind == 'turn' or version.id == paused]
    shown = await reader.views.versions(turns[-MAX_PROMPTS:])
    if len(turns) > len(shown):
        earlier = len(turns) - len(shown)
        console.print(Text('… 1 earlier turn' if earlier == 1 else f'… {earlier} earlier turns', 'dim'))
    for version in shown:
        prompt = 'continued without a prompt' if version.prompt is None else version.prompt
        print_truncated(console, Text(f'> {first_line_of_prose(prompt, PROMPT_CHARS)}', 'dim'))
    output = stored_output_text(turns[-1]) if turns else None
    if output:
        _print_beginning(console, output, theme)


def _print_beginning(console: Console, output: str, theme: str | None) -> None:
    """Print the first lines of an answer: as Markdown on a terminal, as they are elsewhere."""
    if console.is_terminal:
        lines = markdown_lines(console, output, theme=theme)
    else:
        lines = [Text(escape_prose(line)) for line in output.strip().split('\n')]
    console.print()
    for line in lines[:ANSWER_LINES]:
        console.print(line, soft_wrap=True)
    if len(lines) > ANSWER_LINES:
        console.print(Text(f'… {len(lines) - ANSWER_LINES} more lines', 'dim'))
