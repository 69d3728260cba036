"""Render a pending call as plain text for a person. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic_deep._checks import check_object
from pydantic_deep._text.escapes import EscapedText
from pydantic_deep._text.line_diff import diff_lines

from ._types import PendingApproval
from ._view import ApprovalView, ArgumentView, FieldView, PreviewView

_GUTTER = '  | '
"""Prefix of each line of text from the model, so that it cannot be mistaken for a label of ours."""


def render_approval(pending: PendingApproval) -> str:
    """Return a pending call as text for a terminal or a log: subagent, tool, arguments and preview.

    The text contains all of `pending.view`: each argument in full and in order, then the preview. Invisible characters
    are escaped.
    """
    check_object('pending', pending, PendingApproval, 'Pass an item of `pending_approvals(output)`.')
    return render_view(pending.view)


def render_view(view: ApprovalView) -> str:
    """Return the view of a pending call as text, as `render_approval` does; a store returns views, and not calls."""
    return '\n'.join(
        [
            *([f'Subagent: {" > ".join(map(_line, view.path))}'] if view.path else []),
            f'Tool: {_line(view.tool)}',
            *(line for argument in view.arguments for line in _argument(argument)),
            *([] if view.preview is None else _preview(view.preview)),
            *([f'Invisible characters, escaped: {view.escapes}'] if view.escapes else []),
        ]
    )


def _argument(argument: ArgumentView) -> Iterator[str]:
    label = f'Argument {_line(argument.name)}' + (' (JSON)' if argument.kind == 'json' else '')
    value = _line(argument.value)
    if '\n' not in value:
        yield f'{label}: {value}'
        return
    yield f'{label}:'
    yield from _lines(value)
    if argument.kind == 'text' and not value.endswith('\n'):
        yield '  (no newline at its end)'


def _preview(preview: PreviewView) -> Iterator[str]:
    if _line(preview.notice):
        yield f'Notice: {_line(preview.notice)}'
    text = _line(preview.text)
    if text or preview.diff is not None:
        yield f'Preview ({preview.kind}):'
    if text:
        yield from _lines(text)
    for number, choice in enumerate(preview.choices, start=1):
        yield f'Choice {number}: {_line(choice)}'
    if _line(preview.link):
        yield f'Link: {_line(preview.link)}'
    for field in preview.fields:
        yield f'Field {_line(field.name)}: {field_text(field)}'
    if preview.diff is not None:
        yield from (f'{_GUTTER}{_line(line)}' for _, line in diff_lines(preview.diff))


def field_text(field: FieldView) -> str:
    """Return the label, the hint and the choices of a field, on one line."""
    label = '' if field.label == field.name else _line(field.label)
    choices = ' | '.join(map(_line, field.choices))
    return '. '.join(filter(None, [label, _line(field.hint), choices]))


def _lines(text: str) -> Iterator[str]:
    yield from (f'{_GUTTER}{line}' for line in text.removesuffix('\n').split('\n'))


def _line(text: EscapedText) -> str:
    return ''.join(text)
