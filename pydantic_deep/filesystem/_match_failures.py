"""Explain why an edit found no match: the difference, or the closest line. Pure, in bounded time."""

from __future__ import annotations

import difflib
import re
from itertools import islice

MAX_TEXT_CHARS = 500_000
"""Maximum number of characters to examine. An explanation must not cost more than the edit."""

MAX_CANDIDATES = 200
"""Maximum number of lines to compare. For lines of the maximum length this takes about 10 ms."""

MAX_WORDS = 8
"""Maximum number of words of the wanted line that select the lines to compare."""

MAX_SHOWN_CHARS = 200
"""Maximum number of characters of a line to compare and show."""

_NUMBERED = re.compile(r'^ *\d+[→\t]', re.MULTILINE)
"""The number before a line of `read_file`. Models also write the tab of other tools."""

_QUOTES = str.maketrans(dict.fromkeys('"`’‘“”', "'"))
_WORD = re.compile(r'\w{3,}')


def explain_no_match(text: str, old: str, new: str) -> str:
    """Return an explanation why `old` does not occur in `text`, with advice.

    Args:
        text: The text of the file.
        old: The text that was searched for.
        new: The text that was to replace it. Where it occurs once, the edit may have been made before.
    """
    text = text[:MAX_TEXT_CHARS].replace('\r\n', '\n')
    old = old.replace('\r\n', '\n')
    bare = _NUMBERED.sub('', old)
    if bare != old and bare.strip() and bare in text:
        return 'It holds the line numbers of read_file. Leave out each number and the character after it.'
    alike = _find_but_for_whitespace(text, old)
    if alike is not None:
        return f'Only its whitespace differs from {_quote(text, alike)}. Copy it exactly.'
    requoted = text.translate(_QUOTES).find(old.translate(_QUOTES))
    if requoted >= 0:
        return f'Only its quotes differ from {_quote(text, requoted)}. Copy it exactly.'
    replaced = _find_once(text, new.replace('\r\n', '\n'))
    closest = _closest_line(text, old)
    if replaced is not None and (closest is None or _line(text, closest).strip() == _line(text, replaced).strip()):
        return f'new_string already is, in {_quote(text, replaced)}. If it is missing elsewhere, read the file and copy exactly.'
    if closest is not None:
        return f'The closest is {_quote(text, closest)}. Read the file and copy exactly.'
    return 'Nothing in the file is like it. Read the file and copy exactly.'


def _find_but_for_whitespace(text: str, old: str) -> int | None:
    """Return the position of a match that differs only in whitespace; `None` if there is none.

    `str.find` on the normalized texts takes linear time, unlike a regular expression of the words.
    """
    wanted = ' '.join(old.split())
    joined = ' '.join(text.split())
    at = joined.find(wanted) if wanted else -1
    if at < 0:
        return None
    words = re.finditer(r'\S+', text)
    return next(islice(words, joined.count(' ', 0, at), None)).start()


def _find_once(text: str, wanted: str) -> int | None:
    """Return the position of the first letter or digit of a text that occurs once; `None` otherwise."""
    word = re.search(r'\w', wanted)
    at = text.find(wanted)
    return at + word.start() if word and at >= 0 and text.find(wanted, at + 1) < 0 else None


def _closest_line(text: str, old: str) -> int | None:
    """Return the position of the line that is most similar to the first line of `old` with a word."""
    wanted = next((line for line in old.split('\n') if _WORD.search(line)), '').strip()[:MAX_SHOWN_CHARS]
    words = _WORD.findall(wanted)[:MAX_WORDS]
    position_by_line: dict[str, int] = {}
    at = 0
    for line in text.split('\n'):
        shown = line.strip()[:MAX_SHOWN_CHARS]
        if any(word in shown for word in words):
            position_by_line.setdefault(shown, at)
        at += len(line) + 1
        if len(position_by_line) == MAX_CANDIDATES:
            break
    best = difflib.get_close_matches(wanted, position_by_line, n=1)
    return position_by_line[best[0]] if best else None


def _quote(text: str, at: int) -> str:
    """Return the line at a position, with its number."""
    line = _line(text, at)
    shown = line[:MAX_SHOWN_CHARS] + ('…' if len(line) > MAX_SHOWN_CHARS else '')
    return f'line {text.count(chr(10), 0, at) + 1:,}: {shown!r}'


def _line(text: str, at: int) -> str:
    begin = text.rfind('\n', 0, at) + 1
    end = text.find('\n', at)
    return text[begin : end if end >= 0 else len(text)]
