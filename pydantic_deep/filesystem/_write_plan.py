"""Compute the bytes of a write: the new contents in the existing encoding, with the existing line endings. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic_deep._text.encodings import Text, parse_text
from pydantic_deep_backends.snapshots import digest_of

from ._edit import AppliedEdit, apply_edit


class ChangedSinceReadError(ValueError):
    """The file has changed since this run last read or wrote it."""


class NotTextError(ValueError):
    """The bytes are not text."""


class ReplacementError(ValueError):
    """The new text contains U+FFFD, which represents invalid bytes of this file. They would be lost."""


@dataclass(frozen=True, kw_only=True)
class Written:
    """The result of a write."""

    data: bytes
    """The new contents as bytes."""
    replaced: bool
    """Whether the file existed before."""
    encoding: str
    """The encoding of the new contents."""
    crlf: bool = False
    """Whether line endings were converted to those of the existing file."""


def plan_write(content: str, before: bytes | None, known: str | None) -> Written:
    r"""Return the new contents of a file for `write_file`.

    An existing text file retains its encoding, its byte order mark and, if all of its lines end with `\r\n` and the
    content has no `\r`, its line endings. If the encoding does not support the content, the file becomes UTF-8. Files
    that are not text are replaced.

    Args:
        content: The new text.
        before: The current contents; `None` if the file does not exist.
        known: The digest of the contents that this run last read or wrote; `None` if there are none.

    Raises:
        ChangedSinceReadError: The file has changed since.
        ReplacementError: The content contains U+FFFD, and the file invalid bytes.
        UnicodeEncodeError: The content contains a lone surrogate.
    """
    if before is None:
        return Written(data=content.encode(), replaced=False, encoding='utf-8')
    if known is not None and known != digest_of(before):
        raise ChangedSinceReadError
    old = parse_text(before) if before else None
    if old is None:
        return Written(data=content.encode(), replaced=True, encoding='utf-8')
    _refuse_replacements(old, content)
    crlf = '\r' not in content and '\n' in content and old.text.count('\n') == old.text.count('\r\n') > 0
    text = content.replace('\n', '\r\n') if crlf else content
    encoding = old.encoding
    try:
        data = old.encode(text)
    except UnicodeEncodeError:
        data, encoding = text.encode(), 'utf-8'
    return Written(data=data, replaced=True, encoding=encoding, crlf=crlf)


def plan_edit(before: bytes, old: str, new: str, *, replace_all: bool) -> tuple[bytes, AppliedEdit]:
    """Return the bytes of a file after an edit, and the edit. Invalid bytes are preserved.

    Raises:
        NotTextError: The file is not text.
        NoMatchError: `old` does not occur.
        SeveralMatchesError: `old` occurs more than once, and `replace_all` is false.
        ReplacementError: `new` contains U+FFFD, and the file invalid bytes.
        UnicodeEncodeError: The encoding of the file does not support a character of `new`.
    """
    text = parse_text(before)
    if text is None:
        raise NotTextError
    edited = apply_edit(text.text, old, new, replace_all=replace_all)
    _refuse_replacements(text, new)
    return text.encode(edited.text), edited


def _refuse_replacements(text: Text, new: str) -> None:
    """Raise if U+FFFD would replace invalid bytes, or if the text contains lone surrogates that would be taken for
    such.
    """
    if text.broken:
        new.encode()
        if '\ufffd' in new:
            raise ReplacementError
