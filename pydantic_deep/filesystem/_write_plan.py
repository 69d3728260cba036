"""The bytes of a write: the new contents, in the existing encoding and with the existing line ends. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic_deep._text.encodings import Text, parse_text
from pydantic_deep_backends.snapshots import digest_of

from ._edit import AppliedEdit, apply_edit


class ChangedSinceReadError(ValueError):
    """The file is no longer what this run read or wrote last."""


class NotTextError(ValueError):
    """The bytes are no text."""


class ReplacementError(ValueError):
    """The new text holds U+FFFD, which in this file is how broken bytes are shown: they would be lost."""


@dataclass(frozen=True, kw_only=True)
class Written:
    """What a write makes of a file."""

    data: bytes
    """The new contents."""
    replaced: bool
    """Whether there was a file before."""
    encoding: str
    """The encoding of the new contents."""
    crlf: bool = False
    """Whether line ends were made those of the file before."""


def plan_write(content: str, before: bytes | None, known: str | None) -> Written:
    r"""Return what `write_file` makes of a file.

    A text keeps its encoding, its byte order mark and, if all its lines end with `\r\n` and the content has none of
    them, its line ends. Content that the encoding lacks makes the file UTF-8. What is no text is just replaced.

    Args:
        content: The new text.
        before: The contents now; `None` if there is no file.
        known: The digest of what this run read or wrote last; `None` if it never did.

    Raises:
        ChangedSinceReadError: Somebody else changed the file since.
        ReplacementError: The content holds U+FFFD, and the file broken bytes.
        UnicodeEncodeError: The content has half a character.
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
    """Return the bytes of a file after an edit, and what was done. Broken bytes stay as they are.

    Raises:
        NotTextError: The file is no text.
        NoMatchError: `old` is not there.
        SeveralMatchesError: `old` is there more than once, without `replace_all`.
        ReplacementError: `new` holds U+FFFD, and the file broken bytes.
        UnicodeEncodeError: The encoding of the file lacks a character of `new`.
    """
    text = parse_text(before)
    if text is None:
        raise NotTextError
    edited = apply_edit(text.text, old, new, replace_all=replace_all)
    _refuse_replacements(text, new)
    return text.encode(edited.text), edited


def _refuse_replacements(text: Text, new: str) -> None:
    """Refuse what would put U+FFFD in the place of broken bytes, or broken bytes of the model's own there."""
    if text.broken:
        new.encode()
        if '\ufffd' in new:
            raise ReplacementError
