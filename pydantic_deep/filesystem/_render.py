"""Render directories, search results, command output and uploads for a model. Pure.

Every list has a maximum length and states how much it omits. Every name is on one line, whatever characters it
contains.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from pydantic_deep_backends.paths import display_path, path_parts
from pydantic_deep_backends.protocol import CommandResult
from pydantic_deep_backends.search import GlobResult, GrepResult, SearchProblem

from ._types import OutputMode, UploadLike

MAX_ENTRIES = 500
"""Maximum number of entries or paths in one result, about 10,000 tokens for ordinary names."""

MAX_UPLOADS = 30
"""Maximum number of uploads to list. The rest is only counted."""

MAX_PROBLEMS = 5
"""Maximum number of paths to name that could not be searched. The rest is only counted."""

MAX_REASON_CHARS = 500
"""Maximum length of a backend's message about a stopped command, in characters."""


class Entry(Protocol):
    """A file or directory in a listing."""

    @property
    def name(self) -> str:
        """The name of the entry."""
        ...

    @property
    def is_dir(self) -> bool:
        """Whether it is a directory."""
        ...

    @property
    def size(self) -> int | None:
        """The size in bytes; `None` if it is unknown."""
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
    """Return one path per line. Without matches, suggest the pattern that also searches subdirectories."""
    if not result.paths:
        deep = at_any_depth(pattern)
        hint = '' if deep == pattern else f' Use {display_path(deep)} to look in directories below too.'
        return _with_problems(f'No files match.{hint}', result.problems)
    paths = [display_path(path) for path in result.paths[: MAX_ENTRIES + 1]]
    notice = 'files; use a narrower pattern for the others'
    return _with_problems(_bounded(paths, MAX_ENTRIES, notice, total=len(result.paths)), result.problems)


def at_any_depth(pattern: str) -> str:
    """Return a pattern for a name as a pattern for that name in any directory, and other patterns unchanged."""
    return pattern if '/' in pattern or pattern in ('', '**') else f'**/{pattern}'


def below_directory(pattern: str, directory: str) -> str | None:
    """Return the rest of a pattern that begins with the directory of the search, such as `*.md` of `docs/*.md` in
    `/site/docs`; `None` if it does not.

    Args:
        pattern: The pattern.
        directory: The absolute path of the directory.
    """
    wanted, names = path_parts(pattern), path_parts(directory)
    for count in range(min(len(names), len(wanted) - 1), 0, -1):
        if wanted[:count] == names[-count:]:
            return '/'.join(wanted[count:])
    return None


def render_grep(result: GrepResult, mode: OutputMode, *, max_chars: int) -> str:
    """Return the matching lines grouped by file, the files, or a count for each file."""
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
    """Return the output of a command, and its exit code if it is not 0."""
    parts = [part.removesuffix('\n') for part in (result.stdout, result.stderr) if part]
    if result.exit_code:
        parts.append(f'[exit code {result.exit_code}]')
    return '\n'.join(parts) or 'Done; nothing was printed.'


def render_timeout(error: TimeoutError, timeout_seconds: float) -> str:
    """Return the output of a command before it was stopped, and the reason, as reported by the backend.

    Args:
        error: The error of the backend. Its attributes `stdout` and `stderr` are included if it has them.
        timeout_seconds: The timeout that the model set. The backend may have used a shorter one.
    """
    printed = [str(getattr(error, name, '')).removesuffix('\n') for name in ('stdout', 'stderr')]
    # `str` of a system error starts with its number.
    reason = ' '.join((error.strerror or str(error)).split())[:MAX_REASON_CHARS]
    notice = f'[{reason or f"The command took too long and was stopped; {timeout_seconds:g} seconds were allowed."}]'
    return '\n'.join([*filter(None, printed), notice])


def render_uploads(uploads: Collection[UploadLike]) -> str:
    """Return one line for each upload; empty if there are none."""
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
