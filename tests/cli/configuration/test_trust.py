"""The question about files of a project, and which contents are trusted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.configuration._files import Project, read_project
from pydantic_deep.cli.configuration._trust import TrustStore, ask_trust, describe_project, trust_store
from pydantic_deep.cli.terminal._terminal import Terminal

pytestmark = pytest.mark.anyio

SECRET = 'sk-ant-api03-' + 'a' * 93 + 'AA'


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / 'pydantic-deep.toml').write_text(
        'model = "a:b"\nmax_cost = 2\nweb = true\nskills = ["s"]\n[rules]\nwrite_file = false\nedit_file = true\n'
        'execute = {allow = ["git *"], deny = ["rm *"]}\n'
        f'[mcp_servers.crm]\nurl = "https://crm.example/${{TEAM:-x}}"\nheaders = {{Authorization = "Bearer {SECRET}"}}\n'
    )
    (tmp_path / '.mcp.json').write_text(
        '{"mcpServers": {"shop": {"command": "uvx", "args": ["shop", "--key", "${KEY}"], "env": {"A": "secret-value"}}}}'
    )
    return read(tmp_path)


def read(directory: Path) -> Project:
    project = read_project(directory)
    assert project is not None
    return project


@pytest.fixture
def store(tmp_path: Path) -> TrustStore:
    return trust_store(Environment(variables={'XDG_STATE_HOME': str(tmp_path / 'state')}))


def test_question_shows_everything_that_the_files_allow(project: Project, tmp_path: Path) -> None:
    """Rules, commands, addresses, skills and variables are shown, and no secrets."""
    assert list(describe_project(project)) == [
        f'{tmp_path} has configuration files that you have not trusted in this form:',
        'pydantic-deep.toml',
        '  model: a:b',
        '  max_cost: 2',
        '  web: true',
        f'  skills whose instructions the agent follows: {tmp_path}/s',
        '  rule for write_file: runs WITHOUT APPROVAL',
        '  rule for edit_file: asks before each call',
        "  rule for execute: runs WITHOUT APPROVAL if it matches ['git *']; never runs if it matches ['rm *']; "
        'asks before other calls',
        '  MCP server crm connects to: https://crm.example/${TEAM:-x}, with Authorization, and reads the environment '
        'variables TEAM',
        '.mcp.json',
        '  MCP server shop runs the command: uvx shop --key ${KEY}, with A, and reads the environment variables KEY',
    ]


def test_exactly_these_contents_are_trusted(project: Project, store: TrustStore, tmp_path: Path) -> None:
    """A changed byte asks again, and so does the same file in another directory."""
    assert not store.is_trusted(project)
    store.add(project)
    assert store.is_trusted(project)
    with (tmp_path / '.mcp.json').open('a') as file:
        file.write('\n')
    assert not store.is_trusted(read(tmp_path))
    elsewhere = tmp_path / 'elsewhere'
    elsewhere.mkdir()
    for file in project.files:
        (elsewhere / file.path.name).write_bytes(file.path.read_bytes())
    assert not store.is_trusted(read(elsewhere))


def test_trust_is_revoked(project: Project, store: TrustStore) -> None:
    """After a revocation, the next command asks again."""
    store.add(project)
    assert [store.remove(project.directory), store.remove(project.directory)] == [True, False]
    assert not store.is_trusted(project)


def test_damaged_entry_trusts_nothing(project: Project, store: TrustStore) -> None:
    """An entry that is not complete counts as none."""
    store.add(project)
    (entry,) = store.directory.iterdir()
    entry.write_text('{')
    assert not store.is_trusted(project)


@pytest.mark.parametrize(
    ('typed', 'expected'),
    [('y', True), ('Yes', True), ('', False), ('n', False), (EOFError(), False), (KeyboardInterrupt(), False)],
)
async def test_only_a_yes_trusts(
    project: Project, make_terminal: Callable[..., Terminal], typed: object, expected: bool
) -> None:
    """Everything but a yes is a no."""
    assert await ask_trust(project, make_terminal(typed)) is expected
