from __future__ import annotations

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart

from pydantic_deep.subagents.delegation._report import describe_error, render_failure


def test_the_report_of_an_idle_child_says_so() -> None:
    assert render_failure('worker', 'ran out of time.', [], []) == (
        "The subagent 'worker' ran out of time.\nIt had done nothing."
    )


def test_calls_have_their_outcomes_and_the_last_words_are_given() -> None:
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


def test_a_report_is_bounded() -> None:
    calls = [ToolCallPart('big', {'text': 'x' * 10_000}, f'c{i}') for i in range(1_000)]
    history = [ModelResponse([*calls, TextPart('y' * 100_000)])]
    told = render_failure('worker', 'z' * 100_000, history, [f'/{i}' for i in range(1_000)])
    assert len(told) < 10_000
    assert 'the last 20 of 1000' in told
    assert 'and 950 more' in told
    assert '[98,000 characters left out]' in told


def test_words_alone_are_given_without_calls() -> None:
    assert render_failure('w', 'failed.', [ModelResponse([TextPart('hm')])], []).endswith('failed.\nIts last words: hm')


def test_an_error_is_described_so_that_it_can_be_sent() -> None:
    assert describe_error(ValueError()) == 'ValueError'
    assert describe_error(ValueError('half \ud83d')) == 'ValueError: half \\ud83d'
