"""Lines shared by two texts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pydantic_deep_backends.lines import shared_lines

LINES = st.lists(st.sampled_from([b'a\n', b'b\n', b'c\n', b'']), max_size=20)


@given(one=LINES, two=LINES)
def test_shared_lines_are_equal_and_in_order(one: list[bytes], two: list[bytes]) -> None:
    done_one = done_two = 0
    for start_one, start_two, count in shared_lines(one, two):
        assert (start_one >= done_one, start_two >= done_two, count > 0) == (True, True, True)
        assert one[start_one : start_one + count] == two[start_two : start_two + count]
        done_one, done_two = start_one + count, start_two + count


def test_equal_texts_share_all_lines() -> None:
    assert sum(count for _, _, count in shared_lines([b'a', b'b', b'a'], [b'a', b'b', b'a'])) == 3
    assert shared_lines([], []) == []
