"""The cost of a session: every request as sent, the part of it in the cache of a provider, and the replies.

A request is a sequence of segments: the tools, the instructions, then each part of each message. The longest common
prefix with an earlier request, in whole segments, is read from the cache. Standard library only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal['head', 'said', 'calls', 'results', 'summary']
"""The kind of a segment: tools and instructions, text of users and the model, calls, tool results, or a summary."""

KINDS: tuple[Kind, ...] = ('head', 'said', 'calls', 'results', 'summary')

CHARS_PER_TOKEN = 4
"""Assumed number of characters per token."""

CACHED_PRICE = 0.1
"""Price of a token that is read from the cache, relative to an input token."""

OUTPUT_PRICE = 5
"""Price of an output token, relative to an input token."""

SHRUNK = 0.9
"""A request shorter than this fraction of the previous one counts as a cut of the history."""

SUMMARY_MARK = 'Scripted summary'
"""The beginning of every summary of the scripted model, by which it is recognized in any contestant's history."""

Segments: TypeAlias = Sequence[tuple[Kind, str]]
"""A request as sent, in order."""


@dataclass(frozen=True, kw_only=True)
class Usage:
    """The usage that a response reports, in tokens."""

    input: int
    cached: int
    """Input tokens that were read from the cache."""
    output: int


@dataclass(kw_only=True)
class Ledger:
    """The costs of all requests of a session."""

    cost: float = 0
    """Total cost in input tokens, as for all other costs."""
    input: float = 0
    cached: float = 0
    output: float = 0
    requests: int = 0
    summaries: int = 0
    """Number of requests for a summary; they are included in all totals."""
    cuts: int = 0
    """Number of requests that were much shorter than the previous one."""
    broken: int = 0
    """Number of requests without the previous request as a prefix, although nothing was summarized in between."""
    largest: float = 0
    """Size of the longest request, except requests for a summary."""
    cost_by_kind: dict[str, float] = field(default_factory=lambda: dict.fromkeys((*KINDS, 'output', 'summarizer'), 0.0))
    _last: Segments = ()
    _last_summary: Segments = ()
    _is_after_summary: bool = False

    def record(self, segments: Segments, reply: str, *, is_summary: bool) -> Usage:
        """Record a request and its reply, and return the usage to report to the contestant."""
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
        return Usage(input=round(all_), cached=round(cached), output=round(output))

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
        """Return all figures, with keys that start with `prefix`; tokens in thousands."""
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
    """Return the number of leading segments that both have in common."""
    count = 0
    for old, new in zip(before, now, strict=False):
        if old != new:
            break
        count += 1
    return count
