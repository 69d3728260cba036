"""The representation of a pending call that every user interface renders.

The web page, the terminal and `render_approval` show the same elements in the same order, without further computation.
All text is already escaped. The digest covers all of it, so that a decision can name exactly what it applies to.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, JsonValue

from pydantic_deep._messages.deferred_metadata import Preview
from pydantic_deep._messages.form_fields import FieldKind, FormField
from pydantic_deep._text.escapes import EscapedText, count_escapes, escape
from pydantic_deep._text.line_diff import DiffView

REPEATED_LINES = 3
"""Minimum number of lines from which an argument is not repeated if a diff shows all of it."""

INLINE_CHARS = 80
"""Maximum length of JSON on one line, in characters. Longer JSON is indented."""


class _Shape(BaseModel):
    """Base of the models. Their schemas are built on first use, as most programs never pause."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, defer_build=True)


class ArgumentView(_Shape):
    """An argument of a call, in full."""

    name: EscapedText
    """The name, on one line."""
    kind: Literal['text', 'json']
    """`text` for a string, which is shown as it is; `json` for any other value."""
    value: EscapedText
    r"""The value. Newlines (`\n`) and tabs of a string are not escaped."""
    in_preview: bool = False
    """Whether the preview shows the complete value, so that a user interface need not repeat it."""


class FieldView(_Shape):
    """A field of a question."""

    name: EscapedText
    """The name of the value in an answer, on one line. An answer may use it as it is shown."""
    label: EscapedText
    """The label, on one line."""
    hint: EscapedText
    """What an answer may be, such as a number from 1 to 5; empty if there is nothing to say."""
    kind: FieldKind
    """A text, a number, a flag, one of the choices, or several of them."""
    choices: tuple[EscapedText, ...] = ()
    """The choices, each on one line. An answer may use them as they are shown."""
    is_required: bool
    """Whether an answer needs the value."""


class PreviewView(_Shape):
    """The expected effect of a call."""

    kind: Literal['diff', 'command', 'call', 'question']
    """The change of a file, a command line, no more than the arguments, or a question to the person."""
    notice: EscapedText = ('',)
    """A warning to show first, such as that the call may have run already."""
    text: EscapedText = ('',)
    """The command, the question, or a description of the effect; empty if there is none."""
    choices: tuple[EscapedText, ...] = ()
    """Suggested answers to a question, each on one line. Other answers are possible."""
    fields: tuple[FieldView, ...] = ()
    """The fields of a question with a form. The answer is an object with their values, keyed by name."""
    link: EscapedText = ('',)
    """The address that a question asks the person to open, on one line; empty if there is none."""
    diff: DiffView | None = None
    """The change of the file, for a preview of kind `diff`."""


class ApprovalView(_Shape):
    """The representation of a pending call for a person.

    Render all fields in this order and nothing else, so that the screen shows exactly what `digest` covers. An
    `EscapedText` is a list of pieces; those at odd indexes are escapes. Joined, they form the text.
    """

    path: tuple[EscapedText, ...]
    """The names of the subagents that lead to the call; empty for a call of the agent itself."""
    tool: EscapedText
    """The name of the tool that would run."""
    arguments: tuple[ArgumentView, ...]
    """All arguments, in the order in which the model wrote them."""
    preview: PreviewView | None
    """The expected effect of the call; `None` if no capability provides a preview."""
    escapes: int
    """The number of invisible characters that were escaped. More than a few are suspicious."""
    digest: str
    """The SHA-256 of everything shown and of the id of the call. A decision that carries it applies only to this call
    as it was shown.
    """


def view_approval(
    *, id: str, path: Sequence[str], tool: str, arguments: Mapping[str, Any], preview: Preview | None
) -> ApprovalView:
    """Return the representation of a call for a person.

    Args:
        id: The `id` of the `PendingApproval`.
        path: The names of the subagents that lead to the call.
        tool: The name of the tool.
        arguments: All arguments, in the order in which they are shown.
        preview: The expected effect of the call.
    """
    shown = None if preview is None else _preview(preview)
    # Values that JSON cannot represent are shown by their `repr`, as they are in a store.
    values: dict[str, JsonValue] = json.loads(json.dumps(dict(arguments), default=repr))
    views = [_argument(name, value, preview) for name, value in values.items()]
    texts = [
        *(escape(name, one_line=True) for name in (*path, tool)),
        *(text for argument_view in views for text in (argument_view.name, argument_view.value)),
    ]
    escapes = sum(map(count_escapes, texts))
    if shown is not None:
        in_fields = (text for field in shown.fields for text in (field.name, field.label, field.hint, *field.choices))
        escapes += sum(map(count_escapes, (shown.notice, shown.text, *shown.choices, shown.link, *in_fields)))
        escapes += 0 if shown.diff is None else shown.diff.escapes
    view = ApprovalView(
        path=tuple(escape(name, one_line=True) for name in path),
        tool=escape(tool, one_line=True),
        arguments=tuple(views),
        preview=shown,
        escapes=escapes,
        digest='',
    )
    # Without what only some questions have, so that the digests of other calls are those of earlier releases.
    unused = {name for name in ('choices', 'fields') if not getattr(shown, name, ())}
    unused |= {'link'} if shown is None or shown.link == ('',) else set()
    canonical = f'{json.dumps(id)}\n{view.model_dump_json(exclude={"preview": unused})}'
    return view.model_copy(update={'digest': hashlib.sha256(canonical.encode()).hexdigest()})


def _argument(name: str, value: JsonValue, preview: Preview | None) -> ArgumentView:
    is_text = isinstance(value, str)
    return ArgumentView(
        name=escape(name, one_line=True),
        kind='text' if is_text else 'json',
        value=escape(value if is_text else _json(value)),
        in_preview=preview is not None and _is_in(preview, value),
    )


def _json(value: JsonValue) -> str:
    line = json.dumps(value, ensure_ascii=False)
    return line if len(line) <= INLINE_CHARS else json.dumps(value, ensure_ascii=False, indent=2)


def _preview(preview: Preview) -> PreviewView:
    return PreviewView(
        kind=preview.kind,
        notice=escape(preview.notice),
        text=escape(preview.text),
        choices=tuple(escape(choice, one_line=True) for choice in preview.choices),
        fields=tuple(map(_field, preview.fields)),
        link=escape(preview.link, one_line=True),
        diff=preview.diff,
    )


def _field(field: FormField) -> FieldView:
    return FieldView(
        name=escape(field.name, one_line=True),
        label=escape(field.label, one_line=True),
        hint=escape(field.hint, one_line=True),
        kind=field.kind,
        choices=tuple(escape(choice, one_line=True) for choice in field.shown_choices),
        is_required=field.is_required,
    )


def _is_in(preview: Preview, value: JsonValue) -> bool:
    """Return whether a preview shows the complete value of an argument."""
    if preview.kind == 'question':
        return value in (preview.text, [*preview.choices])
    if not isinstance(value, str):
        return False
    if preview.kind == 'command':
        return value == preview.text
    if preview.diff is None or value.removesuffix('\n').count('\n') < REPEATED_LINES - 1:
        return False
    wanted = _joined(escape(line) for line in value.removesuffix('\n').split('\n'))
    return any(wanted in side for side in _sides(preview.diff))


def _sides(diff: DiffView) -> Iterator[str]:
    """Yield the lines before and after the change that a diff contains, with a gap after each hunk."""
    for kind in ('removed', 'added'):
        yield _GAP.join(_joined(line.text for line in hunk.lines if line.kind in ('same', kind)) for hunk in diff.hunks)


_GAP = '\0\0'
"""A separator that no escaped text contains."""


def _joined(lines: Iterable[EscapedText]) -> str:
    """Join lines so that the result contains another joined text only if it contains exactly these lines."""
    return ''.join(['\n', *('\0'.join(line) + '\n' for line in lines)])
