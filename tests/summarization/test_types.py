"""Validation of the options of `Summarization`."""

from __future__ import annotations

from typing import Any

import pytest

from pydantic_deep.summarization import Fraction, Messages, Summarization, Tokens


@pytest.mark.parametrize('value', [0, -0.1, 1.01, float('nan'), float('inf'), '0.8', True, None])
def test_fraction_must_be_above_0_and_at_most_1(value: Any) -> None:
    with pytest.raises(ValueError, match=r'^Fraction\(.*\): pass a number above 0 and at most 1, such as 0.8\.$'):
        Fraction(value)


@pytest.mark.parametrize('value', [0.001, 0.8, 1])
def test_fraction_may_be_1(value: float) -> None:
    assert Fraction(value).value == value


@pytest.mark.parametrize('kind', [Tokens, Messages])
@pytest.mark.parametrize('value', [0, -1, 1.5, '10', None, True])
def test_count_must_be_a_positive_integer(kind: Any, value: Any) -> None:
    with pytest.raises(ValueError, match=rf'^{kind.__name__}\(.*\): pass a whole number, at least 1\.$'):
        kind(value)


@pytest.mark.parametrize(
    'options',
    [
        {'trigger': Tokens(10), 'keep': Tokens(10)},
        {'trigger': [Fraction(0.5), Messages(4)], 'keep': Messages(5)},
    ],
)
def test_keep_must_be_less_than_the_trigger(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r'^`keep` is .*: `keep` must be less\.$'):
        Summarization(**options)


@pytest.mark.parametrize('seconds', [0, -1, float('nan')])
def test_timeout_must_be_positive(seconds: float) -> None:
    with pytest.raises(ValueError, match=r'^`timeout_seconds` is .*\. Pass a number above 0\.$'):
        Summarization(timeout_seconds=seconds)


@pytest.mark.parametrize('trigger', [5, '0.8', [100], {'tokens': 5}])
def test_trigger_must_have_a_unit(trigger: Any) -> None:
    with pytest.raises(
        TypeError, match=r'^`trigger` is .*\. Pass `Fraction\(0\.8\)`, `Tokens\(20_000\)` or `Messages\(100\)` of'
    ):
        Summarization(trigger=trigger)


@pytest.mark.parametrize('keep', [5, Fraction(0.5), None, [Tokens(5)]])
def test_keep_must_have_a_unit(keep: Any) -> None:
    with pytest.raises(TypeError, match=r'^`keep` is .*\. Pass `Tokens` or `Messages`\.$'):
        Summarization(keep=keep)


def test_invalid_summarizer_is_refused() -> None:
    with pytest.raises(TypeError, match=r'^`summarizer` is 5\. Pass a model, its name, '):
        Summarization(summarizer=5)  # pyright: ignore[reportArgumentType]


def test_trigger_may_be_empty() -> None:
    assert Summarization(trigger=()).trigger == ()
