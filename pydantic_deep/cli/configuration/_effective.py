"""The effective configuration: the strongest source of each value wins.

From weakest to strongest: defaults, the files of the project, the file of the user, environment variables, options. So a
project cannot override the settings of the user. Of rules and MCP servers, this applies to each name; skills add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Final, TypeVar

from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli._schemas import ConfigSetting
from pydantic_deep.cli.approvals._policy import WEB_TOOLS
from pydantic_deep.cli.turn._models import MODEL_VARIABLE, UnusableModelError, choose_model
from pydantic_deep.cli.turn._runtime import MAX_TOKENS, Extras, Settings
from pydantic_deep.mcp import McpServer, tool_prefix

from ._files import ConfigFile, Project, read_mcp_option, read_project, read_user_file
from ._schema import ConfigurationError, Rule, RuleTable, shown
from ._trust import ask_trust, describe_rule, describe_server, trust_store, untrusted

T = TypeVar('T')

DEFAULT: Final = 'default'
"""The source of a value that nothing sets."""

BUILT_IN: Final = (
    *('ls', 'read_file', 'write_file', 'edit_file', 'glob', 'grep', 'execute', 'task', 'write_todos'),
    *WEB_TOOLS,
)
"""The tools of the command line that a rule may name. MCP servers add theirs."""


@dataclass(frozen=True, kw_only=True)
class ConfigOptions:
    """The options of a command that override or select configuration files."""

    directory: Path
    """The working directory of the agent, whose files are those of the project."""
    mcp_config: Sequence[Path] = ()
    """Files with MCP servers (`--mcp-config`)."""
    no_project_config: bool = False
    """Whether to ignore the files of the project."""
    model: str | None = None
    web: bool | None = None
    memory: bool | None = None
    max_tokens: int | None = None
    max_cost: Decimal | None = None
    skills: Sequence[Path] = ()


@dataclass(frozen=True, kw_only=True)
class Effective:
    """The effective configuration."""

    model: str | None
    """The model that an option, the environment or a file names; `None` if none does."""
    max_tokens: int
    max_cost: Decimal | None
    skills: tuple[str, ...]
    """Directories of skills, those of the strongest source first."""
    rules: Mapping[str, Rule]
    web: bool
    """Whether the agent has the web."""
    memory: bool
    """Whether the agent remembers across conversations."""
    theme: str | None
    """The colors of code on a terminal; `None` for those of the terminal."""
    mcp_servers: Mapping[str, McpServer]
    sources: Mapping[str, str]
    """The source of each key."""
    untrusted: Project | None
    """The files of the project, if they were left out because they are not trusted."""

    @property
    def extras(self) -> Extras:
        """The rules and servers of an agent.

        Raises:
            ConfigurationError: A rule names a tool that cannot exist.
        """
        self.check_rules()
        remote = {name for name in self.rules if name.startswith(self._prefixes)}
        fetch = self.rules.get('web_fetch', True)
        domains = fetch if isinstance(fetch, RuleTable) else RuleTable(allow=() if fetch else ('*',))
        return Extras(
            rules={
                name: rule.rule() if isinstance(rule, RuleTable) else rule
                for name, rule in self.rules.items()
                if (name not in remote or rule is not False) and (name != 'web_fetch' or rule is True)
            },
            allow=tuple(name for name in self.rules if name in remote and self.rules[name] is False),
            mcp_servers=self.mcp_servers,
            web_allow=domains.allow,
            web_deny=domains.deny,
            theme=self.theme,
        )

    @property
    def _prefixes(self) -> tuple[str, ...]:
        """The beginnings of the names of the tools of MCP servers."""
        return tuple(map(tool_prefix, self.mcp_servers))

    def check_rules(self) -> None:
        """Raise `ConfigurationError` if a rule names a tool that cannot exist, or is not one for its tool."""
        for name, rule in self.rules.items():
            self._check_rule(name, rule)

    def _check_rule(self, name: str, rule: Rule) -> None:
        source = self.sources[f'rules.{name}']
        if '*' in name and rule is not False:
            raise ConfigurationError(f"{source}: 'rules.{name}' has a pattern for a name, which is for `false` only.")
        if name == 'web_fetch' and isinstance(rule, RuleTable) and not rule.model_fields_set <= {'allow', 'deny'}:
            raise ConfigurationError(f"{source}: 'rules.web_fetch' has domains: `allow` and `deny`, and nothing else.")
        prefixes = self._prefixes
        if name not in BUILT_IN and not name.startswith(prefixes):
            servers = f', and those of MCP servers: {", ".join(f"{prefix}…" for prefix in prefixes)}' * bool(prefixes)
            raise ConfigurationError(
                f'{source}: {f"rules.{name}"!r}: no tool has this name. Tools: {", ".join(BUILT_IN)}{servers}.'
            )

    def settings(self, variables: Mapping[str, str]) -> list[ConfigSetting]:
        """Return all effective values, in the order of a file.

        Args:
            variables: The environment variables, for the default model.
        """
        from pydantic_deep.cli.render._markdown import CODE_THEME  # imports the renderer of Markdown

        model, source = self.model, self.sources['model']
        if model is None:
            with suppress(UnusableModelError):
                model = choose_model(None, variables)
        skills = [(f'skills.{number}', shown(path)) for number, path in enumerate(self.skills, start=1)]
        rules = [(f'rules.{name}', describe_rule(rule)) for name, rule in self.rules.items()]
        servers = [(f'mcp_servers.{name}', describe_server(server)) for name, server in self.mcp_servers.items()]
        cost = None if self.max_cost is None else str(self.max_cost)
        return [
            ConfigSetting(key='model', value=model, source=source),
            *(
                ConfigSetting(key=key, value=value, source=self.sources[key])
                for key, value in [
                    ('max_tokens', str(self.max_tokens)),
                    ('max_cost', cost),
                    ('web', str(self.web).lower()),
                    ('memory', str(self.memory).lower()),
                    ('theme', self.theme or CODE_THEME),
                    *skills,
                    *rules,
                    *servers,
                ]
            ),
        ]


async def load_configuration(options: ConfigOptions, environment: Environment, *, asks: bool = True) -> Effective:
    """Return the effective configuration.

    Args:
        options: The options of the command.
        environment: Locates the files, and opens the terminal for the question about a project.
        asks: Whether to ask about files of a project that are not trusted; otherwise they are left out.

    Raises:
        ConfigurationError: A file is invalid, or those of the project are not trusted.
    """
    user = read_user_file(environment)
    project = None if options.no_project_config else read_project(options.directory)
    is_trusted = project is None or trust_store(environment).is_trusted(project)
    if project is not None and not is_trusted and asks:
        await _ask(project, environment)
        is_trusted = True
    files = [
        *((f'--mcp-config {path}', read_mcp_option(path)) for path in options.mcp_config),
        *([] if user is None else [(str(user.path), user)]),
        *((str(file.path), file) for file in (project.files if project is not None and is_trusted else ())),
    ]
    return _combine(options, environment, files, None if is_trusted else project)


async def load_extras(
    environment: Environment, settings: Settings, mcp_config: Sequence[Path], *, no_project_config: bool
) -> Extras:
    """Return the rules and MCP servers for a turn that continues a stored one.

    Args:
        environment: As in `load_configuration`.
        settings: The stored settings.
        mcp_config: Files with MCP servers.
        no_project_config: Whether to ignore the files of the project.

    Raises:
        ConfigurationError: A file is invalid, or those of the project are not trusted.
        McpConfigError: A server of the turn is not configured.
    """
    options = ConfigOptions(
        directory=Path(settings.directory), mcp_config=mcp_config, no_project_config=no_project_config
    )
    return (await load_configuration(options, environment)).extras.only(settings.mcp_servers)


async def _ask(project: Project, environment: Environment) -> None:
    """Ask whether the user trusts the files of a project, and store it.

    Raises:
        ConfigurationError: The user does not, or there is no terminal.
    """
    with environment.open_terminal() as terminal:
        if terminal is None:
            raise untrusted(project)
        if not await ask_trust(project, terminal):
            raise untrusted(project, refused=True)
    trust_store(environment).add(project)


def _combine(
    options: ConfigOptions,
    environment: Environment,
    files: Sequence[tuple[str, ConfigFile]],
    untrusted_project: Project | None,
) -> Effective:
    """Return the strongest value of each key.

    Args:
        options: The options.
        environment: The environment variables.
        files: The files with their names as sources, strongest first.
        untrusted_project: The files that were left out.
    """
    found = [(source, file.configuration) for source, file in files]
    variable = environment.variables.get(MODEL_VARIABLE) or None
    model = [('--model', options.model), (MODEL_VARIABLE, variable), *((source, each.model) for source, each in found)]
    tokens = [('--max-tokens', options.max_tokens), *((source, each.max_tokens) for source, each in found)]
    cost = [('--max-cost', options.max_cost), *((source, each.max_cost) for source, each in found)]
    web = [('--web', options.web), *((source, each.web) for source, each in found)]
    memory = [('--memory', options.memory), *((source, each.memory) for source, each in found)]
    themes = [(source, each.theme) for source, each in found]
    skills = [('--skills', tuple(map(str, options.skills))), *((source, each.skills) for source, each in found)]
    sources: dict[str, str] = {}
    rules: dict[str, Rule] = {}
    servers: dict[str, McpServer] = {}
    for source, each in reversed(found):  # a stronger source replaces the rule or server of the same name
        rules |= each.rules
        servers |= each.mcp_servers
        sources |= {f'rules.{name}': source for name in each.rules}
        sources |= {f'mcp_servers.{name}': source for name in each.mcp_servers}
    paths = [(source, path) for source, directories in skills for path in directories]
    sources |= {f'skills.{number}': source for number, (source, _) in enumerate(paths, start=1)}
    (sources['model'], chosen_model) = _strongest(model)
    (sources['max_tokens'], max_tokens) = _strongest(tokens)
    (sources['max_cost'], max_cost) = _strongest(cost)
    (sources['web'], has_web) = _strongest(web)
    (sources['memory'], has_memory) = _strongest(memory)
    (sources['theme'], theme) = _strongest(themes)
    return Effective(
        model=chosen_model,
        max_tokens=max_tokens or MAX_TOKENS,
        max_cost=max_cost,
        skills=tuple(path for _, path in paths),
        rules=rules,
        web=has_web or False,
        memory=has_memory or False,
        theme=theme,
        mcp_servers=servers,
        sources=sources,
        untrusted=untrusted_project,
    )


def _strongest(values: Sequence[tuple[str, T | None]]) -> tuple[str, T | None]:
    """Return the first value that is set, with its source."""
    return next(((source, value) for source, value in values if value is not None), (DEFAULT, None))
