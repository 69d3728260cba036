"""Result metadata for programs: file changes and exit codes."""

from __future__ import annotations

import pytest
from pydantic_ai.messages import ToolReturnPart

from pydantic_deep._messages import result_metadata
from pydantic_deep._messages.result_metadata import (
    FileChange,
    count_changed_lines,
    exit_code_of,
    file_change_of,
    resolved_path,
    with_file_change,
)


def part_with(metadata: object) -> ToolReturnPart:
    return ToolReturnPart('t', 'x', tool_call_id='c', metadata=metadata)


def test_file_change_is_read_from_result_metadata() -> None:
    result = with_file_change('Done.', '../a', '/a', b'x\ny\n', b'x\nz\nz\n')
    part = part_with(result.metadata)
    assert file_change_of(part) == FileChange(is_new=False, added_lines=2, removed_lines=1)
    assert (resolved_path(part), exit_code_of(part)) == ('/a', None)
    assert file_change_of(part_with(with_file_change('Done.', '/a', '/a', None, b'').metadata)) == FileChange(
        is_new=True, added_lines=0, removed_lines=0
    )


def test_lines_of_large_files_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_metadata, 'MAX_COUNTED_BYTES', 1)
    assert count_changed_lines(b'xy', None) == (None, None)
    part = part_with(with_file_change('Done.', '/a', '/a', b'x', b'xy').metadata)
    assert file_change_of(part) == FileChange(is_new=False, added_lines=None, removed_lines=None)


@pytest.mark.parametrize('metadata', [None, 'text', {'is_new': 'yes', 'exit_code': '0', 'path': 1}])
def test_metadata_of_other_tools_is_ignored(metadata: object) -> None:
    part = part_with(metadata)
    assert (file_change_of(part), exit_code_of(part), resolved_path(part)) == (None, None, None)
