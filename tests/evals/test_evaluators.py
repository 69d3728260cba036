"""The evaluators, each on results that are as expected and that are not."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from inline_snapshot import snapshot
from pydantic_evals.evaluators import EvaluatorContext
from pydantic_evals.otel._errors import SpanTreeRecordingError

from pydantic_deep.evals import (
    ApprovalsAsked,
    AskedCall,
    FilesContain,
    FilesEqual,
    FilesUnchanged,
    ReplaysExactly,
    TodosCompleted,
    TurnCase,
    TurnResult,
    TurnUsage,
    UsageAtMost,
)
from pydantic_deep.todos import Todo

BEFORE = {'/a.txt': b'one\n', '/b.bin': b'\xff', '/docs/c.md': b'c\n'}


def evaluate(evaluator: Any, output: TurnResult, expected: TurnResult | None = None) -> tuple[bool, str | None]:
    wanted = expected or TurnResult(output=None, files=BEFORE)
    context = EvaluatorContext(
        name='x',
        inputs=TurnCase(name='x', prompt='Hi', files=BEFORE, expected=wanted),
        metadata=None,
        expected_output=expected,
        output=output,
        duration=0,
        _span_tree=SpanTreeRecordingError('none'),
        attributes={},
        metrics={},
    )
    reason = evaluator.evaluate(context)
    return reason.value, reason.reason


def files(**changes: bytes | None) -> TurnResult:
    after = {**BEFORE, **{f'/{name.replace("_", ".")}': data for name, data in changes.items()}}
    return TurnResult(output=None, files={path: data for path, data in after.items() if data is not None})


def test_equal_files():
    assert evaluate(FilesEqual(), files()) == (True, None)
    assert evaluate(FilesEqual(['*.txt']), files(b_bin=b'\xfe')) == (True, None)
    other = files(a_txt=b'two\n', b_bin=b'\xfe', new_txt=b'')
    assert evaluate(FilesEqual(), other) == snapshot(
        (
            False,
            """\
/a.txt differs:
--- a/a.txt
+++ b/a.txt
@@ -1 +1 @@
-one
+two
/b.bin differs.
/new.txt is not expected.\
""",
        )
    )
    assert evaluate(FilesEqual(), files(a_txt=None)) == (False, '/a.txt is missing.')
    assert evaluate(FilesEqual(), other, expected=other) == (True, None)


def test_unchanged_files():
    assert evaluate(FilesUnchanged(['/docs/**']), files(a_txt=b'two')) == (True, None)
    assert evaluate(FilesUnchanged(['/a.*']), files(a_txt=None)) == (False, '/a.txt is missing.')


def test_texts_in_files():
    assert evaluate(FilesContain({'/a.txt': 'one', '/docs/c.md': 'c'}), files()) == (True, None)
    assert evaluate(FilesContain({'a.txt': 'one', 'docs/c.md': 'c'}), files()) == (True, None)
    reasons = evaluate(FilesContain({'/a.txt': 'two', '/none': ''}), files())
    assert reasons == (False, "/a.txt does not contain 'two'.\n/none is missing.")


def test_completed_todos():
    done, open_ = Todo(content='A', status='completed'), Todo(content='B')
    assert evaluate(TodosCompleted(), TurnResult(output=None, todos=[done])) == (True, None)
    assert evaluate(TodosCompleted(), TurnResult(output=None, todos=[done, open_])) == (False, "'B' is pending.")
    assert evaluate(TodosCompleted(), TurnResult(output=None)) == (False, 'There are no todos.')


def asked(*names: str) -> TurnResult:
    calls = [AskedCall(tool=name, arguments={}, subagents=[], answer='approve') for name in names]
    return TurnResult(output=None, approvals=calls)


def test_asked_approvals():
    assert evaluate(ApprovalsAsked(), asked('a', 'b'), asked('b', 'a')) == (True, None)
    missing = evaluate(ApprovalsAsked(), asked('a', 'c'), asked('a', 'a'))
    assert missing == (False, 'a did not ask for approval.\nc asked for approval.')


@pytest.mark.parametrize(
    ('evaluator', 'cost', 'reason'),
    [
        (UsageAtMost(), None, None),
        (UsageAtMost(requests=2, tokens=100, cost=0.5), Decimal('0.5'), None),
        (UsageAtMost(requests=1, tokens=99), None, '2 requests, more than 1.\n100 tokens, more than 99.'),
        (UsageAtMost(cost=0.4), Decimal('0.5'), '0.5 US dollars, more than 0.4.'),
        (
            UsageAtMost(cost=0.4),
            None,
            'The price of the model is unknown, so the limit of 0.4 US dollars cannot be checked.',
        ),
    ],
)
def test_usage(evaluator: UsageAtMost, cost: Decimal | None, reason: str | None):
    result = TurnResult(output=None, usage=TurnUsage(requests=2, tokens=100, cost=cost))
    assert evaluate(evaluator, result) == (reason is None, reason)


def test_replays():
    assert evaluate(ReplaysExactly(), TurnResult(output=None)) == (True, None)
    assert evaluate(ReplaysExactly(), TurnResult(output=None, differences=['one', 'two'])) == (False, 'one\ntwo')
