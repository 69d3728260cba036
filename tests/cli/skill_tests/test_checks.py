"""Mechanical checks."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from pydantic_deep.cli.skill_tests._checks import Check


@pytest.mark.parametrize(
    ('check', 'data', 'passes'),
    [
        (Check(file='a.md', exists=True), b'', True),
        (Check(file='a.md', exists=True), None, False),
        (Check(file='a.md', exists=False), None, True),
        (Check(file='a.md', exists=False), b'', False),
        (Check(file='a.md', contains='12'), None, False),
        (Check(contains='12'), b'Sum: 12', True),
        (Check(contains='12'), b'Sum: 13', False),
        (Check(contains='é'), b'\xff \xc3\xa9', True),
        (Check(equals='a\nb'), b'a\nb\n', True),
        (Check(equals='a\nb\n'), b'a\nb', True),
        (Check(equals='a'), b'a\n\n', False),
        (Check(equals='x\r\nSum: 7'), b'x\r\nSum: 7\r\n', True),
        (Check(equals='a\r\n'), b'a', True),
        (Check(equals='a\r\n'), b'a\n', True),
        (Check(equals='a'), b'a\r', False),
        (Check(equals='a'), b'a\r\n\r\n', False),
        (Check(equals='a\nb'), b'a\r\nb', False),
        (Check(matches='^Sum: \\d+$'), b'Hi\nSum: 12\nBye', True),
        (Check(matches='^\\d+$'), b'Sum: 12', False),
    ],
)
def test_check_passes_or_fails(check: Check, data: bytes | None, passes: bool) -> None:
    assert check.passes(data) is passes


def test_expression_is_matched_in_linear_time() -> None:
    assert not Check(matches='^(a+)+$').passes(b'a' * 50_000 + b'!')


@pytest.mark.parametrize(
    ('check', 'shown'),
    [
        (Check(file='./sub//a.md', exists=True), '/sub/a.md exists'),
        (Check(file='/a.md', exists=False), '/a.md does not exist'),
        (Check(contains='a\nb'), "answer contains 'a\\nb'"),
    ],
)
def test_check_is_one_line(check: Check, shown: str) -> None:
    assert str(check) == shown


@pytest.mark.parametrize(
    ('fields', 'problem'),
    [
        ({}, 'it has 0 operations. Use one of exists, contains, equals, matches in each check.'),
        ({'contains': 'a', 'equals': 'b'}, 'it has 2 operations.'),
        ({'exists': True}, '`exists` needs a `file`. Name it.'),
        ({'matches': '('}, 'missing \\)'),
        ({'matches': ''}, 'it is empty'),
        ({'file': '../a', 'exists': True}, "'../a' is not a path: "),
        ({'file': 'a\0', 'exists': True}, 'control character'),
    ],
)
def test_unusable_check_is_refused(fields: dict[str, object], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        Check.model_validate(fields)
