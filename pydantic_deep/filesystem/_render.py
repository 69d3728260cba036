"""How directories, search results, commands and uploads read, for a model. Pure.

Every list is bounded and says what it leaves out; every name is shown on one line, whatever is in it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from pydantic_deep_backends.paths import display_path
from pydantic_deep_backends.protocol import CommandResult
from pydantic_deep_backends.search import GlobResult, GrepResult, SearchProblem

from ._types import OutputMode, UploadLike

MAX_ENTRIES = 500
"""How many entries or paths one answer lists: some 10,000 tokens at most for ordinary names."""

MAX_UPLOADS = 30
"""How many uploads the instructions list; the rest is a count."""

MAX_PROBLEMS = 5
"""How many places that a search could not look at are named; the rest is a count."""

MAX_REASON_CHARS = 500
"""How much is shown of what a backend says of a command that it stopped: some sentences."""


class Entry(Protocol):
    """What a listing shows of a file or directory."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def is_dir(self) -> bool:
        """Whether it is a directory."""
        ...

    @property
    def size(self) -> int | None:
        """Its size, where known."""
        ...


def render_size(size_bytes: int) -> str:
    """Return a size in bytes, KB or MB (1,000 and 1,000,000 bytes)."""
    if size_bytes < 1_000:
        return '1 byte' if size_bytes == 1 else f'{size_bytes} bytes'
    if size_bytes < 1_000_000:
        return f'{size_bytes / 1_000:.1f} KB'
    return f'{size_bytes / 1_000_000:,.1f} MB'


def render_entries(path: str, entries: Sequence[Entry]) -> str:
    """Return one line for each entry of a directory, sorted by name."""
    if not entries:
        return f'{display_path(path)} is empty.'
    ordered = sorted(entries, key=lambda entry: entry.name)
    return _bounded([_entry_line(entry) for entry in ordered], MAX_ENTRIES, 'entries; use glob for the others')


def render_glob(result: GlobResult, pattern: str) -> str:
    """Return one path a line; where there is none, the pattern that looks below too, if `pattern` did not."""
    if not result.paths:
        deep = at_any_depth(pattern)
        hint = '' if deep == pattern else f' Use {display_path(deep)} to look in directories below too.'
        return _with_problems(f'No files match.{hint}', result.problems)
    paths = [display_path(path) for path in result.paths[: MAX_ENTRIES + 1]]
    notice = 'files; use a narrower pattern for the others'
    return _with_problems(_bounded(paths, MAX_ENTRIES, notice, total=len(result.paths)), result.problems)


def at_any_depth(pattern: str) -> str:
    """Return the pattern of a name as that of the name in any directory; any other pattern as it is."""
    return pattern if '/' in pattern or pattern in ('', '**') else f'**/{pattern}'


def render_grep(result: GrepResult, mode: OutputMode, *, max_chars: int) -> str:
    """Return the lines that matched under the path of each file, or the files, or a count for each."""
    if not result.counts:
        return _with_problems(f'No matches in {_files(result.files_searched)}.', result.problems)
    total = len(result.counts)
    files = [(display_path(path), count) for path, count in list(result.counts.items())[:MAX_ENTRIES]]
    if mode == 'content':
        text = _render_matches(result, max_chars)
    elif mode == 'count':
        text = _bounded(
            [f'{path}: {count}' for path, count in files], MAX_ENTRIES, 'files; narrow the search', total=total
        )
    else:
        text = _bounded([path for path, _ in files], MAX_ENTRIES, 'files; narrow the search', total=total)
    return _with_problems(text, result.problems)


def render_command(result: CommandResult) -> str:
    """Return what a command printed, and its exit code if it is not 0."""
    parts = [part.removesuffix('\n') for part in (result.stdout, result.stderr) if part]
    if result.exit_code:
        parts.append(f'[exit code {result.exit_code}]')
    return '\n'.join(parts) or 'Done; nothing was printed.'


def render_timeout(error: TimeoutError, timeout_seconds: float) -> str:
    """Return what a command printed before it was stopped, and why it was, in the words of who stopped it.

    Args:
        error: What the backend raised; `stdout` and `stderr` are shown where it has them.
        timeout_seconds: What the model allowed. A backend may allow less, so it is told only as what it is.
    """
    printed = [str(getattr(error, name, '')).removesuffix('\n') for name in ('stdout', 'stderr')]
    # The text of an error of the system's begins with its number.
    said = ' '.join((error.strerror or str(error)).split())[:MAX_REASON_CHARS]
    notice = f'[{said or f"The command took too long and was stopped; {timeout_seconds:g} seconds were allowed."}]'
    return '\n'.join([*filter(None, printed), notice])


def render_uploads(uploads: Collection[UploadLike]) -> str:
    """Return one line for each upload; an empty string if there is none."""
    lines = [_upload_line(upload) for upload in list(uploads)[:MAX_UPLOADS]]
    if len(uploads) > MAX_UPLOADS:
        lines.append(f'- and {len(uploads) - MAX_UPLOADS:,} more')
    return '\n'.join(lines)


def _upload_line(upload: UploadLike) -> str:
    facts = [render_size(upload.size_bytes), upload.media_type]
    if upload.encoding is not None:
        facts.append(upload.encoding)
    if upload.line_count is not None:
        facts.append(f'{upload.line_count:,} line{"" if upload.line_count == 1 else "s"}')
    return f'- {display_path(upload.path)} ({", ".join(facts)})'


def _entry_line(entry: Entry) -> str:
    name = display_path(entry.name)
    if entry.is_dir:
        return f'{name}/'
    return name if entry.size is None else f'{name} ({render_size(entry.size)})'


def _render_matches(result: GrepResult, max_chars: int) -> str:
    lines: list[str] = []
    path, used, shown = None, 0, 0
    for match in result.matches:
        head = [] if match.path == path else [display_path(match.path)]
        line = f'{match.line_number}: {match.line}'
        used += len(line) + sum(map(len, head))
        if shown and used > max_chars:
            break
        lines += [*head, line]
        path, shown = match.path, shown + 1
    total = sum(result.counts.values())
    if shown < total:
        lines.append(f'[{shown:,} of {total:,} matches in {_files(len(result.counts))}; narrow the search]')
    return '\n'.join(lines)


def _files(count: int) -> str:
    return '1 file' if count == 1 else f'{count:,} files'


def _bounded(lines: Sequence[str], limit: int, what: str, *, total: int | None = None) -> str:
    total = len(lines) if total is None else total
    if total <= limit:
        return '\n'.join(lines)
    return '\n'.join([*lines[:limit], f'[{limit:,} of {total:,} {what}]'])


def _with_problems(text: str, problems: Sequence[SearchProblem]) -> str:
    if not problems:
        return text
    named = ', '.join(f'{display_path(problem.path)} ({problem.reason})' for problem in problems[:MAX_PROBLEMS])
    more = f' and {len(problems) - MAX_PROBLEMS:,} more' if len(problems) > MAX_PROBLEMS else ''
    return f'{text}\n[not searched: {named}{more}]'
