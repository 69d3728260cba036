"""Notices of changed state, and how they are found in a history."""

from __future__ import annotations

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, SystemPromptPart, TextPart, UserPromptPart

from pydantic_deep._messages.notice import Notice, last_noticed, noticed


def history_of(*texts: str) -> list[ModelMessage]:
    return [ModelRequest(parts=[SystemPromptPart(text)]) for text in texts]


def test_notice_with_another_heading_is_not_read() -> None:
    part = SystemPromptPart('Todos:\n[ ] a')
    assert (noticed(part, 'Todos:'), noticed(part, 'Todo'), noticed(part, 'Files:')) == ('[ ] a', None, None)


def test_empty_state_is_noticed_as_none_and_read_as_empty() -> None:
    requests = [ModelRequest(parts=[UserPromptPart('go')])]
    Notice(heading='Todos:', known='[ ] a').add_to(requests, '')
    notices = [part.content for part in requests[0].parts if isinstance(part, SystemPromptPart)]
    assert notices == ['Todos:\nnone']
    assert last_noticed(requests, 'Todos:') == ''


def test_last_notice_of_a_history_counts() -> None:
    history = [*history_of('Todos:\na', 'Files:\nf', 'Todos:\nb', 'Files:\ng'), ModelResponse(parts=[TextPart('ok')])]
    assert (last_noticed(history, 'Todos:'), last_noticed(history, 'Files:')) == ('b', 'g')
    assert last_noticed(history, 'Uploads:') == ''


def test_known_text_is_not_added_again() -> None:
    notice = Notice(heading='Todos:', known='')
    first, second = ([ModelRequest(parts=[UserPromptPart('go')])] for _ in range(2))
    for requests in (first, second):
        notice.add_to(requests, 'a')
    assert [len(requests[0].parts) for requests in (first, second)] == [2, 1]


def test_sent_and_stored_request_get_the_same_notice() -> None:
    requests = [ModelRequest(parts=[UserPromptPart('go')]), ModelRequest(parts=[UserPromptPart('go, shorter')])]
    Notice(heading='Todos:', known='').add_to(requests, 'a')
    assert [request.parts[0] for request in requests] == [requests[0].parts[0]] * 2
    assert [part.part_kind for part in requests[1].parts] == ['system-prompt', 'user-prompt']
