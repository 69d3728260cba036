"""The two parts of a `SKILL.md`: the frontmatter between its fences, and the body after them. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pydantic_deep._text.encodings import parse_text

MAX_HEADER_CHARS = 32 * 1024
"""The longest frontmatter that is parsed: some ten times the longest that the standard's limits let be useful."""

MAX_DOCUMENT_BYTES = 1024 * 1024
"""The largest `SKILL.md` or text file of a skill that is read. The standard's advice is under 500 lines; published ones
have up to 294 kB."""

HEAD_BYTES = 8 * 1024
"""How much of a file discovery reads at first. Nearly every frontmatter ends there."""

_OPEN = re.compile(r'\A(?P<before>\s*)---[ \t]*(?:\r\n?|\n)')
_CLOSE = re.compile(r'^---[ \t]*$', re.MULTILINE)
_QUICK_OPEN = re.compile(rb'\A(?:\xef\xbb\xbf)?---[ \t]*\r?\n')
_QUICK_CLOSE = re.compile(rb'^---[ \t]*\r?(?:\n|\Z)', re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Document:
    """A `SKILL.md` in its parts."""

    header: str
    """The text between the fences."""
    first_line: int
    """The number of its first line in the file, from 1."""
    body: str
    """The text after the second fence, without blank lines around it."""
    body_line: int
    """The number of its first line in the file, from 1."""


class DocumentError(ValueError):
    """The bytes are no `SKILL.md`.

    Attributes:
        code: The kind, as in `SkillDiagnostic`.
        line: Where, from 1; `None` if it is about no line.
    """

    def __init__(self, code: str, line: int | None, message: str) -> None:
        self.code = code
        self.line = line
        super().__init__(message)


def find_header(head: bytes) -> str | None:
    """Return the frontmatter of UTF-8 text from the first bytes of a file; `None` if they do not settle it."""
    opened = _QUICK_OPEN.match(head)
    closed = _QUICK_CLOSE.search(head, opened.end()) if opened else None
    if opened is None or closed is None or b'\0' in head:
        return None
    if closed.end() == len(head) and not head.endswith(b'\n'):
        return None  # what looks like the fence may be cut
    try:
        header = head[opened.end() : closed.start()].decode()
    except UnicodeDecodeError:
        return None
    header = header.replace('\r\n', '\n')
    return None if '\r' in header else header


def parse_document(data: bytes) -> Document:
    """Return the parts of a `SKILL.md`, whatever its encoding and line ends.

    Raises:
        DocumentError: It is no text, or has no frontmatter.
    """
    parsed = parse_text(data) if data else None
    if data and parsed is None:
        raise DocumentError('not-text', None, 'It is no text. Save it as UTF-8.')
    text = '' if parsed is None else parsed.shown.replace('\r\n', '\n').replace('\r', '\n')
    opened = _OPEN.match(text)
    if opened is None:
        raise DocumentError(
            'no-frontmatter', 1, 'It has no frontmatter. Begin the file with a line `---`, name and description.'
        )
    first_line = text.count('\n', 0, opened.end()) + 1
    closed = _CLOSE.search(text, opened.end())
    if closed is None:
        raise DocumentError(
            'no-frontmatter', first_line - 1, 'The frontmatter does not end. Add a line `---` below it.'
        )
    rest = text[closed.end() :]
    blank = len(rest) - len(rest.lstrip('\n'))
    return Document(
        header=text[opened.end() : closed.start()],
        first_line=first_line,
        body=rest.strip('\n'),
        body_line=text.count('\n', 0, closed.end()) + 1 + blank,
    )
