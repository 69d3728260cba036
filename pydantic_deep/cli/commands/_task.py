"""Running one task, for `run` and `branch`, and the options of the agent, which `chat` uses too."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path

import anyio
import typer

from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.approvals._policy import ApprovalMode
from pydantic_deep.cli.approvals._prompter import ApprovalPrompter
from pydantic_deep.cli.configuration._effective import ConfigOptions, load_configuration
from pydantic_deep.cli.configuration._files import list_unused_files
from pydantic_deep.cli.history._changes import check_branch_name
from pydantic_deep.cli.history._reader import VersionReader
from pydantic_deep.cli.render._ids import HEAD
from pydantic_deep.cli.render._terminal_text import escape_invisible
from pydantic_deep.cli.terminal._deferred_warnings import deferred_warnings
from pydantic_deep.cli.turn._models import choose_model
from pydantic_deep.cli.turn._runner import run_turn
from pydantic_deep.cli.turn._runtime import Extras, Settings, create_runtime
from pydantic_deep.cli.turn._turn_presenter import OutputFormat, decider_for

from ._options import ConversationStart, choose_presenter, exit_on_error


@dataclass(frozen=True)
class AgentOptions:
    """The options that configure the agent and its limits."""

    directory: Path
    agent: str | None
    model: str | None
    sandbox: bool
    skills: list[Path] | None
    no_user_skills: bool
    no_project_context: bool
    ask_user: bool
    plan: bool
    web: bool | None
    memory: bool | None
    max_tokens: int | None
    max_cost: Decimal | None
    mcp_config: list[Path] | None
    no_project_config: bool

    def configure(self, environment: Environment) -> tuple[Settings, Extras]:
        """Call `load` outside of an event loop."""
        return anyio.run(self.load, environment)

    async def load(self, environment: Environment) -> tuple[Settings, Extras]:
        """Return the settings of the agent, and its configured rules and MCP servers.

        Raises:
            ConfigurationError: A configuration file is invalid or not trusted.
            UnusableModelError: No model is chosen, and no key is set for a default.
        """
        options = ConfigOptions(
            directory=self.directory,
            mcp_config=self.mcp_config or (),
            no_project_config=self.no_project_config,
            model=self.model,
            web=self.web,
            memory=self.memory,
            max_tokens=self.max_tokens,
            max_cost=self.max_cost,
            skills=self.skills or (),
        )
        unused = list_unused_files(
            self.directory,
            Path(),
            reads_config=not self.no_project_config,
            reads_context=not self.no_project_context,
        )
        if unused:
            place = f'not those of the current directory ({", ".join(unused)})'
            typer.echo(escape_invisible(f'The project files of --dir {self.directory} are used, {place}.'), err=True)
        effective = await load_configuration(options, environment)
        extras = effective.extras
        settings = Settings(
            directory=str(self.directory),
            agent=self.agent,
            model=self.model if self.agent else choose_model(effective.model, environment.variables),
            max_tokens=effective.max_tokens,
            max_cost=effective.max_cost,
            skills=effective.skills,
            user_skills=not self.no_user_skills,
            project_context=not self.no_project_context,
            ask_user=self.ask_user,
            plan_mode=self.plan,
            web=effective.web,
            memory=effective.memory,
            sandbox=self.sandbox,
            mcp_servers=tuple(extras.mcp_servers),
        )
        return settings, extras


def run_task(
    start: ConversationStart,
    options: AgentOptions,
    task: str,
    *,
    approvals: ApprovalMode,
    output: OutputFormat,
    branch: str | None = None,
) -> typer.Exit:
    """Run one task, present its turn, and return the exit.

    Args:
        start: The conversation and the version that the task continues.
        options: The configuration of the agent.
        task: The prompt.
        approvals: How to handle calls that need approval.
        output: How to print the turn.
        branch: The name of a new branch for the task. Default: the branch of the version.
    """
    environment = start.environment
    with exit_on_error(output), deferred_warnings():
        settings, extras = options.configure(environment)
        runtime = create_runtime(environment, settings, approvals=approvals, own_agent=options.agent, extras=extras)

        async def work() -> int:
            async with start.open(runtime, settings) as conversation:
                if branch is not None:
                    reader = VersionReader(revisions=conversation.revisions)
                    await check_branch_name(reader, branch, await reader.revisions.find(start.base or HEAD))
                turn = await choose_presenter(output)(
                    runtime,
                    partial(run_turn, conversation, task, branch=branch, plan=options.plan or None),
                    make_decider=decider_for(approvals, ApprovalPrompter(environment=environment)),
                )
            return turn.exit_code

        return typer.Exit(anyio.run(work))
