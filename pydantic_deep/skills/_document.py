"""Split a `SKILL.md` into frontmatter and body. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pydantic_deep._text.encodings import parse_text

MAX_HEADER_CHARS = 32 * 1024
"""Maximum length of a frontmatter that is parsed, in characters: about ten times what the limits of the standard allow.
"""

MAX_DOCUMENT_BYTES = 1024 * 1024
"""Maximum size of a `SKILL.md` or text file of a skill, in bytes. The standard recommends less than 500 lines;
published skills have up to 294 kB.
"""

HEAD_BYTES = 8 * 1024
"""Number of bytes that discovery reads first. Almost every frontmatter is shorter."""

_OPEN = re.compile(r'\A(?P<before>\s*)---[ \t]*(?:\r\n?|\n)')
_CLOSE = re.compile(r'^---[ \t]*$', re.MULTILINE)
_QUICK_OPEN = re.compile(rb'\A(?:\xef\xbb\xbf)?---[ \t]*\r?\n')
_QUICK_CLOSE = re.compile(rb'^---[ \t]*\r?(?:\n|\Z)', re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Document:
    """The parts of a `SKILL.md`."""

    header: str
    """The frontmatter, without the fences."""
    first_line: int
    """The line number of the frontmatter in the file, from 1."""
    body: str
    """The body, without leading and trailing blank lines."""
    body_line: int
    """The line number of the body in the file, from 1."""


class DocumentError(ValueError):
    """The file is not a valid `SKILL.md`.

    Attributes:
        code: The kind of problem, as in `SkillDiagnostic`.
        line: The line number from 1; `None` if the problem concerns the whole file.
    """

    def __init__(self, code: str, line: int | None, message: str) -> None:
        self.code = code
        self.line = line
        super().__init__(message)


def find_header(head: bytes) -> str | None:
    """Return the frontmatter from the first bytes of a UTF-8 file; `None` if they are not sufficient."""
    opened = _QUICK_OPEN.match(head)
    closed = _QUICK_CLOSE.search(head, opened.end()) if opened else None
    if opened is None or closed is None or b'\0' in head:
        return None
    if closed.end() == len(head) and not head.endswith(b'\n'):
        return None  # a line that looks like the fence may be incomplete
    try:
        header = head[opened.end() : closed.start()].decode()
    except UnicodeDecodeError:
        return None
    header = header.replace('\r\n', '\n')
    return None if '\r' in header else header


def parse_document(data: bytes) -> Document:
    """Return the parts of a `SKILL.md`, in any encoding and with any line endings.

    Raises:
        DocumentError: The file is not text, or has no frontmatter.
    """
    parsed = parse_text(data) if data else None
    if data and parsed is None:
        raise DocumentError('not-text', None, 'It is not text. Save it as UTF-8.')
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
