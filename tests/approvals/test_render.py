"""How a pending call reads for a person."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from pydantic_deep._pending import DECISIONS, Preview
from pydantic_deep.approvals import PendingApproval, render_approval


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


def test_everything_is_shown() -> None:
    shown = pending(
        arguments={'path': 'a.py', 'content': 'x = 1\n' * 3, 'mode': {'deep': [1]}},
        path=('researcher', 'coder'),
        preview=Preview(kind='diff', text='--- a.py\n+++ a.py\n@@ -1 +1 @@\n-x = 0\n+\tx = 1'),
    )
    assert render_approval(shown) == snapshot("""\
Subagent: researcher > coder
Tool: write_file
Arguments: {
  "path": "a.py",
  "content": "x = 1\\nx = 1\\nx = 1\\n",
  "mode": {
    "deep": [
      1
    ]
  }
}
Preview (diff):
  | --- a.py
  | +++ a.py
  | @@ -1 +1 @@
  | -x = 0
  | +	x = 1\
""")


def test_the_last_line_end_of_a_preview_makes_no_line() -> None:
    assert render_approval(pending(tool='x', preview=Preview(kind='diff', text='+a\n'))).endswith('\n  | +a')


def test_a_preview_without_text_is_left_out() -> None:
    assert render_approval(pending(tool='ls', preview=Preview(kind='call'))) == 'Tool: ls\nArguments: {}'


def test_what_cannot_be_json_is_shown_nevertheless() -> None:
    assert render_approval(pending(tool='x', arguments={'a': {1}})) == 'Tool: x\nArguments: {\n  "a": "{1}"\n}'


def test_a_preview_cannot_forge_a_line_of_ours() -> None:
    text = render_approval(pending(tool='x', preview=Preview(kind='command', text='ls\nTool: harmless\r\x1b[2J')))
    assert text.split('\n')[2:] == ['Preview (command):', '  | ls', '  | Tool: harmless\\r\\x1b[2J']


@pytest.mark.parametrize('hidden', ['\u202e', '\u200b', '\x1b', '\x07', '\ufeff', '\u2066', '\x9b', '\u2028', '\ud800'])
def test_invisible_characters_are_written_out(hidden: str) -> None:
    shown = pending(tool=f'a{hidden}', arguments={'k': hidden, hidden: 'v'}, path=(hidden,))
    text = render_approval(shown)
    assert hidden not in text
    assert text.count(f'{ord(hidden):x}') >= 4


@given(st.text(max_size=20), st.text(max_size=20), st.text(max_size=20))
def test_no_control_or_direction_character_is_ever_sent(tool: str, argument: str, text: str) -> None:
    shown = render_approval(pending(tool, {'x': argument}, (tool,), Preview(kind='diff', text=text)))
    assert {unicodedata.category(char) for char in shown if char not in '\n\t'}.isdisjoint(
        {'Cc', 'Cf', 'Cs', 'Zl', 'Zp'}
    )
