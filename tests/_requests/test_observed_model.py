"""Responses of a model, reported before anybody uses them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.exceptions import FallbackExceptionGroup, ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelRequestAttempt, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.fallback import FallbackModel

from pydantic_deep._requests.observed_model import ObservedModel
from pydantic_deep.testing import ScriptedModel

pytestmark = pytest.mark.anyio

PROMPT: list[ModelMessage] = [ModelRequest.user_text_prompt('go')]


class Log:
    """The reports of a model, in order: `False` before a request is sent, its response, `True` after the response."""

    def __init__(self) -> None:
        self.entries: list[object] = []

    def model(self, wrapped: Model) -> ObservedModel:
        return ObservedModel(wrapped, self.observe, self.persist)

    def observe(self, response: ModelResponse | None, failed: Sequence[ModelRequestAttempt]) -> None:
        self.entries.append((None if response is None else response.text, len(failed)))

    async def persist(self, is_answered: bool) -> None:
        self.entries.append(is_answered)


@pytest.fixture
def log() -> Log:
    return Log()


async def test_response_is_observed_and_persisted_in_order(log: Log) -> None:
    agent = Agent(log.model(ScriptedModel('one', 'two')))
    assert (await agent.run('go')).output == 'one'
    async with agent.run_stream('go') as stream:
        assert await stream.get_output() == 'two'
    assert log.entries == [False, ('one', 0), True, False, ('two', 0), True]


async def test_abandoned_stream_reports_the_received_part(log: Log) -> None:
    class AbandonedError(Exception):
        pass

    async def abandon() -> None:
        model = log.model(ScriptedModel('one two three'))
        async with model.request_stream(PROMPT, None, ModelRequestParameters()) as stream:
            async for _ in stream:
                raise AbandonedError

    with pytest.raises(AbandonedError):
        await abandon()
    assert log.entries == [False, ('one ', 0)]


@pytest.mark.parametrize('is_streamed', [False, True])
async def test_attempts_of_which_all_fail_are_observed(log: Log, is_streamed: bool) -> None:
    errors = [ModelHTTPError(500, name) for name in ('first', 'second')]
    model = log.model(FallbackModel(*map(ScriptedModel, errors)))

    async def request() -> None:
        parameters: Any = ModelRequestParameters()
        if is_streamed:
            async with model.request_stream(PROMPT, None, parameters):
                raise AssertionError('no model responds')
        await model.request(PROMPT, None, parameters)

    with pytest.raises(FallbackExceptionGroup):
        await request()
    assert log.entries == [False, (None, 2)]
