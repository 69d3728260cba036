"""The representation of a pending call that every user interface renders."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydantic_deep._messages.deferred_metadata import DECISIONS
from pydantic_deep.approvals import ApprovalView, PendingApproval, Preview, view_diff

PENDING = PendingApproval(
    id='t/c',
    path=('worker',),
    tool='write_file',
    arguments={'path': 'a.py', 'content': 'one\ntwo\nthree\n'},
    tool_call_id='c',
    preview=Preview(kind='diff', notice='Look.', text='New file.', diff=view_diff('/a.py', None, 'one\ntwo\nthree\n')),
    decisions=DECISIONS,
)


def text(pieces: tuple[str, ...]) -> str:
    return ''.join(pieces)


def arguments(view: ApprovalView) -> dict[str, tuple[str, str, bool]]:
    return {text(each.name): (each.kind, text(each.value), each.in_preview) for each in view.arguments}


@pytest.mark.parametrize(
    'changes',
    [
        {'id': 't/d'},
        {'path': ('other',)},
        {'path': ()},
        {'tool': 'edit_file'},
        {'arguments': {'content': 'one\ntwo\nthree\n', 'path': 'a.py'}},
        {'arguments': {'path': 'a.py', 'content': 'one\ntwo\nthree'}},
        {'arguments': {'path': 'a.py'}},
        {'preview': None},
        {'preview': Preview(kind='diff', text='New file.')},
        {'preview': Preview(kind='call', notice='Look.', text='New file.')},
    ],
)
def test_digest_covers_everything_that_is_shown_and_the_id(changes: dict[str, Any]) -> None:
    assert replace(PENDING, **changes).view.digest != PENDING.view.digest


def test_digest_of_an_equal_call_is_equal() -> None:
    view = PENDING.view
    assert replace(PENDING).view == view
    assert ApprovalView.model_validate_json(view.model_dump_json()) == view


def test_argument_that_a_diff_shows_completely_is_marked() -> None:
    shown = arguments(PENDING.view)
    assert shown == {
        'path': ('text', 'a.py', False),
        'content': ('text', 'one\ntwo\nthree\n', True),
    }
    other = replace(PENDING, preview=Preview(kind='diff', diff=view_diff('/a.py', None, 'one\ntwo\n')))
    assert [each.in_preview for each in other.view.arguments] == [False, False]
    short = replace(other, arguments={'content': 'one\ntwo\n'})  # too short to be worth it
    assert [each.in_preview for each in short.view.arguments] == [False]


@given(st.lists(st.text('ab', max_size=2), min_size=3, max_size=8), st.data())
def test_only_consecutive_lines_of_a_diff_count_as_shown(lines: list[str], data: st.DataObject) -> None:
    written = ''.join(f'{line}\n' for line in lines)
    preview = Preview(kind='diff', diff=view_diff('/a', None, written))
    wanted = data.draw(st.lists(st.sampled_from(lines), min_size=3, max_size=5))
    value = ''.join(f'{line}\n' for line in wanted)
    [shown] = replace(PENDING, arguments={'content': value}, preview=preview).view.arguments
    places = range(len(lines) - len(wanted) + 1)
    assert shown.in_preview == any(lines[place : place + len(wanted)] == wanted for place in places)


def test_command_is_shown_by_its_preview() -> None:
    command = replace(
        PENDING, tool='execute', arguments={'command': 'make'}, preview=Preview(kind='command', text='make')
    )
    assert arguments(command.view) == {'command': ('text', 'make', True)}
    assert arguments(replace(command, arguments={'command': 'make x'}).view) == {'command': ('text', 'make x', False)}


def test_other_values_are_json_and_long_ones_are_indented() -> None:
    shown = arguments(replace(PENDING, arguments={'n': 1.0, 'on': True, 'names': ['ä'], 'many': ['x' * 80]}).view)
    assert {name: value for name, (kind, value, _) in shown.items() if kind == 'json'} == {
        'n': '1.0',
        'on': 'true',
        'names': '["ä"]',
        'many': f'[\n  "{"x" * 80}"\n]',
    }


def test_invisible_characters_are_escaped_and_counted_everywhere() -> None:
    hidden = '\u202e'
    view = PendingApproval(
        id='c',
        path=(f'a{hidden}',),
        tool=f'b{hidden}',
        arguments={f'c{hidden}': f'd{hidden}', 'e': [f'f{hidden}']},
        tool_call_id='c',
        preview=Preview(
            kind='diff', notice=f'g{hidden}', text=f'h{hidden}', diff=view_diff('/a', None, f'i{hidden}\n')
        ),
        decisions=DECISIONS,
    ).view
    assert hidden not in view.model_dump_json()
    assert view.escapes == 8
