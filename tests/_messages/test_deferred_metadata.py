"""The notice that a call may have run: added to a preview and removed again."""

from __future__ import annotations

import pytest
from pydantic_ai import DeferredToolRequests
from pydantic_ai.messages import ToolCallPart

from pydantic_deep._messages.deferred_metadata import (
    MAY_HAVE_RUN,
    CallRequest,
    Preview,
    add_notice,
    dump,
    parse_request,
    with_notice,
    without_notice,
)
from pydantic_deep._text.line_diff import view_diff


@pytest.mark.parametrize(
    'preview',
    [
        Preview(kind='diff', diff=view_diff('/a.txt', 'a', 'b'), files={'/a.txt': None}, binds=True),
        Preview(kind='command', text='make test'),
        Preview(kind='diff', text='', files={'/a.txt': None}),
    ],
)
def test_removing_the_notice_restores_the_preview(preview: Preview) -> None:
    noticed = with_notice(preview)
    assert noticed.notice == MAY_HAVE_RUN
    assert str(noticed).startswith(MAY_HAVE_RUN)
    assert without_notice(noticed) == preview
    assert without_notice(preview) == preview


def test_notice_without_a_preview_is_removed_to_none() -> None:
    assert without_notice(with_notice(None)) is None


def test_notice_is_added_to_own_calls_only() -> None:
    requests = DeferredToolRequests(
        approvals=[ToolCallPart('theirs', {}, tool_call_id='a'), ToolCallPart('ours', {}, tool_call_id='b')],
        metadata={'a': {'theirs': 1}, 'b': dump(CallRequest())},
    )
    add_notice(requests, 'Look first.')
    assert requests.metadata['a'] == {'theirs': 1}
    request = parse_request(requests.metadata['b'])
    assert isinstance(request, CallRequest)
    assert request.preview is not None
    assert request.preview.notice == 'Look first.'
