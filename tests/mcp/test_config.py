"""The configuration of servers, and its variables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pydantic_deep.mcp import McpConfigError, McpServer, read_mcp_file


def write(tmp_path: Path, servers: object) -> Path:
    path = tmp_path / '.mcp.json'
    path.write_text(json.dumps({'mcpServers': servers}))
    return path


def test_file_describes_programs_and_addresses(tmp_path: Path) -> None:
    """A file in the format of other clients is read; unknown settings and disabled servers are left out."""
    path = write(
        tmp_path,
        {
            'git': {'type': 'stdio', 'command': 'uvx', 'args': ['mcp-git'], 'env': None, 'alwaysAllow': ['log']},
            'crm': {'type': 'http', 'url': 'https://crm.example/mcp', 'headers': {'Authorization': 'Bearer ${KEY}'}},
            'old': {'command': 'old', 'disabled': True},
        },
    )
    assert read_mcp_file(path) == {
        'git': McpServer(command='uvx', args=('mcp-git',), cwd=str(tmp_path)),
        'crm': McpServer(url='https://crm.example/mcp', headers={'Authorization': 'Bearer ${KEY}'}),
    }


@pytest.mark.parametrize(
    ('cwd', 'expected'), [('tools', '/tmp/p/tools'), ('/srv', '/srv'), ('${HOME}/x', '${HOME}/x'), (None, '/tmp/p')]
)
def test_programs_run_in_the_directory_of_the_file(tmp_path: Path, cwd: str | None, expected: str) -> None:
    """A relative `cwd` is below the directory of the file; a variable is left as it is."""
    path = write(tmp_path, {'git': {'command': 'uvx', 'cwd': cwd}})
    assert read_mcp_file(path)['git'].cwd == expected.replace('/tmp/p', str(tmp_path))


def test_variables_are_replaced_when_the_server_is_used() -> None:
    """`${VAR}` is the value of a variable; `:-` gives a default for one that is unset or empty."""
    server = McpServer(command='${BIN:-uvx}', args=('--level=${LEVEL:-}', '${A}${B:-b}'), env={'KEY': '${KEY}'})
    assert server.variables == ('BIN', 'LEVEL', 'A', 'B', 'KEY')
    assert server.expand('git', {'A': '1', 'B': '', 'KEY': 'k', 'BIN': '/bin/x'}) == McpServer(
        command='/bin/x', args=('--level=', '1b'), env={'KEY': 'k'}
    )
    assert server.label == '${BIN:-uvx} --level=${LEVEL:-} ${A}${B:-b}'


def test_unset_variable_is_an_error_with_its_name() -> None:
    """A variable without a value and a default is an error that names the server and the variable."""
    with pytest.raises(
        McpConfigError,
        match=r"^The MCP server 'crm' uses the environment variable URL, which is not set\. Set it, or write a default: "
        r'\$\{URL:-…\}\.$',
    ):
        McpServer(url='${URL}').expand('crm', {})


def test_variable_with_an_invalid_value_is_an_error() -> None:
    """The configuration is validated again with the values of its variables."""
    with pytest.raises(
        McpConfigError, match=r"^The MCP server 'crm' is invalid: `url` starts with http:// or https://\.$"
    ):
        McpServer(url='${URL}').expand('crm', {'URL': 'ftp://crm'})


def test_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    """Editors on Windows begin files with one, which JSON does not allow."""
    path = tmp_path / '.mcp.json'
    path.write_text('{"mcpServers": {"git": {"command": "x"}}}', encoding='utf-8-sig')
    assert list(read_mcp_file(path)) == ['git']


def test_representation_has_no_secrets() -> None:
    """Values of `env` and `headers` are in no representation of a server."""
    assert 's3cret' not in repr(McpServer(command='x', env={'KEY': 's3cret'}))
    assert 's3cret' not in repr(McpServer(url='https://x', headers={'KEY': 's3cret'}))


@pytest.mark.parametrize(
    ('server', 'problem'),
    [
        ({}, 'a server has either `command` or `url`'),
        ({'command': 'x', 'url': 'https://x'}, 'a server has either `command` or `url`'),
        ({'command': 'x', 'headers': {'A': 'b'}}, '`headers` needs `url`'),
        ({'url': 'https://x', 'args': ['a']}, '`args` needs `command`'),
        ({'url': 'x'}, '`url` starts with http:// or https://'),
        ({'command': ['x']}, '`command`: Input should be a valid string'),
        ({'command': 'x', 'env': {'KEY': 5}}, '`env.KEY`: Input should be a valid string'),
        ({'type': 'sse', 'url': 'https://x'}, "the type 'sse' is not supported; use one of stdio, http, "),
        ({'type': ['stdio'], 'command': 'x'}, "the type ['stdio'] is not supported; use one of stdio, http, "),
        ({'type': 'http', 'command': 'x'}, "the type 'http' needs `url`"),
        ('uvx', 'it is not an object'),
    ],
)
def test_invalid_server_is_an_error_with_its_place(tmp_path: Path, server: object, problem: str) -> None:
    """The error names the file, the server and the setting, without its value, which may be a secret."""
    path = write(tmp_path, {'git': server})
    with pytest.raises(McpConfigError) as caught:
        read_mcp_file(path)
    assert str(caught.value).startswith(f'{path}: mcpServers.git: {problem}')


@pytest.mark.parametrize(
    ('text', 'problem'),
    [
        ('{', 'is not JSON'),
        ('[]', 'has no object `mcpServers`'),
        ('{"servers": {}}', 'has no object `mcpServers`'),
        (
            r'{"mcpServers": {"\ud800": {}}}',
            r"has the name '\\ud800', which contains half of a character\. Remove it\.",
        ),
        ('{"mcpServers": {" ": {}}}', "has the name ' '. Use a name with letters."),
    ],
)
def test_invalid_file_is_an_error(tmp_path: Path, text: str, problem: str) -> None:
    """The error names the file and what is wrong with it."""
    path = tmp_path / '.mcp.json'
    path.write_text(text)
    with pytest.raises(McpConfigError, match=f'(T|in t)he MCP configuration .*mcp.json. {problem}'):
        read_mcp_file(path)


def test_missing_file_is_an_error(tmp_path: Path) -> None:
    """The error names the file."""
    with pytest.raises(McpConfigError, match=r'cannot be read: .*No such file'):
        read_mcp_file(tmp_path / 'none.json')
