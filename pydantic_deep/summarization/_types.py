"""Thresholds of summarization, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, cast


@dataclass(frozen=True)
class Fraction:
    """A fraction of the model's context window. If the window is unknown, the threshold does not apply."""

    value: float
    """The fraction, above 0 and at most 1."""

    def __post_init__(self) -> None:
        """Validate the fraction.

        Raises:
            ValueError: The value is not above 0 and at most 1.
        """
        if not _is_number(self.value) or not 0 < self.value <= 1:
            raise ValueError(f'Fraction({self.value!r}): pass a number above 0 and at most 1, such as 0.8.')


@dataclass(frozen=True)
class Tokens:
    """A number of tokens, as reported by providers or otherwise counted locally."""

    value: int
    """The number of tokens, at least 1."""

    def __post_init__(self) -> None:
        """Validate the number.

        Raises:
            ValueError: The value is not a whole number, or below 1.
        """
        _refuse_no_count(self, self.value)


@dataclass(frozen=True)
class Messages:
    """A number of messages. Requests and responses both count, so a step has two."""

    value: int
    """The number of messages, at least 1."""

    def __post_init__(self) -> None:
        """Validate the number.

        Raises:
            ValueError: The value is not a whole number, or below 1.
        """
        _refuse_no_count(self, self.value)


Trigger: TypeAlias = Fraction | Tokens | Messages
"""The size of a history that triggers a summary."""

Keep: TypeAlias = Tokens | Messages
"""The size of the end of a history that is retained."""


def _refuse_no_count(given: Tokens | Messages, value: int) -> None:
    if not _is_number(value) or not isinstance(cast('object', value), int) or value < 1:
        raise ValueError(f'{type(given).__name__}({value!r}): pass a whole number, at least 1.')


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
