"""The contents of a configuration file, and the errors about it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Final, TypeAlias, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails

from pydantic_deep._text.escapes import visible
from pydantic_deep.approvals import ApprovalRule, DecisionKind
from pydantic_deep.audit import redact
from pydantic_deep.errors import DeepAgentError
from pydantic_deep.mcp import McpServer

MAX_VALUE_CHARS: Final = 80
"""Maximum length of a value in an error message in characters."""

SECRET_TABLES: Final = ('env', 'headers')
"""Tables whose values are never shown."""

_HEADER: Final = re.compile(r'\s*\[+\s*([^\]]+?)\s*\]+')
_KEY: Final = re.compile(r'\s*([\w.\-"\' *]+?)\s*=')


class ConfigurationError(DeepAgentError):
    """A configuration file is invalid, or is not trusted."""


class RuleTable(BaseModel):
    """An approval rule: `rules.execute = {allow = ["git status *"]}`. The fields are those of `ApprovalRule`."""

    model_config = ConfigDict(frozen=True, extra='forbid', strict=True)

    allow: Sequence[str] = ()
    """Patterns of calls that run without approval."""
    deny: Sequence[str] = ()
    """Patterns of calls that never run."""
    decisions: Sequence[DecisionKind] = get_args(DecisionKind)
    """The decisions that a person may make."""
    known_arguments: Sequence[str] = ()
    """Arguments of a command that may have any value."""

    @model_validator(mode='after')
    def _check(self) -> RuleTable:
        self.rule()  # raises for an invalid pattern
        return self

    def rule(self) -> ApprovalRule:
        """Return the approval rule."""
        return ApprovalRule(**{name: getattr(self, name) for name in self.model_fields_set})


Rule: TypeAlias = bool | RuleTable
"""`true` always asks, `false` never, a table asks by its patterns."""


def _kind_of(rule: object) -> str | None:
    if isinstance(rule, bool):
        return 'flag'
    return 'table' if isinstance(rule, (dict, RuleTable)) else None


_FileRule: TypeAlias = Annotated[
    Annotated[bool, Tag('flag')] | Annotated[RuleTable, Tag('table')],
    Discriminator(
        _kind_of,
        custom_error_type='rule_type',
        custom_error_message=f'use true, false, or a table with some of {", ".join(RuleTable.model_fields)}',
    ),
]


def _parse_dollars(value: object) -> object:
    """Return a number of TOML as a decimal number, without the error of a binary one."""
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def _check_theme(name: str) -> str:
    from pygments.styles import get_all_styles  # imported here, as few configurations have a theme
    from rich.syntax import RICH_SYNTAX_THEMES

    if name not in (*RICH_SYNTAX_THEMES, *get_all_styles()):
        raise ValueError(
            f'use {" or ".join(RICH_SYNTAX_THEMES)}, which have the colors of the terminal, or a style of Pygments '
            '(https://pygments.org/styles), such as monokai'
        )
    return name


class Configuration(BaseModel):
    """The settings of a file. All are optional."""

    model_config = ConfigDict(frozen=True, extra='forbid')

    model: Annotated[str, Field(min_length=1)] | None = None
    """The model to use, as for `--model`."""
    max_tokens: Annotated[int, Field(ge=1, strict=True)] | None = None
    """The budget of a turn in tokens, as for `--max-tokens`."""
    max_cost: Annotated[Decimal, Field(gt=0, allow_inf_nan=False), BeforeValidator(_parse_dollars)] | None = None
    """The budget of a turn in US dollars, as for `--max-cost`."""
    skills: tuple[str, ...] = ()
    """Directories of skills, relative to the directory of the file."""
    rules: Mapping[str, _FileRule] = Field(default_factory=dict[str, Rule])
    """Rules of approval by the names of tools."""
    web: Annotated[bool, Field(strict=True)] | None = None
    """Whether the agent searches the web and reads pages, as for `--web`."""
    memory: Annotated[bool, Field(strict=True)] | None = None
    """Whether the agent remembers across conversations, as for `--memory`."""
    theme: Annotated[str, AfterValidator(_check_theme)] | None = None
    """The colors of code on a terminal: `ansi_dark`, `ansi_light` or a style of Pygments."""
    mcp_servers: Mapping[str, McpServer] = Field(default_factory=dict[str, McpServer])
    """MCP servers by name, with the settings of `.mcp.json`."""


def parse_configuration(document: object, *, path: Path, text: str, table: str = '') -> Configuration:
    """Return the validated contents of a file.

    Args:
        document: The parsed contents.
        path: The file, for errors.
        text: Its text, to find the line of a problem.
        table: The table that contains the configuration; empty for the whole file.

    Raises:
        ConfigurationError: A key is unknown, or a value is invalid.
    """
    try:
        return Configuration.model_validate(document)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise ConfigurationError(_describe(problem, path=path, text=text, table=table)) from None


def shown(value: object) -> str:
    """Return a value for a person who decides about it: whole, without secrets and control characters."""
    return visible(str(redact(str(value))), one_line=True)


def shortened(value: object) -> str:
    """Return the beginning of a value for an error message, without secrets and control characters."""
    text = shown(value)
    return text if len(text) <= MAX_VALUE_CHARS else f'{text[:MAX_VALUE_CHARS]}…'


def _describe(problem: ErrorDetails, *, path: Path, text: str, table: str) -> str:
    place = _keys(problem['loc'])
    key = '.'.join(place) or table
    full = [*filter(None, table.split('.')), *place]
    line = line_of(text, full)
    where = f'{path}:{line}' if line else str(path)
    if problem['type'] == 'extra_forbidden':
        return f'{where}: {key!r} is unknown. Known: {", ".join(_known(place))}.'
    is_no_table = problem['type'] in ('model_type', 'dict_type', 'mapping_type')
    message = 'use a table' if is_no_table else problem['msg'].removeprefix('Value error, ')
    message = f'{message[:1].lower()}{message[1:]}'
    is_shown = isinstance(problem['input'], (str, int, float)) and not any(name in SECRET_TABLES for name in place)
    value = f' is {shortened(repr(problem["input"]))}' * is_shown
    return f'{where}: {key!r}{value}: {message}.'


def _keys(loc: Sequence[int | str]) -> list[str]:
    """Return the keys of a problem. pydantic adds the kind of a rule after its name."""
    return [str(part) for index, part in enumerate(loc) if index != 2 or loc[0] != 'rules']


def _known(place: Sequence[str]) -> list[str]:
    """Return the keys that are allowed beside an unknown one."""
    model = {1: Configuration, 3: RuleTable if place[0] == 'rules' else McpServer}[len(place)]
    return [*model.model_fields]


def line_of(text: str, keys: Sequence[str]) -> int | None:
    """Return the line in which a key of a TOML file is set; `None` if it is not found.

    Of a key in an inline table, it is the line of the table.
    """
    wanted, found, best, table = tuple(keys), None, 0, ()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            path = table = _split(header[1])
        elif key := _KEY.match(line):
            path = (*table, *_split(key[1]))
        else:
            continue
        if len(path) > best and wanted[: len(path)] == path:
            found, best = number, len(path)
    return found


def _split(name: str) -> tuple[str, ...]:
    return tuple(part.strip().strip('"\'') for part in name.split('.'))
