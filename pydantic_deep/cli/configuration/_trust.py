"""Which contents of project files the user trusts, and the question about them.

A project's configuration decides which programs start and which calls run without approval, so it takes effect only
after the user has trusted exactly these contents. The digest is stored in one file for each directory.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from rich.text import Text

from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.terminal._terminal import Terminal
from pydantic_deep.mcp import McpServer

from ._files import Project
from ._schema import ConfigurationError, Rule, RuleTable, shown


@dataclass(frozen=True, kw_only=True)
class TrustStore:
    """The trusted contents, by directory."""

    directory: Path
    """The directory of the store."""

    def is_trusted(self, project: Project) -> bool:
        """Return whether exactly these contents are trusted in this directory.

        Raises:
            ConfigurationError: The store cannot be used.
        """
        path = self._file(project.directory)
        with self._errors(path):
            try:
                stored: object = json.loads(path.read_bytes())
            except (FileNotFoundError, ValueError):
                return False
        return stored == self._entry(project)

    def add(self, project: Project) -> None:
        """Trust the contents, instead of earlier ones of the same directory.

        Raises:
            ConfigurationError: The store cannot be used.
        """
        path = self._file(project.directory)
        with self._errors(path):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            part = path.with_suffix('.part')
            part.write_text(json.dumps(self._entry(project)), encoding='utf-8')
            part.replace(path)

    def remove(self, directory: Path) -> bool:
        """Trust no contents in a directory. Return whether there were trusted ones.

        Raises:
            ConfigurationError: The store cannot be used.
        """
        path = self._file(directory.resolve())
        with self._errors(path):
            existed = path.exists()
            path.unlink(missing_ok=True)
        return existed

    @contextmanager
    def _errors(self, path: Path) -> Generator[None]:
        try:
            yield
        except OSError as error:
            raise ConfigurationError(
                f'{error.filename or path}, which records the files that you trust, cannot be used: {error.strerror}. '
                'Repair or remove it, or set XDG_STATE_HOME to another directory. To ignore the files of the project: '
                '--no-project-config.'
            ) from error

    def _file(self, directory: Path) -> Path:
        return self.directory / f'{sha256(str(directory).encode()).hexdigest()}.json'

    def _entry(self, project: Project) -> dict[str, str]:
        return {'directory': str(project.directory), 'digest': project.digest}


def trust_store(environment: Environment) -> TrustStore:
    """Return the trusted contents of this user."""
    return TrustStore(directory=environment.state_directory / 'trusted')


async def ask_trust(project: Project, terminal: Terminal) -> bool:
    """Show what the files of a project would allow, and return whether the user trusts them."""
    terminal.console.print(Text('\n'.join(describe_project(project))))
    try:
        answer = await terminal.ask('Trust these files? [y/N] ')
    except (EOFError, KeyboardInterrupt):
        return False
    return answer.strip().lower() in ('y', 'yes')


def describe_project(project: Project) -> Iterator[str]:
    """Yield what the files of a project would allow, in lines without secrets."""
    yield f'{shown(project.directory)} has configuration files that you have not trusted in this form:'
    for file in project.files:
        yield f'{file.path.name}'
        found = file.configuration
        for name in ('model', 'max_tokens', 'max_cost', 'web', 'memory', 'theme'):
            value: object = getattr(found, name)
            if value is not None:
                yield f'  {name}: {str(value).lower() if isinstance(value, bool) else shown(value)}'
        for path in found.skills:
            yield f'  skills whose instructions the agent follows: {shown(path)}'
        for name, rule in found.rules.items():
            yield f'  rule for {shown(name)}: {describe_rule(rule)}'
        for name, server in found.mcp_servers.items():
            yield f'  MCP server {shown(name)} {describe_server(server)}'


def describe_rule(rule: Rule) -> str:
    """Return a rule in words."""
    if not isinstance(rule, RuleTable):
        return 'asks before each call' if rule else 'runs WITHOUT APPROVAL'
    parts = [
        f'runs WITHOUT APPROVAL if it matches {shown(list(rule.allow))}' if rule.allow else '',
        f'never runs if it matches {shown(list(rule.deny))}' if rule.deny else '',
        'asks before other calls',
    ]
    return '; '.join(filter(None, parts))


def describe_server(server: McpServer) -> str:
    """Return the command or address of a server, and the variables that it gets."""
    verb = 'connects to' if server.url is not None else 'runs the command'
    extra = [*server.env, *server.headers]
    given = f', with {", ".join(map(shown, extra))}' if extra else ''
    reads = f', and reads the environment variables {", ".join(server.variables)}' if server.variables else ''
    return f'{verb}: {shown(server.label)}{given}{reads}'


def untrusted(project: Project, *, refused: bool = False) -> ConfigurationError:
    """Return the error for files that the user has not trusted."""
    names = ' and '.join(file.path.name for file in project.files)
    reason = 'You did not trust' if refused else 'There is no terminal to ask whether you trust'
    return ConfigurationError(
        f'{reason} {names} in {project.directory}, so nothing was started. To review and trust them: '
        f'`pydantic-deep config trust --dir {project.directory}`. To ignore them: --no-project-config.'
    )
