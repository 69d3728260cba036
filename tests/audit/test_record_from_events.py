"""The parts of a record that come from the messages of a run."""

from __future__ import annotations

import json

import pytest
from pydantic_ai import BinaryContent, ImageUrl
from pydantic_ai.exceptions import ModelRetry
from pydantic_ai.messages import CachePoint, TextContent, ToolCallPart

from pydantic_deep.testing import ScriptedModel, call

from .conftest import AuditRows, MakeAgent

pytestmark = pytest.mark.anyio


async def test_rejected_calls_are_recorded_as_retried(audited: MakeAgent, rows: AuditRows) -> None:
    def work(count: int) -> str:
        if count == 0:
            raise ModelRetry('more')
        return 'ok'

    wrong = ToolCallPart('work', '{"count": ', tool_call_id='a')
    script = [wrong, call('work', count=0), call('work', count=1)]
    await audited(ScriptedModel(*script, 'end'), work=work, retries=3).run('Go')

    record = await rows.one()

    assert [each.outcome for each in record.tool_calls] == ['retried', 'retried', 'success']
    assert [each.arguments.value for each in record.tool_calls] == ['{"count": ', {'count': 0}, {'count': 1}]
    assert [each.started_at is None for each in record.tool_calls] == [True, False, False]


async def test_large_results_have_digest_and_size_and_are_complete_in_the_messages(
    audited: MakeAgent, rows: AuditRows
) -> None:
    await audited(ScriptedModel(call('work'), 'end'), work=lambda: 'x' * 5000).run('Go')

    record = await rows.one()
    result = record.tool_calls[0].result

    assert result is not None
    assert (result.value, result.is_whole, result.size_bytes, len(result.digest)) == (None, False, 5002, 64)
    assert json.dumps(record.messages).count('x' * 5000) == 1


async def test_media_in_a_question_are_described(audited: MakeAgent, rows: AuditRows) -> None:
    prompt = [
        'Look:',
        BinaryContent(b'123456', media_type='image/png'),
        ImageUrl('https://example.com/a.png'),
        TextContent('and this'),
        CachePoint(),
    ]
    await audited(ScriptedModel('ok')).run(prompt)

    assert (await rows.one()).question == (
        'Look:\n[image/png, about 6 bytes]\n[image-url: https://example.com/a.png]\nand this'
    )


async def test_run_without_a_prompt_is_recorded(audited: MakeAgent, rows: AuditRows) -> None:
    await audited(ScriptedModel('ok'), instructions='Say something.').run()

    assert (await rows.one()).question == ''


async def test_metadata_without_json_form_are_recorded_by_repr(audited: MakeAgent, rows: AuditRows) -> None:
    class Thing:
        def __repr__(self) -> str:
            return '<a thing>'

    await audited(ScriptedModel('ok')).run('Go', metadata={'it': Thing()})

    assert (await rows.one()).metadata == {'it': '<a thing>'}


async def test_lone_surrogates_are_replaced(audited: MakeAgent, rows: AuditRows) -> None:
    await audited(ScriptedModel('lone \ud800 surrogate')).run('Go')

    assert (await rows.one()).output == 'lone ? surrogate'
