"""Packed ids and digests: the shortest bytes from which the original text can be restored."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from pydantic_deep.errors import ValidationError

_UUID: Final = re.compile('[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}')
_SHA256: Final = re.compile('sha256:[0-9a-f]{64}')
_TEXT: Final = b'\0'
"""Prefix of ids and digests in other formats than UUID and SHA-256."""

_SHA256_BYTE: Final = b'\1'
"""Prefix of the 32 bytes of a SHA-256."""

MIN_PREFIX: Final = 8
"""Minimum length of an id's prefix: 8 digits of a UUIDv7 cover about a minute."""

_DASHES: Final = (8, 13, 18, 23)


@lru_cache(maxsize=4096)
def pack_id(id: str) -> bytes:
    """Return a UUID in its usual form as 16 bytes, and any other text as a zero byte and UTF-8.

    Text that would also take 16 bytes gets a trailing zero byte. `id` must not contain NUL.
    """
    if _UUID.fullmatch(id):
        return bytes.fromhex(id.replace('-', ''))
    check_text(id)
    packed = _TEXT + id.encode()
    return packed + _TEXT if len(packed) == 16 else packed


@lru_cache(maxsize=4096)
def unpack_id(packed: bytes) -> str:
    """Return the id that `pack_id` packed."""
    if len(packed) != 16:
        return packed.strip(_TEXT).decode()
    digits = packed.hex()
    return f'{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}'


def prefix_range(prefix: str) -> tuple[bytes, bytes] | None:
    """Return the first and last packed UUID with this prefix; `None` if there can be none."""
    prefix = prefix.lower()
    digits = prefix.replace('-', '')
    well_placed = all(index in _DASHES for index, char in enumerate(prefix) if char == '-')
    if not MIN_PREFIX <= len(digits) <= 32 or not well_placed or not re.fullmatch('[0-9a-f]+', digits):
        return None
    return bytes.fromhex(digits.ljust(32, '0')), bytes.fromhex(digits.ljust(32, 'f'))


def pack_digest(digest: str) -> bytes:
    """Return a SHA-256, as written by `digest_of`, as 33 bytes, and any other text as a zero byte and UTF-8."""
    if _SHA256.fullmatch(digest):
        return _SHA256_BYTE + bytes.fromhex(digest[7:])
    check_text(digest)
    return _TEXT + digest.encode()


def unpack_digest(packed: bytes) -> str:
    """Return the digest that `pack_digest` packed."""
    return f'sha256:{packed[1:].hex()}' if packed[:1] == _SHA256_BYTE else packed[1:].decode()


def check_text(text: str) -> None:
    """Raise `ValidationError` for text that not every database can store."""
    if '\0' in text:
        raise ValidationError(
            'text', f'text with NUL cannot be stored: {text[:80]!r}. Remove the character, or escape it.'
        )
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            around = text[max(0, error.start - 20) : error.end + 20]
            raise ValidationError(
                'text',
                f'a lone surrogate (half a character) cannot be stored, as in {around!r}. '
                'Decode the text again with errors="replace".',
            ) from None
