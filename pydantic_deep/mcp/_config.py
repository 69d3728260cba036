"""The configuration of MCP servers, as in `.mcp.json`, with its variables.

Texts keep their `${VAR}` until a connection is created, so that a configuration can be shown without secrets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pydantic_deep._checks import describe_problem

from ._errors import McpConfigError

_VARIABLE: Final = re.compile(r'\$\{([A-Za-z_][A-Za-z0-9_]*)(:-([^}]*))?\}')
"""Matches `${VAR}` and `${VAR:-default}`."""

_STDIO: Final = ('args', 'env', 'cwd')
"""Settings that need `command`."""

_TYPES: Final = {'stdio': 'command', 'http': 'url', 'streamable-http': 'url', 'streamable_http': 'url'}
"""The values of `type` in files of other clients, and the setting that each of them needs."""

_SECRET: Final = ('env', 'headers')
"""Settings whose values are not in messages, as they may be secrets."""


class McpServer(BaseModel):
    """One MCP server: a program that speaks over its standard streams, or an address of streamable HTTP.

    All texts may contain `${VAR}` and `${VAR:-default}`.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra='forbid', hide_input_in_errors=True)

    command: str | None = Field(default=None, min_length=1)
    """The program to start. It inherits only a few variables of this process, such as `PATH` and `HOME`."""
    args: tuple[str, ...] = ()
    """The arguments of the program."""
    env: Mapping[str, str] = Field(default_factory=dict[str, str], repr=False)
    """Environment variables of the program."""
    cwd: str | None = None
    """The working directory of the program."""
    url: str | None = Field(default=None, min_length=1)
    """The address of the server (streamable HTTP)."""
    headers: Mapping[str, str] = Field(default_factory=dict[str, str], repr=False)
    """Headers of each request."""

    @model_validator(mode='after')
    def _check(self) -> McpServer:
        if (self.command is None) == (self.url is None):
            raise ValueError('a server has either `command` or `url`')
        unused = ('headers',) if self.url is None else _STDIO
        for name in unused:
            if getattr(self, name):
                raise ValueError(f'`{name}` needs `{"url" if self.url is None else "command"}`')
        if self.url is not None and not self.url.startswith(('http://', 'https://', '${')):
            raise ValueError('`url` starts with http:// or https://')
        return self

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the environment variables in the configuration, in order."""
        texts = (text for text in _texts(self.model_dump()))
        return tuple(dict.fromkeys(match[1] for text in texts for match in _VARIABLE.finditer(text)))

    @property
    def label(self) -> str:
        """The command line or the address, with variables instead of their values, and without `env` and `headers`."""
        return self.url if self.url is not None else ' '.join([self.command or '', *self.args])

    def within(self, directory: Path) -> McpServer:
        """Return the server with a program that runs in a directory, or below it if `cwd` is relative."""
        if self.command is None or (self.cwd or '').startswith('${'):
            return self
        return self.model_copy(update={'cwd': str(directory.resolve() / (self.cwd or '.'))})

    def expand(self, name: str, variables: Mapping[str, str]) -> McpServer:
        """Return the server with the values of its variables.

        Args:
            name: The name of the server, for the error.
            variables: The values by name.

        Raises:
            McpConfigError: A variable without a default is not set, or the expanded configuration is invalid.
        """
        try:
            return McpServer.model_validate(_expand(self.model_dump(exclude_defaults=True), variables))
        except KeyError as error:
            raise McpConfigError(
                f'The MCP server {name!r} uses the environment variable {error.args[0]}, which is not set. Set it, or '
                f'write a default: ${{{error.args[0]}:-…}}.'
            ) from None
        except ValidationError as error:
            raise McpConfigError(f'The MCP server {name!r} is invalid: {describe_problem(error)}.') from None


def read_mcp_file(path: str | Path) -> dict[str, McpServer]:
    """Return the servers of a file such as `.mcp.json`, keyed by name.

    A server that sets `"disabled": true` is left out. Other settings that are unknown here are ignored, as the file is
    shared with other clients. Programs run in the directory of the file unless `cwd` names another one.

    Raises:
        McpConfigError: The file cannot be read, is not JSON, or describes an invalid server.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding='utf-8-sig')
    except (OSError, UnicodeDecodeError) as error:
        raise McpConfigError(f'The MCP configuration {str(path)!r} cannot be read: {error}.') from None
    return parse_mcp_file(text, path)


def parse_mcp_file(text: str, path: Path) -> dict[str, McpServer]:
    """Return the servers of the text of a file, as `read_mcp_file` does.

    Args:
        text: The text, which has been read already.
        path: The file.

    Raises:
        McpConfigError: The text is not JSON, or describes an invalid server.
    """
    try:
        document: object = json.loads(text)
    except ValueError as error:
        raise McpConfigError(f'The MCP configuration {str(path)!r} is not JSON: {error}.') from None
    except RecursionError:  # its text depends on the release of Python
        raise McpConfigError(f'The MCP configuration {str(path)!r} cannot be read: it is nested too deeply.') from None
    servers = cast('dict[str, object]', document).get('mcpServers') if isinstance(document, dict) else None
    if not isinstance(servers, dict):
        raise McpConfigError(
            f'The MCP configuration {str(path)!r} has no object `mcpServers`. Write '
            '{"mcpServers": {"NAME": {"command": "…"}}}.'
        )
    found: dict[str, McpServer] = {}
    for name, server in cast('dict[str, object]', servers).items():
        check_name(name, f'A server in the MCP configuration {str(path)!r}')
        try:
            parsed = _parse_server(server, path.parent)
        except ValueError as error:
            problem = describe_problem(error) if isinstance(error, ValidationError) else str(error)
            raise McpConfigError(f'{path}: mcpServers.{name}: {problem}.') from None
        if parsed is not None:
            found[name] = parsed
    return found


def check_name(name: str, place: str) -> None:
    """Refuse the name of a server from which tools cannot be named.

    Args:
        name: The name.
        place: What has the name, for the error.

    Raises:
        McpConfigError: The name is blank, or no request can contain it.
    """
    try:
        name.encode()
    except UnicodeEncodeError:
        raise McpConfigError(f'{place} has the name {name!r}, which contains half of a character. Remove it.') from None
    if not name.strip():
        raise McpConfigError(f'{place} has the name {name!r}. Use a name with letters.')


def _parse_server(server: object, directory: Path) -> McpServer | None:
    """Return a server of a file; `None` if it is disabled.

    Raises:
        ValueError: It is invalid.
    """
    if not isinstance(server, dict):
        raise ValueError('it is not an object')
    settings = cast('dict[str, object]', server)
    if settings.get('disabled') is True:
        return None
    kind = settings.get('type')
    if kind is not None:
        needed = _TYPES.get(kind) if isinstance(kind, str) else None
        if needed is None:
            raise ValueError(f'the type {kind!r} is not supported; use one of {", ".join(_TYPES)}')
        if settings.get(needed) is None:
            raise ValueError(f'the type {kind!r} needs `{needed}`')
    known = {name: value for name, value in settings.items() if name in McpServer.model_fields and value is not None}
    return McpServer.model_validate(known).within(directory)


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for item in cast('Mapping[str, object]', value).values() for text in _texts(item)]
    if isinstance(value, (list, tuple)):
        return [text for item in cast('list[object]', value) for text in _texts(item)]
    return []


def _expand(value: object, variables: Mapping[str, str]) -> object:
    if isinstance(value, str):
        return _VARIABLE.sub(lambda match: _value_of(match, variables), value)
    if isinstance(value, Mapping):
        return {name: _expand(item, variables) for name, item in cast('Mapping[str, object]', value).items()}
    return [_expand(item, variables) for item in cast('tuple[object, ...]', value)]


def _value_of(match: re.Match[str], variables: Mapping[str, str]) -> str:
    """Return the value of a variable. As in a shell, `:-` applies to a variable that is unset or empty."""
    value = variables.get(match[1])
    if match[2] is None:
        return variables[match[1]]
    return value or match[3]
