"""What a session costs: every request as it is sent, what of it a provider has in its cache, and what is answered.

A request is a row of segments: the tools, the instructions, then each part of each message. What it has in common with
the beginning of an earlier request, in whole segments, is read from the cache. Standard library only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal['head', 'said', 'calls', 'results', 'summary']
"""What a segment is: tools and instructions, what users and the model say, calls, what tools returned, a summary."""

KINDS: tuple[Kind, ...] = ('head', 'said', 'calls', 'results', 'summary')

CHARS_PER_TOKEN = 4
"""Characters in a token."""

CACHED_PRICE = 0.1
"""What a token costs that is read from the cache, in tokens of input."""

OUTPUT_PRICE = 5
"""What a token of output costs, in tokens of input."""

SHRUNK = 0.9
"""A request shorter than this part of the one before has had its history cut."""

SUMMARY_MARK = 'Scripted summary'
"""What a summary begins with that the scripted model wrote, so that it is known wherever a contestant puts it."""

Segments: TypeAlias = Sequence[tuple[Kind, str]]
"""A request as it is sent, in order."""


@dataclass(frozen=True, kw_only=True)
class Told:
    """What the usage of a response says, in tokens."""

    input: int
    cached: int
    """Those of the input that were read from the cache."""
    output: int


@dataclass(kw_only=True)
class Ledger:
    """Every request of a session."""

    cost: float = 0
    """In tokens of input, as are all the others."""
    input: float = 0
    cached: float = 0
    output: float = 0
    requests: int = 0
    summaries: int = 0
    """Requests made to summarize; they are in all the sums."""
    cuts: int = 0
    """How often a request was much shorter than the one before it."""
    broken: int = 0
    """Requests that do not begin with all of the request before them, though nothing was summarized between."""
    largest: float = 0
    """The longest request, without those that summarize."""
    cost_by_kind: dict[str, float] = field(default_factory=lambda: dict.fromkeys((*KINDS, 'output', 'summarizer'), 0.0))
    _last: Segments = ()
    _last_summary: Segments = ()
    _is_after_summary: bool = False

    def record(self, segments: Segments, reply: str, *, is_summary: bool) -> Told:
        """Take a request and its reply, and return the usage that the contestant is told."""
        segments = [('summary' if SUMMARY_MARK in text else kind, text) for kind, text in segments]
        same = common_prefix(self._last, segments)
        cached_segments = max(same, common_prefix(self._last_summary, segments))
        tokens = [len(text) / CHARS_PER_TOKEN for _, text in segments]
        cached, all_ = sum(tokens[:cached_segments]), sum(tokens)
        output = len(reply) / CHARS_PER_TOKEN
        self._add_costs(segments, tokens, cached_segments, output, is_summary=is_summary)
        self.requests += 1
        self.input += all_
        self.cached += cached
        self.output += output
        if is_summary:
            self.summaries += 1
            self._last_summary, self._is_after_summary = segments, True
        else:
            self._compare_with_last(same, all_)
            self._last, self._is_after_summary = segments, False
        return Told(input=round(all_), cached=round(cached), output=round(output))

    def _add_costs(
        self, segments: Segments, tokens: list[float], cached: int, output: float, *, is_summary: bool
    ) -> None:
        for place, ((kind, _), size) in enumerate(zip(segments, tokens, strict=True)):
            cost = size * (CACHED_PRICE if place < cached else 1)
            self.cost += cost
            self.cost_by_kind['summarizer' if is_summary else kind] += cost
        self.cost += output * OUTPUT_PRICE
        self.cost_by_kind['summarizer' if is_summary else 'output'] += output * OUTPUT_PRICE

    def _compare_with_last(self, same: int, size: float) -> None:
        if same < len(self._last) and not self._is_after_summary:
            self.broken += 1
        before = sum(len(text) for _, text in self._last) / CHARS_PER_TOKEN
        if size < before * SHRUNK:
            self.cuts += 1
        self.largest = max(self.largest, size)

    def figures(self, prefix: str) -> dict[str, float]:
        """Return everything under keys that begin so; tokens in thousands."""
        tokens = {
            'cost': self.cost,
            'input': self.input,
            'output': self.output,
            'largest': self.largest,
            **{f'cost_{kind}': cost for kind, cost in self.cost_by_kind.items()},
        }
        figures = {key: count / 1000 for key, count in tokens.items()}
        figures['cached_percent'] = 100 * self.cached / self.input
        figures |= {'requests': self.requests, 'summaries': self.summaries, 'cuts': self.cuts, 'broken': self.broken}
        if self.cuts:
            figures['summaries_per_cut'] = self.summaries / self.cuts
        return {f'{prefix}_{key}': value for key, value in figures.items()}


def common_prefix(before: Segments, now: Segments) -> int:
    """Return with how many same segments both begin."""
    count = 0
    for old, new in zip(before, now, strict=False):
        if old != new:
            break
        count += 1
    return count
