"""Compute the result of a file change, or the error for the model. Used by the tools and their previews.

`_write_plan` deals with bytes and encodings, and `_edit` with text replacement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pydantic_ai.exceptions import ModelRetry, ToolFailed

from pydantic_deep._text.encodings import Text, guess_media_type, parse_text

from ._edit import MAX_LINES_NAMED, AppliedEdit, NoMatchError, SeveralMatchesError, is_same
from ._files import Place
from ._match_failures import explain_no_match
from ._write_plan import ChangedSinceReadError, NotTextError, ReplacementError, Written, plan_edit, plan_write

MAX_TIMEOUT_SECONDS = 3_600.0
"""Maximum timeout that a model can set for a command, in seconds."""


def refuse_command(command: str, timeout_seconds: object) -> None:
    """Raise if a command is invalid for any shell.

    Raises:
        ModelRetry: The timeout is out of range, or the command contains invalid characters.
    """
    if isinstance(timeout_seconds, int | float) and not 0 < timeout_seconds <= MAX_TIMEOUT_SECONDS:
        raise ModelRetry(
            f'timeout_seconds is {timeout_seconds:g}; use more than 0 and at most {MAX_TIMEOUT_SECONDS:g}.'
        )
    if '\0' in command or any('\ud800' <= char <= '\udfff' for char in command):
        raise ModelRetry('command contains a NUL or a lone surrogate. Remove it.')


def decide_write(place: Place, content: str) -> Callable[[bytes | None, str | None], tuple[bytes, Written]]:
    """Return the function that decides a `write_file`, given the current contents and the digest that the run knows."""

    def decide(before: bytes | None, known: str | None) -> tuple[bytes, Written]:
        try:
            written = plan_write(content, before, known)
        except ChangedSinceReadError:
            raise ModelRetry(f'{place.shown} changed since you read it. Read it again, then write.') from None
        except UnicodeEncodeError as error:
            raise ModelRetry(f'content has a lone surrogate at {error.start}. Nothing was written.') from None
        except ReplacementError:
            raise ModelRetry(_replacement(place, 'content')) from None
        return written.data, written

    return decide


def decide_edit(old: str, new: str, *, replace_all: bool) -> Callable[[Place, bytes], tuple[bytes, AppliedEdit]]:
    """Return the function that decides an `edit_file`, given the file and its current contents.

    Raises:
        ModelRetry: The arguments cannot change any file.
    """
    if not old:
        raise ModelRetry(
            'old_string is empty. Copy text from the file, and repeat it in new_string to add to it. For an empty file, use write_file.'
        )
    if is_same(old, new):
        raise ModelRetry('old_string and new_string are the same, so nothing would change.')

    def decide(place: Place, before: bytes) -> tuple[bytes, AppliedEdit]:
        try:
            return plan_edit(before, old, new, replace_all=replace_all)
        except NotTextError:
            raise ToolFailed(f'{place.shown} is not text: {kind_of(place, before)}. Nothing was changed.') from None
        except NoMatchError:
            raise ModelRetry(f'old_string is not in {place.shown}. {_explain(before, old, new)}') from None
        except SeveralMatchesError as error:
            raise ModelRetry(_several(place, error)) from None
        except ReplacementError:
            raise ModelRetry(_replacement(place, 'new_string')) from None
        except UnicodeEncodeError as error:
            lacking = error.object[error.start : error.start + 1]
            raise ModelRetry(
                f'{place.shown} is {_text_of(before).encoding}, which has no {lacking!r}. Nothing was changed. '
                'Use other characters, or replace the whole file with write_file, which then makes it UTF-8.'
            ) from None

    return decide


def kind_of(place: Place, data: bytes) -> str:
    """Return the media type of bytes that are not text, ignoring a text-like file name."""
    media_type = guess_media_type(place.path, data, None)
    is_text = media_type.startswith('text/')
    return 'binary data' if is_text or media_type == 'application/octet-stream' else media_type


def at_lines(numbers: Sequence[int], count: int) -> str:
    """Return line numbers as text for the model."""
    shown = ', '.join(f'{number}' for number in numbers)
    return f'at line{"s" if len(numbers) > 1 else ""} {shown}{", …" if count > MAX_LINES_NAMED else ""}'


def _text_of(data: bytes) -> Text:
    """Return the decoded text of bytes that are known to be text."""
    text = parse_text(data)
    assert text is not None  # noqa: S101 - the edit would have failed otherwise
    return text


def _replacement(place: Place, argument: str) -> str:
    return (
        f'{argument} has \ufffd, which in {place.shown} stands for broken bytes. Nothing was changed. '
        'Edit the text around them with edit_file.'
    )


def _explain(before: bytes, old: str, new: str) -> str:
    text = _text_of(before)
    if text.broken and '\ufffd' in old:
        return 'Each \ufffd is a broken byte, which cannot be matched. Edit the text around it.'
    return explain_no_match(text.shown, old, new)


def _several(place: Place, error: SeveralMatchesError) -> str:
    return (
        f'old_string is in {place.shown} {error.count:,} times, {at_lines(error.line_numbers, error.count)}. '
        'Add lines around it until it occurs once, or set replace_all.'
    )
