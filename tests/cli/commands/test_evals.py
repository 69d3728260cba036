"""`evals record` and `evals run`: cases from versions, and the table of a comparison."""

from __future__ import annotations

import json
import os
import sys
from io import StringIO
from pathlib import Path

import anyio
import pytest
from inline_snapshot import snapshot
from rich.console import Console

from pydantic_deep import LocalBackend, VersionedAgent, create_deep_agent, open_store
from pydantic_deep.cli.render._score_table import render_scores
from pydantic_deep.evals import CaseScore, Comparison, TurnUsage
from pydantic_deep.testing import ScriptedModel, call
from tests.cli.conftest import EDIT, PLAN, Invoke, Steady

TODOS = call('write_todos', todos=PLAN)
STEPS = (TODOS, EDIT, 'Fixed.')

AGENTS = """
from pydantic_deep import create_deep_agent
from pydantic_deep.testing import ScriptedModel, call

EDIT = call('edit_file', path='/poem.txt', old_string='violet', new_string='lily')
agents = {
    'command-line': create_deep_agent(ScriptedModel(call('read_file', path='/poem.txt'), EDIT, 'Fixed.')),
    'lazy': create_deep_agent(ScriptedModel('No.')),
}
"""


@pytest.fixture
def case(invoke: Invoke) -> str:
    """The name of a recorded case."""
    invoke('run', 'Fix the poem, please', '--approvals=allow', model=ScriptedModel(*STEPS))
    result = invoke('evals', 'record', 'HEAD', '--name', 'poem', model=ScriptedModel())
    assert result.exit_code == 0, result.stderr
    return 'poem'


def test_turn_is_recorded_and_replayed_without_a_key(invoke: Invoke, steady: Steady, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv('ANTHROPIC_API_KEY', raising=False)
    invoke('run', 'Fix the poem, please', '--approvals=allow', model=ScriptedModel(*STEPS))
    recorded = invoke('evals', 'record', 'HEAD', '--to', 'cases', '--name', 'poem', model=ScriptedModel())
    assert steady(recorded.stdout) == snapshot('Recorded the turn of version 01234567 in cases/poem.\n')
    assert sorted(os.listdir('cases/poem')) == ['case.json', 'expected', 'files', 'recording.json']

    run = invoke('evals', 'run', 'cases', '--replay', model=ScriptedModel())
    assert run.exit_code == 0
    assert run.stdout == snapshot("""\
case   agent                 requests  tokens  cost
poem   recorded                     3     330
       command-line  solved         3     330
total  recorded                     3     330
       command-line  1/1            3     330
""")
    assert run.stderr == '1/1 command-line: poem\n'
    assert 'ANTHROPIC_API_KEY' not in os.environ


def test_models_are_compared(case: str, invoke: Invoke):
    result = invoke('evals', 'run', '--model', 'given', '--json', model=ScriptedModel(*STEPS))
    assert result.exit_code == 0
    scores = json.loads(result.stdout)
    assert [(one['case'], one['agent'], one['is_solved']) for one in scores['scores']] == [
        ('poem', 'recorded', None),
        ('poem', 'given', True),
    ]
    assert scores['is_solved'] is True
    assert scores['totals'][1]['usage']['tokens'] == 330


def test_agents_of_a_module_are_compared(case: str, invoke: Invoke, work: Path):
    (work / 'eval_agents.py').write_text(AGENTS)
    result = invoke('evals', 'run', 'evals/poem', '--agents', 'eval_agents:agents')
    assert result.exit_code == 1
    assert result.stdout == snapshot("""\
case   agent                 requests  tokens  cost
poem   recorded                     3     330
       command-line  failed         3     330
       lazy          failed         1     110
total  recorded                     3     330
       command-line  0/1            3     330
       lazy          0/1            1     110

poem, command-line:
  TodosCompleted: There are no todos.

poem, lazy:
  FilesEqual: /poem.txt differs:
  --- a/poem.txt
  +++ b/poem.txt
  @@ -1,2 +1,2 @@
   rose
  -lily
  +violet

poem, lazy:
  TodosCompleted: There are no todos.
""")

    named = invoke('evals', 'run', '--agents', 'eval_agents:agents', '-m', 'given', model=ScriptedModel(*STEPS, *STEPS))
    assert named.stderr.splitlines() == ['1/2 command-line given: poem', '2/2 lazy given: poem']

    replayed = invoke('evals', 'run', '--agents', 'eval_agents:agents', '--replay')
    assert 'ReplaysExactly: request 1, instructions' in replayed.stdout


def test_case_of_another_program_needs_its_agent(invoke: Invoke, work: Path, tmp_path: Path):
    (work / 'eval_house.py').write_text(
        "from pydantic_deep import create_deep_agent\nhouse = create_deep_agent('test', name='house')\n"
    )
    url = f'sqlite:///{tmp_path}/house.db'

    async def turn() -> str:
        async with open_store(url) as store:
            agent = create_deep_agent(ScriptedModel('Hi.'), name='house')
            return (await (await VersionedAgent(agent, store).create()).advance('Greet.')).id

    id = anyio.run(turn)
    refused = invoke('evals', 'record', id, '--store', url)
    assert refused.exit_code == 2
    assert 'Name its agent with --agents, or use --no-verify.' in refused.stderr
    plain = invoke('evals', 'record', id, '--store', url, '--no-verify', '--name', 'plain')
    assert plain.exit_code == 0, plain.stderr
    arguments = ('evals', 'record', id, '--store', url, '--agents', 'eval_house:house', '--name', 'house')
    verified = invoke(*arguments)
    assert verified.exit_code == 0, verified.stderr
    again = invoke(*arguments)
    assert (again.exit_code, again.stderr) == (2, 'evals/house exists already. Choose another --name.\n')
    replayed = invoke('evals', 'run', 'evals/house', '--replay')
    assert 'was created by another program' in replayed.stdout
    run = invoke('evals', 'run', 'evals/house', model=ScriptedModel())
    assert (run.exit_code, 'was created by another program' in run.stdout) == (1, True)


def test_agent_with_a_store_of_its_own_verifies_a_case(case: str, invoke: Invoke, work: Path):
    (work / 'eval_versioned.py').write_text(
        AGENTS
        + 'from pydantic_deep import VersionedAgent\nfrom pydantic_deep.store import SqlStore\n'
        + 'from pydantic_deep.store.memory import MemoryEngine\n'
        + "lazy = VersionedAgent(agents['lazy'], SqlStore(MemoryEngine.open()))\n"
    )
    result = invoke('evals', 'record', 'HEAD', '--agents', 'eval_versioned:lazy', '--name', 'other')
    assert result.exit_code == 1
    assert 'does not replay exactly with this agent: request 1, instructions' in result.stderr


def test_results_that_do_not_repeat_are_counted(invoke: Invoke, work: Path):
    (work / '.gitignore').write_text('ignored.txt\n')
    (work / 'ignored.txt').write_text('in no version')
    read = call('read_file', path='/ignored.txt')
    invoke('run', 'Look', '--approvals=allow', model=ScriptedModel(read, 'Looked.'))
    result = invoke('evals', 'record', 'HEAD', '--name', 'look', model=ScriptedModel())
    assert result.stdout.endswith(' Replays do not compare 1 results, which differed at once.\n')


def test_case_without_its_mcp_server_is_not_solved(invoke: Invoke, work: Path):
    """An agent without the tools of the recorded turn says nothing about those with them."""
    config = work / 'servers.json'
    config.write_text(json.dumps({'mcpServers': {'sh\u202eop': {'command': 'false'}}}))
    options = ('--mcp-config', str(config))
    invoke('run', 'Hi', *options, model=ScriptedModel('Hi.'))
    recorded = invoke('evals', 'record', 'HEAD', '--name', 'hi', *options, model=ScriptedModel())
    assert recorded.exit_code == 0, recorded.stderr

    run = invoke('evals', 'run', *options, model=ScriptedModel('Hi.'))
    assert run.exit_code == 1
    assert 'The MCP server sh\\u202eop is not running: ' in run.stdout
    assert invoke('evals', 'run', '--replay', *options, model=ScriptedModel()).exit_code == 0


def test_handwritten_case_runs_with_the_default_options(invoke: Invoke, work: Path):
    folder = work / 'evals/hello'
    folder.mkdir(parents=True)
    (folder / 'case.json').write_text('{"format_version": 1, "prompt": "Hi"}')
    assert invoke('evals', 'run', model=ScriptedModel('Hi.')).exit_code == 0
    unusable = invoke('evals', 'run')
    assert (unusable.exit_code, unusable.stderr.startswith('No model to use'), unusable.stdout) == (3, True, '')
    replayed = invoke('evals', 'run', '--replay', model=ScriptedModel())
    assert 'has no `recording.json`' in replayed.stdout


def test_handwritten_case_has_the_given_mcp_servers(invoke: Invoke, work: Path):
    folder = work / 'evals/hello'
    folder.mkdir(parents=True)
    (folder / 'case.json').write_text('{"format_version": 1, "prompt": "Hi"}')
    config = work / 'servers.json'
    config.write_text(json.dumps({'mcpServers': {'shop': {'command': 'false'}}}))
    run = invoke('evals', 'run', '--mcp-config', str(config), model=ScriptedModel('Hi.'))
    assert (run.exit_code, 'The MCP server shop is not running: ' in run.stdout) == (1, True)
    config.write_text('{')
    wrong = invoke('evals', 'run', '--mcp-config', str(config), model=ScriptedModel('Hi.'))
    assert (wrong.exit_code, str(config) in wrong.stderr) == (2, True), wrong.stderr


def test_run_without_a_usable_model_ends_before_the_cases(case: str, invoke: Invoke):
    """An exit code of 1 would say that the cases are not solved."""
    for arguments in ((), ('-m', 'given', '-m', 'nope:x'), ('-m', 'nope:x')):
        result = invoke('evals', 'run', *arguments)
        assert (result.exit_code, result.stdout) == (3, ''), result.stderr


def test_case_without_a_usable_model_fails_alone(case: str, invoke: Invoke, work: Path):
    folder = work / 'evals/hello'
    folder.mkdir(parents=True)
    (folder / 'case.json').write_text('{"format_version": 1, "prompt": "Hi"}')
    result = invoke('evals', 'run', model=ScriptedModel(*STEPS), variables={'PYDANTIC_DEEP_MODEL': 'nope:x'})
    assert result.exit_code == 1
    assert 'hello, command-line:\n  UnusableModelError' in result.stdout
    assert 'poem   recorded' in result.stdout


def test_agents_with_the_same_name_are_told_apart(case: str, invoke: Invoke, work: Path):
    """The last of them hid the others, so that a variant was never run."""
    (work / 'eval_same.py').write_text(
        AGENTS + "one = agents['lazy']\ntwo = agents['command-line']\nboth = {'lazy': one, 'other': two}\n"
    )
    references = ('eval_same:one', 'eval_same:two', 'eval_same:one', 'eval_same:agents', 'eval_same:both')
    result = invoke('evals', 'run', *(part for reference in references for part in ('--agents', reference)), '--json')
    agents = [one['agent'] for one in json.loads(result.stdout)['scores']]
    assert agents == [
        'recorded',
        'eval_same:one',
        'eval_same:two',
        'command-line',
        'eval_same:agents lazy',
        'eval_same:both lazy',
        'other',
    ]


STOPPED = """
import signal

def interrupt(messages, info):
    signal.raise_signal(signal.SIGINT)
    return ''

agents['command-line'], agents['lazy'] = agents['lazy'], create_deep_agent(ScriptedModel(then=interrupt))
"""


def test_interruption_shows_the_runs_that_ended(case: str, invoke: Invoke, work: Path):
    (work / 'eval_stopped.py').write_text(AGENTS + STOPPED)
    result = invoke('evals', 'run', '--agents', 'eval_stopped:agents')
    assert result.exit_code == 130
    assert result.stderr == '1/2 command-line: poem\nInterrupted: 1 of 2 runs ended.\n'
    table, _, _ = result.stdout.partition('\n\n')
    assert table == snapshot("""\
case   agent                 requests  tokens  cost
poem   command-line  failed         1     110
total  command-line  0/1            1     110\
""")


def test_document_of_an_interrupted_evaluation_is_not_solved(invoke: Invoke, work: Path):
    """Every case that ended may be solved; the others are not."""
    (work / 'evals/hello').mkdir(parents=True)
    (work / 'evals/hello/case.json').write_text('{"format_version": 1, "prompt": "Hi"}')
    (work / 'eval_stopped_json.py').write_text(AGENTS + STOPPED)
    result = invoke('evals', 'run', '--agents', 'eval_stopped_json:agents', '--json')
    assert result.exit_code == 130
    document = json.loads(result.stdout)
    assert [(score['agent'], score['is_solved']) for score in document['scores']] == [('command-line', True)]
    assert document['is_solved'] is False


def test_interruption_before_the_end_of_a_run_shows_no_table(
    case: str, invoke: Invoke, work: Path, monkeypatch: pytest.MonkeyPatch
):
    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(anyio, 'run', interrupted)
    (work / 'eval_early.py').write_text(AGENTS)
    result = invoke('evals', 'run', '--agents', 'eval_early:agents')
    assert (result.exit_code, result.stdout) == (130, '')


def test_name_of_the_recorded_turns_is_refused(case: str, invoke: Invoke, work: Path):
    (work / 'eval_recorded.py').write_text(AGENTS + "agents['recorded'] = agents['lazy']\n")
    result = invoke('evals', 'run', '--agents', 'eval_recorded:agents')
    assert (result.exit_code, result.stdout) == (2, '')
    assert "named 'recorded', which stands for the recorded turns" in result.stderr


@pytest.mark.parametrize(
    ('options', 'said'),
    [
        (('--name', 'x' * 300), 'File name too long'),
        (('--to', '/proc/nope'), '/proc/nope'),
        (('--name', 'café'), 'Use letters of ASCII'),
    ],
)
def test_case_that_cannot_be_written_is_named(case: str, invoke: Invoke, options: tuple[str, ...], said: str):
    result = invoke('evals', 'record', 'HEAD', *options, model=ScriptedModel())
    assert (result.exit_code, result.stdout) == (1, '')
    assert said in result.stderr
    assert 'Errno' not in result.stderr


@pytest.mark.parametrize(
    ('arguments', 'said'),
    [
        (('run', '--replay', '--model', 'given'), '--replay calls no model'),
        (('run', '--agents', 'nothing'), 'Write `package.module:attribute`'),
        (('record', '01234567'), '01234567'),
    ],
)
def test_wrong_usage(case: str, invoke: Invoke, arguments: tuple[str, ...], said: str):
    result = invoke('evals', *arguments, model=ScriptedModel())
    assert result.exit_code == 2
    assert said in ' '.join(result.stderr.replace('│', '').split())


def test_missing_extra_is_named(case: str, invoke: Invoke, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, 'pydantic_deep.evals', None)
    result = invoke('evals', 'run', '--replay', model=ScriptedModel())
    assert result.exit_code == 2


def test_directory_without_cases_is_named(case: str, invoke: Invoke):
    result = invoke('evals', 'run', 'evals/poem/files', model=ScriptedModel())
    assert (result.exit_code, 'is not a case' in result.stderr) == (2, True)


def test_sandbox_is_used_for_commands(case: str, invoke: Invoke, monkeypatch: pytest.MonkeyPatch):
    def make(directory: Path) -> LocalBackend:
        return LocalBackend(directory, allow_commands=True)

    monkeypatch.setattr('pydantic_deep_backends.sandbox.SandboxBackend', make)  # bubblewrap is not on every machine
    edit = call('edit_file', path='poem.txt', old_string='violet', new_string='lily')
    steps = (call('execute', command='true'), edit, TODOS, 'Fixed.')
    result = invoke('evals', 'run', '--sandbox', '-m', 'given', model=ScriptedModel(*steps))
    assert result.exit_code == 0, result.stdout


@pytest.mark.parametrize('width', [80, 120])
def test_table(width: int):
    stream = StringIO()
    scores = [
        CaseScore(case='refund-of-a-double-payment-in-the-newest-account', agent=agent, is_solved=solved, usage=usage, problems=problems)
        for agent, solved, usage, problems in (
            ('recorded', None, TurnUsage(requests=12, tokens=123_456, cost=None), []),
            ('anthropic:claude-opus-5-5', True, TurnUsage.model_validate({'requests': 9, 'tokens': 99_000, 'cost': '0.5'}), []),
            ('house', False, TurnUsage(), ['FilesEqual: ' + '\n'.join(f'line {n}' for n in range(30))]),
        )
    ]  # fmt: skip
    render_scores(Console(file=stream, width=width, force_terminal=True, color_system=None), Comparison(scores=scores))
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    if width == 80:
        assert stream.getvalue() == snapshot("""\
case                    agent                         requests   tokens     cost
refund-of-a-double-pay  recorded                            12  123,456         \n\
ment-in-the-newest-acc                                                          \n\
ount                                                                            \n\
                        anthropic:claude-opu  solved         9   99,000  $0.5000
                        s-5-5                                                   \n\
                        house                 failed         0        0         \n\
total                   recorded                            12  123,456         \n\
                        anthropic:claude-opu  1/1            9   99,000  $0.5000
                        s-5-5                                                   \n\
                        house                 0/1            0        0         \n\

refund-of-a-double-payment-in-the-newest-account, house:
  FilesEqual: line 0
  line 1
  line 2
  line 3
  line 4
  line 5
  line 6
  line 7
  line 8
  line 9
  line 10
  line 11
  line 12
  line 13
  line 14
  line 15
  line 16
  line 17
  line 18
  line 19
  … 10 more lines
""")
