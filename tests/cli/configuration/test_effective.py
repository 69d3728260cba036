"""The strongest source of each value."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from pydantic_deep import ApprovalRule
from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli._schemas import ConfigSetting
from pydantic_deep.cli.configuration._effective import ConfigOptions, Effective, load_configuration, load_extras
from pydantic_deep.cli.configuration._files import read_project
from pydantic_deep.cli.configuration._schema import ConfigurationError
from pydantic_deep.cli.configuration._trust import trust_store
from pydantic_deep.cli.terminal._terminal import Terminal
from pydantic_deep.cli.turn._runtime import MAX_TOKENS, Settings
from pydantic_deep.mcp import McpConfigError, McpServer

pytestmark = pytest.mark.anyio


class Home:
    """A project and a user."""

    def __init__(self, tmp_path: Path) -> None:
        self.project = tmp_path / 'project'
        self.project.mkdir()
        self.user = tmp_path / 'config/pydantic-deep/config.toml'
        self.user.parent.mkdir(parents=True)
        self.variables = {'XDG_STATE_HOME': str(tmp_path / 'state'), 'XDG_CONFIG_HOME': str(tmp_path / 'config')}
        self.terminal: Terminal | None = None

    def environment(self) -> Environment:
        return Environment(variables=self.variables, open_terminal=lambda: nullcontext(self.terminal))

    def trust(self) -> None:
        project = read_project(self.project)
        assert project is not None
        trust_store(self.environment()).add(project)

    async def load(self, *, asks: bool = True, **options: Any) -> Effective:
        return await load_configuration(ConfigOptions(directory=self.project, **options), self.environment(), asks=asks)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


async def test_without_files_everything_has_its_default(home: Home) -> None:
    """Without configuration, the defaults of the options apply."""
    found = await home.load()
    assert (found.model, found.max_tokens, found.max_cost, found.skills) == (None, MAX_TOKENS, None, ())
    assert (found.rules, found.mcp_servers) == ({}, {})
    assert found.settings({'OPENAI_API_KEY': 'k'})[0].value is not None
    assert found.settings({})[0] == ConfigSetting(key='model', value=None, source='default')


async def test_project_is_weaker_than_user_environment_and_options(home: Home) -> None:
    """Each stronger source replaces the model; the source is reported."""
    (home.project / 'pydantic-deep.toml').write_text('model = "p:p"\nmax_tokens = 1\nmax_cost = 1')
    home.trust()
    found: list[tuple[str | None, str]] = []

    async def note(**options: Any) -> None:
        effective = await home.load(**options)
        found.append((effective.model, effective.sources['model']))

    await note()
    home.user.write_text('model = "u:u"\nmax_tokens = 2')
    await note()
    home.variables['PYDANTIC_DEEP_MODEL'] = 'e:e'
    await note()
    await note(model='o:o')
    assert found == [
        ('p:p', f'{home.project}/pydantic-deep.toml'),
        ('u:u', str(home.user)),
        ('e:e', 'PYDANTIC_DEEP_MODEL'),
        ('o:o', '--model'),
    ]
    effective = await home.load(max_cost=Decimal(3))
    assert (effective.max_tokens, effective.max_cost) == (2, Decimal(3))


async def test_rules_and_servers_are_replaced_by_name_and_skills_add_up(home: Home, tmp_path: Path) -> None:
    """Of rules and servers, the strongest source of each name counts; skills of all sources are used."""
    (home.project / 'pydantic-deep.toml').write_text(
        'skills = ["s"]\n[rules]\nwrite_file = false\nedit_file = false\n[mcp_servers.a]\ncommand = "project"\n'
    )
    (home.project / '.mcp.json').write_text('{"mcpServers": {"a": {"command": "m"}, "b": {"command": "m"}}}')
    home.trust()
    home.user.write_text('skills = ["/u"]\n[rules]\nwrite_file = true\n')
    other = tmp_path / 'other.json'
    other.write_text('{"mcpServers": {"b": {"url": "https://b"}}}')
    found = await home.load(mcp_config=[other], skills=[Path('/o')])
    assert found.skills == ('/o', '/u', f'{home.project}/s')
    assert found.rules == {'write_file': True, 'edit_file': False}
    assert {name: server.command for name, server in found.mcp_servers.items()} == {'a': 'project', 'b': None}
    assert [(setting.key, setting.source) for setting in found.settings({})] == [
        ('model', 'default'),
        ('max_tokens', 'default'),
        ('max_cost', 'default'),
        ('web', 'default'),
        ('memory', 'default'),
        ('theme', 'default'),
        ('skills.1', '--skills'),
        ('skills.2', str(home.user)),
        ('skills.3', f'{home.project}/pydantic-deep.toml'),
        ('rules.write_file', str(home.user)),
        ('rules.edit_file', f'{home.project}/pydantic-deep.toml'),
        ('mcp_servers.a', f'{home.project}/pydantic-deep.toml'),
        ('mcp_servers.b', f'--mcp-config {other}'),
    ]


async def test_project_takes_effect_only_after_the_question(home: Home, make_terminal: Callable[..., Terminal]) -> None:
    """The question is asked once; a changed byte asks again; a no starts nothing."""
    path = home.project / 'pydantic-deep.toml'
    path.write_text('model = "a:b"')
    with pytest.raises(ConfigurationError, match=r'There is no terminal to ask .* `pydantic-deep config trust --dir'):
        await home.load()
    home.terminal = make_terminal('n')
    with pytest.raises(ConfigurationError, match=r'You did not trust pydantic-deep.toml in .*: --no-project-config\.'):
        await home.load()
    home.terminal = make_terminal('y')
    assert (await home.load()).model == 'a:b'
    home.terminal = None
    assert (await home.load()).model == 'a:b'
    path.write_text('model = "a:b" ')
    with pytest.raises(ConfigurationError, match='There is no terminal'):
        await home.load()


async def test_project_is_ignored_on_request_and_left_out_without_a_question(home: Home) -> None:
    """An option ignores the files. A listing leaves untrusted ones out, and names them."""
    (home.project / 'pydantic-deep.toml').write_text('model = "a:b"')
    ignored = await home.load(no_project_config=True)
    assert (ignored.model, ignored.untrusted) == (None, None)
    listed = await home.load(asks=False)
    assert listed.model is None
    assert listed.untrusted is not None


async def test_rules_become_rules_of_approval(home: Home) -> None:
    """`false` for a tool of a server lets it run; all other rules are those of `interrupt_on`."""
    home.user.write_text(
        '[rules]\nexecute = {allow = ["git status"]}\nwrite_file = false\n"shop_*" = false\nshop_order = true\n'
        '[mcp_servers.shop]\ncommand = "x"\n'
    )
    extras = (await home.load()).extras
    assert extras.rules == {'execute': ApprovalRule(allow=['git status']), 'write_file': False, 'shop_order': True}
    assert extras.allow == ('shop_*',)


@pytest.mark.parametrize(
    ('rule', 'problem'),
    [
        (
            'write_fil = true',
            r"'rules.write_fil': no tool has this name\. Tools: ls, .*, web_fetch, and those of MCP .*: shop_…\.",
        ),
        ('"shop_*" = true', r"'rules.shop_\*' has a pattern for a name, which is for `false` only\."),
    ],
)
async def test_rule_for_an_unknown_tool_is_an_error(home: Home, rule: str, problem: str) -> None:
    """A rule that has no effect would be worse than an error."""
    home.user.write_text(f'[rules]\n{rule}\n[mcp_servers.shop]\ncommand = "x"\n')
    with pytest.raises(ConfigurationError, match=f'config.toml: {problem}'):
        _ = (await home.load()).extras


async def test_continued_turn_has_its_own_servers(home: Home) -> None:
    """A stored turn continues with the servers that it had; without one of them, that is an error."""
    home.user.write_text('[mcp_servers.a]\ncommand = "a"\n[mcp_servers.b]\ncommand = "b"\n')
    settings = Settings(directory=str(home.project), model='m', mcp_servers=('a',))
    extras = await load_extras(home.environment(), settings, (), no_project_config=False)
    assert extras.mcp_servers == {'a': McpServer(command='a')}
    with pytest.raises(McpConfigError, match=r'are not configured here: c\. Name their file with --mcp-config\.'):
        await load_extras(
            home.environment(), settings.model_copy(update={'mcp_servers': ('c',)}), (), no_project_config=False
        )


async def test_theme_of_a_file_has_the_colors_of_code(home: Home) -> None:
    """By default, code has the colors of the terminal."""
    default = await home.load()
    assert (default.extras.theme, [each.value for each in default.settings({}) if each.key == 'theme']) == (
        None,
        ['ansi_dark'],
    )
    home.user.write_text('theme = "monokai"')
    found = await home.load()
    assert found.extras.theme == 'monokai'
    assert ConfigSetting(key='theme', value='monokai', source=str(home.user)) in found.settings({})


@pytest.mark.parametrize('key', ['web', 'memory'])
async def test_web_and_memory_are_off_unless_a_file_or_the_option_switches_them_on(home: Home, key: str) -> None:
    """The option is stronger than the file of the user, which is stronger than that of the project."""
    assert getattr(await home.load(), key) is False
    (home.project / 'pydantic-deep.toml').write_text(f'{key} = true')
    home.trust()
    assert getattr(await home.load(), key) is True
    home.user.write_text(f'{key} = false')
    assert getattr(await home.load(), key) is False
    found = await home.load(**{key: True})
    assert (getattr(found, key), found.sources[key]) == (True, f'--{key}')
    assert ConfigSetting(key=key, value='true', source=f'--{key}') in found.settings({})


@pytest.mark.parametrize(
    ('rule', 'rules', 'allow', 'deny'),
    [
        ('{allow = ["python.org"], deny = ["evil.com"]}', {}, ['python.org'], ['evil.com']),
        ('false', {}, ['*'], []),
        ('true', {'web_fetch': True}, [], []),
    ],
)
async def test_rule_for_pages_has_domains(
    home: Home, rule: str, rules: dict[str, bool], allow: list[str], deny: list[str]
) -> None:
    """The rule for `web_fetch` allows and denies domains; `true` asks about each page, `false` about none."""
    home.user.write_text(f'[rules]\nweb_fetch = {rule}')
    extras = (await home.load()).extras
    assert (extras.rules, [*extras.web_allow], [*extras.web_deny]) == (rules, allow, deny)


async def test_rule_for_pages_has_nothing_but_domains(home: Home) -> None:
    """Other fields of a rule have no meaning for domains, and are refused."""
    home.user.write_text('[rules]\nweb_fetch = {decisions = ["deny"]}')
    with pytest.raises(ConfigurationError, match=r"'rules\.web_fetch' has domains: `allow` and `deny`"):
        _ = (await home.load()).extras
