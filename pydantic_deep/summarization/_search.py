"""Where words stand in messages: what `search_history` answers. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from math import log
from typing import NamedTuple

from pydantic_ai.messages import ModelMessage

from ._text import lines_of

TOOL_NAME = 'search_history'
"""The tool that searches."""

PIECE_CHARS = 600
"""The longest piece of a message that is shown at once: some paragraphs."""

MAX_PIECES = 8
"""How many pieces an answer has at most: with their length some 1,200 tokens."""

_OWN = (f'call {TOOL_NAME}: ', f'result of {TOOL_NAME}: ')

_WORD = re.compile(r'\w+')

MIN_PART_CHARS = 4
"""How long a word must be to be found within longer ones: shorter ones are everywhere."""

_PART_WEIGHT = 0.3
"""What a word counts that is only part of another."""


class Piece(NamedTuple):
    """A piece of a message."""

    number: int
    """The place of the message in the conversation, from 1."""
    text: str


def search(messages: Sequence[ModelMessage], query: str) -> str:
    """Return the pieces that match a query best, newest first among equals, or that there are none.

    A word counts the more, the fewer pieces it stands in: those of a question that are everywhere find nothing.
    """
    words = set(_WORD.findall(query.casefold()))
    if not words:
        return 'The query has no words. Search for words that were used.'
    matches = [(piece, found) for piece in pieces_of(messages) if (found := words_in(piece.text, words))]
    if not matches:
        return f'None of these words is in the {len(messages)} earlier messages. Try others.'
    count_by_word = Counter(word for _, found in matches for word in found)
    weight_by_word = {word: log((len(matches) + 1) / count) for word, count in count_by_word.items()}
    ranked = [(sum(weight_by_word[word] * found[word] for word in sorted(found)), piece) for piece, found in matches]
    ranked.sort(key=lambda each: (each[0], each[1].number), reverse=True)
    shown = [f'[message {piece.number}] {piece.text}' for _, piece in ranked[:MAX_PIECES]]
    rest = len(ranked) - len(shown)
    notice = [f'[{rest} more match less well or are older: search for more words]'] if rest else []
    return '\n'.join([*shown, *notice])


def words_in(text: str, words: set[str]) -> dict[str, float]:
    """Return those of the words that stand in a text, and how well: 1 as words of their own, less within longer ones."""
    folded = text.casefold()
    own = set(_WORD.findall(folded))
    within = {word for word in words - own if len(word) >= MIN_PART_CHARS and word in folded}
    return {**dict.fromkeys(words & own, 1.0), **dict.fromkeys(within, _PART_WEIGHT)}


def pieces_of(messages: Sequence[ModelMessage]) -> Iterator[Piece]:
    """Yield what messages say, in pieces that overlap by a fifth so that nothing is cut apart in all of them.

    What earlier searches were and found is left out: it stands elsewhere.
    """
    step = PIECE_CHARS * 4 // 5
    for number, message in enumerate(messages, start=1):
        for line in lines_of(message):
            if line.startswith(_OWN):
                continue
            for start in range(0, max(len(line) - PIECE_CHARS // 5, 1), step):
                yield Piece(number, line[start : start + PIECE_CHARS])
