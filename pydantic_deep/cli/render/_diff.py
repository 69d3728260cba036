"""Diffs as Rich texts. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.text import Text

from pydantic_deep._text.line_diff import diff_lines
from pydantic_deep.approvals import DiffView

from ._terminal_text import rich_text

_STYLES: Mapping[str, str] = {'file': 'bold', 'hunk': 'cyan', 'added': 'green', 'removed': 'red', 'note': 'dim'}
"""Styles by kind of diff line."""


def render_diff(view: DiffView) -> Iterator[Text]:
    """Yield the styled lines of a diff."""
    return (rich_text(text, _STYLES.get(kind, '')) for kind, text in diff_lines(view))
