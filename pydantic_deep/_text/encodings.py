"""Properties of bytes: their encoding, whether they are text, and their media type.

Pure functions on bytes, shared by uploads and the file tools. A failed guess is `None`, never an error. Line splitting
is not here: search and the file tools share it through `pydantic_deep_backends.search`.
"""

from __future__ import annotations

import codecs
import mimetypes
import re
import unicodedata
from dataclasses import dataclass

import chardet

from pydantic_deep_backends.search import count_broken_utf8

MAX_FILE_BYTES = 50 * 2**20
"""Maximum size in bytes of a file that is uploaded, written by the file tools, or part of a version."""

SAMPLE_BYTES = 64 * 1024
"""Size of the sample on which guesses are based: sufficient for chardet, and bounded for any file size."""

BINARY_PROBE_BYTES = 8 * 1024
"""A NUL byte within this distance from the start means binary, as in git and grep (theirs: 8,000 and 32,768 bytes)."""

_LINE_BYTES = 1024
"""Maximum part of the line before the first non-ASCII byte that is examined."""

_COMMON = 'cp1252'
"""The codec that is preferred if its score is near the best one."""

_NEAR = 0.8
"""The share of the best score that counts as near. Of 1,390 short messages in 24 languages (the translations of vim),
92% are decoded correctly with the first answer of chardet 7.7, 98% with this share, and 96% with 0.6.
"""

_WORD = re.compile(r'[^\W\d_]+')
_WORDS_BYTES = 4 * 1024
"""Size of the part of a sample in which words are examined, for each encoding: sufficient, and bounded."""

_MIXED = re.compile('[A-Za-z][\u0370-\u06ff]|[\u0370-\u06ff][A-Za-z]')
"""A Latin letter next to a Greek, Cyrillic, Armenian, Hebrew or Arabic one."""

_LATIN_WORD = re.compile(r'[^\W\d_]{3,}')

_PRINTABLE_ASCII = re.compile(r'[ -~\t\n\r]')

_UNPRINTABLE = frozenset({'Cc', 'Cn', 'Co', 'Cs'})
"""Categories of characters that do not occur in text: control characters, unassigned, private use, lone surrogates."""

_CONTROLS_OF_TEXT = '\t\n\v\f\r\b\x1a\x1b'
"""Control characters that occur in text files: white space, backspace, DOS's end of file, escape sequences of
terminals.
"""

_MIN_CHARS = 8
"""Minimum length of a mostly ASCII text: of random bytes of this length, 1 in 200 are mostly ASCII."""

_MIN_SCORE = 0.05
"""Minimum score of chardet 7.7 that suffices for text. One in a hundred strings of random bytes has such a score, with
the two bounds below; of 6,750 messages in 39 languages and their old encodings (the translations of Debian 12),
nineteen in twenty have it, or are accepted by `_is_text`.
"""

_MIN_SHORT_SCORE = 0.07
"""The same for fewer than `_SHORT_BYTES` non-ASCII bytes."""

_SHORT_BYTES = 12
_MIN_BYTES = 4
"""With fewer non-ASCII bytes, no score suffices."""

_FALLBACK = {'cp1252': 0.1}
"""The only result of chardet 7.7 if nothing matches."""

_BOMS = (  # UTF-32 first: its little-endian mark starts with that of UTF-16
    (codecs.BOM_UTF32_LE, 'utf-32'),
    (codecs.BOM_UTF32_BE, 'utf-32'),
    (codecs.BOM_UTF8, 'utf-8-sig'),
    (codecs.BOM_UTF16_LE, 'utf-16'),
    (codecs.BOM_UTF16_BE, 'utf-16'),
)

_ESCAPED = re.compile('[\udc80-\udcff]')
"""The character into which `surrogateescape` decodes a byte that is not UTF-8."""

_OVER_ASCII = re.compile(rb'[\x80-\xff]')

_MAGIC = (
    (b'\x89PNG\r\n\x1a\n', 'image/png'),
    (b'\xff\xd8\xff', 'image/jpeg'),
    (b'GIF87a', 'image/gif'),
    (b'GIF89a', 'image/gif'),
    (b'%PDF-', 'application/pdf'),
    (b'PK\x03\x04', 'application/zip'),
    (b'\x1f\x8b', 'application/gzip'),
)
"""Magic numbers of the formats that matter to a model, from the formats' own specifications."""

_TYPES = mimetypes.MimeTypes(filenames=())  # Python's own table: files of the machine must not affect the results
for _suffix, _kind in {
    '.docx': 'application/vnd.openxmlformats-officedocument.wordprocessingml.document',
    '.ipynb': 'application/x-ipynb+json',
    '.md': 'text/markdown',
    '.odt': 'application/vnd.oasis.opendocument.text',
    '.ods': 'application/vnd.oasis.opendocument.spreadsheet',
    '.parquet': 'application/vnd.apache.parquet',
    '.pptx': 'application/vnd.openxmlformats-officedocument.presentationml.presentation',
    '.toml': 'application/toml',
    '.webp': 'image/webp',
    '.xlsx': 'application/vnd.openxmlformats-officedocument.spreadsheetml.sheet',
    '.yaml': 'application/yaml',
    '.yml': 'application/yaml',
}.items():  # common names that are missing in Python 3.11, so that all Python versions give the same result
    _TYPES.add_type(_kind, _suffix)


@dataclass(frozen=True, kw_only=True)
class Text:
    """The text of a file and its encoding; created by `parse_text`."""

    text: str
    """All characters without the byte order mark. In a text that is mostly UTF-8, an invalid byte is represented by a
    lone surrogate, which is never displayed and is encoded as the same byte.
    """
    encoding: str
    """The name of the codec."""
    mark: bytes = b''
    """The byte order mark, if any."""
    broken: int = 0
    """Number of invalid bytes in a text that is mostly UTF-8."""

    @property
    def shown(self) -> str:
        """The text for people and models, with U+FFFD in place of each invalid byte; positions are unchanged."""
        return _ESCAPED.sub('\ufffd', self.text) if self.broken else self.text

    def encode(self, text: str) -> bytes:
        """Return the bytes of another text in this encoding, including the byte order mark.

        Raises:
            UnicodeEncodeError: The encoding lacks one of the characters.
        """
        errors = 'surrogateescape' if self.broken else 'strict'
        return self.mark + text.encode(_markless(self.mark, self.encoding), errors)


def parse_text(data: bytes) -> Text | None:
    """Return the text of a file; `None` if it is not text. Its `encode` restores `data`.

    A byte order mark determines the encoding. Otherwise it is UTF-8 if the data is valid, or if multi-byte characters
    outnumber invalid bytes. Otherwise chardet guesses from the first 64 KiB of significant data, which excludes plain
    ASCII before the line of the first other byte. A guess is accepted only if the decoded sample looks like text
    (`_is_text`), and if decoding and encoding all of `data` restores the same bytes.
    """
    mark, name = next(((mark, name) for mark, name in _BOMS if data.startswith(mark)), (b'', 'utf-8'))
    is_wide = name.startswith(('utf-16', 'utf-32'))
    if not is_wide and b'\0' in data[:BINARY_PROBE_BYTES]:
        return None
    text = _decode(data, name, mark)
    if text is not None or is_wide:
        return text
    broken = count_broken_utf8(data)
    if broken is not None:
        escaped = Text(
            text=data[len(mark) :].decode('utf-8', 'surrogateescape'), encoding=name, mark=mark, broken=broken
        )
        if mark or _is_mostly_whole(escaped):
            return escaped
    guessed = _guess(data)
    return None if guessed is None else _decode(data, guessed, b'')


def detect_encoding(data: bytes) -> str | None:
    """Return the name of the codec of a text; `None` if the data is not text."""
    text = parse_text(data)
    return None if text is None else text.encoding


def guess_media_type(name: str, data: bytes, encoding: str | None) -> str:
    """Return the media type, based on the name, then on the first bytes, then on whether the data is text."""
    by_name, compression = _TYPES.guess_type(name)
    if by_name is not None and compression is None:
        return by_name
    by_content = next((kind for magic, kind in _MAGIC if data.startswith(magic)), None)
    if by_content is None and data[:4] == b'RIFF' and data[8:12] == b'WEBP':
        by_content = 'image/webp'
    return by_content or ('application/octet-stream' if encoding is None else 'text/plain')


def count_lines(data: bytes, encoding: str | None) -> int | None:
    """Return the number of lines of a text, including an unterminated last line; `None` if the data is not text."""
    if encoding is None:
        return None
    if encoding.startswith(('utf-16', 'utf-32')):
        mark = next((mark for mark, _ in _BOMS if data.startswith(mark)), b'')
        text = data[len(mark) :].decode(_markless(mark, encoding))
        return text.count('\n') + (text != '' and not text.endswith('\n'))
    return data.count(b'\n') + (data != b'' and not data.endswith(b'\n'))


def _markless(mark: bytes, name: str) -> str:
    """Return the variant of the codec that neither writes nor expects a byte order mark."""
    if name == 'utf-8-sig':
        return 'utf-8'
    if mark in (codecs.BOM_UTF16_LE, codecs.BOM_UTF32_LE):
        return f'{name}-le'
    if mark in (codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE):
        return f'{name}-be'
    return name


def _guess(data: bytes) -> str | None:
    """Return the codec of a text in an encoding of the web's era; `None` if the data does not look like text in any.

    chardet's scores of a short text differ little. Two criteria that it does not weigh then decide: words do not mix
    the Latin alphabet with another one, and Windows-1252 is by far the most common encoding.
    """
    strange = next(_OVER_ASCII.finditer(data)).start()
    sample = _sample(data, strange)
    try:
        guesses = chardet.detect_all(
            sample, ignore_threshold=True, encoding_era=chardet.EncodingEra.MODERN_WEB, prefer_superset=True
        )
    except Exception:  # noqa: BLE001 - an error of the detector is a failed guess
        return None
    scores = {name: guess['confidence'] for guess in guesses if (name := _codec_of(guess['encoding'])) is not None}
    is_fallback = scores == _FALLBACK
    readable = {name: score for name, score in scores.items() if not _mixes_alphabets(sample, name)} or scores
    if not readable:
        return None
    best = max(readable, key=readable.__getitem__)
    if readable.get(_COMMON, 0) >= _NEAR * readable[best]:
        best = _COMMON
    text = data[max(strange - _LINE_BYTES, 0) : strange + SAMPLE_BYTES].decode(best, 'replace')
    is_likely = not is_fallback and readable[best] >= _min_score(len(_OVER_ASCII.findall(sample)))
    return best if _is_printable(text) and (is_likely or _is_text(text)) else None


def _min_score(over_ascii: int) -> float:
    """Return the score of chardet that suffices for a text with this number of non-ASCII bytes."""
    return 1.0 if over_ascii < _MIN_BYTES else _MIN_SHORT_SCORE if over_ascii < _SHORT_BYTES else _MIN_SCORE


def _is_printable(text: str) -> bool:
    """Return whether at most 1 in 100 characters is one that does not occur in text."""
    strange = [char for char in set(text).difference(_CONTROLS_OF_TEXT) if unicodedata.category(char) in _UNPRINTABLE]
    return sum(map(text.count, strange)) * 100 <= len(text)


def _is_text(text: str) -> bool:
    """Return whether the non-ASCII characters plausibly belong to a text, without knowing its language.

    They do if there are four ASCII characters for each, or if half of them, and half of the letters among them, are in
    words of the Latin alphabet whose other letters are ASCII.
    """
    over_ascii = [char for char in text if not char.isascii()]
    if len(text) >= _MIN_CHARS and len(_PRINTABLE_ASCII.findall(text)) >= 4 * len(over_ascii):
        return True
    letters = sum(map(str.isalpha, over_ascii))
    in_words = sum(not char.isascii() for word in _LATIN_WORD.findall(text) if _is_latin(word) for char in word)
    return in_words * 2 >= max(letters, 1) and letters * 2 >= len(over_ascii)


def _is_latin(word: str) -> bool:
    """Return whether a word has at least as many ASCII letters as others, which are all Latin, in a usual combination
    of case.
    """
    others = [char for char in word if not char.isascii()]
    return (
        len(others) * 2 <= len(word)
        and all(unicodedata.name(char, '').startswith('LATIN') for char in others)
        and word in (word.lower(), word.upper(), word.capitalize())
    )


def _is_mostly_whole(text: Text) -> bool:
    """Return whether a text with invalid bytes is UTF-8 and not so by coincidence.

    It is if there are at least three valid multi-byte characters per invalid byte, or if the rest looks like text.
    """
    whole = sum(not char.isascii() for char in text.text) - text.broken
    return whole >= 3 * text.broken or _is_text(_ESCAPED.sub('', text.text))


def _codec_of(name: str | None) -> str | None:
    try:
        return None if name is None else codecs.lookup(name).name
    except LookupError:  # the detector knows more encodings than Python
        return None


def _mixes_alphabets(sample: bytes, name: str) -> bool:
    """Return whether half of the words that are not ASCII mix the Latin alphabet with another one."""
    words = [word for word in _WORD.findall(sample[:_WORDS_BYTES].decode(name, 'replace')) if not word.isascii()]
    return sum(_MIXED.search(word) is not None for word in words) * 2 >= max(len(words), 1)


def _sample(data: bytes, strange: int) -> bytes:
    """Return the first 64 KiB of significant data, which starts with the line of the first non-ASCII byte."""
    line = max(data.rfind(b'\n', 0, strange) + 1, strange - _LINE_BYTES, 0)
    return data[line : line + SAMPLE_BYTES]


def _decode(data: bytes, name: str, mark: bytes) -> Text | None:
    """Return the text in one encoding; `None` if decoding is lossy."""
    try:
        text = Text(text=data[len(mark) :].decode(_markless(mark, name)), encoding=name, mark=mark)
        return text if text.encode(text.text) == data else None
    except UnicodeError:
        return None
