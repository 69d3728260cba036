"""The configuration in commands: `config`, trust, `mcp-servers`, and turns with rules and MCP servers."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from pydantic_deep.testing import ScriptedModel, call

Invoke = Callable[..., Result]
MakeTerminal = Callable[..., Any]

SERVER = Path(__file__).parent.parent.parent / 'mcp/fixture_server.py'

ORDER = call('shop_order', item='tea')


@pytest.fixture
def calls(tmp_path: Path) -> Callable[[], list[str]]:
    """Return the calls that the server has received."""
    path = tmp_path / 'calls'
    return lambda: [line for line in path.read_text().splitlines() if line != 'start'] if path.exists() else []


@pytest.fixture
def mcp_file(tmp_path: Path) -> Path:
    """A file with the fixture server."""
    path = tmp_path / 'servers.json'
    server = {
        'command': sys.executable,
        'args': [str(SERVER)],
        'env': {'CALLS': '${CALLS:-' + str(tmp_path / 'calls') + '}'},
    }
    path.write_text(json.dumps({'mcpServers': {'shop': server}}))
    return path


@pytest.fixture
def project(work: Path, mcp_file: Path) -> Path:
    """The working directory with a configuration."""
    (work / '.mcp.json').write_bytes(mcp_file.read_bytes())
    (work / 'pydantic-deep.toml').write_text('max_tokens = 500\n[rules]\nwrite_file = false\n')
    return work


def test_config_shows_values_and_sources(invoke: Invoke, work: Path) -> None:
    """Each effective value is shown with the file, variable or option that sets it."""
    (work / 'pydantic-deep.toml').write_text('max_tokens = 500\n')
    assert invoke('config', 'trust', '--yes').exit_code == 0
    result = invoke('config', '--model', 'a:b')
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ['model', 'a:b', '--model'] in lines
    assert any(line[:2] == ['max_tokens', '500'] for line in lines)
    assert ['max_cost', 'default'] in lines


def test_config_as_json_names_untrusted_files(invoke: Invoke, project: Path) -> None:
    """Files that are not trusted have no effect, and the document names them."""
    document = json.loads(invoke('config', '--json').stdout)
    assert document['settings'][1] == {'key': 'max_tokens', 'value': '2000000', 'source': 'default'}
    assert document['untrusted'] == [str(project / 'pydantic-deep.toml'), str(project / '.mcp.json')]


def test_config_refuses_a_rule_without_a_tool(invoke: Invoke, work: Path, project: Path) -> None:
    """As `run` does; unless a server of a file that is not trusted may have the tool."""
    (work / 'pydantic-deep.toml').write_text('[rules]\nshop_order = true\nwrite_fil = true\n')
    assert invoke('config').exit_code == 0
    assert invoke('config', 'trust', '--yes').exit_code == 0
    result = invoke('config')
    assert (result.exit_code, result.stdout) == (2, '')
    assert f"{work}/pydantic-deep.toml: 'rules.write_fil': no tool has this name. Tools: ls, " in result.stderr


@pytest.mark.parametrize(
    'command', [('config',), ('config', 'trust', '--yes'), ('config', 'trust', '--revoke'), ('run', 'Hi')]
)
def test_store_of_trust_that_cannot_be_used_is_named(
    invoke: Invoke, project: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    state = tmp_path / 'file'
    state.write_text('')
    result = invoke(*command, model=ScriptedModel('Hi.'), variables={'XDG_STATE_HOME': str(state)})
    assert result.exit_code == 2
    assert result.stderr.startswith(f'{state}/pydantic-deep/trusted')
    assert ', which records the files that you trust, cannot be used: Not a directory. Repair' in result.stderr


def test_config_as_text_names_untrusted_files(invoke: Invoke, project: Path) -> None:
    """A line says which files have no effect, and how to review them."""
    assert 'Not trusted, so without effect: ' in invoke('config').stderr


def test_config_shows_no_secrets(invoke: Invoke, work: Path) -> None:
    """Values of `env` and `headers` are not shown, nor keys in a command line."""
    key = 'sk-ant-api03-' + 'a' * 93 + 'AA'
    (work / '.mcp.json').write_text(
        json.dumps({'mcpServers': {'shop': {'command': 'x', 'args': [key], 'env': {'PASSWORD': 'hunter2'}}}})
    )
    for arguments in (['trust', '--yes'], [], ['--json']):
        output = invoke('config', *arguments).output
        assert key not in output.replace('\n', '')
        assert 'hunter2' not in output


def test_invalid_configuration_is_wrong_usage(invoke: Invoke, work: Path) -> None:
    """A wrong key ends each command that uses the configuration with exit code 2."""
    (work / 'pydantic-deep.toml').write_text('modle = "x"\n')
    for arguments in (['config'], ['run', 'go'], ['mcp-servers'], ['config', 'trust']):
        result = invoke(*arguments, model=ScriptedModel())
        assert result.exit_code == 2
        assert "pydantic-deep.toml:1: 'modle' is unknown." in result.stderr


def test_trust_asks_at_the_terminal(invoke: Invoke, project: Path, make_terminal: MakeTerminal) -> None:
    """The command shows the contents and asks; only a yes trusts them."""
    terminal = make_terminal('n')
    refused = invoke('config', 'trust', terminal=terminal)
    assert (refused.exit_code, refused.stderr) == (1, 'The files are not trusted.\n')
    assert 'rule for write_file: runs WITHOUT APPROVAL' in terminal.shown
    assert invoke('config', 'trust', terminal=make_terminal('y')).exit_code == 0
    assert json.loads(invoke('config', '--json').stdout)['settings'][1]['value'] == '500'


def test_trust_without_a_terminal_needs_an_option(invoke: Invoke, project: Path) -> None:
    """Without a terminal, nothing is trusted by accident."""
    result = invoke('config', 'trust')
    assert (result.exit_code, 'There is no terminal to ask at.' in result.stderr) == (2, True)


def test_trust_is_revoked(invoke: Invoke, project: Path) -> None:
    """After `--revoke`, the files have no effect."""
    invoke('config', 'trust', '--yes')
    assert invoke('config', 'trust', '--revoke').stdout == 'The files are not trusted any more.\n'
    assert invoke('config', 'trust', '--revoke').stdout == 'No files were trusted.\n'


def test_trust_of_a_directory_without_files_is_wrong_usage(invoke: Invoke) -> None:
    """There is nothing to trust."""
    result = invoke('config', 'trust')
    assert (result.exit_code, 'has no configuration files.' in result.stderr) == (2, True)


def test_servers_are_listed_with_their_tools(invoke: Invoke, mcp_file: Path) -> None:
    """The list has the state of each server, and marks tools whose calls need approval."""
    result = invoke('mcp-servers', '--mcp-config', str(mcp_file))
    assert result.exit_code == 0
    assert 'shop: 11 tools, 2 resources' in result.stdout
    assert '  shop_add\n  shop_order  (asks)\n' in result.stdout


def test_server_that_is_not_running_is_exit_code_1(invoke: Invoke, mcp_file: Path) -> None:
    """The document has the reason."""
    mcp_file.write_text('{"mcpServers": {"shop": {"command": "no-such-program"}}}')
    result = invoke('mcp-servers', '--mcp-config', str(mcp_file), '--json')
    (status,) = json.loads(result.stdout)
    assert (result.exit_code, 'No such file' in status['error']) == (1, True)


def test_without_servers_the_list_says_so(invoke: Invoke) -> None:
    """No configuration is no error."""
    result = invoke('mcp-servers')
    assert (result.exit_code, result.stdout) == (0, 'No MCP servers are configured.\n')


def test_project_that_is_not_trusted_starts_nothing(
    invoke: Invoke, project: Path, calls: Callable[[], list[str]]
) -> None:
    """Without a terminal, a turn in a project with configuration ends with the command that trusts it."""
    result = invoke('run', 'go', model=ScriptedModel())
    assert result.exit_code == 2
    assert 'pydantic-deep config trust' in result.stderr


def test_ignored_project_has_no_rules_and_servers(invoke: Invoke, project: Path) -> None:
    """With `--no-project-config`, the files have no effect."""
    model = ScriptedModel('done')
    assert invoke('run', 'go', '--no-project-config', model=model).exit_code == 0
    assert not any(name.startswith('shop') for name in model.requests[0].tool_names)


def test_question_comes_before_the_turn(
    invoke: Invoke, project: Path, make_terminal: MakeTerminal, calls: Callable[[], list[str]]
) -> None:
    """At a terminal, the first turn asks about the files; then rules, budget and servers take effect."""
    model = ScriptedModel(call('write_file', path='new.txt', content='x'), ORDER, 'done')
    result = invoke('run', 'go', model=model, terminal=make_terminal('y', 'y'))
    assert result.exit_code == 0, result.output
    assert (project / 'new.txt').read_text() == 'x'
    assert calls() == ['order tea']


def test_calls_of_servers_pause_resume_and_replay(
    invoke: Invoke, mcp_file: Path, calls: Callable[[], list[str]]
) -> None:
    """A paused call runs after `resume`, which needs the servers of the turn; so does `replay`."""
    option = ['--mcp-config', str(mcp_file)]
    paused = invoke('run', 'go', '--approvals=pause', *option, model=ScriptedModel(ORDER))
    assert (paused.exit_code, calls()) == (5, [])
    missing = invoke('resume', '--approvals=allow', model=ScriptedModel('done'))
    assert missing.exit_code == 2
    assert 'The turn ran with MCP servers that are not configured here: shop.' in missing.stderr
    done = invoke('resume', '--approvals=allow', *option, model=ScriptedModel('done'))
    assert (done.exit_code, calls()) == (0, ['order tea']), done.output
    replayed = invoke('replay', *option, model=ScriptedModel())
    assert replayed.exit_code == 0, replayed.output
    assert calls() == ['order tea']


def test_allowed_tool_of_a_server_runs(
    invoke: Invoke, mcp_file: Path, tmp_path: Path, calls: Callable[[], list[str]]
) -> None:
    """A rule `false` in the user's file lets a tool of a server run, without a terminal."""
    config = tmp_path / 'config/pydantic-deep'
    config.mkdir(parents=True)
    (config / 'config.toml').write_text('[rules]\n"shop_*" = false\n')
    variables = {'XDG_CONFIG_HOME': str(tmp_path / 'config')}
    result = invoke('run', 'go', '--mcp-config', str(mcp_file), model=ScriptedModel(ORDER, 'done'), variables=variables)
    assert (result.exit_code, calls()) == (0, ['order tea']), result.output


def test_variable_of_a_server_that_is_not_set_is_wrong_usage(invoke: Invoke, mcp_file: Path) -> None:
    """A missing variable is an error before the first request."""
    mcp_file.write_text('{"mcpServers": {"shop": {"command": "${SHOP}"}}}')
    result = invoke('run', 'go', '--mcp-config', str(mcp_file), model=ScriptedModel())
    assert (result.exit_code, "The MCP server 'shop' uses the environment variable SHOP" in result.stderr) == (2, True)


def test_missing_extra_is_wrong_usage(invoke: Invoke, mcp_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra, the error names it."""

    def fail(**_: object) -> None:
        raise ModuleNotFoundError('Install the extra: mcp')

    monkeypatch.setattr('pydantic_deep.cli.turn._runtime.McpServers', fail)
    result = invoke('run', 'go', '--mcp-config', str(mcp_file), model=ScriptedModel())
    assert (result.exit_code, result.stderr) == (2, 'Install the extra: mcp\n')
