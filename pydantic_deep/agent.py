"""The list of rooms: `create_deep_agent` makes it, and hands it to a plain `pydantic_ai.Agent`.

Its many parameters are those of `Agent` that a deep agent needs, and one for each room that the framework promises.
There will be no more of them: a new feature is a capability.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast, get_args, overload
from weakref import finalize

from pydantic_ai import Agent, AgentToolset, DeferredToolRequests, Tool
from pydantic_ai.agent import AbstractAgent, WrapperAgent
from pydantic_ai.capabilities import AbstractCapability, AgentCapability
from pydantic_ai.models import KnownModelName, Model
from pydantic_ai.output import OutputSpec
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolFuncEither
from typing_extensions import TypeVar

from ._checks import check_model, check_name, check_numbers
from ._workspace import DepsWorkspace
from .deps import DeepAgentDeps
from .failures import ToolFailures
from .filesystem import Filesystem
from .todos import Todos

if TYPE_CHECKING:  # a room is imported when an agent has it: together they would double the time of an import
    from .approvals import InterruptOn
    from .skills import SkillSource
    from .subagents import Subagent

__all__ = ('create_deep_agent', 'default_capabilities')

DepsT = TypeVar('DepsT', bound=DeepAgentDeps, default=DeepAgentDeps)
OutputT = TypeVar('OutputT', default=str)

TOOL_RETRIES = 10
"""How often in a row a tool may be called wrongly before pydantic-ai counts it as out of retries.

Its default of 1 lets the second call of a tool that does not exist end a long run. `ToolFailures` handles the rest.
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
    model_settings: ModelSettings | None = None,
) -> Agent[DepsT, Any]:
    """Return an agent that plans with todos, works on the files of `deps.backend`, and delegates to subagents.

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
        capabilities: pydantic-ai capabilities. One with the `id` of a room (`todos`, `filesystem`, `subagents`,
            `skills`, `approvals`, `summarization`, `retries`, `cache_watch`, `deps`, `tool_failures`)
            takes that room's place.
        subagents: Agents that the model may delegate to, besides the general-purpose one.
        skills: Directories of skills, or `Skill` objects. Without any, nothing is said of skills.
        interrupt_on: Which tools wait for a person: `{'write_file': True, 'execute': ApprovalRule(…)}`, whoever
            provides them, in every subagent. A run may then return `DeferredToolRequests`; `{}` gates nothing, and
            lets tools that ask by themselves wait.
        include_todo: Whether the model plans with `write_todos`.
        include_filesystem: Whether the model works on files.
        include_subagents: Whether the model delegates with `task`.
        include_skills: Whether the model loads skills.
        summarization: Whether a history that grows too long is replaced by a summary.
        model_settings: Settings of every request, such as `{'temperature': 0}`. The prompt is cached where the provider
            wants marks for that; `{'cache': False}` sets none.

    Raises:
        TypeError: `subagents` or `skills` are no list of them.
        ValueError: A subagent waits for a person, and this agent, without `interrupt_on`, cannot say so.
    """
    can_pause = interrupt_on is not None or _can_pause(output_type)
    rooms = default_capabilities(
        deps_type=deps_type,
        subagents=subagents,
        skills=skills,
        interrupt_on=interrupt_on if interrupt_on is not None else {} if can_pause else None,
        include_todo=include_todo,
        include_filesystem=include_filesystem,
        include_subagents=include_subagents,
        include_skills=include_skills,
        summarization=summarization,
    )
    check_model('model', model)
    check_name('name', name)
    check_numbers(model_settings or {})
    if not can_pause:
        _refuse_unheard_subagents(subagents)
    taken = {given.id for given in capabilities if isinstance(given, AbstractCapability)}
    agent = Agent(
        model,
        output_type=[output_type, DeferredToolRequests] if interrupt_on is not None else output_type,
        instructions=instructions,
        deps_type=deps_type,
        name=name,
        # What `Caching()` sets; a capability more would cost each step.
        model_settings={'cache': True, **(model_settings or {})},
        retries={'tools': TOOL_RETRIES},
        tools=tools,
        toolsets=toolsets,
        capabilities=[*(room for room in rooms if room.id not in taken), *capabilities],
    )
    given = [instructions] if isinstance(instructions, str) else instructions or ()
    _LITERAL[id(agent)] = '\n\n'.join(given).strip()
    finalize(agent, _LITERAL.pop, id(agent))
    return agent


_LITERAL: dict[int, str] = {}
"""The instructions of each agent that was made here, by its identity, while it lives: pydantic-ai does not tell them."""


def literal_instructions(agent: AbstractAgent[Any, Any]) -> str | None:
    """Return the `instructions` that `create_deep_agent` was given for an agent; `None` if it has not made the agent."""
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
) -> list[AbstractCapability[DeepAgentDeps]]:
    """Return the rooms of `create_deep_agent`, for those who build their `Agent` themselves.

    With `interrupt_on`, `DeferredToolRequests` must be among the agent's output types.

    Args:
        deps_type: The `deps_type` of the agent.
        subagents: Agents that the model may delegate to, besides the general-purpose one.
        skills: Directories of skills, or `Skill` objects.
        interrupt_on: Which tools wait for a person; `None` for no room of approvals.
        include_todo: Whether the model plans with `write_todos`.
        include_filesystem: Whether the model works on files.
        include_subagents: Whether the model delegates with `task`.
        include_skills: Whether the model loads skills.
        summarization: Whether a history that grows too long is replaced by a summary.

    Raises:
        TypeError: `subagents` or `skills` are no list of them.
        ValueError: `subagents` or `skills` were given, and their room was left out.
    """
    _refuse_what_is_no_list(skills)
    if not isinstance(cast('object', summarization), bool):
        raise TypeError(
            f'`summarization` is {summarization!r}. Pass True or False, and a `Summarization(…)` in `capabilities`.'
        )
    from .caching import CacheWatch
    from .retries import Retries

    rooms: list[AbstractCapability[DeepAgentDeps]] = [
        DepsWorkspace(deps_type=deps_type),
        ToolFailures(),
        CacheWatch(),
        Retries(),
    ]
    if interrupt_on is not None:
        from .approvals import Approvals

        rooms.append(Approvals(interrupt_on=interrupt_on))
    if include_todo:
        rooms.append(Todos())
    if include_filesystem:
        rooms.append(Filesystem())
    if summarization:
        from .summarization import Summarization

        rooms.append(Summarization())  # after files: what they keep beside the conversation is not in it
    if include_skills and skills:
        from .skills import Skills

        rooms.append(Skills(skills))
    if include_subagents:
        from .subagents import Subagents

        rooms.append(Subagents(subagents, build=partial(_build, deps_type=deps_type)))
    for name, given, is_included in (
        ('subagents', subagents, include_subagents),
        ('skills', skills, include_skills),
    ):
        if given and not is_included:
            raise ValueError(f'`{name}` are given, and `include_{name}` is False. Leave one of them out.')
    return rooms


def _build(subagent: Subagent, *, deps_type: type[DeepAgentDeps]) -> Agent[Any, Any]:
    """Return the agent that a `Subagent` describes: one of ours."""
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
        # Either is right here: how the child answers when it waits is the subagents room's to say.
        interrupt_on=cast('InterruptOn', subagent.interrupt_on),
    )


def _can_pause(output_type: OutputSpec[Any]) -> bool:
    """Return whether a run may end with calls that wait for a person."""
    if isinstance(output_type, Sequence):
        return any(_can_pause(item) for item in cast('Sequence[OutputSpec[Any]]', output_type))
    return output_type is DeferredToolRequests or DeferredToolRequests in get_args(output_type)


def _refuse_what_is_no_list(skills: object) -> None:
    """Refuse what would pass for no skills at all; the rooms refuse everything else themselves."""
    if isinstance(skills, str) or not isinstance(skills, Collection):
        raise TypeError(f'`skills` is {skills!r}. Pass a list of directories or of `Skill`s, or leave it out.')


def _refuse_unheard_subagents(subagents: Sequence[Subagent]) -> None:
    for subagent in subagents:
        if subagent.interrupt_on is not None:
            raise ValueError(
                f'The subagent {subagent.name!r} has `interrupt_on`, and this agent could not say that it waits. '
                'Pass `interrupt_on` here too; `{}` gates nothing of its own.'
            )
        _refuse_unheard_subagents(subagent.subagents)
