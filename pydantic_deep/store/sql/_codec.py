"""Encoding of content in the database: one byte for the encoding, then the content in the shortest of three encodings, or
the name of a blob that has it.

```
0  raw
1  zlib (RFC 1950)
2  zlib with the preset dictionary DICTIONARY_V1, for short JSON of messages
3  outside: the name of a blob with the content, in UTF-8 (only `asset`)
```
Released dictionaries never change: data compressed with one can only be read with it.
"""

from __future__ import annotations

import zlib
from typing import Final

from pydantic_deep.store.errors import StoreCorruptedError

_RAW: Final = 0
_ZLIB: Final = 1
_ZLIB_V1: Final = 2

OUTSIDE: Final = b'\3'
"""First byte of an asset with its content in a blob."""

_SAMPLE_BYTES: Final = 65_536
"""Size of the sample of large content: the rest is compressed only if the sample compresses well. Media never is."""

_DICTIONARY_LIMIT: Final = 65_536
"""Maximum size of content that is tried with the dictionary: it would save at most a thousandth of larger content."""

_SMALLEST: Final = 128
"""Minimum size of content that is compressed: a page of versions has hundreds of shorter values, and decompressing them
would take half its time.
"""

DICTIONARY_V1: Final = (
    b'{"type":"object","properties":{"path":{"type":"string","description":"required":["path"]'
    b'{"path":"/","content":"# old_string":"","new_string":"","replace_all":false,"pattern":"**/*.py","offset":0,"limit":'
    b'[{"content":"","status":"pending"},{"content":"","status":"in_progress"},{"content":"","status":"completed"}]'
    b'https://http://import def return class self None True False\\n\\n    "error":"message":"name":"value":"id":"'
    b' the and of to in is that for with was on as are be this file has have it from you by '
    b'{"input_tokens":0,"output_tokens":0,"cache_read_tokens":0,"requests":1,"tool_calls":0,"details":{}}'
    b'{"content":"","tool_name":"","tool_call_id":"pyd_ai_","timestamp":"2026-","part_kind":"retry-prompt"}'
    b'{"parts":[{"content":"","timestamp":"2026-","dynamic_ref":null,"scope":"conversation","metadata":null,'
    b'"part_kind":"system-prompt"},{"content":"'
    b'","id":null,"signature":null,"provider_name":null,"provider_details":null,"part_kind":"thinking"},'
    b'{"tool_name":"write_file","args":"{\\"path\\":\\"/","tool_call_id":"call_","tool_kind":null,"id":null,'
    b'"provider_name":null,"provider_details":null,"part_kind":"tool-call"}],'
    b'{"parts":[{"tool_name":"read_file","content":"","tool_call_id":"toolu_","tool_kind":null,"metadata":null,'
    b'"timestamp":"2026-11-22T00:00:00.000000Z","outcome":"success","retry":null,"part_kind":"tool-return"}],'
    b'"timestamp":"2026-01-01T00:00:00.000000Z","part_kind":"user-prompt"}],"timestamp":"2026-01-01T00:00:00.000000Z",'
    b'"instructions":null,"kind":"request","run_id":"0","conversation_id":"0","metadata":null,"state":"complete"}'
    b'{"parts":[{"content":"","id":null,"provider_name":null,"provider_details":null,"citations":null,'
    b'"part_kind":"text"}],"usage":{"input_tokens":0,"cache_write_tokens":0,"cache_write_1h_tokens":0,'
    b'"cache_read_tokens":0,"output_tokens":0,"output_reasoning_tokens":0,"input_audio_tokens":0,'
    b'"cache_audio_read_tokens":0,"output_audio_tokens":0,"audio_seconds":0.0,"details":{},"cost":null},'
    b'"model_name":"claude-opus-5-5","timestamp":"2026-01-01T00:00:00.000000Z","kind":"response",'
    b'"provider_name":"anthropic","provider_url":null,"provider_details":null,"provider_response_id":null,'
    b'"finish_reason":"stop","run_id":"0","conversation_id":"0","metadata":null,"workspace_ref":null,'
    b'"history_digest":null,"failed_attempts":null,"state":"complete"}'
)
"""Frequent parts of the JSON of pydantic-ai's messages. The most frequent are last, where references to them are
shortest.
"""


_SMALL_BYTES: Final = 4_096
"""Maximum size of content that is compressed with a window of 8 KiB, which holds it and the dictionary. The state of a
compressor with zlib's default of 32 KiB is 268 KB, and creating it takes as long as compressing a message.
"""

_SMALL: Final = zlib.compressobj(wbits=13, memLevel=6)
_SMALL_V1: Final = zlib.compressobj(wbits=13, memLevel=6, zdict=DICTIONARY_V1)
"""Prototypes of compressors, to be copied."""


def encode(data: bytes, *, is_json_like: bool = True) -> bytes:
    """Return `data` with its encoding byte.

    Args:
        data: The content.
        is_json_like: Whether the content may resemble the dictionary.
    """
    best = bytes([_RAW]) + data
    if len(data) < _SMALLEST or not _is_compressible(data):
        return best
    is_small = len(data) <= _SMALL_BYTES
    if is_json_like and len(data) <= _DICTIONARY_LIMIT:
        packer = _SMALL_V1.copy() if is_small else zlib.compressobj(zdict=DICTIONARY_V1)
        best = min(best, bytes([_ZLIB_V1]) + packer.compress(data) + packer.flush(), key=len)
    if not is_json_like or len(data) > len(DICTIONARY_V1):
        packer = _SMALL.copy() if is_small else zlib.compressobj()
        best = min(best, bytes([_ZLIB]) + packer.compress(data) + packer.flush(), key=len)
    return best


def decode(stored: bytes) -> bytes:
    """Return the content that `encode` encoded.

    Raises:
        StoreCorruptedError: The bytes are damaged.
    """
    try:
        if stored[0] == _RAW:
            return stored[1:]
        if stored[0] == _ZLIB:
            return zlib.decompress(stored[1:])
        if stored[0] == _ZLIB_V1:
            unpacker = zlib.decompressobj(zdict=DICTIONARY_V1)
            data = unpacker.decompress(stored[1:])
            if unpacker.eof:
                return data
    except (zlib.error, IndexError) as error:
        raise _damaged(stored) from error
    raise _damaged(stored)


def encode_outside(blob: str) -> bytes:
    """Return the name of a blob in place of its content."""
    return OUTSIDE + blob.encode()


def blob_in(stored: bytes) -> str | None:
    """Return the name of the blob that has the content; `None` if the content is here."""
    return stored[1:].decode() if stored[:1] == OUTSIDE else None


def encode_text(text: str) -> bytes:
    """Return JSON text with its encoding byte."""
    return encode(text.encode())


def decode_text(stored: bytes) -> str:
    """Return the text that `encode_text` encoded. Raises `StoreCorruptedError` as `decode` does, and
    `UnicodeDecodeError`.
    """
    return decode(stored).decode()


def _is_compressible(data: bytes) -> bool:
    if len(data) <= 2 * _SAMPLE_BYTES:
        return True
    return len(zlib.compress(data[:_SAMPLE_BYTES], 1)) < _SAMPLE_BYTES * 0.95


def _damaged(stored: bytes) -> StoreCorruptedError:
    problem = f'contents of {len(stored)} bytes that begin with {stored[:8].hex()!r} cannot be decoded'
    return StoreCorruptedError(None, None, problem)
