"""When a history is summarized and what stays: nonsense is refused with what to do."""

from __future__ import annotations

from typing import Any

import pytest

from pydantic_deep.summarization import Fraction, Messages, Summarization, Tokens


@pytest.mark.parametrize('value', [0, -0.1, 1.01, float('nan'), float('inf'), '0.8', True, None])
def test_a_fraction_is_above_0_and_up_to_1(value: Any) -> None:
    with pytest.raises(ValueError, match=r'^Fraction\(.*\): pass a number above 0 and at most 1, such as 0.8\.$'):
        Fraction(value)


@pytest.mark.parametrize('value', [0.001, 0.8, 1])
def test_a_fraction_may_be_all(value: float) -> None:
    assert Fraction(value).value == value


@pytest.mark.parametrize('kind', [Tokens, Messages])
@pytest.mark.parametrize('value', [0, -1, 1.5, '10', None, True])
def test_a_count_is_a_whole_number_from_1(kind: Any, value: Any) -> None:
    with pytest.raises(ValueError, match=rf'^{kind.__name__}\(.*\): pass a whole number, at least 1\.$'):
        kind(value)


@pytest.mark.parametrize(
    'options',
    [
        {'trigger': Tokens(10), 'keep': Tokens(10)},
        {'trigger': [Fraction(0.5), Messages(4)], 'keep': Messages(5)},
    ],
)
def test_as_much_as_a_trigger_allows_cannot_be_kept(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r'^`keep` is .*: `keep` must be less\.$'):
        Summarization(**options)


@pytest.mark.parametrize('seconds', [0, -1, float('nan')])
def test_a_timeout_is_above_0(seconds: float) -> None:
    with pytest.raises(ValueError, match=r'^`timeout_seconds` is .*\. Pass a number above 0\.$'):
        Summarization(timeout_seconds=seconds)


@pytest.mark.parametrize('trigger', [5, '0.8', [100], {'tokens': 5}])
def test_a_trigger_says_what_it_counts(trigger: Any) -> None:
    with pytest.raises(
        TypeError, match=r'^`trigger` is .*\. Pass `Fraction\(0\.8\)`, `Tokens\(20_000\)` or `Messages\(100\)` of'
    ):
        Summarization(trigger=trigger)


@pytest.mark.parametrize('keep', [5, Fraction(0.5), None, [Tokens(5)]])
def test_keep_says_what_it_counts(keep: Any) -> None:
    with pytest.raises(TypeError, match=r'^`keep` is .*\. Pass `Tokens` or `Messages`\.$'):
        Summarization(keep=keep)


def test_what_is_no_summarizer_is_refused() -> None:
    with pytest.raises(TypeError, match=r'^`summarizer` is 5\. Pass a model, its name, '):
        Summarization(summarizer=5)  # pyright: ignore[reportArgumentType]


def test_no_trigger_leaves_overflows() -> None:
    assert Summarization(trigger=()).trigger == ()
