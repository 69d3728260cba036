"""Requests contain short schemas of our tools, whose calls are validated as before."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

import pytest
from inline_snapshot import snapshot
from pydantic_ai import Agent, FunctionToolset, RunContext, ToolDefinition
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import RunUsage

from pydantic_deep._toolsets.run_toolset import RunToolset
from pydantic_deep._toolsets.tool_schema import ToolSchema
from pydantic_deep.testing import ScriptedModel, call

pytestmark = pytest.mark.anyio


def search(ctx: RunContext[object], words: str, limit: int = 10, folder: str | None = None) -> str:
    """Search."""
    return json.dumps([words, limit, folder])


def toolset() -> RunToolset[object]:
    functions = FunctionToolset[object](schema_generator=ToolSchema)
    functions.add_function(search)
    return RunToolset(functions, lambda ctx: ctx.deps)


async def first_schema() -> Mapping[str, Any]:
    model = ScriptedModel('ok')
    await Agent(model, toolsets=[toolset()]).run('go')
    return model.requests[0].tools[0].parameters_json_schema


async def test_schema_has_no_defaults_no_null_and_no_refusal_of_further_arguments() -> None:
    assert await first_schema() == snapshot(
        {
            'properties': {
                'words': {'type': 'string'},
                'limit': {'type': 'integer'},
                'folder': {'type': 'string'},
            },
            'required': ['words'],
            'type': 'object',
        }
    )


@pytest.mark.parametrize(
    ('arguments', 'values'),
    [
        ({'words': 'a'}, ['a', 10, None]),
        ({'words': 'a', 'limit': 2, 'folder': None}, ['a', 2, None]),
    ],
)
async def test_omitted_and_null_arguments_are_accepted(arguments: dict[str, object], values: list[object]) -> None:
    model = ScriptedModel(call('search', **arguments), 'ok')
    await Agent(model, toolsets=[toolset()]).run('go')
    [result] = model.requests[-1].tool_returns
    assert json.loads(cast('str', result.content)) == values


async def test_unknown_argument_is_refused() -> None:
    model = ScriptedModel(call('search', words='a', colour='red'), 'ok')
    await Agent(model, toolsets=[toolset()]).run('go')
    [result] = model.requests[-1].tool_returns
    assert result.outcome == 'retried'
    assert 'colour' in result.model_response_str()


async def definition_for(model: Model[Any]) -> ToolDefinition:
    """Return the tool as a request to a model contains it."""
    tools = await toolset().get_tools(RunContext[object](deps=None, model=model, usage=RunUsage()))
    _, sent = model.prepare_request(None, ModelRequestParameters(function_tools=[tools['search'].tool_def]))
    return sent.function_tools[0]


async def test_openai_receives_the_short_schema() -> None:
    """pydantic-ai adds `additionalProperties` to the schemas of tools that may be strict."""
    tool = await definition_for(OpenAIChatModel('gpt-5.2', provider=OpenAIProvider(api_key='none')))
    assert (tool.strict, tool.parameters_json_schema) == (False, await first_schema())


async def test_gemini_may_enforce_schemas() -> None:
    tool = await definition_for(GoogleModel('gemini-2.5-pro', provider=GoogleProvider(api_key='none')))
    assert tool.strict is True


async def test_fallback_model_has_no_profile_of_its_own() -> None:
    """Its models may differ, so that each decides on the strictness."""
    model = FallbackModel(ScriptedModel('ok'), ScriptedModel('ok'))
    tools = await toolset().get_tools(RunContext[object](deps=None, model=model, usage=RunUsage()))
    assert tools['search'].tool_def.strict is None
