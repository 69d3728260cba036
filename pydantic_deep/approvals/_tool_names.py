"""Validate tool names in `interrupt_on`, and read the approval settings of tool definitions."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.exceptions import UserError
from pydantic_ai.toolsets import (
    AbstractToolset,
    CombinedToolset,
    DynamicToolset,
    FunctionToolset,
    PrefixedToolset,
    RenamedToolset,
    ToolsetTool,
    WrapperToolset,
)

from pydantic_deep._messages.deferred_metadata import DELEGATES
from pydantic_deep._toolsets.late_toolset import LateToolset
from pydantic_deep.extensions import SupportsHiddenTools, find_capabilities

_LOGGER = logging.getLogger('pydantic_deep')

MARK = 'pydantic_deep_requires_approval'
"""Metadata key of tools that were defined with `requires_approval=True`."""


async def check_names(
    ctx: RunContext[object], names: Collection[str], tools: Collection[str], toolset: AbstractToolset[Any]
) -> None:
    """Raise if a name matches no tool of the run, visible or hidden.

    If a dynamic toolset or a server that is not running may add tools in a later step, log a warning instead.

    Args:
        ctx: The run.
        names: The names in `interrupt_on`.
        tools: The names of the tools of the run.
        toolset: The toolset that provides them.

    Raises:
        UserError: No tool has one of the names.
    """
    known = set(tools)
    if known.issuperset(names):
        return
    for capability in find_capabilities(ctx, SupportsHiddenTools):
        known |= await capability.hidden_tool_names(ctx)
    if not known.issuperset(names):
        known |= await _declared(ctx, toolset)
    unknown = sorted(set(names) - known)
    if unknown and _may_grow(toolset):
        _LOGGER.warning('`interrupt_on` names %s; no tool has this name yet', ', '.join(map(repr, unknown)))
    elif unknown:
        raise UserError(' '.join([*(_unknown(name, known) for name in unknown), f'Known tools: {_listed(known)}.']))


async def _declared(ctx: RunContext[object], toolset: AbstractToolset[Any]) -> set[str]:
    """Return the names of all tools of a toolset, also of those that a filter or a `prepare` function hides now.

    Below a toolset that renames, only visible tools count: a rule for the original name would have no effect.
    """
    match toolset:
        case CombinedToolset():
            return {name for each in toolset.toolsets for name in await _declared(ctx, each)}
        case PrefixedToolset() | RenamedToolset():
            below = set[str]()
        case WrapperToolset():
            below = await _declared(ctx, toolset.wrapped)
        case FunctionToolset():
            below = set(toolset.tools)
        case _:
            below = set[str]()
    visible = set(await toolset.get_tools(ctx))
    return below if visible <= below else visible


def _may_grow(toolset: AbstractToolset[Any]) -> bool:
    """Return whether a later step may have additional tools."""
    leaves: list[AbstractToolset[Any]] = []
    toolset.apply(leaves.append)
    return any(
        leaf.may_grow if isinstance(leaf, LateToolset) else isinstance(leaf, DynamicToolset) and leaf.per_run_step
        for leaf in leaves
    )


def _unknown(name: str, known: Collection[str]) -> str:
    close = get_close_matches(name, known)
    suggestion = f' Did you mean {" or ".join(map(repr, close))}?' if close else ''
    return f'`interrupt_on` names {name!r}, but no tool has this name.{suggestion}'


def _listed(names: Collection[str]) -> str:
    return ', '.join(sorted(names)) or 'none'


def marked(tools: dict[str, ToolsetTool[Any]]) -> dict[str, ToolsetTool[Any]]:
    """Return the tools, with those that pydantic-ai would defer itself turned into marked function tools.

    pydantic-ai defers a tool with `requires_approval=True` without the metadata of `ApprovalRequired`: the request
    would have no preview, and the call could not stay pending without an answer. As a marked function tool, the call
    passes the same gate as all others.
    """
    if all(tool.tool_def.kind != 'unapproved' for tool in tools.values()):
        return tools
    return {
        name: replace(tool, tool_def=_marked(tool.tool_def)) if tool.tool_def.kind == 'unapproved' else tool
        for name, tool in tools.items()
    }


def is_marked(tool_def: ToolDefinition) -> bool:
    """Return whether the tool was defined with `requires_approval=True`."""
    return _metadata(tool_def).get(MARK) is True


def is_reading(tool_def: ToolDefinition) -> bool:
    """Return whether the tool declares that it changes nothing."""
    return _metadata(tool_def).get('effect') == 'read'


def is_writing(tool_def: ToolDefinition) -> bool:
    """Return whether the tool declares that it changes files."""
    return _metadata(tool_def).get('effect') == 'write'


def is_delegating(tool_def: ToolDefinition) -> bool:
    """Return whether a call of the tool may be suspended for approvals of a subagent."""
    return _metadata(tool_def).get(DELEGATES) is True


def _marked(tool_def: ToolDefinition) -> ToolDefinition:
    return replace(tool_def, kind='function', metadata={**_metadata(tool_def), MARK: True})


def _metadata(tool_def: ToolDefinition) -> Mapping[str, Any]:
    return tool_def.metadata or {}
