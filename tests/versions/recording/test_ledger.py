"""Calls in the ledger: arguments as the model wrote them, and results or failures."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic_ai import ModelRetry, RunContext, ToolReturn
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ToolFailed
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart

from pydantic_deep import ToolFailures
from pydantic_deep.testing import call
from pydantic_deep.versions import AgentVersion, VersionedAgent
from tests.versions.conftest import MakeAgent, SpyStore

pytestmark = pytest.mark.anyio


def returns(messages: list[ModelMessage]) -> list[ToolReturnPart]:
    requests = [message for message in messages if isinstance(message, ModelRequest)]
    return [part for request in requests for part in request.parts if isinstance(part, ToolReturnPart)]


async def newest(agent: VersionedAgent[Any, Any]) -> AgentVersion[Any, Any]:
    return (await agent.list(limit=1))[0]


async def test_failing_tool_is_a_result_for_the_model(make: MakeAgent, store: SpyStore):
    """000-12, C10: A tool that raises is a failed result, which the model receives."""

    def burn() -> str:
        raise KeyError('fire')

    turn = await (await make(call('burn'), 'I saw it', tools=[burn]).create()).advance('go')

    assert (turn.state, turn.output) == ('complete', 'I saw it')
    [returned] = returns(await turn.messages())
    assert returned.outcome == 'failed'
    assert 'KeyError' in returned.model_response_str()
    [entry] = await store.calls([turn.run_id or ''])
    assert (entry.status, entry.error) == ('failed', 'KeyError')


async def test_metadata_that_json_cannot_represent_fails_the_call(make: MakeAgent, store: SpyStore):
    """000-12: The call has run, and its result is failed; the error ended the run and named neither call nor metadata."""

    def plot() -> ToolReturn:
        return ToolReturn('A plot.', metadata={'figure': object()})

    def pay(ctx: RunContext[object]) -> str:
        raise ApprovalRequired(metadata={'account': object()})

    def order() -> str:
        raise CallDeferred(metadata={'job': object()})

    calls = [call('plot'), call('pay'), call('order')]
    agent = make(calls, 'I saw it', tools=[plot, pay, order])
    turn = await (await agent.create()).advance('go')

    assert (turn.kind, turn.output) == ('turn', 'I saw it')
    for returned in returns(await turn.messages()):
        assert returned.outcome == 'failed'
        assert 'JSON cannot represent the metadata of this call' in returned.model_response_str()
    entries = await store.calls([turn.run_id or ''])
    assert [(entry.status, entry.error) for entry in entries] == [('failed', 'PydanticSerializationError')] * 3


async def test_tool_can_ask_the_model_to_retry(make: MakeAgent, store: SpyStore):
    """000-12: A tool that raises `ModelRetry` is called again, and both calls are in the ledger."""
    seen: list[int] = []

    def pick(number: int) -> str:
        """Pick.

        Args:
            number: Which.
        """
        seen.append(number)
        if number < 3:
            raise ModelRetry('more')
        return 'enough'

    agent = make_retrying(make, pick)
    turn = await (await agent.create()).advance('go')

    assert seen == [1, 3]
    assert [part.outcome for part in returns(await turn.messages())] == ['retried', 'success']
    assert [(entry.status, entry.error) for entry in await store.calls([turn.run_id or ''])] == [
        ('failed', 'ModelRetry'),
        ('done', None),
    ]
    assert bool(await turn.replay())


def make_retrying(make: MakeAgent, tool: Any) -> VersionedAgent[Any, Any]:
    return make(call('pick', number=1), call('pick', number=3), 'done', tools=[tool])


async def test_arguments_are_stored_byte_for_byte(make_plain: MakeAgent, store: SpyStore):
    """000-20a: The arguments of a tool call are stored as the JSON text of the model, byte for byte."""
    written = '{"b": 1.10, "a":  12345678901234567890123, "c":"\\u00e4\\/", "b2":1e400}'
    seen: list[object] = []

    def keep(**values: object) -> str:
        seen.append(values['a'])
        return 'ok'

    agent = make_plain(ToolCallPart('keep', written, tool_call_id='c1'), 'done', tools=[keep])
    turn = await (await agent.create()).advance('go')

    response = (await (await agent.load(turn.id)).messages())[1]
    assert isinstance(response, ModelResponse)
    [part] = response.tool_calls
    assert part.args == written
    [entry] = await store.calls([turn.run_id or ''])
    assert entry.arguments == written
    assert seen == [12345678901234567890123]


async def test_arguments_as_a_dictionary_are_stored_as_given(make_plain: MakeAgent, store: SpyStore):
    """C9: Arguments given as a dictionary are stored in the given order."""

    def keep(b: int, a: int) -> str:
        return 'ok'

    agent = make_plain(ToolCallPart('keep', {'b': 2, 'a': 1}, tool_call_id='c1'), 'done', tools=[keep])
    turn = await (await agent.create()).advance('go')

    messages = await (await agent.load(turn.id)).messages()
    assert isinstance(messages[1], ModelResponse)
    assert json.dumps(messages[1].tool_calls[0].args) == '{"b": 2, "a": 1}'
    assert (await store.calls([turn.run_id or '']))[0].arguments == '{"b":2,"a":1}'


async def test_tool_failed_error_is_final(make: MakeAgent, store: SpyStore):
    """C10: `ToolFailed` is the result of its call, without a retry."""

    def never() -> str:
        raise ToolFailed('No such thing.')

    turn = await (await make(call('never'), 'ok', tools=[never]).create()).advance('go')

    [returned] = returns(await turn.messages())
    assert (returned.outcome, returned.content) == ('failed', 'No such thing.')
    assert (await store.calls([turn.run_id or '']))[0].error == 'ToolFailed'
    assert bool(await turn.replay())


async def test_tool_error_that_ends_the_run_is_failed_in_the_ledger(make_plain: MakeAgent, store: SpyStore):
    def burn() -> str:
        raise KeyError('fire')

    agent = make_plain(call('burn'), tools=[burn], capabilities=[ToolFailures(propagate=(KeyError,))])
    with pytest.raises(KeyError):
        await (await agent.create()).advance('go')

    failed = await newest(agent)
    [entry] = await store.calls([failed.run_id or ''])
    assert (failed.state, entry.status, entry.error) == ('failed', 'failed', 'KeyError')


@pytest.mark.parametrize(
    ('text', 'stored'),
    [
        ('nul \x00 inside', 'nul \x00 inside'),
        ('lone \ud800 surrogate', r'lone \ud800 surrogate'),
        ('\ufeffbom', '\ufeffbom'),
        ('e\u0301 \U0001f600', 'e\u0301 \U0001f600'),
    ],
)
async def test_any_tool_result_text_is_stored(make_plain: MakeAgent, text: str, stored: str):
    """A result is stored as it is, except for halves of surrogate pairs, which no database accepts and are escaped."""

    def say() -> str:
        return text

    turn = await (await make_plain(call('say'), 'done', tools=[say]).create()).advance('go')

    request = (await (await make_plain().load(turn.id)).messages())[2]
    assert request.parts[0].content == stored  # type: ignore[union-attr]
