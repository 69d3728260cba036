"""Evaluate an approval rule for a call: deny it, allow it, or ask a person. Pure."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from pydantic_ai import ToolDefinition

from pydantic_deep._messages.deferred_metadata import Preview
from pydantic_deep._text.simple_command import Reader, extra_arguments, matches_simple_command

from ._commands import is_read_whole, matches_any_command
from ._paths import allows_path, denies_path, path_problem
from ._types import ApprovalRule

_LOGGER = logging.getLogger('pydantic_deep')


Verdict: TypeAlias = Literal['allow', 'ask', 'pass']
"""The result of a rule: the call may run, a person is asked, or the rule does not apply."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The parts of a call that the patterns of a rule match."""

    command: str | None
    """The command line, if the tool runs a command."""
    files: tuple[str, ...]
    """The canonical paths that the call touches, according to its preview."""
    is_seen: bool
    """Whether the call has a preview."""
    unmatched: frozenset[str] = frozenset()
    """The arguments that no pattern covers, other than the command."""


def subject_of(tool_def: ToolDefinition, args: Mapping[str, Any], preview: Preview | None) -> Subject:
    """Return the parts of a call that patterns match."""
    files = () if preview is None else tuple(preview.files)
    command = _command_of(args, preview)
    return Subject(
        command=command,
        files=files,
        is_seen=preview is not None,
        unmatched=frozenset() if command is None else _unmatched(tool_def, args, command, files),
    )


def refusal_of(rule: ApprovalRule, subject: Subject) -> str | None:
    """Return a message to the model if the rule denies the call; `None` if it does not."""
    for pattern in rule.deny:
        if subject.command is not None and matches_any_command(pattern, subject.command):
            return f'The rule {pattern!r} denies this command. It was not run. Continue without it.'
        for path in subject.files:
            if path_problem(pattern, denies=True) is None and denies_path(pattern, path):
                return f'The rule {pattern!r} denies {path!r}. It was not touched. Continue without it.'
    return None


def verdict_of(rule: ApprovalRule, subject: Subject, *, tool: str, args: Mapping[str, Any]) -> Verdict:
    """Return the verdict of a rule on a call that it does not deny."""
    if subject.files and _is_malformed(rule, tool):
        return 'ask'
    if (rule.allow or rule.deny) and not subject.unmatched.issubset(rule.known_arguments):
        return 'ask'
    if _allows(rule, subject):
        return 'allow'
    if rule.when is None or _is_undecided(rule, subject) or _holds(rule.when, tool, args):
        return 'ask'
    return 'pass'


def _allows(rule: ApprovalRule, subject: Subject) -> bool:
    command = subject.command
    if command is not None and not any(matches_simple_command(pattern, command) for pattern in rule.allow):
        return False
    is_known = command is not None or bool(subject.files)
    return is_known and all(any(allows_path(pattern, path) for pattern in rule.allow) for path in subject.files)


def _is_undecided(rule: ApprovalRule, subject: Subject) -> bool:
    """Return whether `deny` has patterns that cannot be matched completely against this call."""
    if subject.command is not None:
        return bool(rule.deny) and not is_read_whole(subject.command)
    return bool(rule.deny) and not subject.files


def _is_malformed(rule: ApprovalRule, tool: str) -> bool:
    """Return whether a pattern is invalid for paths. This is known only once a call touches files."""
    problems = [
        path_problem(pattern, denies=patterns is rule.deny)
        for patterns in (rule.deny, rule.allow)
        for pattern in patterns
    ]
    for problem in filter(None, problems):
        _LOGGER.warning('A pattern of the approval rule for %r fails, so a person is asked: %s', tool, problem)
    return any(problems)


def _holds(when: Callable[[Mapping[str, Any]], bool], tool: str, args: Mapping[str, Any]) -> bool:
    try:
        return bool(when(dict(args)))
    except Exception:  # user code, which may raise anything
        _LOGGER.warning('The predicate of the approval rule for %r failed, so a person is asked', tool, exc_info=True)
        return True


def _unmatched(
    tool_def: ToolDefinition, args: Mapping[str, Any], command: str, files: tuple[str, ...]
) -> frozenset[str]:
    """Return the arguments of a call that are neither part of its command nor of its files."""
    names = extra_arguments(args, tool_def.parameters_json_schema)
    command_argument: object = args.get('command')
    if isinstance(command_argument, (list, tuple)) and not all(
        isinstance(item, str) for item in cast('list[object]', command_argument)
    ):
        names |= {'command'}  # it is unknown how the tool converts other values to text
    if files:
        names -= {'path'}  # the preview names the files
    if 'command' not in args:  # the command comes from a preview, which may cover only some of the arguments
        words = {command, *(word for item in Reader(command).read().commands for word in item)}
        names = frozenset(name for name in names if not (isinstance(args[name], str) and args[name] in words))
    return names


def _command_of(args: Mapping[str, Any], preview: Preview | None) -> str | None:
    command: object = args.get('command')
    if isinstance(command, str):
        return command
    if isinstance(command, (list, tuple)):
        return shlex.join(map(str, cast('list[object]', command)))
    return preview.text if preview is not None and preview.kind == 'command' else None
