"""Tools by name: which exist, what a misspelt name may mean, and which require approval by their own definition."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.exceptions import UserError
from pydantic_ai.toolsets import AbstractToolset, DynamicToolset, ToolsetTool

from pydantic_deep._messages.deferred_metadata import DELEGATES
from pydantic_deep.extensions import SupportsHiddenTools, find_capabilities

_LOGGER = logging.getLogger('pydantic_deep')

MARK = 'pydantic_deep_requires_approval'
"""The key in a tool's metadata that says that it was defined with `requires_approval=True`."""


async def check_names(
    ctx: RunContext[object], names: Collection[str], tools: Collection[str], toolset: AbstractToolset[Any]
) -> None:
    """Refuse names that no tool of the run bears, nor one that it does not show.

    Where a toolset is made anew at each step, a tool may come later: then the log says what has not been found.

    Args:
        ctx: The run.
        names: What is to be asked for.
        tools: The tools that the run has.
        toolset: Where they are from.

    Raises:
        UserError: There are such names.
    """
    known = set(tools)
    if known.issuperset(names):
        return
    for neighbour in find_capabilities(ctx, SupportsHiddenTools):
        known |= await neighbour.hidden_tool_names(ctx)
    unknown = sorted(set(names) - known)
    if unknown and _may_grow(toolset):
        _LOGGER.warning('`interrupt_on` names %s; no tool is called so yet', ', '.join(map(repr, unknown)))
    elif unknown:
        raise UserError(' '.join([*(_unknown(name, known) for name in unknown), f'Known tools: {_listed(known)}.']))


def _may_grow(toolset: AbstractToolset[Any]) -> bool:
    """Return whether there may be other tools at a later step."""
    leaves: list[AbstractToolset[Any]] = []
    toolset.apply(leaves.append)
    return any(isinstance(leaf, DynamicToolset) and leaf.per_run_step for leaf in leaves)


def _unknown(name: str, known: Collection[str]) -> str:
    close = get_close_matches(name, known)
    meant = f' Did you mean {" or ".join(map(repr, close))}?' if close else ''
    return f'`interrupt_on` names {name!r}, and no tool is called so.{meant}'


def _listed(names: Collection[str]) -> str:
    return ', '.join(sorted(names)) or 'none'


def marked(tools: dict[str, ToolsetTool[Any]]) -> dict[str, ToolsetTool[Any]]:
    """Return the tools with those that pydantic-ai would defer itself marked instead.

    It defers a tool with `requires_approval=True` without the metadata of whoever raises `ApprovalRequired`, so that
    the person would see no preview and an unanswered call could not wait on. As an ordinary tool with a mark the
    call passes the same gate as all others.
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
    """Return whether the tool says that it changes nothing."""
    return _metadata(tool_def).get('effect') == 'read'


def is_writing(tool_def: ToolDefinition) -> bool:
    """Return whether the tool says that it changes files."""
    return _metadata(tool_def).get('effect') == 'write'


def is_delegating(tool_def: ToolDefinition) -> bool:
    """Return whether a call of the tool may wait for what a subagent asks."""
    return _metadata(tool_def).get(DELEGATES) is True


def _marked(tool_def: ToolDefinition) -> ToolDefinition:
    return replace(tool_def, kind='function', metadata={**_metadata(tool_def), MARK: True})


def _metadata(tool_def: ToolDefinition) -> Mapping[str, Any]:
    return tool_def.metadata or {}
