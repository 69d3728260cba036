"""The agent of the command line and the objects that its turns share: directory, skills, budget, settings."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, TypeAlias

from pydantic import BaseModel, ConfigDict
from pydantic_ai import DeferredToolRequests, RunContext
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import AbstractCapability, on_event
from pydantic_ai.models import Model

from pydantic_deep._agent_imports import InvalidAgentsError
from pydantic_deep._capabilities.base import BaseCapability
from pydantic_deep.agent import create_deep_agent
from pydantic_deep.approvals import ApprovalRule, InterruptOn
from pydantic_deep.ask_user import AskUser
from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.approvals._policy import ApprovalMode, interrupt_on
from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.errors import DeepAgentError
from pydantic_deep.mcp import McpConfigError, McpServer, McpServers
from pydantic_deep.plan_mode import PlanMode
from pydantic_deep.project_context import ProjectContext
from pydantic_deep.retries import ModelRetriedEvent, Retries
from pydantic_deep.skills import BUNDLED_SKILLS, SkillDirectory, Skills
from pydantic_deep.subagents import position_of
from pydantic_deep.web import Web
from pydantic_deep_backends.protocol import CommandRunner

from ._budget import TurnBudget
from ._change_tracker import ChangeTrackingBackend, ChangeTrackingSandbox
from ._models import UnusableModelError, open_model
from ._own_agent import OwnAgent, import_own_agent, make_deps

INSTRUCTIONS = "You work on the files of the user's directory. When the task is done, answer briefly, in Markdown."
"""Instructions of the agent. Capabilities add their own."""

MAX_TOKENS = 2_000_000
"""Default token budget of a turn, input and output together.

It replaces pydantic-ai's default of 50 requests, which does not limit the cost: a long task makes many small requests,
and tokens are billed. Two million tokens are about 100 requests with a history of 20,000 tokens. A task should need
less, and an endless loop is stopped.
"""

SKILLS_MOUNT = '/skills'
"""Parent of the skill directories in the sandbox; they are numbered from 1."""


AGENT_NAME = 'command-line'
"""The name of the agent in its versions."""

Output: TypeAlias = str | DeferredToolRequests
"""The output of a run: an answer, or pending calls."""

RetryCallback: TypeAlias = Callable[[ModelRetriedEvent, Sequence[str]], None]
"""Called with a retry and the path of subagents to its run."""


class UnusableWebError(DeepAgentError):
    """The web cannot be used: the extra is not installed, or a rule for it is invalid."""


class Settings(BaseModel):
    """The options of an agent. Each version stores them, so that it can be continued."""

    model_config = ConfigDict(frozen=True)

    directory: str
    """The working directory of the agent."""
    model: str | None
    """The name of the model. `None` for that of `agent`."""
    agent: str | None = None
    """The user's agent, as `package.module:attribute`. `None` for the agent of the command line."""
    max_tokens: int = MAX_TOKENS
    """Token budget of a turn."""
    max_cost: Decimal | None = None
    """Cost budget of a turn in US dollars."""
    skills: tuple[str, ...] = ()
    """Trusted directories of skills."""
    user_skills: bool = True
    """Whether to use the skills in the home directory too."""
    project_context: bool = True
    """Whether the agent receives the instructions in `AGENTS.md` files."""
    ask_user: bool = False
    """Whether the agent can ask the user questions."""
    plan_mode: bool = False
    """Whether the agent can be asked for a plan before it changes anything."""
    sandbox: bool = False
    """Whether the agent runs commands, in a sandbox."""
    web: bool = False
    """Whether the agent searches the web and reads pages."""
    memory: bool = False
    """Whether the agent remembers across conversations."""
    mcp_servers: tuple[str, ...] = ()
    """The names of its MCP servers. A version does not store their commands: it does not decide which programs run."""

    def absolute(self) -> Settings:
        """Return the settings with absolute paths, for processes with another working directory."""
        directory, *skills = (str(Path(path).resolve()) for path in (self.directory, *self.skills))
        return self.model_copy(update={'directory': directory, 'skills': tuple(skills)})


@dataclass(frozen=True, kw_only=True)
class Extras:
    """The parts of an agent that come from the user's configuration and are in no version."""

    rules: InterruptOn = field(default_factory=dict[str, bool | ApprovalRule])
    """Rules of approval, by the names of tools. An agent of the user has its own instead."""
    allow: Sequence[str] = ()
    """Tools of MCP servers that need no approval, by name or pattern."""
    mcp_servers: Mapping[str, McpServer] = field(default_factory=dict[str, McpServer])
    """The MCP servers by name."""
    web_allow: Sequence[str] = ()
    """Domains whose pages need no approval."""
    web_deny: Sequence[str] = ()
    """Domains whose pages are refused."""
    theme: str | None = None
    """The colors of code on a terminal; `None` for those of the terminal."""
    runner: CommandRunner | None = None
    """Runs commands without a sandbox, each after approval. `None` if the agent runs none, or in a sandbox."""

    def only(self, names: Sequence[str]) -> Extras:
        """Return the extras with the servers of a turn, which continues with the same tools.

        Raises:
            McpConfigError: One of them is not configured.
        """
        missing = [name for name in names if name not in self.mcp_servers]
        if missing:
            raise McpConfigError(
                f'The turn ran with MCP servers that are not configured here: {", ".join(missing)}. Name their file with '
                '--mcp-config.'
            )
        return replace(self, mcp_servers={name: self.mcp_servers[name] for name in names})


@dataclass(kw_only=True)
class RetryListener(BaseCapability[object]):
    """Forwards the retries of all runs, including those of subagents, in a process with one user."""

    id: str | None = 'retry-listener'
    on_retry: RetryCallback = field(default=lambda event, path: None, repr=False, compare=False)
    """Receives each retry. Every turn sets its own callback."""

    def for_subagent(self) -> RetryListener:
        """Return this listener, which subagents share."""
        return self

    @on_event(ModelRetriedEvent)
    async def _forward(self, ctx: RunContext[object], event: ModelRetriedEvent) -> None:
        self.on_retry(event, position_of(ctx.metadata).path)


@dataclass(frozen=True, kw_only=True)
class AgentRuntime:
    """An agent, its directory, and everything else that a turn needs besides the task."""

    agent: AbstractAgent[DeepAgentDeps, Output]
    backend: ChangeTrackingBackend
    deps: DeepAgentDeps
    """Dependencies with `backend` and the todos of the last turn."""
    skills: Skills
    """The skills that the user can load by name; those of the agent, unless it is the user's own."""
    own_agent: str | None
    """The user's own agent, as `module:attribute`; `None` for the default agent."""
    directory: str
    """The absolute path of the directory."""
    model: str
    """The name of the model, as given by the user."""
    budget: TurnBudget
    """The budget of a turn, as a capability of the agent."""
    retries: RetryListener
    """Reports retries of model requests."""
    mcp_servers: McpServers | None
    """The MCP servers of the configuration; `None` if there are none."""
    person: str
    """The name that is stored with answers to approvals."""
    clock: Callable[[], float]
    """A monotonic clock in seconds."""
    theme: str | None
    """The colors of code on a terminal; `None` for those of the terminal."""

    @property
    def heading(self) -> str:
        """The agent, the model and the directory, for the first line of a turn or a chat."""
        agent = '' if self.own_agent is None else f'{self.own_agent} with '
        return f'{agent}{self.model} in {self.directory}'


def create_runtime(
    environment: Environment,
    settings: Settings,
    *,
    approvals: ApprovalMode,
    own_agent: str | None = None,
    extras: Extras | None = None,
) -> AgentRuntime:
    """Create the agent for a directory.

    Args:
        environment: Models, variables and clock.
        settings: The options of the agent.
        approvals: How to handle calls that need approval.
        own_agent: The reference that the user has passed with `--agent`. The settings of a version alone do not decide
            which code is imported.
        extras: Configured rules and MCP servers. `None` for none.

    Raises:
        UnusableModelError: The model cannot be used.
        McpConfigError: An MCP server cannot be used.
        UnusableWebError: The web cannot be used.
        InvalidAgentsError: The user's agent cannot be used, or the settings name another agent.
    """
    if settings.agent != own_agent:
        raise InvalidAgentsError(
            # The settings come from the store, so others may have written what a person is about to paste into a shell.
            f'The turn ran with your agent {settings.agent!r}. Add `--agent {shlex.quote(str(settings.agent))}`; in `evals`, '
            '`--agents`.'
            if own_agent is None
            else f'The turn ran with {_shown(settings.agent)}, and not with {own_agent!r}, which --agent names.'
        )
    extras = extras or Extras()
    opened = None if settings.model is None else open_model(settings.model, environment.models)
    sources = skill_sources(environment, settings)
    if settings.sandbox:
        backend = ChangeTrackingSandbox(settings.directory, read_only=_mounts(sources))
    else:
        backend = ChangeTrackingBackend(settings.directory, runner=extras.runner)
    skills = Skills(sources)
    budget = TurnBudget(tokens=settings.max_tokens, cost=settings.max_cost)
    retries = RetryListener()
    servers = open_mcp_servers(extras, environment)
    chosen: list[AbstractCapability[object]] = [
        *([ProjectContext(host_directory=settings.directory)] * settings.project_context),
        *([AskUser()] * settings.ask_user),
        *([PlanMode(starts_on=False)] * settings.plan_mode),
        *([open_web(extras)] if settings.web else []),
        *([] if servers is None else [servers]),
    ]
    agent: AbstractAgent[DeepAgentDeps, Output]
    if settings.agent is not None:
        imported = import_own_agent(settings.agent)
        agent = OwnAgent(imported, model=opened, capabilities=[*chosen, budget, retries])
        deps = make_deps(imported, settings.agent, backend)
    else:
        agent = create_deep_agent(
            opened,
            name=AGENT_NAME,
            instructions=INSTRUCTIONS,
            interrupt_on=interrupt_on(
                approvals,
                runs_commands=settings.sandbox or extras.runner is not None,
                has_web=settings.web,
                rules=extras.rules,
            ),
            capabilities=[
                *chosen, skills, budget, retries, Retries(sleep=environment.sleep, clock=environment.clock)
            ],
        )  # fmt: skip
        deps = DeepAgentDeps(backend=backend)
    return AgentRuntime(
        agent=agent,
        backend=backend,
        deps=deps,
        skills=skills,
        own_agent=settings.agent,
        directory=settings.absolute().directory,
        model=_model_name(agent, settings),
        budget=budget,
        retries=retries,
        mcp_servers=servers,
        person=environment.person,
        clock=environment.clock,
        theme=extras.theme,
    )


_NO_LOG: Final = logging.NullHandler()
"""Discards log messages that no other handler prints."""


def open_mcp_servers(extras: Extras, environment: Environment) -> McpServers | None:
    """Return the MCP servers, which start with the first turn.

    Raises:
        McpConfigError: A variable is not set, or the extra is not installed.
    """
    if not extras.mcp_servers:
        return None
    # Without a handler, Python prints the errors of the SDK, such as a traceback for each line that is no message.
    logging.getLogger('mcp').addHandler(_NO_LOG)
    try:
        return McpServers(servers=extras.mcp_servers, allow=extras.allow, variables=environment.variables)
    except ModuleNotFoundError as error:
        raise McpConfigError(str(error)) from None


def open_web(extras: Extras) -> Web:
    """Return the web with the configured domains.

    Raises:
        UnusableWebError: An entry is not a domain, or the extra is not installed.
    """
    try:
        return Web(allow=extras.web_allow, deny=extras.web_deny)
    except ModuleNotFoundError as error:
        raise UnusableWebError(str(error)) from None
    except ValueError as error:
        raise UnusableWebError(f'rules.web_fetch: {error}') from None


def _model_name(agent: AbstractAgent[Any, Any], settings: Settings) -> str:
    """Return the name of the model for people.

    Raises:
        UnusableModelError: The user's agent has no model, and none is named.
    """
    if settings.model is not None:
        return settings.model
    if agent.model is None:
        raise UnusableModelError(f'The agent {settings.agent!r} has no model. Name one with --model.')
    name = agent.model.model_id if isinstance(agent.model, Model) else agent.model
    provider, _, model = name.partition(':')
    return model if model == provider else name  # as in `scripted:scripted`


def _shown(reference: str | None) -> str:
    return 'the agent of the command line' if reference is None else f'your agent {reference!r}'


async def check_runtime(runtime: AgentRuntime) -> None:
    """Check that the directory exists and that commands can be isolated.

    Raises:
        SandboxUnavailableError: Commands cannot be isolated.
        BackendUnavailableError: The directory does not exist.
    """
    await runtime.backend.working_dir()
    if isinstance(runtime.backend, ChangeTrackingSandbox):
        await runtime.backend.check()


def skill_sources(environment: Environment, settings: Settings) -> list[SkillDirectory]:
    """Return the directories of skills in order of precedence."""
    return [
        *(SkillDirectory(path) for path in settings.skills),
        *([SkillDirectory(environment.skills_directory, scope='user', is_required=False)] * settings.user_skills),
        SkillDirectory(BUNDLED_SKILLS, scope='bundled'),
    ]


def _mounts(sources: Sequence[SkillDirectory]) -> dict[str, Path]:
    """Return the skill directories by mount point, so that commands can run their scripts."""
    directories = [Path(source.path).expanduser().resolve() for source in sources]
    return {f'{SKILLS_MOUNT}/{number}': path for number, path in enumerate(directories, start=1) if path.is_dir()}
