"""The configuration of `serve`, `mcp` and `worker`: the files, variables and options of `chat`, for served agents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import anyio
import typer
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import AbstractCapability

from pydantic_deep.agent import create_deep_agent
from pydantic_deep.budgets import Budget, Budgets
from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.approvals._policy import ApprovalMode, interrupt_on
from pydantic_deep.cli.configuration._effective import DEFAULT, ConfigOptions, Effective, load_configuration
from pydantic_deep.cli.configuration._schema import ConfigurationError
from pydantic_deep.cli.render._terminal_text import escape_invisible
from pydantic_deep.cli.turn._models import choose_model, open_model
from pydantic_deep.cli.turn._runtime import Extras, Output, open_mcp_servers, open_web
from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.mcp import McpServer, McpServers
from pydantic_deep.skills import SkillDirectory


@dataclass(frozen=True, kw_only=True)
class ServedConfiguration:
    """The effective configuration of a server or a worker."""

    effective: Effective
    extras: Extras
    servers: McpServers | None
    """The MCP servers, which all agents share; `None` for none."""
    environment: Environment
    own_servers: Sequence[str] = ()
    """The configured MCP servers that are left out, because they start this command again."""

    @property
    def capabilities(self) -> list[AbstractCapability[object]]:
        """The web and the budget, if they are configured, for all agents.

        Raises:
            UnusableWebError: The web cannot be used.
        """
        effective = self.effective
        tokens = None if effective.sources['max_tokens'] == DEFAULT else effective.max_tokens
        found: list[AbstractCapability[object]] = [open_web(self.extras)] if effective.web else []
        if tokens is not None or effective.max_cost is not None:
            budget = Budget(tokens=tokens, cost=effective.max_cost)
            found.append(Budgets(id='configured_budget', run=budget))  # an agent may have budgets of its own
        return found

    def default_agent(self) -> AbstractAgent[DeepAgentDeps, Output]:
        """Return the deep agent that is served without `--agents`, with the configured model, rules and skills.

        Raises:
            UnusableModelError: No model is chosen, or it cannot be used.
        """
        effective = self.effective
        model = open_model(choose_model(effective.model, self.environment.variables), self.environment.models)
        skills = [SkillDirectory(path) for path in effective.skills]
        if not (effective.rules or effective.web or self.servers):
            return create_deep_agent(model, skills=skills)
        rules = interrupt_on(
            ApprovalMode.allow, runs_commands=False, has_web=effective.web, rules=self.extras.rules
        )  # files of a conversation are its own, so a change needs approval only by a rule
        return create_deep_agent(model, skills=skills, interrupt_on=rules)

    def ignored(self, *, has_own_agents: bool) -> Iterator[str]:
        """Yield a sentence for each group of settings that has no effect on the served agents."""
        sources = self.effective.sources
        for name in self.own_servers:
            key = f'mcp_servers.{name}'
            yield f'Not used: {key} ({sources[key]}). It starts `pydantic-deep mcp`, so the agents would call themselves.'
        own = [name for name in sources if name.startswith(('skills.', 'rules.')) and not self._is_shared(name)]
        if has_own_agents and own:
            found = ', '.join(f'{name} ({sources[name]})' for name in own)
            yield f'Not used: {found}. Agents that --agents names have their own rules and skills.'
        if has_own_agents and sources['model'] == '--model':
            yield 'Not used: --model. Agents that --agents names have their own models.'

    def check(self, *, has_own_agents: bool) -> None:
        """Check that no rule without effect limits one with effect.

        Raises:
            ConfigurationError: The served agents would call a tool without approval for which a rule asks or denies.
        """
        for name in self.effective.rules if has_own_agents else ():
            pattern = next((pattern for pattern in self.extras.allow if fnmatchcase(name, pattern)), None)
            if pattern is not None and name not in self.extras.allow:
                raise ConfigurationError(
                    f'{self.effective.sources[f"rules.{name}"]}: {f"rules.{name}"!r} does not apply to agents that --agents '
                    f'names, and {f"rules.{pattern}"!r} would let them call this tool without approval. Name the tools '
                    'that need none instead.'
                )

    def _is_shared(self, key: str) -> bool:
        """Return whether a key is the rule for tools of MCP servers that need no approval, or for domains of the web."""
        name = key.removeprefix('rules.')
        return name in self.extras.allow or (name == 'web_fetch' and self.effective.web)


def load_served_configuration(
    environment: Environment,
    *,
    mcp_config: Sequence[Path] | None,
    no_project_config: bool,
    model: str | None = None,
    is_mcp_server: bool = False,
) -> ServedConfiguration:
    """Return the configuration of the working directory for a server or a worker.

    Args:
        environment: Locates the files, and opens the terminal for the question about a project.
        mcp_config: Files with MCP servers.
        no_project_config: Whether to ignore the files of the project.
        model: The model that an option names.
        is_mcp_server: Whether the process is an MCP server. Editors read `.mcp.json` too, so it may contain this command,
            which then would start itself without end.

    Raises:
        ConfigurationError: A file is invalid, or those of the project are not trusted.
        McpConfigError: An MCP server cannot be used.
    """
    options = ConfigOptions(
        directory=Path(), mcp_config=mcp_config or (), no_project_config=no_project_config, model=model
    )
    effective = anyio.run(load_configuration, options, environment)
    extras = effective.extras
    own = [name for name, server in extras.mcp_servers.items() if is_mcp_server and _starts_mcp_server(server)]
    extras = extras.only([name for name in extras.mcp_servers if name not in own])
    return ServedConfiguration(
        effective=effective,
        extras=extras,
        servers=open_mcp_servers(extras, environment),
        environment=environment,
        own_servers=own,
    )


def _starts_mcp_server(server: McpServer) -> bool:
    """Return whether the command line of an MCP server is `pydantic-deep mcp`, directly or by a launcher such as `uvx`."""
    words = ' '.join((server.command or '', *server.args)).split()
    programs = [Path(word).stem for word in words]
    return 'pydantic-deep' in programs and 'mcp' in words


def print_ignored(configuration: ServedConfiguration, *, has_own_agents: bool) -> None:
    """Print which settings have no effect, to standard error.

    Raises:
        ConfigurationError: The agents would call a tool without approval for which a rule asks or denies.
    """
    configuration.check(has_own_agents=has_own_agents)
    for line in configuration.ignored(has_own_agents=has_own_agents):
        typer.echo(escape_invisible(line), err=True)
