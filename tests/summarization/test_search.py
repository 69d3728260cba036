"""Search for words in messages that a summary replaced."""

from __future__ import annotations

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolReturnPart, UserPromptPart

from pydantic_deep.summarization._search import search
from pydantic_deep.testing import call


def said(*texts: str) -> list[ModelMessage]:
    return [ModelRequest(parts=[UserPromptPart(text)]) for text in texts]


def test_results_with_the_most_matching_words_come_first() -> None:
    found = search(said('a red door', 'a green door', 'the green window'), 'Green DOOR').splitlines()
    assert found[0] == '[message 2] user: a green door'
    assert len(found) == 3


def test_newest_of_equal_results_comes_first() -> None:
    assert search(said('door 1', 'door 2'), 'door').splitlines()[0] == '[message 2] user: door 2'


def test_rare_words_weigh_more_than_common_ones() -> None:
    texts = [f'what is the number of the thing {n}' for n in range(30)]
    texts[4] = 'Lease: 7-B'
    assert search(said(*texts), 'what is the number of the lease').splitlines()[0] == '[message 5] user: Lease: 7-B'


def test_number_of_shown_results_is_limited_and_the_rest_counted() -> None:
    found = search(said(*(f'door {n}' for n in range(12))), 'door').splitlines()
    assert len(found) == 9
    assert found[-1] == '[4 more match less well or are older: search for more words]'


def test_long_message_is_found_by_its_middle_and_shown_in_part() -> None:
    found = search(said('x ' * 2_000 + 'the lease is 7-B ' + 'y ' * 2_000), 'lease')
    assert '7-B' in found
    assert len(found) < 2_000


def test_search_without_matches_returns_a_hint() -> None:
    assert search(said('a door'), 'window') == 'None of these words is in the 1 earlier messages. Try others.'
    assert search(said('a door'), ' .,') == 'The query has no words. Search for words that were used.'


def test_results_of_earlier_searches_are_excluded() -> None:
    found = ModelRequest(parts=[ToolReturnPart('search_history', '[message 1] user: a door', tool_call_id='c')])
    asked = ModelResponse(parts=[call('search_history', query='door')])
    assert search([*said('a door'), asked, found], 'door') == '[message 1] user: a door'
