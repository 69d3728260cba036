"""What a person is shown of a call that waits: one structure, which every face renders as it is.

The page, the terminal and `render_approval` show the same pieces in the same order, and compute nothing about them. All
text in it is escaped already; the digest names all of it, so that an answer can say what it is an answer to.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, JsonValue

from pydantic_deep._messages.deferred_metadata import Preview
from pydantic_deep._text.escapes import EscapedText, count_escapes, escape
from pydantic_deep._text.line_diff import DiffView

REPEATED_LINES = 3
"""From how many lines on an argument counts as shown by a diff that has all of them. Shorter ones are shown twice."""

INLINE_CHARS = 80
"""How long the JSON of an argument may be to stand on one line."""


class _Shape(BaseModel):
    """Built when it is first used: most programs import it and pause never."""

    model_config = ConfigDict(frozen=True, defer_build=True)


class ArgumentView(_Shape):
    """An argument of a call, all of it."""

    name: EscapedText
    """Its name, on one line."""
    kind: Literal['text', 'json']
    """Whether the value is a text, shown as it is, or anything else, shown as JSON."""
    value: EscapedText
    r"""The value. Line ends (`\n`) and tabs of a text are not escaped."""
    in_preview: bool = False
    """Whether the preview shows all of it, so that a reader needs it only once."""


class PreviewView(_Shape):
    """What a call would do."""

    kind: Literal['diff', 'command', 'call']
    """What a file would become, a command line, or nothing more than the arguments."""
    notice: EscapedText = ('',)
    """What the reader must know first, such as that the call may have run already."""
    text: EscapedText = ('',)
    """The command, or sentences about what the call would do; empty if there is nothing to say."""
    diff: DiffView | None = None
    """What would change in a file."""


class ApprovalView(_Shape):
    """What a person is shown of a call that waits.

    Show all of it, in this order, and nothing else: what is on the screen is then what `digest` names. An `EscapedText`
    is a list of pieces, of which those at odd places are escapes: joined, they are the text.
    """

    path: tuple[EscapedText, ...]
    """The names of the subagents that lead to the call; empty for a call of the agent itself."""
    tool: EscapedText
    """The name of the tool."""
    arguments: tuple[ArgumentView, ...]
    """All arguments, in the order of the model."""
    preview: PreviewView | None
    """What the call would do, if a room could tell."""
    escapes: int
    """How many characters are written out because they cannot be seen: more than a few deserve a question."""
    digest: str
    """The SHA-256 of all that is shown, and of the id of the call: an answer that carries it is for this call as it
    was shown, and for no other."""


def view_approval(
    *, id: str, path: Sequence[str], tool: str, arguments: Mapping[str, Any], preview: Preview | None
) -> ApprovalView:
    """Return what a person is shown of a call.

    Args:
        id: The `id` of the `PendingApproval`.
        path: The names of the subagents that lead to the call.
        tool: The name of the tool.
        arguments: All arguments, in the order in which they are shown.
        preview: What the call would do.
    """
    shown = None if preview is None else _preview(preview)
    # What JSON cannot hold is shown by its `repr`, here as in a store that keeps the call.
    values: dict[str, JsonValue] = json.loads(json.dumps(dict(arguments), default=repr))
    views = [_argument(name, value, preview) for name, value in values.items()]
    texts = [
        *(escape(name, one_line=True) for name in (*path, tool)),
        *(text for each in views for text in (each.name, each.value)),
    ]
    escapes = sum(map(count_escapes, texts))
    if shown is not None:
        escapes += (
            count_escapes(shown.notice) + count_escapes(shown.text) + (0 if shown.diff is None else shown.diff.escapes)
        )
    view = ApprovalView(
        path=tuple(escape(name, one_line=True) for name in path),
        tool=escape(tool, one_line=True),
        arguments=tuple(views),
        preview=shown,
        escapes=escapes,
        digest='',
    )
    canonical = f'{json.dumps(id)}\n{view.model_dump_json()}'
    return view.model_copy(update={'digest': hashlib.sha256(canonical.encode()).hexdigest()})


def _argument(name: str, value: JsonValue, preview: Preview | None) -> ArgumentView:
    is_text = isinstance(value, str)
    return ArgumentView(
        name=escape(name, one_line=True),
        kind='text' if is_text else 'json',
        value=escape(value if is_text else _json(value)),
        in_preview=is_text and preview is not None and _is_in(preview, value),
    )


def _json(value: JsonValue) -> str:
    line = json.dumps(value, ensure_ascii=False)
    return line if len(line) <= INLINE_CHARS else json.dumps(value, ensure_ascii=False, indent=2)


def _preview(preview: Preview) -> PreviewView:
    notice, text = escape(preview.notice), escape(preview.text)
    return PreviewView(kind=preview.kind, notice=notice, text=text, diff=preview.diff)


def _is_in(preview: Preview, value: str) -> bool:
    """Return whether a preview shows all of an argument."""
    if preview.kind == 'command':
        return value == preview.text
    if preview.diff is None or value.removesuffix('\n').count('\n') < REPEATED_LINES - 1:
        return False
    wanted = _joined(escape(line) for line in value.removesuffix('\n').split('\n'))
    return any(wanted in side for side in _sides(preview.diff))


def _sides(diff: DiffView) -> Iterator[str]:
    """Yield the lines before and after, as far as a diff has them, with a gap after each hunk."""
    for kind in ('removed', 'added'):
        yield _GAP.join(_joined(line.text for line in hunk.lines if line.kind in ('same', kind)) for hunk in diff.hunks)


_GAP = '\0\0'
"""What no escaped text has."""


def _joined(lines: Iterable[EscapedText]) -> str:
    """Return lines as a text that has the joined text of other lines only where it has these lines."""
    return ''.join(['\n', *('\0'.join(line) + '\n' for line in lines)])
