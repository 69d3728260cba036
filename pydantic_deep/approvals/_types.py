"""The nouns of the room: what a person may answer, what waits for an answer, and what is to be asked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias, cast

from pydantic import JsonValue

from pydantic_deep._messages.deferred_metadata import DECISIONS, DecisionKind, Preview

from ._paths import path_problem
from ._view import ApprovalView, view_approval


@dataclass(frozen=True)
class Approve:
    """The call runs as it was shown."""

    digest: str | None = field(default=None, kw_only=True, compare=False)
    """The `digest` of what was shown. With it the answer is refused if the call with this id is another one."""


@dataclass(frozen=True)
class Edit:
    """The call runs with other arguments, which are validated again. The model is told of them."""

    args: Mapping[str, JsonValue]
    """All arguments of the call, not only those that differ."""
    digest: str | None = field(default=None, kw_only=True, compare=False)
    """See `Approve`."""


_DENIED = 'A person denied this call'
"""The beginning of the text that the model receives for a denied call."""


@dataclass(frozen=True)
class Deny:
    """The call does not run."""

    reason: str = f'{_DENIED}.'
    """The text that the model receives as the result."""
    digest: str | None = field(default=None, kw_only=True, compare=False)
    """See `Approve`."""

    @classmethod
    def because(cls, reason: str) -> Deny:
        """Return the denial whose text for the model ends with a person's reason, which may be empty."""
        return cls(f'{_DENIED}: {reason}') if reason else cls()

    @property
    def given_reason(self) -> str | None:
        """The reason that was passed to `because`, or the whole text for the model; `None` for the default text."""
        return None if self == Deny() else self.reason.removeprefix(f'{_DENIED}: ')


@dataclass(frozen=True)
class Respond:
    """The person answers in the place of the tool, which does not run."""

    content: JsonValue
    """What the model sees as the result of the call."""
    digest: str | None = field(default=None, kw_only=True, compare=False)
    """See `Approve`."""


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

    @cached_property
    def view(self) -> ApprovalView:
        """What a person is to be shown of the call, all of it escaped. Made when it is first asked for."""
        return view_approval(id=self.id, path=self.path, tool=self.tool, arguments=self.arguments, preview=self.preview)

    @property
    def digest(self) -> str:
        """Names what is shown: `Approve(digest=each.digest)` is for this call with these arguments only."""
        return self.view.digest


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
    So does a call of a command with arguments that the patterns say nothing about, such as `env` or `cwd`, unless they
    have their declared defaults or are in `known_arguments`.
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
    known_arguments: Sequence[str] = ()
    """Arguments of a command beside `command` and `timeout_seconds` that may have any value in what `allow` lets run.

    Name only those that cannot change what a command does, such as a description of it.
    """

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            TypeError: `when` cannot be called.
            ValueError: No decision is left, one is unknown, or a list of patterns or names is a text, or holds an empty
                one or a pattern that can only be a path and is no glob. Of others that is told at the first call, which
                then asks.
        """
        if self.when is not None and not callable(cast('object', self.when)):
            raise TypeError(
                f'ApprovalRule(when={self.when!r}): pass a function of the arguments that returns whether to ask.'
            )
        if not _is_list(self.decisions) or not self.decisions or any(each not in DECISIONS for each in self.decisions):
            raise ValueError(
                f'ApprovalRule(decisions={self.decisions!r}): write some of {", ".join(DECISIONS)}, in a tuple.'
            )
        if not _is_list(self.known_arguments) or not all(_is_text(name) for name in self.known_arguments):
            raise ValueError(
                f'ApprovalRule(known_arguments={self.known_arguments!r}): write a tuple of names of arguments.'
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
