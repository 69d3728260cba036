"""How a pending call reads for a person, as plain text. Pure."""

from __future__ import annotations

import json

from pydantic_deep_backends.paths import display_path

from ._types import PendingApproval

_GUTTER = '  | '
"""Begins each line of a preview, so that no line of it passes for one of ours."""


def render_approval(pending: PendingApproval) -> str:
    """Return who wants to call what with which arguments, and what that would do, for a terminal or a log.

    Arguments are shown whole, as JSON. Control, bidirectional and zero-width characters are written as escapes;
    only line ends and tabs of a preview stay.
    """
    lines = [f'Subagent: {_line(" > ".join(pending.path))}'] if pending.path else []
    lines.append(f'Tool: {_line(pending.tool)}')
    arguments = json.dumps(dict(pending.arguments), ensure_ascii=False, indent=2, default=repr)
    lines.append(f'Arguments: {_block(arguments)}')
    if pending.preview is not None and pending.preview.text:
        lines.append(f'Preview ({pending.preview.kind}):')
        lines += [f'{_GUTTER}{_block(line)}' for line in pending.preview.text.removesuffix('\n').split('\n')]
    return '\n'.join(lines)


def _line(text: str) -> str:
    return display_path(text)


def _block(text: str) -> str:
    """Return text with all that is invisible written out, but for line ends and tabs."""
    return '\n'.join('\t'.join(display_path(part) for part in line.split('\t')) for line in text.split('\n'))
