"""Evaluators of turns for pydantic-evals. Each returns whether the result is as expected, with the reason if not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass
from pydantic_evals.evaluators import EvaluationReason, Evaluator, EvaluatorContext

from pydantic_deep._text.line_diff import render_diff
from pydantic_deep_backends.search import compile_glob

from ._case import TurnCase, TurnResult

Context: TypeAlias = EvaluatorContext[TurnCase, TurnResult, Any]
"""The case, the expected and the actual result."""

_STRICT = ConfigDict(extra='forbid')
"""The fields of an evaluator are validated: a glob instead of a list of globs would match nothing."""


@dataclass(repr=False, config=_STRICT)
class FilesEqual(Evaluator[TurnCase, TurnResult, Any]):
    """Whether the files after the turn equal the expected ones."""

    paths: Sequence[str] | None = None
    """Globs of the files to compare; `None` for all files."""

    def evaluate(self, ctx: Context) -> EvaluationReason:
        """Compare the files."""
        return _verdict(_differences(_expected(ctx).files, ctx.output.files, self.paths))


@dataclass(repr=False, config=_STRICT)
class FilesUnchanged(Evaluator[TurnCase, TurnResult, Any]):
    """Whether the turn left files as they were."""

    paths: Sequence[str]
    """Globs of the files."""

    def evaluate(self, ctx: Context) -> EvaluationReason:
        """Compare the files with those before the turn."""
        return _verdict(_differences(ctx.inputs.files, ctx.output.files, self.paths))


@dataclass(repr=False, config=_STRICT)
class FilesContain(Evaluator[TurnCase, TurnResult, Any]):
    """Whether files contain texts."""

    texts: Mapping[str, str]
    """The texts, keyed by path. The `/` at the beginning may be omitted, as in the globs of other evaluators."""

    def evaluate(self, ctx: Context) -> EvaluationReason:
        """Search the files."""
        files = {path: data.decode('utf-8', 'replace') for path, data in ctx.output.files.items()}
        texts = {f'/{path.removeprefix("/")}': text for path, text in self.texts.items()}
        return _verdict(
            f'{path} does not contain {text!r}.' if path in files else f'{path} is missing.'
            for path, text in texts.items()
            if path not in files or text not in files[path]
        )


@dataclass(repr=False, config=_STRICT)
class TodosCompleted(Evaluator[TurnCase, TurnResult, Any]):
    """Whether the turn ended with todos, and all are completed."""

    def evaluate(self, ctx: Context) -> EvaluationReason:
        """Search the todos."""
        todos = ctx.output.todos
        missing = [] if todos else ['There are no todos.']
        return _verdict(
            [*missing, *(f'{todo.content!r} is {todo.status}.' for todo in todos if todo.status != 'completed')]
        )


@dataclass(repr=False, config=_STRICT)
class ApprovalsAsked(Evaluator[TurnCase, TurnResult, Any]):
    """Whether the turn asked for approval of the expected calls and of no others. Arguments may differ."""

    def evaluate(self, ctx: Context) -> EvaluationReason:
        """Compare the calls."""
        expected, asked = (
            Counter(' '.join([*call.subagents, call.tool]) for call in result.approvals)
            for result in (_expected(ctx), ctx.output)
        )
        missing = [f'{name} did not ask for approval.' for name in (expected - asked).elements()]
        return _verdict([*missing, *(f'{name} asked for approval.' for name in (asked - expected).elements())])


@dataclass(repr=False, config=_STRICT)
class UsageAtMost(Evaluator[TurnCase, TurnResult, Any]):
    """Whether the usage of the turn, with its subagents, is within limits. `None` is no limit."""

    requests: int | None = None
    """The number of requests."""
    tokens: int | None = None
    """Input and output tokens."""
    cost: float | None = None
    """US dollars. Not true if a price is unknown."""

    def evaluate(self, ctx: Context) -> EvaluationReason:
        """Compare the usage with the limits."""
        usage = ctx.output.usage
        cost = None if usage.cost is None else float(usage.cost)
        used = {'requests': (usage.requests, self.requests), 'tokens': (usage.tokens, self.tokens)}
        limits = {**used, 'US dollars': (cost, self.cost)}
        return _verdict(
            f'{value} {name}, more than {limit}.'
            if value is not None
            else f'The price of the model is unknown, so the limit of {limit} {name} cannot be checked.'
            for name, (value, limit) in limits.items()
            if limit is not None and (value is None or value > limit)
        )


@dataclass(repr=False, config=_STRICT)
class ReplaysExactly(Evaluator[TurnCase, TurnResult, Any]):
    """Whether a replay (`replay_case`) equals the recording."""

    def evaluate(self, ctx: Context) -> EvaluationReason:
        """Return the differences, if any."""
        return _verdict(ctx.output.differences)


EVALUATORS: Sequence[type[Evaluator[TurnCase, TurnResult, Any]]] = (
    FilesEqual,
    FilesUnchanged,
    FilesContain,
    TodosCompleted,
    ApprovalsAsked,
    UsageAtMost,
)
"""The evaluators that a `case.json` can name."""


def _verdict(problems: Iterable[str]) -> EvaluationReason:
    found = list(problems)
    return EvaluationReason(value=not found, reason='\n'.join(found) or None)


def _expected(ctx: Context) -> TurnResult:
    return ctx.expected_output or ctx.inputs.expected


def _differences(before: Mapping[str, bytes], after: Mapping[str, bytes], paths: Sequence[str] | None) -> Iterable[str]:
    """Yield a description of each file that differs."""
    globs = None if paths is None else [compile_glob(path.removeprefix('/')) for path in paths]
    for path in sorted(before.keys() | after.keys()):
        if before.get(path) == after.get(path):
            continue
        if globs is None or any(glob.matches(path.removeprefix('/')) for glob in globs):
            yield _difference(path, before.get(path), after.get(path))


def _difference(path: str, before: bytes | None, after: bytes | None) -> str:
    if before is None or after is None:
        return f'{path} is missing.' if after is None else f'{path} is not expected.'
    try:
        return f'{path} differs:\n{render_diff(path, before.decode(), after.decode()).rstrip()}'
    except UnicodeDecodeError:
        return f'{path} differs.'
