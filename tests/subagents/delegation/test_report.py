from __future__ import annotations

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart

from pydantic_deep.subagents.delegation._report import describe_error, render_failure


def test_report_of_an_idle_child_says_it_did_nothing() -> None:
    assert render_failure('worker', 'ran out of time.', [], []) == (
        "The subagent 'worker' ran out of time.\nIt had done nothing."
    )


def test_report_contains_call_outcomes_and_the_last_text() -> None:
    history: list[ModelMessage] = [
        ModelResponse([TextPart('first'), ToolCallPart('a', {'x': 1}, 'c1'), ToolCallPart('b', '{}', 'c2')]),
        ModelRequest([ToolReturnPart('a', 'ok', 'c1')]),
        ModelResponse([TextPart('  ')]),
    ]
    assert render_failure('worker', 'failed: x', history, ['/f.txt']) == (
        "The subagent 'worker' failed: x\n"
        'Its tool calls:\n'
        '- a({"x":1}): success\n'
        '- b({}): no result\n'
        'Its last words: first\n'
        'Its files were a fork. Discarded are its changes to /f.txt'
    )


def test_report_is_bounded() -> None:
    calls = [ToolCallPart('big', {'text': 'x' * 10_000}, f'c{i}') for i in range(1_000)]
    history = [ModelResponse([*calls, TextPart('y' * 100_000)])]
    report = render_failure('worker', 'z' * 100_000, history, [f'/{i}' for i in range(1_000)])
    assert len(report) < 10_000
    assert 'the last 20 of 1000' in report
    assert 'and 950 more' in report
    assert '[98,000 characters left out]' in report


def test_last_text_is_reported_without_calls() -> None:
    assert render_failure('w', 'failed.', [ModelResponse([TextPart('hm')])], []).endswith('failed.\nIts last words: hm')


def test_error_description_is_escaped() -> None:
    assert describe_error(ValueError()) == 'ValueError'
    assert describe_error(ValueError('half \ud83d')) == 'ValueError: half \\ud83d'
