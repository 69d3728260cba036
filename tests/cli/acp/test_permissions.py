"""Permission requests for calls that scripted turns do not make."""

from __future__ import annotations

from typing import Any

import pytest

from pydantic_deep._text.line_diff import view_diff
from pydantic_deep.approvals import PendingApproval, Preview
from pydantic_deep.cli.acp._permissions import permission_request
from pydantic_deep.cli.acp._updates import Places


def request_for(tool: str, arguments: dict[str, Any], preview: Preview | None) -> Any:
    call = PendingApproval(
        id='1',
        path=(),
        tool=tool,
        arguments=arguments,
        tool_call_id='1',
        preview=preview,
        decisions=('approve', 'edit', 'deny'),
    )
    return permission_request(call, Places(directory='/home/ada/poems'))


def test_a_command_is_shown_as_it_is() -> None:
    """A command line is not rendered as Markdown, and `always` is limited to it."""
    command = 'echo **x** ```'
    request = request_for('execute', {'command': command}, Preview(kind='command', text=command))
    assert request.tool_call.content[0].content.text == '````\n│ $ echo **x** ```\n````'
    assert request.options[1].name == 'Always allow this very command in this session'


def test_a_new_file_has_no_old_text() -> None:
    """The diff of a new file has no old text, and an unfinished last line stays unfinished."""
    preview = Preview(kind='diff', diff=view_diff('/a', None, 'a\nb'))
    [edit, _] = request_for('write_file', {'path': '/a', 'content': 'a\nb'}, preview).tool_call.content
    assert (edit.path, edit.old_text, edit.new_text) == ('/home/ada/poems/a', None, 'a\nb')


@pytest.mark.slow
def test_a_diff_that_is_too_long_is_shown_as_arguments() -> None:
    """If the view of a call has no lines of its diff, the complete argument is shown instead."""
    text = 'line\n' * 100_000
    preview = Preview(kind='diff', diff=view_diff('/a', None, text))
    [content] = request_for('write_file', {'path': '/a', 'content': text}, preview).tool_call.content
    assert content.content.text.count('line\n') >= 100_000


def test_a_call_with_a_notice_is_allowed_once_only() -> None:
    """Each call that changes a protected file needs a decision of its own."""
    preview = Preview(kind='command', text='ls', notice='This call may change a protected file.')
    options = request_for('execute', {'command': 'ls'}, preview).options
    assert [option.kind for option in options] == ['allow_once', 'reject_once']
