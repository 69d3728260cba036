"""The contents of configuration files, and errors about them."""

from __future__ import annotations

import tomllib
from decimal import Decimal
from pathlib import Path

import pytest

from pydantic_deep import ApprovalRule
from pydantic_deep.cli.configuration._schema import (
    Configuration,
    ConfigurationError,
    RuleTable,
    line_of,
    parse_configuration,
    shortened,
)
from pydantic_deep.mcp import McpServer

FILE = Path('/p/pydantic-deep.toml')


def parse(text: str) -> Configuration:
    return parse_configuration(tomllib.loads(text), path=FILE, text=text)


def test_file_has_models_budgets_skills_rules_and_servers() -> None:
    """All settings of a file are read into their types; amounts of money are exact."""
    found = parse(
        'model = "openai:gpt"\nmax_tokens = 5\nmax_cost = 0.1\nskills = ["skills"]\nweb = true\n'
        '[rules]\nwrite_file = false\nexecute = {allow = ["git status *"], deny = ["git push *"]}\n'
        '[mcp_servers.shop]\ncommand = "uvx"\nargs = ["shop"]\n'
    )
    assert (found.model, found.max_tokens, found.max_cost, found.skills) == (
        'openai:gpt',
        5,
        Decimal('0.1'),
        ('skills',),
    )
    assert found.rules['write_file'] is False
    assert found.web is True
    execute = found.rules['execute']
    assert isinstance(execute, RuleTable)
    assert execute.rule() == ApprovalRule(allow=['git status *'], deny=['git push *'])
    assert found.mcp_servers == {'shop': McpServer(command='uvx', args=('shop',))}


def test_amount_may_be_a_text() -> None:
    """An amount of money may be written as for the option."""
    assert parse('max_cost = "0.50"').max_cost == Decimal('0.50')


@pytest.mark.parametrize(
    ('text', 'problem'),
    [
        (
            'modle = "x"',
            "1: 'modle' is unknown. Known: model, max_tokens, max_cost, skills, rules, web, memory, theme, mcp_servers.",
        ),
        (
            '[rules]\nexecute = {alow = []}',
            "2: 'rules.execute.alow' is unknown. Known: allow, deny, decisions, known_arguments.",
        ),
        (
            '[mcp_servers.shop]\nurl = "https://x"\nurls = "y"',
            "3: 'mcp_servers.shop.urls' is unknown. Known: command, args, env, cwd, url, headers.",
        ),
        ('\nmax_tokens = "many"', "2: 'max_tokens' is 'many': input should be a valid integer."),
        (
            'theme = "dark"',
            "1: 'theme' is 'dark': use ansi_light or ansi_dark, which have the colors of the terminal, or a style of "
            'Pygments (https://pygments.org/styles), such as monokai.',
        ),
        ('theme = 5', "1: 'theme' is 5: input should be a valid string."),
        ('max_tokens = 0', "1: 'max_tokens' is 0: input should be greater than or equal to 1."),
        (
            'max_cost = true',
            "1: 'max_cost' is True: decimal input should be an integer, float, string or Decimal object.",
        ),
        (
            '[rules]\nexecute = "no"',
            "2: 'rules.execute' is 'no': use true, false, or a table with some of allow, deny, ",
        ),
        (
            '[rules]\nx = {decisions = []}',
            "2: 'rules.x': ApprovalRule(decisions=[]): pass a tuple of some of approve, ",
        ),
        ('rules = 5', "1: 'rules' is 5: use a table."),
        ('[mcp_servers]\nshop = "x"', "2: 'mcp_servers.shop' is 'x': use a table."),
        ('[mcp_servers.shop]\nargs = ["x"]', "1: 'mcp_servers.shop': a server has either `command` or `url`."),
        (
            '[mcp_servers.shop]\ncommand = "x"\nenv = {KEY = 5}',
            "3: 'mcp_servers.shop.env.KEY': input should be a valid string.",
        ),
    ],
)
def test_wrong_setting_is_an_error_with_its_place_and_what_is_allowed(text: str, problem: str) -> None:
    """The error names the file, the line, the key, the value unless it may be a secret, and what is allowed."""
    with pytest.raises(ConfigurationError) as caught:
        parse(text)
    assert str(caught.value).lower().startswith(f'{FILE}:{problem}'.lower())


def test_error_in_a_table_of_another_file_has_its_line() -> None:
    """In `pyproject.toml`, the line of the table counts."""
    text = '[project]\nmodel = 1\n[tool.pydantic-deep]\nmodel = ""\n'
    table = tomllib.loads(text)['tool']['pydantic-deep']
    with pytest.raises(ConfigurationError, match=r"^/p/pydantic-deep.toml:4: 'model' is '': string should have"):
        parse_configuration(table, path=FILE, text=text, table='tool.pydantic-deep')


def test_unknown_line_is_left_out() -> None:
    """If the line of a key is not found, the error names the file alone."""
    with pytest.raises(ConfigurationError, match=r"^/p/pydantic-deep.toml: 'x' is unknown"):
        parse_configuration({'x': 1}, path=FILE, text='')


@pytest.mark.parametrize(
    ('text', 'line'),
    [('a.b = 1', 1), ('[a]\n"b" = 1', 2), ('[a]\n[a.b]\nc = 1', 2), ('# a\n[a]\nx = 1\n', 2), ('b = 1', None)],
)
def test_line_of_a_key(text: str, line: int | None) -> None:
    """Keys are found in tables and with dots; of a missing one, the innermost table is."""
    assert line_of(text, ['a', 'b']) == line


def test_values_in_errors_have_no_secrets_and_are_short() -> None:
    """Secrets are redacted, control characters are escaped, and long values are cut."""
    assert 'sk-ant-api03' not in shortened('sk-ant-api03-' + 'a' * 93 + 'AA')
    assert shortened('\x1b[31m') == '\\x1b[31m'
    assert shortened('x' * 100) == 'x' * 80 + '…'
