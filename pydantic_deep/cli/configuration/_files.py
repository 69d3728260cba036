"""The configuration files: that of the user, and those of a project."""

from __future__ import annotations

import codecs
import json
import os
import tomllib
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, cast

from pydantic_deep.cli._environment import Environment
from pydantic_deep.mcp import McpConfigError, parse_mcp_file
from pydantic_deep.project_context import ProjectContext

from ._schema import Configuration, ConfigurationError, parse_configuration

PROJECT_FILE: Final = 'pydantic-deep.toml'
"""The configuration file of a project."""

PYPROJECT: Final = 'pyproject.toml'
"""The file that may have the configuration in a table instead."""

TABLE: Final = 'tool.pydantic-deep'
"""The table in `pyproject.toml`."""

MCP_FILE: Final = '.mcp.json'
"""The MCP servers of a project, which other clients read too."""


@dataclass(frozen=True, kw_only=True)
class ConfigFile:
    """A configuration file."""

    path: Path
    configuration: Configuration
    """Its settings. Relative paths are resolved."""
    content: bytes
    """The part of the file that takes effect."""


@dataclass(frozen=True, kw_only=True)
class Project:
    """The files of a project that take effect once the user trusts them."""

    directory: Path
    files: tuple[ConfigFile, ...]

    @property
    def digest(self) -> str:
        """Identifies the contents of the files."""
        digest = sha256()
        for file in self.files:
            digest.update(f'{file.path.name}\0{len(file.content)}\0'.encode())
            digest.update(file.content)
        return digest.hexdigest()


def user_file(environment: Environment) -> Path:
    """Return the path of the user's configuration file (XDG Base Directory: `XDG_CONFIG_HOME`)."""
    home = environment.variables.get('XDG_CONFIG_HOME') or f'{environment.variables.get("HOME") or "~"}/.config'
    return Path(home).expanduser() / 'pydantic-deep' / 'config.toml'


def read_user_file(environment: Environment) -> ConfigFile | None:
    """Return the user's configuration file; `None` if there is none.

    Its servers run in the working directory of this process, as they are for all projects.

    Raises:
        ConfigurationError: It cannot be read, or is invalid.
    """
    path = user_file(environment)
    content = _read(path)
    if content is None:
        return None
    file = _toml_file(path, content)
    servers = file.configuration.mcp_servers
    here = {name: server.within(path.parent) if server.cwd else server for name, server in servers.items()}
    return replace(file, configuration=file.configuration.model_copy(update={'mcp_servers': here}))


def read_project(directory: Path) -> Project | None:
    """Return the configuration files in a directory; `None` if there are none.

    Raises:
        ConfigurationError: A file cannot be read or is invalid, or there are two configurations.
    """
    directory = directory.resolve()
    found = [_own_file(directory), _pyproject(directory)]
    if None not in found:
        raise ConfigurationError(
            f'{directory} has both {PROJECT_FILE} and [{TABLE}] in {PYPROJECT}. Remove one of them.'
        )
    files = [file for file in (*found, _mcp_file(directory)) if file is not None]
    return Project(directory=directory, files=tuple(files)) if files else None


def list_unused_files(project: Path, here: Path, *, reads_config: bool, reads_context: bool) -> list[str]:
    """Return the names of the project files in a directory that have no effect, because the project is elsewhere.

    Files of the same name in the project have an effect in their place, and so have instructions above it, up to the
    root of its git repository.

    Args:
        project: The directory of the project.
        here: The other directory.
        reads_config: Whether configuration files of a project have an effect at all.
        reads_context: Whether its instructions have.
    """
    project, here = project.resolve(), here.resolve()
    if project == here:
        return []
    root = next((path for path in (project, *project.parents) if (path / '.git').exists()), project)
    is_above = here.is_relative_to(root) and project.is_relative_to(here)
    names = [
        *((PROJECT_FILE, MCP_FILE) if reads_config else ()),
        *(ProjectContext.filenames if reads_context and not is_above else ()),
    ]
    unused = [name for name in names if (here / name).is_file() and not (project / name).exists()]
    with suppress(ConfigurationError):  # an invalid file is no error as long as it is not used
        if reads_config and _pyproject(here) is not None and _pyproject(project) is None:
            unused.append(f'[{TABLE}] in {PYPROJECT}')
    return unused


def read_mcp_option(path: Path) -> ConfigFile:
    """Return the MCP servers of a file that an option names.

    Raises:
        ConfigurationError: It cannot be read, or is invalid.
    """
    content = _read(path)
    if content is None:
        raise ConfigurationError(f'{path} does not exist.')
    return _as_mcp_file(path, content)


def _own_file(directory: Path) -> ConfigFile | None:
    content = _read_in_project(directory / PROJECT_FILE)
    return None if content is None else _in_project(_toml_file(directory / PROJECT_FILE, content))


def _pyproject(directory: Path) -> ConfigFile | None:
    path = directory / PYPROJECT
    content = _read_in_project(path)
    if content is None:
        return None
    tools: object = _parse(path, content).get('tool')
    table = cast('dict[str, object]', tools).get('pydantic-deep') if isinstance(tools, dict) else None
    if table is None:
        return None
    configuration = parse_configuration(table, path=path, text=content.decode(), table=TABLE)
    relevant = json.dumps(table, sort_keys=True, default=str).encode()
    return _in_project(ConfigFile(path=path, configuration=_resolved(configuration, directory), content=relevant))


def _mcp_file(directory: Path) -> ConfigFile | None:
    content = _read_in_project(directory / MCP_FILE)
    return None if content is None else _as_mcp_file(directory / MCP_FILE, content)


def _as_mcp_file(path: Path, content: bytes) -> ConfigFile:
    try:
        servers = parse_mcp_file(content.decode(), path)
    except (McpConfigError, UnicodeDecodeError) as error:
        raise ConfigurationError(str(error) if isinstance(error, McpConfigError) else f'{path}: {error}.') from None
    return ConfigFile(path=path, configuration=Configuration(mcp_servers=servers), content=content)


def _toml_file(path: Path, content: bytes) -> ConfigFile:
    configuration = parse_configuration(_parse(path, content), path=path, text=content.decode())
    return ConfigFile(path=path, configuration=_resolved(configuration, path.parent), content=content)


def _resolved(configuration: Configuration, directory: Path) -> Configuration:
    """Return the configuration with absolute paths of skills: a file refers to its own directory."""
    # The method of a path raises an error for a user that does not exist.
    skills = tuple(str(directory / os.path.expanduser(path)) for path in configuration.skills)  # noqa: PTH111
    return configuration.model_copy(update={'skills': skills})


def _in_project(file: ConfigFile) -> ConfigFile:
    """Return a file of a project with servers that run in the directory of the file."""
    servers = {name: server.within(file.path.parent) for name, server in file.configuration.mcp_servers.items()}
    return replace(file, configuration=file.configuration.model_copy(update={'mcp_servers': servers}))


def _parse(path: Path, content: bytes) -> dict[str, Any]:
    try:
        return tomllib.loads(content.decode())
    except ValueError as error:
        raise ConfigurationError(f'{path} is not valid TOML: {error}.') from None
    except RecursionError:  # its text depends on the release of Python
        raise ConfigurationError(f'{path} cannot be read: it is nested too deeply.') from None


def _read_in_project(path: Path) -> bytes | None:
    """Return the contents of a file that nobody may have reviewed: reading a device or a FIFO might never end."""
    if os.path.exists(path) and not os.path.isfile(path):  # noqa: PTH110, PTH113 - the methods raise permission errors
        raise ConfigurationError(f'{path} cannot be read: it is no regular file.')
    return _read(path)


def _read(path: Path) -> bytes | None:
    """Return the contents of a file without the byte order mark that editors on Windows may write."""
    try:
        return path.read_bytes().removeprefix(codecs.BOM_UTF8)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError(f'{path} cannot be read: {error.strerror}.') from None
