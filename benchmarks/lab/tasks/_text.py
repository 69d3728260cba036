"""Long texts that are the same in each run. Pure."""

from __future__ import annotations

import random

SUBJECTS = (
    'The board',
    'A visitor',
    'The supplier',
    'Our team',
    'The committee',
    'A neighbour',
    'The office',
    'Nobody',
)
VERBS = ('discussed', 'praised', 'postponed', 'compared', 'described', 'measured', 'mentioned', 'forgot')
OBJECTS = ('the new windows', 'last year', 'a long report', 'the weather', 'three offers', 'the old bridge', 'a map')


def sentences(count: int, seed: int) -> list[str]:
    """Return sentences without numbers or decisions, for a text in which one sentence matters."""
    choice = random.Random(seed).choice
    return [f'{choice(SUBJECTS)} {choice(VERBS)} {choice(OBJECTS)}.' for _ in range(count)]


def hide(sentence: str, count: int, seed: int) -> str:
    """Return a text of paragraphs with a sentence in its middle."""
    texts = sentences(count, seed)
    texts.insert(count // 2, sentence)
    return '\n\n'.join(' '.join(texts[start : start + 6]) for start in range(0, len(texts), 6)) + '\n'
