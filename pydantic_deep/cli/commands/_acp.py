"""The command `acp`. It imports `pydantic_deep.cli.acp`, which needs an extra, only when it runs."""

from __future__ import annotations

import importlib
from contextlib import AsyncExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import anyio
import typer

from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.history._store import NO_STORE, UnusableStoreError, choose_store, open_chosen_store
from pydantic_deep.cli.terminal._protected_stdio import protected_descriptors
from pydantic_deep.cli.turn._runtime import Extras, Settings

from ._options import (
    BUDGET_HELP,
    MODEL_HELP,
    USAGE_ERROR_CODE,
    VERSIONED_FILES_HELP,
    AgentOption,
    AskUserOption,
    BudgetOption,
    CostOption,
    McpConfigOption,
    MemoryOption,
    ModelOption,
    NoProjectConfigOption,
    NoProjectContextOption,
    NoStoreOption,
    NoUserSkillsOption,
    SandboxOption,
    SkillsOption,
    StoreOption,
    WebOption,
    error_exit,
    exit_on_error,
)
from ._task import AgentOptions

acp_app = typer.Typer()

TERMINAL_HELP = (
    'Let the agent run commands in terminals of the editor, without isolation. The editor asks before each one, in every '
    'mode.'
)


@dataclass(frozen=True, kw_only=True)
class EditorOptions:
    """The options of the command. Each session has a directory of its own."""

    agent: AgentOptions
    """The options of the agent. Their directory is not used."""
    environment: Environment
    """Models and variables."""
    store: str | None
    """The URL of the store. `None` for the default."""
    no_store: bool
    """Whether to store nothing."""
    terminal: bool
    """Whether the agent runs commands in terminals of the editor."""

    async def configure(self, directory: Path) -> tuple[Settings, Extras]:
        """Return the configuration of the agent for the directory of a session."""
        is_own = self.agent.agent is not None
        return await replace(self.agent, directory=directory, plan=not is_own).load(self.environment)

    async def run(self) -> None:
        """Answer the messages of an editor until it closes the connection."""
        from pydantic_deep.cli.acp._agent import EditorAgent
        from pydantic_deep.cli.acp._connection import open_pipes, refuse, serve

        url = NO_STORE if self.no_store else choose_store(self.store, self.environment)
        async with AsyncExitStack() as stack:
            transport = await open_pipes(*stack.enter_context(protected_descriptors(0, 1, 2)))
            try:
                store = await stack.enter_async_context(open_chosen_store(url, self.environment))
            except UnusableStoreError as error:
                failure = error_exit(str(error), USAGE_ERROR_CODE)
                await refuse(transport, str(error))  # editors show this sentence rather than standard error
                raise failure from None
            tasks = await stack.enter_async_context(anyio.create_task_group())
            editor_agent = EditorAgent(
                configure=self.configure,
                environment=self.environment,
                store=store,
                tasks=tasks,
                own_agent=self.agent.agent,
                has_terminal=self.terminal,
                is_persistent=url != NO_STORE,
            )
            await serve(editor_agent, transport)


@acp_app.command(
    'acp',
    epilog='Configure your editor to start this command; at a terminal it only waits for messages. The directory of a '
    'session is the project of the editor. The editor asks before the agent changes a file or runs a command; its mode '
    '`auto` does not ask. Logs go to standard error. Needs the extra `acp`.\n\n'
    + '\n\n'.join((BUDGET_HELP, VERSIONED_FILES_HELP, MODEL_HELP))
    + '\n\nExit codes: 0 the editor closed the connection, 1 it failed, 2 wrong usage.',
)
def _acp(
    context: typer.Context,
    agent: AgentOption = None,
    model: ModelOption = None,
    sandbox: SandboxOption = False,
    terminal: Annotated[bool, typer.Option('--terminal', help=TERMINAL_HELP)] = False,
    skills: SkillsOption = None,
    no_user_skills: NoUserSkillsOption = False,
    no_project_context: NoProjectContextOption = False,
    ask_user: AskUserOption = False,
    web: WebOption = None,
    memory: MemoryOption = None,
    mcp_config: McpConfigOption = None,
    no_project_config: NoProjectConfigOption = False,
    store: StoreOption = None,
    no_store: NoStoreOption = False,
    max_tokens: BudgetOption = None,
    max_cost: CostOption = None,
) -> None:
    """Run the agent for an editor that speaks the Agent Client Protocol, over standard input and output."""
    if terminal and sandbox:
        raise error_exit('Commands run in a sandbox or in the terminal of the editor. Choose one.', USAGE_ERROR_CODE)
    # A terminal that controls the process belongs to the editor, such as Neovim.
    environment = replace(context.find_object(Environment) or Environment(), open_terminal=lambda: nullcontext(None))
    options = AgentOptions(
        directory=Path(),
        agent=agent,
        model=model,
        sandbox=sandbox,
        skills=skills,
        no_user_skills=no_user_skills,
        no_project_context=no_project_context,
        ask_user=ask_user,
        plan=False,
        web=web,
        memory=memory,
        max_tokens=max_tokens,
        max_cost=max_cost,
        mcp_config=mcp_config,
        no_project_config=no_project_config,
    )
    try:
        importlib.import_module('pydantic_deep.cli.acp')  # checks that the extra is installed
    except ModuleNotFoundError as error:
        raise error_exit(str(error), USAGE_ERROR_CODE) from None
    editor = EditorOptions(agent=options, environment=environment, store=store, no_store=no_store, terminal=terminal)
    with exit_on_error():
        anyio.run(editor.run)
