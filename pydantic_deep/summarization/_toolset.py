"""The tool `search_history`.

The function is created once for all agents. Its deps are the context of the run.
"""

from dataclasses import replace
from functools import cache

from pydantic_ai import FunctionToolset, RunContext
from pydantic_ai.models import ModelRequestParameters

from pydantic_deep._messages.summary_metadata import replaced_messages
from pydantic_deep._toolsets.tool_schema import ToolSchema
from pydantic_deep.extensions import SupportsHistory, find_capabilities

from ._search import TOOL_NAME, search

NOTHING_REPLACED = 'No message was replaced: all of them are above.'
"""The tool result if no messages were replaced."""


async def search_history(ctx: RunContext[RunContext[object]], query: str) -> str:
    """Search, by words, messages that a summary has replaced."""
    run = ctx.deps
    stored = next(iter(find_capabilities(run, SupportsHistory)), None)
    messages = replaced_messages(run.messages) if stored is None else await stored.earlier_messages(run)
    return search(messages, query) if messages else NOTHING_REPLACED


def offered_parameters(parameters: ModelRequestParameters, *, is_summarized: bool) -> ModelRequestParameters:
    """Return the parameters of a request, with `search_history` only if messages were replaced."""
    if is_summarized:
        return parameters
    return replace(parameters, function_tools=[tool for tool in parameters.function_tools if tool.name != TOOL_NAME])


@cache
def function_toolset() -> FunctionToolset[RunContext[object]]:
    """Return the toolset of `search_history`."""
    toolset = FunctionToolset[RunContext[object]](id='summarization', schema_generator=ToolSchema)
    toolset.add_function(search_history, name=TOOL_NAME, metadata={'effect': 'read', 'trusted': True})
    return toolset
