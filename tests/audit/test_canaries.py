"""Secrets planted in every input and output of a run do not appear in records, logs or spans."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic_ai import Agent
from pydantic_ai.settings import ModelSettings

from pydantic_deep import DeepAgentDeps, ToolFailures
from pydantic_deep.audit import Audit, AuditRecord, audit_of_run, rehydrate
from pydantic_deep.repository.memory import MemoryRepository
from pydantic_deep.store import SqlStore
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.versions import VersionedAgent

pytestmark = pytest.mark.anyio

MARK = 'c4n4ry'
"""Part of every secret, and of nothing else."""

KEY = f'sk-proj-{MARK}Zm9vYmFyQmF6MTIz'
TOKEN = f'ghp_{MARK}Zm9vYmFyQmF6MTIzNDU2Nzg5MGFi'
URL = f'postgres://me:{MARK}@host/db'
BEARER = f'Bearer {MARK}.Zm9vYmFyQmF6MTIz'
PEM = f'-----BEGIN PRIVATE KEY-----\n{MARK}+/\n-----END PRIVATE KEY-----'
ALL = f'{KEY} and {TOKEN} and {URL} and {BEARER} and {PEM} and API_KEY={MARK}.'

SETTINGS = ModelSettings(
    temperature=0.5,
    max_tokens=77,
    extra_headers={'Authorization': BEARER, 'x-api-key': MARK},
    extra_body={'nested': [{'clientSecret': MARK, 'say': ALL}]},
)
METADATA = {'owner': KEY, 'session_id': TOKEN, 'nested': {'password': MARK, 'note': ALL}}


def work(**arguments: object) -> dict[str, Any]:
    """Work."""
    return {'text': ALL, 'env': {'AWS_SECRET_ACCESS_KEY': MARK, 'list': [URL]}, 'input_tokens': 4}


def fail() -> str:
    """Fail."""
    try:
        raise OSError(ALL)
    except OSError as error:
        raise ValueError(f'because of {error}') from error


def script() -> ScriptedModel:
    calls = [call('work', password=MARK, header=BEARER, deep={'a': [{'api_key': MARK}]}), call('work', text=ALL)]
    return ScriptedModel(calls, call('fail'), f'It is {KEY}.')


def shown(records: Sequence[AuditRecord]) -> str:
    return ''.join(record.model_dump_json() for record in records)


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Callable[[], str]:
    """Return the complete log, including tracebacks and extras."""
    caplog.set_level(logging.DEBUG, 'pydantic_deep')
    formatter = logging.Formatter()
    return lambda: ''.join(
        formatter.format(record) + str(vars(record).get('audit_record')) for record in caplog.records
    )


async def test_record_of_a_failed_run_has_no_secrets(
    rows: MemoryRepository[AuditRecord], logged: Callable[[], str]
) -> None:
    agent = Agent[Any, Any](script(), capabilities=[Audit(rows)], tools=[work, fail])
    with pytest.raises(ValueError, match='because of'):
        await agent.run(
            ['Use', ALL], model_settings=SETTINGS, metadata=METADATA, deps=DeepAgentDeps(metadata={'token': MARK})
        )

    records = (await rows.list()).items

    assert [each.status for each in records] == ['failed']
    assert shown(records).count(MARK) == 0
    assert shown(records).count('[redacted: ') > 20
    assert logged().count(MARK) == 0
    assert str(await rehydrate(records[0])).count(MARK) == 0


async def test_numbers_and_ordinary_values_are_not_redacted(rows: MemoryRepository[AuditRecord]) -> None:
    agent = Agent[Any, Any](script(), capabilities=[Audit(rows)], tools=[work, fail])
    with pytest.raises(ValueError, match='because of'):
        await agent.run('Go', model_settings=SETTINGS)

    (record,) = (await rows.list()).items
    result = record.tool_calls[0].result

    assert (record.model_settings['max_tokens'], record.model_settings['temperature']) == (77, 0.5)
    assert record.usage.input_tokens == 200
    assert result is not None
    assert isinstance(result.value, dict)
    assert result.value['input_tokens'] == 4


async def test_log_of_an_unwritten_record_has_no_secrets(logged: Callable[[], str]) -> None:
    def choose(_: object) -> MemoryRepository[AuditRecord]:
        raise OSError(ALL)

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with provider.get_tracer('test').start_as_current_span('run'):
        await Agent[Any, Any](ScriptedModel(KEY), capabilities=[Audit(choose)]).run(ALL, metadata=METADATA)

    log_text = logged()
    assert log_text.count('could not be written') == 2
    assert log_text.count(MARK) == 0
    assert exporter.get_finished_spans()[0].to_json().count(MARK) == 0


async def test_records_of_stored_runs_have_no_secrets(
    rows: MemoryRepository[AuditRecord], store: SqlStore, logged: Callable[[], str]
) -> None:
    of_turn = ModelSettings(**SETTINGS)
    of_agent = ModelSettings(extra_headers=of_turn.pop('extra_headers'))  # refused by stores
    capabilities = [Audit(rows), ToolFailures(propagate=(ValueError,))]
    run_by = Agent[Any, Any](script(), model_settings=of_agent, capabilities=capabilities, tools=[work, fail])
    root = await VersionedAgent(run_by, store).create(metadata={'owner': KEY, 'password': MARK})
    with pytest.raises(ValueError, match='because of'):
        await root.advance(ALL, **of_turn)
    (run,) = await store.runs()

    records = [*(await rows.list()).items, await audit_of_run(store, run.id)]

    assert [each.status for each in records] == ['failed', 'failed']
    assert shown(records).count(MARK) == 0
    assert logged().count(MARK) == 0
