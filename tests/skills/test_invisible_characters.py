"""Characters that are invisible to people but visible to models."""

from __future__ import annotations

import pytest

from pydantic_deep.skills._invisible_characters import find_invisible, strip_invisible


@pytest.mark.parametrize('hidden', ['\u200b', '\u202e', '\u2066', '\U000e0041', '\ufeff', '\x1b', '\xad', '\ud800'])
def test_invisible_characters_are_found_and_removed(hidden: str) -> None:
    assert find_invisible(f'ab{hidden}c') == 2
    assert strip_invisible(f'ab{hidden}c') == 'abc'


def test_visible_characters_are_preserved() -> None:
    seen = 'tab\tline\r\n größe 日本 ✔️ e\u0301 \u3000'
    assert find_invisible(seen) is None
    assert strip_invisible(seen) == seen


def test_consecutive_variation_selectors_are_removed() -> None:
    assert strip_invisible('✔\ufe0f\ufe00\ufe01') == '✔\ufe0f'
