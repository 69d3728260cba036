"""The notice that a call may have run: put before a preview once, and taken away again."""

from __future__ import annotations

import pytest

from pydantic_deep._line_diff import view_diff
from pydantic_deep._pending import MAY_HAVE_RUN, Preview, with_notice, without_notice


@pytest.mark.parametrize(
    'preview',
    [
        Preview(kind='diff', diff=view_diff('/a.txt', 'a', 'b'), files={'/a.txt': None}, binds=True),
        Preview(kind='command', text='make test'),
        Preview(kind='diff', text='', files={'/a.txt': None}),
    ],
)
def test_a_preview_without_its_notice_is_what_it_was(preview: Preview) -> None:
    noticed = with_notice(preview)
    assert noticed.notice == MAY_HAVE_RUN
    assert str(noticed).startswith(MAY_HAVE_RUN)
    assert without_notice(noticed) == preview
    assert without_notice(preview) == preview


def test_a_notice_alone_is_no_preview() -> None:
    assert without_notice(with_notice(None)) is None
