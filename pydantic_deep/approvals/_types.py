"""The nouns of the room: what a person may answer, what waits for an answer, and what is to be asked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from pydantic import JsonValue

from pydantic_deep._pending import DECISIONS, DecisionKind, Preview

from ._paths import path_problem


@dataclass(frozen=True)
class Approve:
    """The call runs as it was shown."""


@dataclass(frozen=True)
class Edit:
    """The call runs with other arguments, which are validated again. The model is told of them."""

    args: Mapping[str, JsonValue]
    """All arguments of the call, not only those that differ."""


@dataclass(frozen=True)
class Deny:
    """The call does not run."""

    reason: str = 'A person denied this call.'
    """What the model is told."""


@dataclass(frozen=True)
class Respond:
    """The person answers in the place of the tool, which does not run."""

    content: JsonValue
    """What the model sees as the result of the call."""


Decision: TypeAlias = Approve | Edit | Deny | Respond
"""What a person may answer."""


@dataclass(frozen=True, kw_only=True)
class PendingApproval:
    """A tool call that waits for a person, at whatever depth."""

    id: str
    """Names the call within the whole tree: `answer_approvals` takes it as key."""
    path: tuple[str, ...]
    """The names of the subagents that lead to it; empty for a call of the agent itself."""
    tool: str
    """The name of the tool."""
    arguments: Mapping[str, Any]
    """All arguments, as the model wrote them."""
    tool_call_id: str
    """The id of the call in the messages of its own agent."""
    preview: Preview | None
    """What the call would do, if a room could tell."""
    decisions: tuple[DecisionKind, ...]
    """What may be answered."""


@dataclass(frozen=True, kw_only=True)
class ApprovalRule:
    """When a tool asks, and what may be answered.

    For a call, in this order: `deny` refuses it, `allow` lets it run, `when` decides whether a person is asked.

    Patterns are of two kinds, by what the tool is. For a tool whose preview names files they are globs, matched
    against their canonical paths: `/src/**` from the root, `*.lock` and `docs/**` at any depth. For one that runs
    a command, which is `execute` or any tool with an argument `command`, they are commands word by word, in which a
    word may have wildcards, and a last `*` stands for any further words: `git status *`. A call with both is allowed by
    both and denied by either.
    A call that `deny` cannot be matched against, since it names neither files nor a command, asks whatever `when` says.
    """

    when: Callable[[Mapping[str, Any]], bool] | None = None
    """Told the arguments, returns whether to ask; `None` asks always. An exception in it means ask."""
    decisions: Sequence[DecisionKind] = DECISIONS
    """What may be answered."""
    allow: Sequence[str] = ()
    """What runs unasked.

    All files that a call touches must match, hidden ones only where the glob writes their dot. A command must be one
    simple command: with operators, substitutions, redirections, expansions, assignments or newlines it asks.
    Think of what a command can do by its options before you end a pattern with `*`.
    """
    deny: Sequence[str] = ()
    """What never runs, not even approved: one file that matches, or lies below a directory that does, will do, hidden
    or not; or one of the commands in a line.

    For commands it is a convenience and no wall: `sh -c`, an alias or a script says the same in other words.
    Where a command must not happen, run commands in a sandbox that makes it impossible.
    """

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            TypeError: `when` cannot be called.
            ValueError: No decision is left, one is unknown, or a list of patterns is a text, or holds an empty one or
                one that can only be a path and is no glob. Of others that is told at the first call, which then asks.
        """
        if self.when is not None and not callable(cast('object', self.when)):
            raise TypeError(
                f'ApprovalRule(when={self.when!r}): pass a function of the arguments that returns whether to ask.'
            )
        if not _is_list(self.decisions) or not self.decisions or any(each not in DECISIONS for each in self.decisions):
            raise ValueError(
                f'ApprovalRule(decisions={self.decisions!r}): write some of {", ".join(DECISIONS)}, in a tuple.'
            )
        for name, patterns in (('allow', self.allow), ('deny', self.deny)):
            if not _is_list(patterns) or not all(_is_text(pattern) for pattern in patterns):
                raise ValueError(f'ApprovalRule({name}={patterns!r}): write a tuple of patterns, none of them empty.')
            for pattern in filter(_is_path, patterns):
                problem = path_problem(pattern, denies=name == 'deny')
                if problem is not None:
                    raise ValueError(f'ApprovalRule({name}={patterns!r}): {problem}')


def _is_list(value: object) -> bool:
    return isinstance(value, Collection) and not isinstance(value, str)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_path(pattern: str) -> bool:
    """Return whether a pattern can only be meant for paths, or for a program by its path, whatever tool it is for."""
    return len(pattern.split()) == 1 and (pattern.startswith('/') or '**' in pattern)


InterruptOn: TypeAlias = Mapping[str, bool | ApprovalRule]
"""What asks, by the name of the tool: `True` always, a rule as it says, `False` not by this mapping."""
