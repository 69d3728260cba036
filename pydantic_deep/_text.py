"""What bytes are: their encoding, whether they are text, their media type.

Pure functions on bytes, shared by uploads and by the file tools. A guess that fails is `None` and never an error.
Not here: line splitting, which search and the file tools share through `pydantic_deep_backends.search`.
"""

from __future__ import annotations

import codecs
import mimetypes

import chardet

SAMPLE_BYTES = 64 * 1024
"""How much of a file the guesses look at: enough for chardet to settle, and bounded for any file size."""

BINARY_PROBE_BYTES = 8 * 1024
"""A NUL byte this near to the start means binary, the rule of git and of grep (theirs: 8,000 and 32,768 bytes)."""

_LINE_BYTES = 1024
"""How much of the line before the first byte that says something is looked at, at most."""

_BOMS = (  # UTF-32 first: its little-endian mark begins with that of UTF-16
    (codecs.BOM_UTF32_LE, 'utf-32'),
    (codecs.BOM_UTF32_BE, 'utf-32'),
    (codecs.BOM_UTF8, 'utf-8-sig'),
    (codecs.BOM_UTF16_LE, 'utf-16'),
    (codecs.BOM_UTF16_BE, 'utf-16'),
)

_MAGIC = (
    (b'\x89PNG\r\n\x1a\n', 'image/png'),
    (b'\xff\xd8\xff', 'image/jpeg'),
    (b'GIF87a', 'image/gif'),
    (b'GIF89a', 'image/gif'),
    (b'%PDF-', 'application/pdf'),
    (b'PK\x03\x04', 'application/zip'),
    (b'\x1f\x8b', 'application/gzip'),
)
"""First bytes of the formats that matter to a model, from the formats' own specifications."""

_TYPES = mimetypes.MimeTypes(filenames=())  # the table of Python alone: a machine's own files do not change answers
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
}.items():  # names that users give files, missing in Python 3.11: the answer is the same on every Python
    _TYPES.add_type(_kind, _suffix)


def detect_encoding(data: bytes) -> str | None:
    """Return the name of the codec that decodes `data` without loss, or `None` if it is not text.

    A byte order mark decides; else UTF-8 if it is valid; else what chardet makes of the first 64 KiB that say
    anything: plain ASCII at the start of a long file is left out, up to the line of the first other byte.
    The answer always decodes the whole of `data` and encodes it back to the same bytes.
    """
    for mark, name in _BOMS:
        if data.startswith(mark):
            return name if _round_trips(data, name) else None
    if b'\0' in data[:BINARY_PROBE_BYTES]:
        return None
    strange = _first_not_utf8(data)
    if strange is None:
        return 'utf-8'
    name = _guess(_sample(data, strange))
    return name if name is not None and _round_trips(data, name) else None


def decode_text(data: bytes, encoding: str) -> tuple[str, bytes]:
    """Return the text of `data` without its byte order mark, and the mark (empty if there is none)."""
    for mark, name in _BOMS:
        if name == encoding and data.startswith(mark):
            return data[len(mark) :].decode(_markless(mark, name)), mark
    return data.decode(encoding), b''


def encode_text(text: str, encoding: str, mark: bytes) -> bytes:
    """Undo `decode_text`: return the bytes of `text` with the byte order mark in front.

    Raises:
        UnicodeEncodeError: The encoding has no such character.
    """
    return mark + text.encode(_markless(mark, encoding))


def guess_media_type(name: str, data: bytes, encoding: str | None) -> str:
    """Return the media type: by the name first, then by the first bytes, then by whether it is text."""
    by_name, compression = _TYPES.guess_type(name)
    if by_name is not None and compression is None:
        return by_name
    by_content = next((kind for magic, kind in _MAGIC if data.startswith(magic)), None)
    if by_content is None and data[:4] == b'RIFF' and data[8:12] == b'WEBP':
        by_content = 'image/webp'
    return by_content or ('application/octet-stream' if encoding is None else 'text/plain')


def count_lines(data: bytes, encoding: str | None) -> int | None:
    """Return the number of lines of a text, a last line without an end included; `None` for what is not text."""
    if encoding is None:
        return None
    if encoding.startswith(('utf-16', 'utf-32')):
        text = decode_text(data, encoding)[0]
        return text.count('\n') + (text != '' and not text.endswith('\n'))
    return data.count(b'\n') + (data != b'' and not data.endswith(b'\n'))


def _markless(mark: bytes, name: str) -> str:
    """Return the codec that neither writes nor expects the mark."""
    if name == 'utf-8-sig':
        return 'utf-8'
    if mark in (codecs.BOM_UTF16_LE, codecs.BOM_UTF32_LE):
        return f'{name}-le'
    if mark in (codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE):
        return f'{name}-be'
    return name


def _guess(sample: bytes) -> str | None:
    try:
        name = chardet.detect(sample)['encoding']
    except Exception:  # noqa: BLE001 - whatever a detector trips over, a guess that fails is no guess
        return None
    if name is None:
        return None
    try:
        return codecs.lookup(name).name
    except LookupError:  # the detector knows more encodings than Python
        return None


def _first_not_utf8(data: bytes) -> int | None:
    try:
        data.decode('utf-8')
    except UnicodeDecodeError as error:
        return error.start
    return None


def _sample(data: bytes, strange: int) -> bytes:
    """Return the first 64 KiB that say anything, where `strange` is the first byte that is not UTF-8."""
    if not data[:strange].isascii():
        return data[:SAMPLE_BYTES]
    line = max(data.rfind(b'\n', 0, strange) + 1, strange - _LINE_BYTES, 0)
    return data[line : line + SAMPLE_BYTES]


def _round_trips(data: bytes, name: str) -> bool:
    try:
        text, mark = decode_text(data, name)
        return encode_text(text, name, mark) == data
    except UnicodeError:
        return False
