"""`create_mcp_server`: the MCP server of one caller, for every transport."""

from __future__ import annotations

import importlib.metadata
import itertools
import logging
from functools import partial
from typing import Any, TypeAlias

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
)
from pydantic import ValidationError

from pydantic_deep.server.access._ownership import Access
from pydantic_deep.server.http._errors import FAILED, ServerError, refusal_of

from ._call import Call
from ._documents import get_prompt, list_prompts, list_resources, list_templates, read_resource
from ._shapes import tool_result
from ._tasks import CreatedTask, add_tasks
from ._tools import TOOLS, Result, ServedTool

_LOGGER = logging.getLogger('pydantic_deep')

Context: TypeAlias = ServerRequestContext[Any, Any]


INSTRUCTIONS = (
    'Runs deep agents. `run` starts a task; each turn ends with a version. An agent may pause for approvals, which the '
    'user decides.'
)


def create_mcp_server(access: Access) -> Server[Any]:
    """Return a server with the tools, resources and prompts that a caller may use.

    Args:
        access: The access of the caller.
    """
    server = Server(
        'pydantic-deep',
        version=importlib.metadata.version('versioned-deep-agents'),
        instructions=INSTRUCTIONS,
        on_list_tools=partial(_list_tools, access),
        on_list_resources=partial(list_resources, access),
        on_list_resource_templates=partial(list_templates, access),
        on_read_resource=partial(read_resource, access),
        on_list_prompts=partial(list_prompts, access),
        on_get_prompt=partial(get_prompt, access),
    )
    # The parameter `on_call_tool` has no type for tasks.
    server.add_request_handler('tools/call', CallToolRequestParams, partial(_call_tool, access))
    add_tasks(server, access)
    return server


async def _list_tools(access: Access, context: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
    return ListToolsResult(tools=[tool.definition() for tool in TOOLS.values() if tool.is_offered(access)])


async def _call_tool(
    access: Access, context: Context, params: CallToolRequestParams
) -> CallToolResult | InputRequiredResult | CreatedTask:
    tool = TOOLS.get(params.name)
    if tool is None:
        raise MCPError(INVALID_PARAMS, f'There is no such tool. Tools: {", ".join(TOOLS)}.')
    progress = itertools.count(1)  # it increases across all runs that the call waits for
    has_token = context.meta is not None and context.meta.get('progress_token') is not None
    call = Call(
        access=access,
        session=context.session,
        params=params,
        request_id=context.request_id,
        report=(lambda message: context.session.report_progress(next(progress), None, message)) if has_token else None,
    )
    try:
        result = await _execute(tool, call)
    except Exception as error:  # outermost boundary: a failed call must not end the connection
        refusal = refusal_of(error)
        if refusal is None:
            _LOGGER.exception('The MCP tool %s failed', tool.name)
        message = FAILED if refusal is None else refusal.message
        return CallToolResult(content=[TextContent(text=message)], is_error=True)
    return result if isinstance(result, (InputRequiredResult, dict)) else tool_result(result)


async def _execute(tool: ServedTool, call: Call) -> Result:
    tool.check(call.access)
    try:
        arguments = tool.arguments.model_validate(call.params.arguments or {})
    except ValidationError as error:
        raise ServerError('invalid', _explain(tool, error)) from None
    return await tool.execute(call, arguments)


def _explain(tool: ServedTool, error: ValidationError) -> str:
    """Describe the invalid arguments, without their values, which may contain a secret."""
    problems = '; '.join(
        f'{".".join(map(str, problem["loc"])) or "arguments"}: {problem["msg"]}' for problem in error.errors()[:3]
    )
    return f'The arguments of `{tool.name}` are invalid: {problems}. Its arguments: {", ".join(tool.arguments.model_fields)}.'
