"""The documents that commands print with `--json` about their own work. Documents about stored data are in `views`.

Readers should ignore unknown fields: later releases may add some.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic_deep.streaming import EndEvent, ErrorEvent
from pydantic_deep.versions import MergeSide
from pydantic_deep.views import Version


@dataclass(frozen=True, kw_only=True)
class ContextUsage:
    """The output of `context`: the tokens of a conversation by kind. `last_request` and the cost are based on the usage
    that the provider reported; the other numbers are counted or estimated locally.
    """

    version: str
    """The id of the version."""
    is_exact: bool
    """Whether the tokenizer of the model counted the tokens; otherwise they are estimated."""
    system: int | None
    """Tokens of the instructions; `null` before the first turn."""
    tools: int | None
    """Tokens of the tool schemas; `null` before the first turn."""
    skills: int | None
    """Tokens of the skill catalogue and of loaded skills; `null` before the first turn."""
    files: int
    """Tokens of file tool calls and their results, and of files in prompts."""
    summary: int
    """Tokens of summaries that replace earlier messages."""
    history: int
    """Tokens of all other messages."""
    counted: int
    """The sum of the known numbers above."""
    context_window: int | None
    """The context window of the model in tokens; `null` if it is unknown."""
    last_request: RequestTokens | None
    """The usage that the provider reported for the last request; `null` if there is none."""
    cost: str | None
    """The cost of the conversation so far in US dollars, as a decimal number; `null` if no price is known."""
    unpriced_requests: int
    """The number of requests that the cost does not include because their price is unknown."""


@dataclass(frozen=True, kw_only=True)
class RequestTokens:
    """The usage of a request, as reported by its provider."""

    input_tokens: int
    """Input tokens, including cached ones."""
    cache_read_tokens: int
    """Input tokens that were read from the provider's cache."""
    cache_write_tokens: int
    """Input tokens that were written to the provider's cache."""
    output_tokens: int
    """Output tokens of the model."""


@dataclass(frozen=True, kw_only=True)
class TaskResult:
    """The output of `run --output-format json`: the last [events](events.md) of the turn."""

    error: ErrorEvent | None
    """The `error` event, which states why the turn did not complete; `null` if it did."""
    end: EndEvent
    """The `end` event, with the answer, the usage, the files and the version."""


@dataclass(frozen=True, kw_only=True)
class CheckoutReport:
    """The output of `checkout` and `rewind`."""

    version: Version
    """The version whose files the directory has now."""
    edits: Version | None
    """The version in which unversioned edits were stored; `null` if there were none."""
    detached: list[str]
    """With `rewind`: the ids of the versions that are no longer ancestors of the head. They stay in the store."""


@dataclass(frozen=True, kw_only=True)
class MergeConflict:
    """A file with conflicting changes for which no side was chosen."""

    path: str
    """The path of the file."""
    kind: str
    """The kind of conflict."""


@dataclass(frozen=True, kw_only=True)
class MergeReport:
    """The output of `merge`."""

    version: Version | None
    """The new version; `null` if none was created."""
    conflicts: list[MergeConflict]
    """The conflicts that prevented the merge."""
    choices: dict[str, MergeSide] = field(default_factory=dict[str, MergeSide])
    """The side whose version of a conflicting file was kept, by path."""


@dataclass(frozen=True, kw_only=True)
class ReplayReport:
    """The output of `replay`."""

    version: str
    """The id of the version."""
    is_exact: bool
    """Whether every request matches the recorded one."""
    requests: int
    """The number of requests that were compared."""
    difference_number: int | None = None
    """The number of the first request that differs, from 1; `null` if all match."""
    difference_part: str | None = None
    """The part that differs: `settings`, `tools`, `instructions`, `options`, `messages` or `count`."""
    difference: str | None = None
    """The difference, as a unified diff or a sentence."""


@dataclass(frozen=True, kw_only=True)
class GarbageCollectionReport:
    """The output of `gc`."""

    removed: dict[str, int] = field(default_factory=dict[str, int])
    """The number of removed rows, by kind."""
    condemned: int
    """The number of unreachable objects that remain; a call after the grace period can remove them."""
    freed_bytes: int
    """The total size of the removed contents in bytes."""


@dataclass(frozen=True, kw_only=True)
class DamageRow:
    """A damaged row in the output of `store check`."""

    table: str | None
    """The damaged table; `null` if only a page of the file is known."""
    row: str | None
    """The id, digest or number of the row."""
    problem: str
    """A description of the damage."""
    versions: list[str]
    """The ids of the versions that depend on the row."""
    conversations: list[str]
    """The ids of the conversations of these versions."""


@dataclass(frozen=True, kw_only=True)
class ConfigSetting:
    """One effective value of the configuration."""

    key: str
    """The key, such as `rules.execute`."""
    value: str | None
    """The value for people, without secrets; `null` if nothing sets it."""
    source: str
    """The file, the variable or the option that sets it; otherwise `default`."""


@dataclass(frozen=True, kw_only=True)
class ConfigReport:
    """The output of `config`: the effective values, and the files of the project that have no effect."""

    settings: list[ConfigSetting]
    """All values."""
    untrusted: list[str]
    """Files that are left out because the user has not trusted their contents."""
