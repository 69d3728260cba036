"""The agent of the command line with everything that its turns share: directory, skills, budget, settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TypeAlias

from pydantic import BaseModel, ConfigDict
from pydantic_ai import Agent, DeferredToolRequests

from pydantic_deep.agent import create_deep_agent
from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.approvals._policy import ApprovalMode, interrupt_on
from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.retries import Retries
from pydantic_deep.skills import BUNDLED_SKILLS, SkillDirectory, Skills

from ._budget import TurnBudget
from ._change_tracker import ChangeTrackingBackend, ChangeTrackingSandbox
from ._models import open_model
from ._retry_listener import RetryListener

INSTRUCTIONS = "You work on the files of the user's directory. When the task is done, answer briefly, in Markdown."
"""What the agent is for; the rooms add their own."""

MAX_TOKENS = 2_000_000
"""What a turn may use unless told otherwise, sent and written together.

pydantic-ai's own default stops at 50 requests, which says little: a long task makes many small ones. Tokens are what
is paid for. Two million are some hundred requests with a history of 20,000 tokens: more than a task should need, and
a loop that never ends is stopped.
"""

SKILLS_MOUNT = '/skills'
"""Where commands in a sandbox see the directories of skills, numbered."""


AGENT_NAME = 'command-line'
"""The name of the agent, which its versions have."""

Output: TypeAlias = str | DeferredToolRequests
"""What a run ends with: an answer, or calls that wait."""


class Settings(BaseModel):
    """The options that a person chose for an agent. Each version stores them, so that it can be continued."""

    model_config = ConfigDict(frozen=True)

    directory: str
    """Where it works."""
    model: str
    """The name of the model."""
    max_tokens: int = MAX_TOKENS
    """How many tokens a turn may use."""
    max_cost: Decimal | None = None
    """How many US dollars a turn may use."""
    skills: tuple[str, ...] = ()
    """Directories with skills that the person vouches for."""
    user_skills: bool = True
    """Whether to use those in the person's home directory too."""
    sandbox: bool = False
    """Whether it runs commands."""

    def absolute(self) -> Settings:
        """Return the same for a process with another working directory."""
        directory, *skills = (str(Path(path).resolve()) for path in (self.directory, *self.skills))
        return self.model_copy(update={'directory': directory, 'skills': tuple(skills)})


@dataclass(frozen=True, kw_only=True)
class AgentRuntime:
    """An agent and its directory: everything that a turn needs besides the task."""

    agent: Agent[DeepAgentDeps, Output]
    backend: ChangeTrackingBackend
    deps: DeepAgentDeps
    """Its backend is `backend`. Its todos are those of the last turn."""
    skills: Skills
    """The skills that the agent has."""
    directory: str
    """The directory, as the person wrote it."""
    model: str
    """The name of the model, as the person wrote it."""
    budget: TurnBudget
    """What a turn may use."""
    retries: RetryListener
    """Hears of requests that are made again."""
    person: str
    """Who answers where a person is asked."""
    clock: Callable[[], float]
    """Seconds that never go back."""


def create_runtime(environment: Environment, settings: Settings, *, approvals: ApprovalMode) -> AgentRuntime:
    """Create the agent for a directory.

    Args:
        environment: Models, variables and clock.
        settings: The options of the agent.
        approvals: Whether calls wait.

    Raises:
        UnusableModelError: There is no model to work with.
    """
    opened = open_model(settings.model, environment.models)
    sources = skill_sources(environment, settings)
    if settings.sandbox:
        backend = ChangeTrackingSandbox(settings.directory, read_only=_mounts(sources))
    else:
        backend = ChangeTrackingBackend(settings.directory)
    skills = Skills(sources)
    budget = TurnBudget(tokens=settings.max_tokens, cost=settings.max_cost)
    retries = RetryListener()
    return AgentRuntime(
        agent=create_deep_agent(
            opened,
            name=AGENT_NAME,
            instructions=INSTRUCTIONS,
            interrupt_on=interrupt_on(approvals, runs_commands=settings.sandbox),
            capabilities=[skills, budget, retries, Retries(sleep=environment.sleep, clock=environment.clock)],
        ),
        backend=backend,
        deps=DeepAgentDeps(backend=backend),
        skills=skills,
        directory=settings.directory,
        model=settings.model,
        budget=budget,
        retries=retries,
        person=environment.person,
        clock=environment.clock,
    )


async def check_runtime(runtime: AgentRuntime) -> None:
    """Check that the directory exists and that commands can be isolated.

    Raises:
        SandboxUnavailableError: Commands cannot be isolated.
        BackendUnavailableError: There is no directory.
    """
    await runtime.backend.working_dir()
    if isinstance(runtime.backend, ChangeTrackingSandbox):
        await runtime.backend.check()


def skill_sources(environment: Environment, settings: Settings) -> list[SkillDirectory]:
    """Return where skills are, those that count first at the top."""
    return [
        *(SkillDirectory(path) for path in settings.skills),
        *([SkillDirectory(environment.skills_directory, scope='user', is_required=False)] * settings.user_skills),
        SkillDirectory(BUNDLED_SKILLS, scope='bundled'),
    ]


def _mounts(sources: Sequence[SkillDirectory]) -> dict[str, Path]:
    """Return where commands see the skills, so that they can run their scripts."""
    directories = [Path(source.path).expanduser().resolve() for source in sources]
    return {f'{SKILLS_MOUNT}/{number}': path for number, path in enumerate(directories, start=1) if path.is_dir()}
