"""Search for words in messages, for the tool `search_history`. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from math import log
from typing import NamedTuple

from pydantic_ai.messages import ModelMessage

from ._text import lines_of

TOOL_NAME = 'search_history'
"""The name of the search tool."""

PIECE_CHARS = 600
"""Maximum length of a result, in characters."""

MAX_PIECES = 8
"""Maximum number of results, about 1,200 tokens in total."""

_OWN = (f'call {TOOL_NAME}: ', f'result of {TOOL_NAME}: ')

_WORD = re.compile(r'\w+')

MIN_PART_CHARS = 4
"""Minimum length of a word that also matches within longer words. Shorter ones would match everywhere."""

_PART_WEIGHT = 0.3
"""The weight of a match within a longer word."""


class Piece(NamedTuple):
    """A section of a message."""

    number: int
    """The number of the message in the conversation, from 1."""
    text: str


def search(messages: Sequence[ModelMessage], query: str) -> str:
    """Return the sections that match a query best, newer ones first if equal, or a message that there are none.

    Words that occur in fewer sections have more weight, so that common words of a question do not matter.
    """
    words = set(_WORD.findall(query.casefold()))
    if not words:
        return 'The query has no words. Search for words that were used.'
    matches = [(piece, weights) for piece in pieces_of(messages) if (weights := words_in(piece.text, words))]
    if not matches:
        return f'None of these words is in the {len(messages)} earlier messages. Try others.'
    count_by_word = Counter(word for _, weights in matches for word in weights)
    weight_by_word = {word: log((len(matches) + 1) / count) for word, count in count_by_word.items()}
    ranked = [
        (sum(weight_by_word[word] * weights[word] for word in sorted(weights)), piece) for piece, weights in matches
    ]
    ranked.sort(key=lambda item: (item[0], item[1].number), reverse=True)
    shown = [f'[message {piece.number}] {piece.text}' for _, piece in ranked[:MAX_PIECES]]
    rest = len(ranked) - len(shown)
    notice = [f'[{rest} more match less well or are older: search for more words]'] if rest else []
    return '\n'.join([*shown, *notice])


def words_in(text: str, words: set[str]) -> dict[str, float]:
    """Return the words that occur in a text with their weight: 1 for whole words, less within longer words."""
    folded = text.casefold()
    own = set(_WORD.findall(folded))
    within = {word for word in words - own if len(word) >= MIN_PART_CHARS and word in folded}
    return {**dict.fromkeys(words & own, 1.0), **dict.fromkeys(within, _PART_WEIGHT)}


def pieces_of(messages: Sequence[ModelMessage]) -> Iterator[Piece]:
    """Yield the text of messages in sections that overlap by a fifth, so that a phrase is complete in one of them.

    Earlier searches and their results are skipped, as they repeat other messages.
    """
    step = PIECE_CHARS * 4 // 5
    for number, message in enumerate(messages, start=1):
        for line in lines_of(message):
            if line.startswith(_OWN):
                continue
            for start in range(0, max(len(line) - PIECE_CHARS // 5, 1), step):
                yield Piece(number, line[start : start + PIECE_CHARS])
