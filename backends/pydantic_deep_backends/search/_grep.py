r"""Regular expressions over the lines of files: the matches in one file, and the totals over many files.

- The syntax is RE2. Each line is matched separately, without its line end, so nothing matches across lines.
- Only `\n` ends a line, with an optional `\r` before it; a form feed, U+2028 or a lone `\r` does not.
- UTF-8, with and without BOM, is searched directly; UTF-16 and UTF-32 with a BOM are transcoded. In files that are
  mostly UTF-8, invalid bytes are read as U+FFFD; anything else is read as latin-1. A file with an early NUL byte and no
  such BOM is binary, and skipped.

For speed, a file that lacks a literal of every possible match is not decoded, the whole buffer is searched at once, and
line numbers are computed by counting line ends between matches.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pydantic_deep_backends._search_results import (
    MAX_FILE_BYTES,
    MAX_LINE_CHARS,
    GrepMatch,
    GrepResult,
    SearchProblem,
    sorted_problems,
)
from pydantic_deep_backends.errors import InvalidPatternError

from ._regex import Regex, compile_regex
from ._regex_analysis import has_line_end, required_literal

MAX_REGEX_CHARS = 10_000
"""Maximum length of a regular expression."""

_BINARY_CHECK_BYTES = 8192
"""Number of bytes that are checked for a NUL, as in git."""

_WIDE_BOMS = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_WIDE_CODECS = ('utf-32', 'utf-32', 'utf-16', 'utf-16')
_LINE_BY_LINE = re.compile(r'\\[AzC]|\(\?[a-zA-Z]*-')
"""Constructs that may distinguish a line in a file from the line alone: anchors of the text, `\\C`, `m` switched
off."""

_CONTEXT_CHARS = 200
"""Number of characters to show before the match in a cut line."""


class FoundLine(NamedTuple):
    """A line that matched. A tuple, because a file may have millions."""

    line_number: int
    """The line number; the first line is 1."""
    start: int
    """Offset of the line in the text."""
    end: int
    """Offset of the end of the line, before the line end."""
    match_start: int
    """Offset of the first match in the line."""


class LinePattern:
    """A compiled regular expression for lines. Immutable and thread-safe."""

    def __init__(self, pattern: str) -> None:
        if not pattern:
            raise InvalidPatternError(pattern, 'it is empty. Use `.*` to find every line.')
        if len(pattern) > MAX_REGEX_CHARS:
            raise InvalidPatternError(pattern, f'it is longer than {MAX_REGEX_CHARS:,} characters. Use several.')
        self.pattern = pattern
        """The source of the regular expression."""
        self._regex: Regex = compile_regex(pattern, shown=pattern, within_lines=True)
        if has_line_end(pattern):
            raise InvalidPatternError(
                pattern, r'each line is matched alone, so `\n` finds nothing. Search for one line.'
            )
        self._line_by_line = _LINE_BY_LINE.search(pattern) is not None
        self.literal = required_literal(pattern)
        """ASCII bytes that every matching line contains; `b''` if none are certain."""

    def search(self, text: bytes) -> Iterator[FoundLine]:
        r"""Yield the lines that match, in order. `text` must be valid UTF-8 with `\n` as the line end."""
        return self._search_lines(text) if self._line_by_line else self._search_buffer(text)

    def _search_buffer(self, text: bytes) -> Iterator[FoundLine]:
        search = self._regex.search
        position, line_number, size = 0, 1, len(text)
        while position < size:
            match = search(text, position)
            if match is None:
                return
            match_start = match.start()
            start = text.rfind(b'\n', position, match_start) + 1 or position
            if start == size:
                return
            line_number += text.count(b'\n', position, start)
            end = text.find(b'\n', match_start)
            if end < 0:
                end = size
            yield FoundLine(line_number, start, end, match_start)
            line_number += 1
            position = end + 1

    def _search_lines(self, text: bytes) -> Iterator[FoundLine]:
        start, line_number, size = 0, 1, len(text)
        while start < size:
            end = text.find(b'\n', start)
            if end < 0:
                end = size
            match = self._regex.search(text[start:end])
            if match is not None:
                yield FoundLine(line_number, start, end, start + match.start())
            line_number += 1
            start = end + 1


def compile_grep(pattern: str) -> LinePattern:
    """Compile a regular expression for lines.

    Raises:
        InvalidPatternError: The expression is empty, malformed or too large, or uses look-around or back-references.
    """
    return LinePattern(pattern)


def _is_binary(data: bytes) -> bool:
    """Return whether a NUL is among the first bytes, and no byte order mark explains it."""
    return data.find(b'\0', 0, _BINARY_CHECK_BYTES) >= 0 and not data.startswith(_WIDE_BOMS)


def count_broken_utf8(data: bytes) -> int | None:
    """Return the number of bytes that are not UTF-8; `None` if the text is in another encoding.

    A text counts as UTF-8 if it begins with the UTF-8 byte order mark, or if its multi-byte characters outnumber the
    invalid bytes: text in another encoding has almost no such characters.
    """
    text = data.decode(errors='ignore')
    broken = len(data) - len(text.encode())
    if data.startswith(codecs.BOM_UTF8):
        return broken
    of_several_bytes = len(text) - len(text.encode('ascii', 'ignore'))
    return broken if of_several_bytes > broken else None


def split_lines(text: str) -> list[str]:
    r"""Return the lines of a text, with their line ends. As in grep, only `\n` ends a line."""
    lines = text.split('\n')
    last = lines.pop()
    complete = [f'{line}\n' for line in lines]
    return [*complete, last] if last else complete


def _to_text(data: bytes) -> bytes:
    r"""Return the contents of a text file as UTF-8 with `\n` as the line end."""
    return _to_utf8(data).replace(b'\r\n', b'\n')


def _to_utf8(data: bytes) -> bytes:
    for bom, codec in zip(_WIDE_BOMS, _WIDE_CODECS, strict=True):
        if data.startswith(bom):
            return data.decode(codec, errors='replace').encode()
    text = data.removeprefix(codecs.BOM_UTF8)
    if text.isascii():
        return text
    try:
        text.decode()
    except UnicodeDecodeError:
        codec = 'latin-1' if count_broken_utf8(data) is None else 'utf-8'
        return text.decode(codec, errors='replace').encode()
    return text


class GrepBuilder:
    """Collects the matches of one search over many files, in any order.

    Args:
        pattern: The compiled expression.
        limit: Maximum number of lines to return: the first ones by path and number, regardless of the order of the
            files.
    """

    def __init__(self, pattern: LinePattern, limit: int) -> None:
        if limit < 0:
            raise ValueError(f'`limit` is {limit}. Use 0 or more.')
        self._pattern = pattern
        self._literal = pattern.literal
        self._limit = limit
        self._counts: dict[str, int] = {}
        self._matches: dict[str, list[GrepMatch]] = {}
        self._match_count = 0
        self._last_path: str | None = None
        self._problems: list[SearchProblem] = []
        self._files_searched = 0

    def add(self, path: str, data: bytes) -> None:
        """Search the contents of one file.

        Args:
            path: The absolute path of the file.
            data: The contents of the file.
        """
        if len(data) > MAX_FILE_BYTES:
            self.problem(path, too_large(len(data)))
            return
        if _is_binary(data):
            return
        self._files_searched += 1
        if self._literal not in data and not data.startswith(_WIDE_BOMS):
            return
        self._search(path, _to_text(data))

    def _search(self, path: str, text: bytes) -> None:
        limit = self._limit if self._last_path is None or path < self._last_path else 0
        matches: list[GrepMatch] = []
        count = 0
        for line in self._pattern.search(text):
            if count < limit:
                matches.append(GrepMatch(path=path, line_number=line.line_number, line=_shown_line(text, line)))
            count += 1
        if count:
            self._counts[path] = count
        if matches:
            self._matches[path] = matches
            self._match_count += len(matches)
            if self._match_count > 2 * self._limit + 1000:
                self._prune()

    def _prune(self) -> None:
        """Remove lines that can no longer be among the first ones."""
        room = self._limit
        for path in sorted(self._matches):
            self._matches[path] = self._matches[path][:room]
            room -= len(self._matches[path])
            if not self._matches[path]:
                del self._matches[path]
        self._match_count = self._limit - room
        if not room:
            self._last_path = max(self._matches, default='')

    def problem(self, path: str, reason: str) -> None:
        """Report a file or directory that could not be searched."""
        self._problems.append(SearchProblem(path=path, reason=reason))

    def result(self, problems: Iterable[SearchProblem] = ()) -> GrepResult:
        """Return the result so far, including the problems of the walk."""
        self._prune()
        counts = {path: self._counts[path] for path in sorted(self._counts)}
        return GrepResult(
            matches=tuple(match for path in sorted(self._matches) for match in self._matches[path]),
            counts=counts,
            problems=sorted_problems([*self._problems, *problems]),
            truncated=sum(counts.values()) > self._match_count,
            files_searched=self._files_searched,
        )


def too_large(size_bytes: int) -> str:
    """Return the reason why a file of this size is not searched."""
    return f'it has {size_bytes:,} bytes; files over {MAX_FILE_BYTES:,} are not searched.'


def _shown_line(text: bytes, match: FoundLine) -> str:
    """Return the line for display, cut around its first match if it is too long."""
    if match.end - match.start <= MAX_LINE_CHARS:
        return text[match.start : match.end].decode()
    # A character has at most four bytes, so this window contains everything shown, and a huge line is not decoded.
    window_bytes = 4 * MAX_LINE_CHARS
    low = max(match.start, match.match_start - window_bytes)
    high = min(match.end, match.match_start + window_bytes)
    before = text[low : match.match_start].decode(errors='ignore')
    line = before + text[match.match_start : high].decode(errors='ignore')
    if low == match.start and high == match.end and len(line) <= MAX_LINE_CHARS:
        return line
    first = max(0, len(before) - _CONTEXT_CHARS)
    if high == match.end:
        first = max(0, min(first, len(line) - MAX_LINE_CHARS + 1))
    cut_before = first > 0 or low > match.start
    size = MAX_LINE_CHARS - cut_before
    cut_after = len(line) - first > size or high < match.end
    shown = line[first : first + size - cut_after]
    return f'{"…" if cut_before else ""}{shown}{"…" if cut_after else ""}'
