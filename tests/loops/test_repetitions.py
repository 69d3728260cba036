"""Counting results, without an agent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from pydantic_deep.loops._repetitions import LIMIT, NOTICE, ResultCounter, TurnResults, starts_turn

ROUNDS = st.lists(st.sets(st.sampled_from('abcd'), min_size=1, max_size=3), max_size=30)
"""The results of several responses."""

CALLS = st.lists(
    st.lists(st.tuples(st.sampled_from(('ls', 'grep')), st.sampled_from('xy')), min_size=1, max_size=3), max_size=12
)
"""The tools and results of several responses."""

PROMPT = ModelRequest(parts=[UserPromptPart('go')])


def play(counter: ResultCounter, rounds: Sequence[set[str]]) -> list[dict[str, int]]:
    counts: list[dict[str, int]] = []
    for keys in rounds:
        counter.add(keys)
        counts.append({key: counter.counts[key] for key in sorted(keys)})
    return counts


def messages_of(rounds: Sequence[Sequence[tuple[str, str]]]) -> list[ModelMessage]:
    messages: list[ModelMessage] = [PROMPT]
    for number, results in enumerate(rounds):
        ids = [f'{number}-{index}' for index in range(len(results))]
        calls = [ToolCallPart(tool, {'path': '/'}, id) for id, (tool, _) in zip(ids, results, strict=True)]
        parts = [ToolReturnPart(tool, result, id) for id, (tool, result) in zip(ids, results, strict=True)]
        messages += [ModelResponse(parts=calls), ModelRequest(parts=parts)]
    return messages


def test_results_that_cannot_be_serialized_are_new() -> None:
    """Newer releases of pydantic-ai raise for them before the next request."""
    result = object()
    calls = [ToolCallPart('ls', {'path': '/'}, str(number)) for number in range(4)]
    messages: list[ModelMessage] = [PROMPT]
    results = TurnResults()
    for call in calls:
        messages += [ModelResponse(parts=[call]), ModelRequest(parts=[ToolReturnPart('ls', result, call.tool_call_id)])]
        assert counts(results, messages) == [1]


def one_call(*contents: str) -> list[ModelMessage]:
    return messages_of([[('ls', content)] for content in contents])


def counts(results: TurnResults, messages: Sequence[ModelMessage]) -> list[int]:
    return [item.count for item in results.read(messages)]


@given(ROUNDS)
def test_count_is_the_number_of_rounds_since_the_last_new_result(rounds: list[set[str]]) -> None:
    for index, found in enumerate(play(ResultCounter(), rounds)):
        news = [at for at in range(index + 1) if rounds[at] - set[str]().union(*rounds[:at])]
        since = rounds[news[-1] : index + 1]
        assert found == {key: sum(key in each for each in since) for key in found}


@given(st.lists(st.sampled_from('abcd'), max_size=20))
def test_work_with_a_new_result_in_each_pair_of_steps_never_reaches_the_limit(checks: list[str]) -> None:
    """A check that fails in the same way after each new edit."""
    rounds = [keys for number, check in enumerate(checks) for keys in ({f'edit {number}'}, {check})]
    assert all(count < LIMIT for found in play(ResultCounter(), rounds) for count in found.values())


@given(st.lists(st.sampled_from('abc'), min_size=3 * (LIMIT - 1) + 1 + 3, max_size=30))
def test_steps_without_new_results_reach_the_limit(steps: list[str]) -> None:
    """Three results that are known, and each other one is a repetition."""
    counter = ResultCounter()
    counter.add({'a', 'b', 'c'})
    assert any(count >= LIMIT for found in play(counter, [{step} for step in steps]) for count in found.values())


@given(CALLS)
def test_reading_step_by_step_counts_like_reading_at_once(rounds: list[list[tuple[str, str]]]) -> None:
    messages, results = messages_of(rounds), TurnResults()
    found = [results.read(messages[:end]) for end in range(1, len(messages) + 1)]
    assert found[-1] == TurnResults().read(messages)


@given(CALLS)
def test_order_of_the_calls_of_a_response_does_not_matter(rounds: list[list[tuple[str, str]]]) -> None:
    forward, backward = (
        TurnResults().read(messages_of(played)) for played in (rounds, [results[::-1] for results in rounds])
    )
    assert [(item.part.tool_name, item.count) for item in forward] == [
        (item.part.tool_name, item.count) for item in backward[::-1]
    ]


@given(st.lists(st.lists(st.sampled_from('abc'), min_size=1, max_size=3), max_size=12))
def test_history_with_notices_counts_like_the_one_without(tools: list[list[str]]) -> None:
    """A run that resumes has notices in its history. Here each call has one result."""
    rounds = [[(tool, f'result of {tool}') for tool in called] for called in tools]
    live, results = messages_of(rounds), TurnResults()
    for end in range(1, len(live) + 1):
        repeated = [item.part for item in results.read(live[:end]) if item.count >= LIMIT]
        request = live[end - 1]
        if isinstance(request, ModelRequest):
            parts = [replace(part, content=NOTICE) if part in repeated else part for part in request.parts]
            live[end - 1] = replace(request, parts=parts)
    stored = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(live))
    assert counts(TurnResults(), stored) == counts(TurnResults(), messages_of(rounds))


@given(CALLS, st.sampled_from(('ls', 'grep')), st.sampled_from('xy'))
def test_next_count_is_that_of_the_result_in_a_message(
    rounds: list[list[tuple[str, str]]], tool: str, content: str
) -> None:
    messages, results = messages_of([*rounds, [(tool, content)]]), TurnResults()
    *before, response, request = messages
    results.read([*before, response])
    call, part = response.parts[0], request.parts[0]
    assert isinstance(call, ToolCallPart)
    assert isinstance(part, ToolReturnPart)
    assert [results.next_count(call, part, None)] == counts(results, messages)


def test_call_by_another_tool_does_not_count() -> None:
    results = TurnResults()
    results.read(one_call('x', 'x', 'x')[:-1])
    part = ToolReturnPart('ls', 'x', 'nested')
    assert results.next_count(ToolCallPart('ls', {'path': '/'}, 'nested'), part, None) == 1


def test_results_count_once_if_they_are_read_twice() -> None:
    messages, results = one_call('x', 'x'), TurnResults()
    assert counts(results, messages) == [2]
    assert counts(results, messages) == [2]


def test_prompt_starts_a_turn() -> None:
    messages, results = one_call('x', 'x'), TurnResults()
    results.read(messages)
    messages += [ModelResponse(parts=[TextPart('done')]), *one_call('x')]
    assert counts(results, messages) == [1]


def test_other_history_is_read_again() -> None:
    results = TurnResults()
    results.read(one_call('x', 'x', 'x'))
    assert counts(results, one_call('x', 'x')) == [2]
    assert counts(results, one_call('x')) == [1]


def test_results_without_a_call_are_ignored() -> None:
    orphan = ModelRequest(parts=[ToolReturnPart('ls', 'x', 'unknown')])
    assert TurnResults().read([PROMPT, orphan]) == []


def test_notice_without_the_result_that_it_repeats_is_a_result() -> None:
    """A summary has replaced the results before the notice."""
    messages = one_call(NOTICE, 'x')
    assert counts(TurnResults(), messages) == [1]


def test_arguments_are_json_with_sorted_keys() -> None:
    call, result = ToolCallPart('ls', '{"b": 1, "a": [2]}', 'id'), ToolReturnPart('ls', 'x', 'id')
    (found,) = TurnResults().read([PROMPT, ModelResponse(parts=[call]), ModelRequest(parts=[result])])
    assert found.arguments == '{"a": [2], "b": 1}'


@pytest.mark.parametrize(
    ('parts', 'expected'),
    [
        ([UserPromptPart('go')], True),
        ([ToolReturnPart('ls', 'x', 'id')], False),
        ([ToolReturnPart('ls', 'x', 'id'), UserPromptPart('an image')], False),
        ([], False),
    ],
)
def test_prompt_beside_results_does_not_start_a_turn(
    parts: list[ToolReturnPart | UserPromptPart], expected: bool
) -> None:
    assert starts_turn(ModelRequest(parts=parts)) is expected
