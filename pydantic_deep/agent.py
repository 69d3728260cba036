"""The list of rooms: `create_deep_agent` makes it, and hands it to a plain `pydantic_ai.Agent`.

Its many parameters are those of `Agent` that a deep agent needs, and one for each room that the framework promises.
There will be no more of them: a new feature is a capability.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic_ai import Agent, AgentToolset, Tool
from pydantic_ai.capabilities import AbstractCapability, AgentCapability
from pydantic_ai.models import KnownModelName, Model
from pydantic_ai.output import OutputSpec
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolFuncEither
from typing_extensions import TypeVar

from ._workspace import DepsWorkspace
from .deps import DeepAgentDeps
from .failures import ToolFailures
from .filesystem import Filesystem
from .todos import Todos

DepsT = TypeVar('DepsT', bound=DeepAgentDeps, default=DeepAgentDeps)
OutputT = TypeVar('OutputT', default=str)

TOOL_RETRIES = 10
"""How often in a row a tool may be called wrongly before pydantic-ai counts it as out of retries.

Its default of 1 lets the second call of a tool that does not exist end a long run. `ToolFailures` handles the rest.
"""


def create_deep_agent(
    model: Model | KnownModelName | str | None = None,
    *,
    instructions: str | Sequence[str] | None = None,
    output_type: OutputSpec[OutputT] = str,
    deps_type: type[DepsT] = DeepAgentDeps,
    name: str = 'deep-agent',
    tools: Sequence[Tool[DepsT] | ToolFuncEither[DepsT, ...]] = (),
    toolsets: Sequence[AgentToolset[DepsT]] = (),
    capabilities: Sequence[AgentCapability[DepsT]] = (),
    subagents: Sequence[object] = (),
    skills: Sequence[object] = (),
    interrupt_on: Mapping[str, object] | None = None,
    include_todo: bool = True,
    include_filesystem: bool = True,
    include_subagents: bool = False,
    include_skills: bool = False,
    summarization: bool = False,
    model_settings: ModelSettings | None = None,
) -> Agent[DepsT, OutputT]:
    """Return an agent that plans with todos and works on the files of `deps.backend`.

    It is a plain `pydantic_ai.Agent` and holds no state: share it between users, and pass each of them deps of their
    own. A run without `deps=` works on fresh ones.

    Args:
        model: A model or its name; `None` if `agent.run(model=…)` names it.
        instructions: What this agent is for. The rooms add their own.
        output_type: What a run returns: `str`, a Pydantic model, or whatever pydantic-ai accepts.
        deps_type: `DeepAgentDeps` or a subclass of it.
        name: The agent's name, for traces.
        tools: Functions that the model may call besides.
        toolsets: pydantic-ai toolsets, MCP servers among them.
        capabilities: pydantic-ai capabilities. One with the `id` of a room (`todos`, `filesystem`, `deps`,
            `tool_failures`) takes that room's place.
        subagents: Not there yet.
        skills: Not there yet.
        interrupt_on: Not there yet.
        include_todo: Whether the model plans with `write_todos`.
        include_filesystem: Whether the model works on files.
        include_subagents: Not there yet.
        include_skills: Not there yet.
        summarization: Not there yet.
        model_settings: Settings of every request, such as `{'temperature': 0}`.

    Raises:
        NotImplementedError: A parameter was used whose room is not there yet.
    """
    _refuse_what_is_missing(
        subagents=subagents,
        skills=skills,
        interrupt_on=interrupt_on,
        include_subagents=include_subagents,
        include_skills=include_skills,
        summarization=summarization,
    )
    rooms = default_capabilities(deps_type=deps_type, include_todo=include_todo, include_filesystem=include_filesystem)
    taken = {given.id for given in capabilities if isinstance(given, AbstractCapability)}
    return Agent(
        model,
        output_type=output_type,
        instructions=instructions,
        deps_type=deps_type,
        name=name,
        model_settings=model_settings,
        retries={'tools': TOOL_RETRIES},
        tools=tools,
        toolsets=toolsets,
        capabilities=[*(room for room in rooms if room.id not in taken), *capabilities],
    )


def default_capabilities(
    *, deps_type: type[DeepAgentDeps] = DeepAgentDeps, include_todo: bool = True, include_filesystem: bool = True
) -> list[AbstractCapability[DeepAgentDeps]]:
    """Return the rooms of `create_deep_agent`, for those who build their `Agent` themselves.

    Args:
        deps_type: The `deps_type` of the agent.
        include_todo: Whether the model plans with `write_todos`.
        include_filesystem: Whether the model works on files.
    """
    rooms: list[AbstractCapability[DeepAgentDeps]] = [DepsWorkspace(deps_type=deps_type), ToolFailures()]
    if include_todo:
        rooms.append(Todos())
    if include_filesystem:
        rooms.append(Filesystem())
    return rooms


def _refuse_what_is_missing(**parameters: object) -> None:
    for name, value in parameters.items():
        if value:
            raise NotImplementedError(f'`{name}` is not there yet in this release. Leave it out.')
