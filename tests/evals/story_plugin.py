"""A pytest plugin that records each turn of the tests that run as a case, and replays it: see `test_stories`.

`STORY_TURNS` names the file to which it appends one JSON object for each turn.
"""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import RunContext
from pydantic_ai.toolsets import FunctionToolset, ToolsetTool

from pydantic_deep.evals import TurnCase, read_case, record_case, replay_case, write_case
from pydantic_deep.versions import AgentVersion, VersionedAgent

_IS_RECORDING = [False]


@pytest.fixture(autouse=True)
def record_turns(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Record a turn as soon as it has ended: the test may change its store afterwards."""
    run: Any = AgentVersion.run

    async def recorded(self: AgentVersion[Any, Any], options: Any) -> AgentVersion[Any, Any]:
        version = await run(self, options)
        if not _IS_RECORDING[0]:
            _IS_RECORDING[0] = True
            try:
                with warnings.catch_warnings(action='ignore'):
                    line = {'test': request.node.nodeid, **await _examine(version)}
            finally:
                _IS_RECORDING[0] = False
            _append(line)
        return version

    monkeypatch.setattr(AgentVersion, 'run', recorded)


def _append(line: Mapping[str, Any]) -> None:
    with Path(os.environ['STORY_TURNS']).open('a') as file:
        file.write(json.dumps(line) + '\n')


async def _examine(version: AgentVersion[Any, Any]) -> Mapping[str, Any]:
    """Record a turn, and replay it with the same and with changed code."""
    session = version._session  # pyright: ignore[reportPrivateUsage]
    versions = VersionedAgent(session.agent, session.store, make_deps=session.make_deps)
    with tempfile.TemporaryDirectory() as directory:
        try:
            written = await record_case(versions, version.id)
        except Exception as error:
            return {'error': f'{type(error).__name__}: {error}'}
        case = read_case(write_case(written, Path(directory), allow_secrets=True))
    rows = case.rows
    assert rows is not None
    compared = [
        call.tool_name
        for call in rows.calls
        if call.effect in ('read', 'write')
        and call.status == 'done'
        and (call.response_id, call.tool_call_id) not in (case.unrepeatable or ())
    ]
    used = await version.request_parameters()
    tools: Any = [] if used is None else used['tools']
    lines: dict[str, Any] = {'unrepeatable': len(case.unrepeatable or ()), 'requests': len(rows.requests)}
    lines['same'] = await _differences(versions, case)
    with versions.agent.override(instructions='Write in verse.'):
        lines['instructions'] = await _differences(versions, case)
    if tools:
        with _without_tool(tools[0]['name']):
            lines['tool'] = await _differences(versions, case)
            lines['removed'] = tools[0]['name']
    if compared:
        with _other_results(compared[0]):
            lines['result'] = await _differences(versions, case)
            lines['changed'] = compared[0]
    return lines


async def _differences(versions: VersionedAgent[Any, Any], case: TurnCase) -> list[str]:
    return list((await replay_case(versions)(case)).differences)


@contextmanager
def _without_tool(name: str) -> Generator[None]:
    get_tools = FunctionToolset.get_tools

    async def fewer(self: FunctionToolset[Any], ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        return {key: tool for key, tool in (await get_tools(self, ctx)).items() if key != name}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FunctionToolset, 'get_tools', fewer)
        yield


@contextmanager
def _other_results(name: str) -> Generator[None]:
    call_tool = FunctionToolset.call_tool

    async def other(self: FunctionToolset[Any], tool: str, *args: Any) -> Any:
        result = await call_tool(self, tool, *args)
        return 'Something else.' if tool == name else result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FunctionToolset, 'call_tool', other)
        yield
