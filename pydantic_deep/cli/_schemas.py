"""The documents that commands print with `--json` about their own work; those about stored things are `views`.

Readers should ignore fields that they do not know: later releases may add some.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic_deep.views import Version


@dataclass(frozen=True, kw_only=True)
class ContextUsage:
    """Where the tokens of a version's conversation go: what `context` prints. Those of `last_request` and the cost are what
    providers told; all others are counted.
    """

    version: str
    """The id of the version."""
    is_exact: bool
    """Whether the model's own tokenizer counted; else they are estimated."""
    system: int | None
    """Instructions; `null` before the first turn."""
    tools: int | None
    """The schemas of the tools; `null` before the first turn."""
    skills: int | None
    """The catalogue of skills, and those that were loaded; `null` before the first turn."""
    files: int
    """What the tools on files were asked and answered, and files in prompts."""
    summary: int
    """Summaries in place of earlier messages."""
    history: int
    """Everything else that was said."""
    counted: int
    """The sum of those that are known."""
    context_window: int | None
    """How many tokens the model takes; `null` where it is not known."""
    last_request: RequestTokens | None
    """What the provider told of the last request; `null` if nothing."""
    cost: str | None
    """US dollars of the conversation so far, as a decimal number; `null` where no price is known."""
    unpriced_requests: int
    """How many requests the cost is without."""


@dataclass(frozen=True, kw_only=True)
class RequestTokens:
    """The tokens of a request, as its provider counted them."""

    input_tokens: int
    """Sent, cached ones included."""
    cache_read_tokens: int
    """Sent and found in the provider's cache."""
    cache_write_tokens: int
    """Sent and written to the provider's cache."""
    output_tokens: int
    """Written by the model."""


@dataclass(frozen=True, kw_only=True)
class CheckoutReport:
    """What `checkout` and `rewind` print."""

    version: Version
    """The version that the directory has now."""
    kept: Version | None
    """The version of the edits that were in none; `null` if there were no such edits."""
    left: list[str]
    """With `rewind`: the ids of the turns that are not before the head any more. They stay in the store."""


@dataclass(frozen=True, kw_only=True)
class MergeConflict:
    """A file that both sides changed so that only a person can say what is to be."""

    path: str
    """The path."""
    kind: str
    """Why it cannot be merged."""


@dataclass(frozen=True, kw_only=True)
class MergeReport:
    """What `merge` prints."""

    version: Version | None
    """The version that was made; `null` if nothing was."""
    conflicts: list[MergeConflict]
    """Why nothing was made."""


@dataclass(frozen=True, kw_only=True)
class ReplayReport:
    """What `replay` prints."""

    version: str
    """The id of the version."""
    is_exact: bool
    """Whether every request was the same as then."""
    requests: int
    """How many requests were compared."""
    difference_number: int | None = None
    """Which request is the first that differs, from 1; `null` if none does."""
    difference_part: str | None = None
    """What of it differs: `settings`, `tools`, `instructions`, `options`, `messages` or `count`."""
    difference: str | None = None
    """A unified diff, or a sentence."""


@dataclass(frozen=True, kw_only=True)
class GarbageCollectionReport:
    """What `gc` prints."""

    removed: dict[str, int] = field(default_factory=dict[str, int])
    """How many rows went, by kind."""
    condemned: int
    """How much nothing reaches, and goes the next time."""
    freed_bytes: int
    """The size of the contents that went."""


@dataclass(frozen=True, kw_only=True)
class DamageRow:
    """What `store check` prints of each damage."""

    table: str | None
    """The table; none where only a page of the file is known."""
    row: str | None
    """The row, by its id, digest or number."""
    problem: str
    """What is wrong with it."""
    versions: list[str]
    """The versions that depend on it."""
    conversations: list[str]
    """The conversations of these."""
