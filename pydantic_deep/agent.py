"""`create_deep_agent`: build a plain `pydantic_ai.Agent` from a list of capabilities.

Its parameters are those of `Agent` that a deep agent needs, and one for each built-in capability. New features are
capabilities, not parameters.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast, overload
from weakref import finalize

from pydantic_ai import Agent, AgentToolset, DeferredToolRequests, Tool
from pydantic_ai.agent import AbstractAgent, WrapperAgent
from pydantic_ai.capabilities import AbstractCapability, AgentCapability
from pydantic_ai.models import KnownModelName, Model
from pydantic_ai.output import OutputSpec
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolFuncEither
from typing_extensions import TypeVar

from ._checks import check_instructions, check_model, check_name, check_numbers, check_output_type, check_tools
from ._pause_check import with_pause
from ._workspace import DepsWorkspace
from .deps import DeepAgentDeps
from .failures import ToolFailures
from .filesystem import Filesystem
from .todos import Todos

if TYPE_CHECKING:  # a capability is imported when an agent has it: importing all would double the import time
    from .approvals import InterruptOn
    from .skills import SkillSource
    from .subagents import Subagent

__all__ = ('create_deep_agent', 'default_capabilities')

DepsT = TypeVar('DepsT', bound=DeepAgentDeps, default=DeepAgentDeps)
OutputT = TypeVar('OutputT', default=str)

TOOL_RETRIES = 10
"""Maximum number of consecutive invalid calls of a tool before pydantic-ai raises.

With pydantic-ai's default of 1, the second call of an unknown tool ends a long run. `ToolFailures` handles the last
one.
"""


@overload
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
    subagents: Sequence[Subagent] = (),
    skills: Sequence[SkillSource] = (),
    interrupt_on: None = None,
    include_todo: bool = True,
    include_filesystem: bool = True,
    include_subagents: bool = True,
    include_skills: bool = True,
    summarization: bool = True,
    loop_detection: bool = True,
    model_settings: ModelSettings | None = None,
) -> Agent[DepsT, OutputT]: ...


@overload
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
    subagents: Sequence[Subagent] = (),
    skills: Sequence[SkillSource] = (),
    interrupt_on: InterruptOn,
    include_todo: bool = True,
    include_filesystem: bool = True,
    include_subagents: bool = True,
    include_skills: bool = True,
    summarization: bool = True,
    loop_detection: bool = True,
    model_settings: ModelSettings | None = None,
) -> Agent[DepsT, OutputT | DeferredToolRequests]: ...


def create_deep_agent(
    model: Model | KnownModelName | str | None = None,
    *,
    instructions: str | Sequence[str] | None = None,
    output_type: OutputSpec[Any] = str,
    deps_type: type[DepsT] = DeepAgentDeps,
    name: str = 'deep-agent',
    tools: Sequence[Tool[DepsT] | ToolFuncEither[DepsT, ...]] = (),
    toolsets: Sequence[AgentToolset[DepsT]] = (),
    capabilities: Sequence[AgentCapability[DepsT]] = (),
    subagents: Sequence[Subagent] = (),
    skills: Sequence[SkillSource] = (),
    interrupt_on: InterruptOn | None = None,
    include_todo: bool = True,
    include_filesystem: bool = True,
    include_subagents: bool = True,
    include_skills: bool = True,
    summarization: bool = True,
    loop_detection: bool = True,
    model_settings: ModelSettings | None = None,
) -> Agent[DepsT, Any]:
    """Return an agent that plans with todos, works on the files of `deps.backend`, and delegates to subagents.

    The agent is a plain `pydantic_ai.Agent` without state: share it between users, and pass separate deps for each. A
    run without `deps=` uses new ones.

    Args:
        model: A model or its name; `None` if it is passed to `agent.run(model=…)`.
        instructions: The instructions of the agent. The capabilities add their own.
        output_type: The output of a run: `str`, a Pydantic model, or any other output type of pydantic-ai.
        deps_type: `DeepAgentDeps` or a subclass of it.
        name: The agent's name, for traces.
        tools: Further functions that the model may call.
        toolsets: pydantic-ai toolsets, including MCP servers.
        capabilities: Further pydantic-ai capabilities. One with the `id` of a built-in capability (`todos`,
            `filesystem`, `subagents`, `skills`, `approvals`, `summarization`, `loop_detection`, `retries`,
            `cache_watch`, `deps`, `tool_failures`) replaces it.
        subagents: Agents that the model may delegate to, in addition to the general-purpose one.
        skills: Directories of skills, or `Skill` objects. Without any, the agent has no instructions about skills.
        interrupt_on: Which tools need approval: `{'write_file': True, 'execute': ApprovalRule(…)}`. It applies to all
            tools, and to every subagent. A run may then return `DeferredToolRequests`. `{}` gates nothing, but lets
            tools that require approval themselves pause the run.
        include_todo: Whether the model plans with `write_todos`.
        include_filesystem: Whether the model works on files.
        include_subagents: Whether the model delegates with `task`.
        include_skills: Whether the model loads skills.
        summarization: Whether a history that grows too long is replaced by a summary.
        loop_detection: Whether a run ends when it repeats a call with the same result. Applies to `subagents` too.
        model_settings: Settings of every request, such as `{'temperature': 0}`. Prompt caching is enabled for providers
            that need cache markers; `{'cache': False}` disables it.

    Raises:
        TypeError: `subagents` or `skills` is not a list of them, `instructions` are not texts, or a flag is no bool.
        ValidationError: `deps_type`, `output_type` or another argument is invalid.
        ValueError: A subagent may need approval, but this agent cannot pause, as it has no `interrupt_on`.
    """
    check_instructions(instructions)
    check_tools(tools, toolsets, capabilities)
    check_output_type('output_type', output_type)
    can_pause = interrupt_on is not None or with_pause(output_type) is None
    built_in = default_capabilities(
        deps_type=deps_type,
        subagents=subagents,
        skills=skills,
        interrupt_on=interrupt_on if interrupt_on is not None else {} if can_pause else None,
        include_todo=include_todo,
        include_filesystem=include_filesystem,
        include_subagents=include_subagents,
        include_skills=include_skills,
        summarization=summarization,
        loop_detection=loop_detection,
    )
    check_model('model', model)
    check_name('name', name)
    if model_settings is not None:
        check_numbers(model_settings)
    if not can_pause:
        _check_subagents_can_pause(subagents)
    replaced_ids = {capability.id for capability in capabilities if isinstance(capability, AbstractCapability)}
    agent = Agent(
        model,
        output_type=[output_type, DeferredToolRequests] if interrupt_on is not None else output_type,
        instructions=instructions,
        deps_type=deps_type,
        name=name,
        # The effect of `Caching()`, without the cost of another capability in each step.
        model_settings={'cache': True, **(model_settings or {})},
        retries={'tools': TOOL_RETRIES},
        tools=tools,
        toolsets=toolsets,
        capabilities=[*(capability for capability in built_in if capability.id not in replaced_ids), *capabilities],
    )
    texts = [instructions] if isinstance(instructions, str) else instructions or ()
    _LITERAL[id(agent)] = '\n\n'.join(texts).strip()
    finalize(agent, _LITERAL.pop, id(agent))
    return agent


_LITERAL: dict[int, str] = {}
"""The instructions of each living agent that was created here, by its id: pydantic-ai does not expose them."""


def literal_instructions(agent: AbstractAgent[Any, Any]) -> str | None:
    """Return the `instructions` that were passed to `create_deep_agent` for an agent; `None` for other agents."""
    while isinstance(agent, WrapperAgent):
        agent = agent.wrapped
    return _LITERAL.get(id(agent))


def default_capabilities(
    *,
    deps_type: type[DeepAgentDeps] = DeepAgentDeps,
    subagents: Sequence[Subagent] = (),
    skills: Sequence[SkillSource] = (),
    interrupt_on: InterruptOn | None = None,
    include_todo: bool = True,
    include_filesystem: bool = True,
    include_subagents: bool = True,
    include_skills: bool = True,
    summarization: bool = True,
    loop_detection: bool = True,
) -> list[AbstractCapability[DeepAgentDeps]]:
    """Return the capabilities of `create_deep_agent`, for use with your own `Agent`.

    With `interrupt_on`, the agent's output types must include `DeferredToolRequests`.

    Args:
        deps_type: The `deps_type` of the agent.
        subagents: Agents that the model may delegate to, in addition to the general-purpose one.
        skills: Directories of skills, or `Skill` objects.
        interrupt_on: Which tools need approval; `None` to omit the approvals capability.
        include_todo: Whether the model plans with `write_todos`.
        include_filesystem: Whether the model works on files.
        include_subagents: Whether the model delegates with `task`.
        include_skills: Whether the model loads skills.
        summarization: Whether a history that grows too long is replaced by a summary.
        loop_detection: Whether a run ends when it repeats a call with the same result. Applies to `subagents` too.

    Raises:
        TypeError: `subagents` or `skills` is not a list of them.
        ValueError: `subagents` or `skills` are passed, but their capability is excluded.
    """
    _check_skills(skills)
    for name, flag, class_name in (
        ('summarization', summarization, 'Summarization'),
        ('loop_detection', loop_detection, 'LoopDetection'),
        ('include_todo', include_todo, 'Todos'),
        ('include_filesystem', include_filesystem, 'Filesystem'),
        ('include_subagents', include_subagents, 'Subagents'),
        ('include_skills', include_skills, 'Skills'),
    ):
        if not isinstance(cast('object', flag), bool):
            raise TypeError(
                f'`{name}` is {flag!r}. Pass a bool; for options, pass a `{class_name}(…)` in `capabilities`.'
            )
    from .caching import CacheWatch
    from .retries import Retries

    capabilities: list[AbstractCapability[DeepAgentDeps]] = [
        DepsWorkspace(deps_type=deps_type),
        ToolFailures(),
        CacheWatch(),
        Retries(),
    ]
    if loop_detection:
        from .loops import LoopDetection

        capabilities.append(LoopDetection())
    if interrupt_on is not None:
        from .approvals import Approvals

        capabilities.append(Approvals(interrupt_on=interrupt_on))
    if include_filesystem:
        capabilities.append(Filesystem())
    if summarization:
        from .summarization import Summarization

        capabilities.append(Summarization())  # after the filesystem, so that offloaded results are not counted
    if include_skills and skills:
        from .skills import Skills

        capabilities.append(Skills(skills))
    if include_subagents:
        from .subagents import Subagents

        build = partial(_build, deps_type=deps_type, loop_detection=loop_detection)
        capabilities.append(Subagents(subagents, build=build))
    if include_todo:
        capabilities.append(Todos())
    for name, values, is_included in (
        ('subagents', subagents, include_subagents),
        ('skills', skills, include_skills),
    ):
        if values and not is_included:
            raise ValueError(f'`{name}` is passed, but `include_{name}` is False. Remove one of them.')
    return capabilities


def _build(subagent: Subagent, *, deps_type: type[DeepAgentDeps], loop_detection: bool) -> Agent[Any, Any]:
    """Build the deep agent that a `Subagent` describes."""
    return create_deep_agent(
        subagent.model,
        instructions=subagent.instructions,
        output_type=subagent.output_type,
        deps_type=deps_type,
        name=subagent.name,
        tools=subagent.tools,
        toolsets=subagent.toolsets,
        capabilities=subagent.capabilities,
        subagents=subagent.subagents,
        skills=cast('Sequence[SkillSource]', subagent.skills),
        # Both types are valid here: the subagents capability determines how a child pauses.
        interrupt_on=cast('InterruptOn', subagent.interrupt_on),
        loop_detection=loop_detection,
    )


def _check_skills(skills: object) -> None:
    """Raise for invalid `skills` that would be mistaken for none. The capabilities validate everything else."""
    if isinstance(skills, str) or not isinstance(skills, Collection):
        raise TypeError(f'`skills` is {skills!r}. Pass a list of directories or `Skill` objects.')


def _check_subagents_can_pause(subagents: Sequence[Subagent]) -> None:
    for subagent in subagents:
        if subagent.interrupt_on is not None:
            raise ValueError(
                f'The subagent {subagent.name!r} has `interrupt_on`, but this agent cannot pause. '
                'Pass `interrupt_on` here too; `{}` gates nothing of its own.'
            )
        _check_subagents_can_pause(subagent.subagents)
