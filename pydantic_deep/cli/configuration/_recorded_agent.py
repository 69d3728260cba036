"""The agent of a recorded turn, created again for a replay or an evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.approvals._policy import ApprovalMode
from pydantic_deep.cli.configuration._effective import load_extras
from pydantic_deep.cli.configuration._files import read_mcp_option
from pydantic_deep.cli.turn._memory import with_memory
from pydantic_deep.cli.turn._runtime import AgentRuntime, Settings, create_runtime
from pydantic_deep.store import Store


@dataclass(frozen=True, kw_only=True)
class RecordedAgent:
    """The options by which it finds the parts that no version stores."""

    environment: Environment
    mcp_config: Sequence[Path]
    """Files with MCP servers."""
    no_project_config: bool
    """Whether to ignore the files of the project."""
    own_agent: str | None = None
    """The reference that the user has passed with `--agent`."""

    def given_servers(self) -> tuple[str, ...]:
        """Return the names of the MCP servers in the given files.

        Raises:
            ConfigurationError: A file is invalid.
        """
        return tuple(
            {name: None for path in self.mcp_config for name in read_mcp_option(path).configuration.mcp_servers}
        )

    async def runtime(
        self, settings: Settings, approvals: ApprovalMode, store: Store, *, owner: str | None = None
    ) -> AgentRuntime:
        """Return the agent with the settings of a turn.

        Args:
            settings: The settings. Only if they name MCP servers, the configuration is read: its rules are in no
                request.
            approvals: How the turn handled calls that need approval.
            store: The store with the memory of the agent, if it has one.
            owner: The owner of the memory; `None` for the person at this command line.

        Raises:
            ConfigurationError: A file is invalid, or those of the project are not trusted.
            McpConfigError: A server of the turn is not configured.
        """
        extras = None
        if settings.mcp_servers:
            extras = await load_extras(
                self.environment, settings, self.mcp_config, no_project_config=self.no_project_config
            )
        runtime = create_runtime(
            self.environment, settings, approvals=approvals, own_agent=self.own_agent, extras=extras
        )
        return await with_memory(runtime if owner is None else replace(runtime, person=owner), settings, store)
