"""When a history is summarized, and how much of it stays: plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, cast


@dataclass(frozen=True)
class Fraction:
    """A share of the model's context window. Where the window is not known, it says nothing."""

    value: float
    """Above 0, up to 1."""

    def __post_init__(self) -> None:
        """Refuse what is no share.

        Raises:
            ValueError: It is not above 0 and up to 1.
        """
        if not _is_number(self.value) or not 0 < self.value <= 1:
            raise ValueError(f'Fraction({self.value!r}): pass a number above 0, up to 1, such as 0.8.')


@dataclass(frozen=True)
class Tokens:
    """A number of tokens, as providers tell them, else as they are counted."""

    value: int
    """At least 1."""

    def __post_init__(self) -> None:
        """Refuse what is no number of tokens.

        Raises:
            ValueError: It is no whole number, or below 1.
        """
        _refuse_no_count(self, self.value)


@dataclass(frozen=True)
class Messages:
    """A number of messages: requests and responses together, so a step has two."""

    value: int
    """At least 1."""

    def __post_init__(self) -> None:
        """Refuse what is no number of messages.

        Raises:
            ValueError: It is no whole number, or below 1.
        """
        _refuse_no_count(self, self.value)


Trigger: TypeAlias = Fraction | Tokens | Messages
"""How large a history may be."""

Keep: TypeAlias = Tokens | Messages
"""How much of the end of a history stays as it is."""


def _refuse_no_count(given: Tokens | Messages, value: int) -> None:
    if not _is_number(value) or not isinstance(cast('object', value), int) or value < 1:
        raise ValueError(f'{type(given).__name__}({value!r}): pass a whole number, at least 1.')


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
