"""External tools of one turn: the model calls them, the run pauses, and the caller supplies their results.

Each call is a pending approval that accepts `Respond` with the result, or `Deny` with a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.settings import ModelSettings
from pydantic_ai.toolsets import AbstractToolset, ExternalToolset, ToolsetTool, WrapperToolset

from pydantic_deep._capabilities.base import BaseCapability
from pydantic_deep._checks import check_list, check_name_list
from pydantic_deep.errors import TurnOptionError
from pydantic_deep.versions.errors import ValidationError


@dataclass(kw_only=True)
class ExternalTools(BaseCapability[Any]):
    """Adds external tools to a run. Subagents do not have them."""

    tools: Sequence[ToolDefinition]
    choice: Sequence[str] = ()
    """The tools of which each response must call one; empty if the model decides."""

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        """Return the tools of the agent with the external ones."""
        return _WithExternalTools(toolset, ExternalToolset[Any]([*self.tools]))

    async def prepare_output_tools(self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]) -> list[ToolDefinition]:
        """Refuse external tools with the names of the tools by which the model writes its output."""
        _refuse_taken({tool.name for tool in tool_defs} & {tool.name for tool in self.tools})
        return tool_defs

    def get_model_settings(self) -> Callable[[RunContext[Any]], ModelSettings] | None:
        """Return the forced choice. pydantic-ai accepts one only from a callable, as a run must be able to end."""
        return self._forced_choice if self.choice else None

    def _forced_choice(self, ctx: RunContext[Any]) -> ModelSettings:
        return ModelSettings(tool_choice=[*self.choice])


@dataclass
class _WithExternalTools(WrapperToolset[Any]):
    external: ExternalToolset[Any]

    def apply(self, visitor: Callable[[AbstractToolset[Any]], None]) -> None:
        super().apply(visitor)
        self.external.apply(visitor)

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        own, external = await super().get_tools(ctx), await self.external.get_tools(ctx)
        _refuse_taken(own.keys() & external.keys())
        return {**own, **external}


def _refuse_taken(names: AbstractSet[str]) -> None:
    if names:
        raise TurnOptionError(
            'external_tools', f'the agent itself has tools with these names: {", ".join(sorted(names))}. Rename yours.'
        )


def check_external_tools(tools: Sequence[ToolDefinition], choice: Sequence[str]) -> None:
    """Check external tools and the forced choice.

    Raises:
        ValidationError: Two tools have the same name, the choice names an unknown tool, or a tool is not JSON.
    """
    check_list('external_tools', tools, ToolDefinition, 'Pass a list of `ToolDefinition`.')
    check_name_list('tool_choice', choice)
    names = [tool.name for tool in tools]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValidationError(
            'external_tools', f'two tools have the same name: {", ".join(twice)}. Rename one of them.'
        )
    unknown = sorted({*choice} - {*names})
    if unknown:
        raise ValidationError(
            'tool_choice', f'it names tools that are not declared: {", ".join(unknown)}. Add them to `external_tools`.'
        )
    try:
        dump_external_tools(tools)
    except ValueError as error:
        raise ValidationError('external_tools', f'JSON cannot hold a definition: {error}') from None


def dump_external_tools(tools: Sequence[ToolDefinition]) -> list[dict[str, Any]]:
    """Return the definitions as JSON."""
    return _adapter().dump_python([*tools], mode='json', exclude_defaults=True)


def load_external_tools(dumped: object) -> list[ToolDefinition]:
    """Return the definitions from their JSON."""
    return _adapter().validate_python(dumped)


@cache
def _adapter() -> TypeAdapter[list[ToolDefinition]]:
    return TypeAdapter(list[ToolDefinition])
