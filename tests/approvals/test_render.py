"""Pending calls rendered as text."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from pydantic_deep._messages.deferred_metadata import DECISIONS
from pydantic_deep.approvals import PendingApproval, Preview, render_approval, view_diff


def pending(
    tool: str = 'write_file',
    arguments: dict[str, Any] | None = None,
    path: tuple[str, ...] = (),
    preview: Preview | None = None,
) -> PendingApproval:
    return PendingApproval(
        id='c',
        path=path,
        tool=tool,
        arguments=arguments or {},
        tool_call_id='c',
        preview=preview,
        decisions=DECISIONS,
    )


def test_approval_is_rendered_with_all_its_parts() -> None:
    shown = pending(
        arguments={'path': 'a.py', 'content': 'x = 1\n' * 3, 'mode': {'deep': [1]}, 'long': ['x' * 80]},
        path=('researcher', 'coder'),
        preview=Preview(
            kind='diff', notice='Look.', text='The encoding changes.', diff=view_diff('/a.py', 'x = 0', '\tx = 1\n')
        ),
    )
    assert render_approval(shown) == snapshot("""\
Subagent: researcher > coder
Tool: write_file
Argument path: a.py
Argument content:
  | x = 1
  | x = 1
  | x = 1
Argument mode (JSON): {"deep": [1]}
Argument long (JSON):
  | [
  |   "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
  | ]
Notice: Look.
Preview (diff):
  | The encoding changes.
  | --- a/a.py
  | +++ b/a.py
  | @@ -1 +1 @@
  | -x = 0
  | \\ No newline at end of file
  | +	x = 1\
""")


def test_text_that_resembles_a_diff_is_rendered_as_text() -> None:
    """File lines that resemble diff headers are kept and do not affect the numbering of others."""
    new = '++ os.system\n-- x\n@@ -1 +1 @@\n\\\\ No newline\n'
    text = render_approval(pending(preview=Preview(kind='diff', diff=view_diff('/a', '-- y\n', new))))
    assert text.split('\n')[2:] == snapshot(
        [
            '  | --- a/a',
            '  | +++ b/a',
            '  | @@ -1 +1,4 @@',
            '  | --- y',
            '  | +++ os.system',
            '  | +-- x',
            '  | +@@ -1 +1 @@',
            '  | +\\\\ No newline',
        ]
    )


def test_preview_without_text_is_omitted() -> None:
    assert render_approval(pending(tool='ls', preview=Preview(kind='call'))) == 'Tool: ls'


def test_arguments_without_json_form_are_rendered_by_repr() -> None:
    assert render_approval(pending(tool='x', arguments={'a': {1}})) == 'Tool: x\nArgument a: {1}'


def test_preview_cannot_forge_a_line_of_the_prompt() -> None:
    text = render_approval(pending(tool='x', preview=Preview(kind='command', text='ls\nTool: harmless\r\x1b[2J')))
    assert text.split('\n')[1:] == [
        'Preview (command):',
        '  | ls',
        '  | Tool: harmless\\r\\x1b[2J',
        'Invisible characters, escaped: 2',
    ]


def test_argument_cannot_forge_a_line_of_the_prompt() -> None:
    text = render_approval(pending(tool='x\nTool: y', arguments={'a\nTool: z': 'b\nTool: harmless'}, path=('c\nd',)))
    assert text.split('\n') == [
        'Subagent: c\\nd',
        'Tool: x\\nTool: y',
        'Argument a\\nTool: z:',
        '  | b',
        '  | Tool: harmless',
        '  (no newline at its end)',
        'Invisible characters, escaped: 3',
    ]


@pytest.mark.parametrize('hidden', ['\u202e', '\u200b', '\x1b', '\x07', '\ufeff', '\u2066', '\x9b', '\u2028', '\ud800'])
def test_invisible_characters_are_escaped(hidden: str) -> None:
    shown = pending(tool=f'a{hidden}', arguments={'k': hidden, hidden: 'v'}, path=(hidden,))
    text = render_approval(shown)
    assert hidden not in text
    assert text.count(f'{ord(hidden):x}') >= 4


@pytest.mark.slow
@given(st.text(max_size=20), st.text(max_size=20), st.text(max_size=20))
def test_output_never_contains_control_or_direction_characters(tool: str, argument: str, text: str) -> None:
    preview = Preview(kind='diff', text=text, notice=text, diff=view_diff(text, tool, argument))
    shown = render_approval(pending(tool, {'x': argument}, (tool,), preview))
    assert {unicodedata.category(char) for char in shown if char not in '\n\t'}.isdisjoint(
        {'Cc', 'Cf', 'Cs', 'Zl', 'Zp', 'Cn', 'Co'}
    )
