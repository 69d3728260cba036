"""The configuration files of users and projects."""

from __future__ import annotations

from pathlib import Path

import pytest

from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.configuration._files import Project, read_mcp_option, read_project, read_user_file, user_file
from pydantic_deep.cli.configuration._schema import ConfigurationError
from pydantic_deep.mcp import McpServer

MCP = '{"mcpServers": {"shop": {"command": "uvx"}}}'


def read(directory: Path) -> Project:
    project = read_project(directory)
    assert project is not None
    return project


def test_directory_without_files_has_no_configuration(tmp_path: Path) -> None:
    """A directory without configuration files, or with another `pyproject.toml`, needs no trust."""
    assert read_project(tmp_path) is None
    (tmp_path / 'pyproject.toml').write_text('[tool.ruff]\n')
    assert read_project(tmp_path) is None


def test_project_has_its_own_file_and_servers(tmp_path: Path) -> None:
    """`pydantic-deep.toml` and `.mcp.json` count together; paths are relative to their directory."""
    (tmp_path / 'pydantic-deep.toml').write_text('skills = ["skills"]\n[mcp_servers.x]\ncommand = "x"\ncwd = "sub"\n')
    (tmp_path / '.mcp.json').write_text(MCP)
    own, mcp = read(tmp_path).files
    assert own.configuration.skills == (str(tmp_path / 'skills'),)
    assert own.configuration.mcp_servers == {'x': McpServer(command='x', cwd=str(tmp_path / 'sub'))}
    assert mcp.configuration.mcp_servers == {'shop': McpServer(command='uvx', cwd=str(tmp_path))}


def test_table_of_pyproject_is_a_configuration(tmp_path: Path) -> None:
    """`[tool.pydantic-deep]` has the same settings, and only this table counts for trust."""
    path = tmp_path / 'pyproject.toml'
    path.write_text('[tool.pydantic-deep]\nmodel = "a:b"\n')
    before = read(tmp_path)
    assert before.files[0].configuration.model == 'a:b'
    path.write_text('[project]\nname = "x"\n[tool.pydantic-deep]\nmodel = "a:b"\n')
    assert read(tmp_path).digest == before.digest
    path.write_text('[tool.pydantic-deep]\nmodel = "a:c"\n')
    assert read(tmp_path).digest != before.digest


def test_two_configurations_are_an_error(tmp_path: Path) -> None:
    """A project has one configuration, not two that may disagree."""
    (tmp_path / 'pydantic-deep.toml').write_text('')
    (tmp_path / 'pyproject.toml').write_text('[tool.pydantic-deep]\n')
    with pytest.raises(
        ConfigurationError, match=r'has both pydantic-deep.toml and \[tool.pydantic-deep\] in pyproject'
    ):
        read_project(tmp_path)


@pytest.mark.parametrize('name', ['pydantic-deep.toml', '.mcp.json'])
def test_each_byte_counts_for_the_digest(tmp_path: Path, name: str) -> None:
    """A change of one byte, even a space, is a change of the contents."""
    (tmp_path / 'pydantic-deep.toml').write_text('')
    (tmp_path / '.mcp.json').write_text(MCP)
    before = read(tmp_path).digest
    with (tmp_path / name).open('a') as file:
        file.write(' ')
    assert read(tmp_path).digest != before


@pytest.mark.parametrize(
    ('variables', 'expected'),
    [
        ({'XDG_CONFIG_HOME': '/c', 'HOME': '/h'}, '/c/pydantic-deep/config.toml'),
        ({'HOME': '/h'}, '/h/.config/pydantic-deep/config.toml'),
    ],
)
def test_file_of_the_user_is_in_the_xdg_directory(variables: dict[str, str], expected: str) -> None:
    """`XDG_CONFIG_HOME` is the parent, `~/.config` if it is not set."""
    assert str(user_file(Environment(variables=variables))) == expected


def test_file_of_the_user_is_read(tmp_path: Path) -> None:
    """The file of the user needs no trust. Its servers run in the working directory, as they are for all projects."""
    environment = Environment(variables={'XDG_CONFIG_HOME': str(tmp_path)})
    assert read_user_file(environment) is None
    (tmp_path / 'pydantic-deep').mkdir()
    path = tmp_path / 'pydantic-deep/config.toml'
    path.write_text('model = "a:b"\n[mcp_servers]\nx = {command = "x"}\ny = {command = "y", cwd = "sub"}\n')
    file = read_user_file(environment)
    assert file is not None
    assert file.configuration.model == 'a:b'
    assert [server.cwd for server in file.configuration.mcp_servers.values()] == [None, str(path.parent / 'sub')]


def test_byte_order_mark_of_a_file_is_ignored(tmp_path: Path) -> None:
    """Editors on Windows begin files with one, which neither TOML nor JSON allows."""
    servers = '{"mcpServers": {"x": {"command": "x"}}}'
    (tmp_path / 'pyproject.toml').write_text('[tool.pydantic-deep]\nmodel = "a:b"\n', encoding='utf-8-sig')
    (tmp_path / '.mcp.json').write_text(servers, encoding='utf-8-sig')
    project = read_project(tmp_path)
    assert project is not None
    assert [file.configuration.model for file in project.files] == ['a:b', None]
    assert list(project.files[1].configuration.mcp_servers) == ['x']
    (tmp_path / 'pyproject.toml').unlink()
    (tmp_path / 'pydantic-deep.toml').write_text('model = "c:d"\n', encoding='utf-8-sig')
    project = read_project(tmp_path)
    assert project is not None
    assert project.files[0].configuration.model == 'c:d'


@pytest.mark.parametrize(
    ('name', 'content', 'problem'),
    [
        (
            'pydantic-deep.toml',
            b'model = ',
            r'pydantic-deep.toml is not valid TOML: Invalid value \(at end of document\)\.',
        ),
        ('pydantic-deep.toml', b'\xff', r"pydantic-deep.toml is not valid TOML: 'utf-8' codec"),
        ('pydantic-deep.toml', b'max_tokens = ' + b'9' * 5000, r'is not valid TOML: Exceeds the limit'),
        (
            'pydantic-deep.toml',
            b'skills = ' + b'[' * 5000,
            r'pydantic-deep.toml cannot be read: it is nested too deeply\.',
        ),
        ('pyproject.toml', b'[tool]\npydantic-deep = 5', r"pyproject.toml:2: 'tool.pydantic-deep' is 5: use a table\."),
        ('.mcp.json', b'{', r'is not JSON'),
        ('.mcp.json', b'[' * 100_000, r'cannot be read: it is nested too deeply\.'),
        ('.mcp.json', b'\xff', r"\.mcp\.json: 'utf-8' codec"),
    ],
)
def test_unreadable_file_is_an_error(tmp_path: Path, name: str, content: bytes, problem: str) -> None:
    """The error names the file and the problem."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigurationError, match=problem):
        read_project(tmp_path)


def test_directory_in_place_of_a_file_is_an_error(tmp_path: Path) -> None:
    """A configuration that cannot be read is never the same as none."""
    (tmp_path / '.mcp.json').mkdir()
    with pytest.raises(ConfigurationError, match=r'\.mcp\.json cannot be read: it is no regular file\.'):
        read_project(tmp_path)
    with pytest.raises(ConfigurationError, match=r'\.mcp\.json cannot be read: Is a directory\.'):
        read_mcp_option(tmp_path / '.mcp.json')


@pytest.mark.parametrize('name', ['pydantic-deep.toml', 'pyproject.toml', '.mcp.json'])
def test_device_in_place_of_a_file_is_an_error(tmp_path: Path, name: str) -> None:
    """A link of a project to a device would be read forever, before anybody is asked about trust."""
    (tmp_path / name).symlink_to('/dev/zero')
    with pytest.raises(ConfigurationError, match=f'{name} cannot be read: it is no regular file'):
        read_project(tmp_path)


def test_tables_of_other_tools_are_not_checked(tmp_path: Path) -> None:
    """Of `pyproject.toml`, only the own table counts."""
    (tmp_path / 'pyproject.toml').write_text('tool = 5\n')
    assert read_project(tmp_path) is None


def test_skills_of_an_unknown_user_are_a_directory_that_does_not_exist(tmp_path: Path) -> None:
    """`~name` is expanded as in a shell, which leaves unknown names as they are."""
    (tmp_path / 'pydantic-deep.toml').write_text('skills = ["~nobody-here/skills"]\n')
    assert read(tmp_path).files[0].configuration.skills == (str(tmp_path / '~nobody-here/skills'),)


def test_missing_file_of_an_option_is_an_error(tmp_path: Path) -> None:
    """A file that an option names must exist."""
    with pytest.raises(ConfigurationError, match=r'none.json does not exist\.'):
        read_mcp_option(tmp_path / 'none.json')
