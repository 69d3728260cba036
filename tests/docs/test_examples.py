"""Every example runs with scripted answers and prints the documented output."""

from __future__ import annotations

import ast
import importlib.util
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

import anyio
import pytest
from inline_snapshot import snapshot
from pydantic_ai.messages import ModelMessage, ModelResponse, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep.testing import Answer, ScriptedModel, Step, call

pytestmark = pytest.mark.anyio

EXAMPLES = Path(__file__).parent.parent.parent / 'examples'

PLAN = [{'content': 'Bake a cake', 'status': 'in_progress'}, {'content': 'Call friends', 'status': 'pending'}]


async def run(name: str, capsys: pytest.CaptureFixture[str], *steps: Step) -> str:
    """Run an example, and return its output."""
    await load(EXAMPLES / f'{name}.py').main(ScriptedModel(*steps))
    return capsys.readouterr().out


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up their module
    spec.loader.exec_module(module)
    return module


async def test_approvals_in_two_processes(capsys: pytest.CaptureFixture[str]) -> None:
    printed = await run(
        'approvals_in_two_processes',
        capsys,
        call('edit_file', path='prices.csv', old_string='tea,2', new_string='tea,3'),
        'Tea costs 3 now.',
    )
    assert printed == snapshot("""\
Tool: edit_file
Argument path: prices.csv
Argument old_string: tea,2
Argument new_string: tea,3
Preview (diff):
  | --- a/prices.csv
  | +++ b/prices.csv
  | @@ -1,2 +1,2 @@
  |  cake,3
  | -tea,2
  | +tea,3
Tea costs 3 now.
cake,3
tea,3

""")


@pytest.mark.slow
async def test_approvals_example_works_in_two_processes(tmp_path: Path) -> None:
    files, saved = tmp_path / 'files', tmp_path / 'conversation.json'
    files.mkdir()
    (files / 'prices.csv').write_text('cake,3\ntea,2\n')
    edit = "call('edit_file', path='prices.csv', old_string='tea,2', new_string='tea,3')"
    printed: list[str] = []
    for half, step in (('ask', edit), ('answer', "'Tea costs 3 now.'")):
        program = (
            'import runpy, anyio\nfrom pathlib import Path\nfrom pydantic_deep.testing import ScriptedModel, call\n'
            f'example = runpy.run_path({str(EXAMPLES / "approvals_in_two_processes.py")!r})\n'
            f'anyio.run(example[{half!r}], ScriptedModel({step}), Path({str(files)!r}), Path({str(saved)!r}))\n'
        )
        ran = await anyio.run_process([sys.executable, '-c', program])
        printed.append(ran.stdout.decode())
    assert printed[0] == ''
    assert printed[1].startswith('Tool: edit_file\n')
    assert printed[1].endswith('Tea costs 3 now.\n')
    assert (files / 'prices.csv').read_text() == 'cake,3\ntea,3\n'


async def test_audit_in_sqlite(capsys: pytest.CaptureFixture[str]) -> None:
    printed = await run(
        'audit_in_sqlite',
        capsys,
        call('write_file', path='hours.md', content='Open from 8 to 18.\n'),
        'They are in hours.md.',
        'No. I would not keep AKIAIOSFODNN7EXAMPLE here.',
        'Closed.',
    )
    assert printed == snapshot("""\
ada success Keep our hours, 8 to 18, in hours.md.
   write_file success {'path': 'hours.md', 'content': 'Open from 8 to 18.\\n'}
ben success Is [redacted: aws key] safe here?
Closed.
3
""")


async def test_branch_and_merge(capsys: pytest.CaptureFixture[str]) -> None:
    printed = await run(
        'branch_and_merge',
        capsys,
        call('edit_file', path='report.md', old_string='# Sales', new_string='# Sales of 2026'),
        'The title has the year.',
        call('edit_file', path='report.md', old_string='South: 80\n', new_string='South: 80\n\nTotal: 200\n'),
        'The total is 200.',
    )
    assert printed == snapshot("""\
--- a/report.md
+++ b/report.md
@@ -1,5 +1,7 @@
-# Sales of 2026
+# Sales
 \n\
 North: 120
 \n\
 South: 80
+
+Total: 200

# Sales of 2026

North: 120

South: 80

Total: 200

# Sales
[('merge', 'dated'), ('turn', 'summed'), ('turn', 'dated'), ('root', 'main')]
""")


async def test_client_of_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    """The example uploads a file, streams a turn, approves a call, and reads the written file."""
    printed = await run(
        'client_of_a_server', capsys, call('write_file', path='total.txt', content='5\n'), 'It is in total.txt.'
    )
    assert printed == snapshot("""\
-> write_file
awaiting_approval
write_file {'path': 'total.txt', 'content': '5\\n'}
complete It is in total.txt.
turn ['/total.txt']
pause []
edit ['/uploads/prices.csv']
root []
5
""")


@pytest.mark.skipif(shutil.which('bwrap') is None, reason='bubblewrap is not installed: apt-get install bubblewrap')
async def test_commands_in_a_sandbox(capsys: pytest.CaptureFixture[str]) -> None:
    printed = await run(
        'commands_in_a_sandbox',
        capsys,
        call('write_file', path='product.py', content='print(6 * 7)\n'),
        call('execute', command='python3 product.py'),
        call('execute', command='cat /etc/shadow; ls /home; hostname'),
        '42. Of this machine nothing is to be seen.',
    )
    assert printed == snapshot("""\
42
sandbox
cat: /etc/shadow: No such file or directory
ls: cannot access '/home': No such file or directory
42. Of this machine nothing is to be seen.
""")


async def test_commands_in_a_sandbox_without_bubblewrap(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv('PATH', str(tmp_path))
    assert await run('commands_in_a_sandbox', capsys) == snapshot(
        'No command runs here. There is no `bwrap` on the PATH. Install it: `apt-get install bubblewrap perl-base`.\n'
    )


async def test_files_in_a_directory(capsys: pytest.CaptureFixture[str]) -> None:
    printed = await run(
        'files_in_a_directory',
        capsys,
        call('read_file', path='sales.csv'),
        call('write_file', path='report.md', content='# Sales\n\nTotal: 200.\n'),
        'The total is 200.',
    )
    assert printed == snapshot("""\
The total is 200.
added: /report.md
# Sales

Total: 200.

""")


async def test_long_conversation(capsys: pytest.CaptureFixture[str]) -> None:
    printed = await run(
        'long_conversation',
        capsys,
        'Then there is time.',
        'Noted.',
        'By post.',
        'By a mover who knows pianos.',
        'Decisions: the books go by post.',
        call('search_history', query='lease number'),
        'L-77.',
    )
    assert printed == snapshot("""\
Then there is time.
Noted.
By post.
By a mover who knows pianos.
L-77.
The user asked first:
I am Ada, and I move to Graz on 3 March.

Decisions: the books go by post.
search_history: [message 3] user: The lease of the flat has the number L-77.
The next request sends 28 tokens of summary and 61 of history.
""")


async def test_resume_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    printed = await run(
        'resume_elsewhere',
        capsys,
        call('edit_file', path='prices.csv', old_string='tea,2', new_string='tea,3'),
        'Tea costs 3 now.',
    )
    assert printed == snapshot("""\
awaiting_approval
clerk edit_file --- a/prices.csv
+++ b/prices.csv
@@ -1,2 +1,2 @@
 cake,3
-tea,2
+tea,3
approved ada
complete Tea costs 3 now.
cake,3
tea,3

""")


async def test_shared_reference(capsys: pytest.CaptureFixture[str]) -> None:
    printed = await run(
        'shared_reference',
        capsys,
        call('read_file', path='/handbook/tone.md'),
        call('write_file', path='/handbook/tone.md', content='Shout.'),
        call('write_file', path='hello.md', content='Hello.\n'),
        'Done.',
    )
    assert printed == snapshot("""\
True False
Write short sentences.

""")


async def test_skills_on_demand(capsys: pytest.CaptureFixture[str]) -> None:
    printed = await run(
        'skills_on_demand',
        capsys,
        [call('load_skill', name='writing-invoices'), call('load_skill', name='greeting')],
        call('load_skill', name='writing-invoices', file='rates.md'),
        'Servus Ada! Invoice 1: two cakes, 6. Sum: 6.',
    )
    assert printed == snapshot("""\
writing-invoices
broken, line 1: error no-frontmatter
load_skill {"name":"writing-invoices"}
load_skill {"name":"greeting"}
load_skill {"name":"writing-invoices","file":"rates.md"}
Servus Ada! Invoice 1: two cakes, 6. Sum: 6.
""")


async def test_stream_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    printed = await run(
        'stream_a_run',
        capsys,
        call('read_file', path='prices.csv'),
        call('write_file', path='menu.md', content='Cake: 3\nTea: 2\n'),
        'The menu is in menu.md.',
    )
    assert printed == snapshot("""\
start
notice
usage
function_call read_file {"path":"prices.csv"}
notice
usage
function_call write_file {"path":"menu.md","content":"Cake: 3\\nTea: 2\\n"}
file /menu.md
usage
end complete
The menu is in menu.md.
""")


def by_task(answers: Mapping[str, Sequence[Answer]]) -> ScriptedModel:
    """Return a model for concurrent agents: each gets the answers for its task."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
        [task] = [part.content for part in messages[0].parts if isinstance(part, UserPromptPart)]
        return answers[str(task)][sum(isinstance(message, ModelResponse) for message in messages)]

    return ScriptedModel(then=answer)


async def test_subagents_in_parallel(capsys: pytest.CaptureFixture[str]) -> None:
    example = load(EXAMPLES / 'subagents_in_parallel.py')
    tasks = {
        'Add up north.csv.': [call('read_file', path='north.csv'), call('final_result', region='north', total=120)],
        'Add up south.csv.': [call('ls', path='/')] * 4,
        'What does "# Sales" lack?': ['It lacks a year.'],
        'Head it with 2026.': [call('write_file', path='title.md', content='# Sales of 2026\n'), 'Done.'],
        'Head it with a place.': [call('write_file', path='title.md', content='# Sales in Graz\n'), 'Done.'],
    }
    names = ['counter', 'counter', 'critic', 'editor', 'editor']
    calls = [call('task', subagent=name, description=task) for name, task in zip(names, tasks, strict=True)]
    await example.main(by_task({example.TASK: [calls, 'One counter failed, and one heading was left out.'], **tasks}))
    assert capsys.readouterr().out == snapshot("""\
counter: {"region":"north","total":120}
failed: The subagent 'counter' exceeded its budget
critic: It lacks a year.
changed: ['/title.md']
conflicts: ['/title.md']
One counter failed, and one heading was left out.
""")


async def test_todos_on_any_agent(capsys: pytest.CaptureFixture[str]) -> None:
    printed = await run(
        'todos_on_any_agent', capsys, call('write_todos', todos=PLAN), 'Two steps.', 'Then call friends.'
    )
    assert printed == snapshot("""\
Two steps.
Then call friends.
""")


async def test_watch_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    printed = await run('watch_a_run', capsys, call('read_file', path='a.txt'), 'Two.')
    assert printed == snapshot("""\
-> read_file {"path":"a.txt"}
<- 1→one
Two.
""")


@pytest.mark.parametrize('path', sorted(EXAMPLES.glob('*.py')), ids=lambda path: path.stem)
def test_example_starts_with_its_question_and_is_listed(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ''
    assert '?' in docstring.split('\n')[0]
    assert f'({path.name})' in (EXAMPLES / 'README.md').read_text()


async def test_write_a_capability(capsys: pytest.CaptureFixture[str]) -> None:
    """The capability provides its own preview, and a protected file is written only after approval."""
    calls = [
        call('send_newsletter', subject='May'),
        call('write_file', path='/subscribers.txt', content='Ann\n'),
    ]
    printed = await run('write_a_capability', capsys, calls, 'Sent, and Ann is on the list.')
    assert printed == snapshot("""\
Tool: send_newsletter
Argument subject: May
Preview (call):
  | Sends 'May' to all subscribers.
Tool: write_file
Argument path: /subscribers.txt
Argument content:
  | Ann
Notice: This call may change a protected file.
Preview (diff):
  | --- /dev/null
  | +++ b/subscribers.txt
  | @@ -0,0 +1 @@
  | +Ann
Sent, and Ann is on the list.
['May']
""")
