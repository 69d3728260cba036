"""Types of this capability: decisions, pending approvals, and approval rules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from inspect import iscoroutinefunction
from typing import Any, TypeAlias, cast

from pydantic import JsonValue

from pydantic_deep._messages.deferred_metadata import DECISIONS, DecisionKind, Preview

from ._paths import path_problem
from ._view import ApprovalView, view_approval


@dataclass(frozen=True)
class Approve:
    """Run the call as it was shown."""

    digest: str | None = field(default=None, kw_only=True, compare=False)
    """The `digest` of the call that was shown. If set, the decision is rejected when the pending call has a different
    one.
    """


@dataclass(frozen=True)
class Edit:
    """Run the call with different arguments. They are validated again, and the model is notified of the change."""

    args: Mapping[str, JsonValue]
    """The complete arguments of the call, not only the changed ones."""
    digest: str | None = field(default=None, kw_only=True, compare=False)
    """The `digest` of the call that was shown, as in `Approve`."""


_DENIED = 'A person denied this call'
"""The beginning of the text that the model receives for a denied call."""


@dataclass(frozen=True)
class Deny:
    """Do not run the call."""

    reason: str = f'{_DENIED}.'
    """The text that the model receives as the result."""
    digest: str | None = field(default=None, kw_only=True, compare=False)
    """The `digest` of the call that was shown, as in `Approve`."""

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
    """Do not run the call; return a person's answer as its result."""

    content: JsonValue
    """The result of the call that the model sees."""
    digest: str | None = field(default=None, kw_only=True, compare=False)
    """The `digest` of the call that was shown, as in `Approve`."""


Decision: TypeAlias = Approve | Edit | Deny | Respond
"""A person's decision on a pending call."""


@dataclass(frozen=True, kw_only=True)
class PendingApproval:
    """A tool call that needs a decision, of the agent or of a subagent."""

    id: str
    """Identifies the call within the whole tree of agents. It is the key for `answer_approvals`."""
    path: tuple[str, ...]
    """The names of the subagents that lead to the call; empty for a call of the agent itself."""
    tool: str
    """The name of the tool that would run."""
    arguments: Mapping[str, Any]
    """All arguments, as the model wrote them."""
    tool_call_id: str
    """The id of the call in the messages of its own agent."""
    preview: Preview | None
    """The expected effect of the call; `None` if no capability provides a preview."""
    decisions: tuple[DecisionKind, ...]
    """The kinds of decision that the call accepts."""

    @cached_property
    def view(self) -> ApprovalView:
        """The escaped representation of the call for a person. It is computed on first access."""
        return view_approval(id=self.id, path=self.path, tool=self.tool, arguments=self.arguments, preview=self.preview)

    @property
    def digest(self) -> str:
        """Identifies this call and its arguments: `Approve(digest=pending.digest)` applies to nothing else."""
        return self.view.digest


@dataclass(frozen=True, kw_only=True)
class ApprovalRule:
    """When a tool needs approval, and which decisions are allowed.

    The rule is evaluated in this order: `deny` refuses the call, `allow` lets it run, `when` decides whether a person
    is asked.

    Patterns depend on the tool. If the preview of the tool names files, patterns are globs for their canonical paths:
    `/src/**` from the root, `*.lock` and `docs/**` at any depth. If the tool runs a command (`execute`, or any tool
    with an argument `command`), patterns are commands word by word; words may have wildcards, and a final `*` matches
    any further words: `git status *`. A call with both files and a command needs both allowed, and is denied by either.

    If `deny` has patterns and the call has neither files nor a command, a person is always asked. The same applies to a
    command with additional arguments, such as `env` or `cwd`, unless they have their declared defaults or are listed in
    `known_arguments`.
    """

    when: Callable[[Mapping[str, Any]], bool] | None = None
    """Takes the arguments of the call, and returns whether approval is needed; `None` means always. An exception counts
    as `True`.
    """
    decisions: Sequence[DecisionKind] = DECISIONS
    """The kinds of decision that a person may make."""
    allow: Sequence[str] = ()
    """Patterns for calls that run without approval.

    All files that a call touches must match; hidden files match only where the glob writes the dot. A command must be
    one simple command: operators, substitutions, redirections, expansions, assignments and newlines need approval.
    Before you end a pattern with `*`, consider what the options of the command can do.
    """
    deny: Sequence[str] = ()
    """Patterns for calls that never run, even with approval. One file that matches, or that is below a directory that
    matches, is enough, hidden or not; so is one of several commands in a line.

    For commands this is a convenience and no security boundary: `sh -c`, an alias or a script can run the same command.
    To prevent a command, use a sandbox that makes it impossible.
    """
    known_arguments: Sequence[str] = ()
    """Arguments of a command, besides `command` and `timeout_seconds`, that may have any value in a call that `allow`
    permits.

    List only arguments that cannot change the effect of a command, such as a description.
    """

    def __post_init__(self) -> None:
        """Validate the rule.

        Raises:
            TypeError: `when` is not a function, or is async.
            ValueError: `decisions` is empty or has an unknown kind; a list of patterns or names is a string or has an
                empty item; or a pattern that can only be a path is not a valid glob. Other invalid globs are detected
                at the first call, which then needs approval.
        """
        if self.when is not None and (
            not callable(cast('object', self.when))
            or iscoroutinefunction(self.when)
            or iscoroutinefunction(self.when.__call__)
        ):
            raise TypeError(
                f'ApprovalRule(when={self.when!r}): pass a function that takes the arguments and returns whether to ask, '
                'without `async`.'
            )
        if (
            not _is_list(self.decisions)
            or not self.decisions
            or any(decision not in DECISIONS for decision in self.decisions)
        ):
            raise ValueError(
                f'ApprovalRule(decisions={self.decisions!r}): pass a tuple of some of {", ".join(DECISIONS)}.'
            )
        if not _is_list(self.known_arguments) or not all(_is_text(name) for name in self.known_arguments):
            raise ValueError(f'ApprovalRule(known_arguments={self.known_arguments!r}): pass a tuple of argument names.')
        for name, patterns in (('allow', self.allow), ('deny', self.deny)):
            if not _is_list(patterns) or not all(_is_text(pattern) for pattern in patterns):
                raise ValueError(f'ApprovalRule({name}={patterns!r}): pass a tuple of non-empty patterns.')
            for pattern in filter(_is_path, patterns):
                problem = path_problem(pattern, denies=name == 'deny')
                if problem is not None:
                    raise ValueError(f'ApprovalRule({name}={patterns!r}): {problem}')


def _is_list(value: object) -> bool:
    return isinstance(value, Collection) and not isinstance(value, str)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_path(pattern: str) -> bool:
    """Return whether a pattern can only be a path, whichever tool it is for."""
    return len(pattern.split()) == 1 and (pattern.startswith('/') or '**' in pattern)


InterruptOn: TypeAlias = Mapping[str, bool | ApprovalRule]
"""Which tools need approval, keyed by tool name: `True` always, an `ApprovalRule` by its conditions, `False` not by
this mapping.
"""
