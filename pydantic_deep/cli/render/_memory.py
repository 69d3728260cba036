"""Lines about the memory of agents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.text import Text

from pydantic_deep.memory import MemoryRevision

from ._terminal_text import escape_invisible


def render_memory(files: Mapping[str, MemoryRevision]) -> Iterator[Text]:
    """Yield the contents of all files, by their names."""
    if not files:
        yield Text('Nothing is remembered yet.')
    for name, revision in files.items():
        yield Text.assemble((escape_invisible(name), 'bold'), f'  revision {revision.number}')
        yield from (Text(escape_invisible(line)) for line in revision.content.splitlines())


def render_revisions(revisions: Sequence[MemoryRevision]) -> Iterator[Text]:
    """Yield revisions with their writers and contents, in their order."""
    for revision in revisions:
        writer = ', '.join(f'{name} {value}' for name, value in revision.metadata.items())
        written = f'{revision.written_at.astimezone():%Y-%m-%d %H:%M}'
        yield Text.assemble((str(revision.number), 'bold'), escape_invisible(f'  {written}  {writer}'.rstrip()))
        content = ['(deleted)'] if revision.is_deleted else revision.content.splitlines()
        yield from (Text(escape_invisible(f'    {line}')) for line in content)


def render_restored(name: str, revision: MemoryRevision) -> Text:
    """Return the line about a file that was restored."""
    state = (
        'does not exist any more' if revision.is_deleted else f'has its earlier content as revision {revision.number}'
    )
    return Text(escape_invisible(f'{name} {state}. It applies from the next turn on.'))
