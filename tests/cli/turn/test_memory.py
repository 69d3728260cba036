"""The memory on the command line: `--memory`, `/memory` and `pydantic-deep memory`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

pytest.importorskip('pydantic_ai_harness', reason='the harness pins pydantic-ai to an older release than this one')

from pydantic_deep.memory import Memories
from pydantic_deep.store import Store
from pydantic_deep.testing import ScriptedModel, Step, call
from tests.cli.conftest import WRITE

Invoke = Callable[..., Result]

TEA = call('write_memory', content='Drinks tea.')
MILK = call('write_memory', content='Takes milk.')


def remember(invoke: Invoke, *steps: Step, options: tuple[str, ...] = ('--memory',)) -> ScriptedModel:
    model = ScriptedModel(*steps, 'done')
    result = invoke('run', 'Go', *options, model=model)
    assert result.exit_code == 0, result.stderr
    return model


def tools_of(model: ScriptedModel) -> set[str]:
    return {tool.name for tool in model.requests[0].tools}


def test_agent_remembers_in_the_next_conversation(invoke: Invoke) -> None:
    """What one turn remembers is in the first request of the next conversation; without the option, nothing is."""
    remember(invoke, TEA)
    later = remember(invoke)
    assert 'Drinks tea.' in str(later.requests[0].messages)
    without = remember(invoke, options=())
    assert 'Drinks tea.' not in str(without.requests[0].messages)
    assert tools_of(later) - tools_of(without) == {'write_memory', 'read_memory', 'delete_memory', 'search_memory'}


def test_configuration_switches_the_memory_on(invoke: Invoke, work: Path) -> None:
    """The key `memory` is the option for every turn, and `--no-memory` leaves it out of one."""
    (work / 'pydantic-deep.toml').write_text('memory = true')
    assert '  memory: true\n' in invoke('config', 'trust', '--yes').stdout
    assert 'write_memory' in tools_of(remember(invoke, options=()))
    assert 'write_memory' not in tools_of(remember(invoke, options=('--no-memory',)))


def test_memory_is_shown_with_its_history_and_undone(invoke: Invoke) -> None:
    """`show` prints the files, `history` who wrote each revision, `undo` restores, and is a revision too."""
    remember(invoke, TEA, call('write_memory', content='Blue.', file='colors.md'))
    remember(invoke, MILK)
    assert invoke('memory', 'show').stdout.splitlines() == [
        'MEMORY.md  revision 2',
        'Drinks tea.',
        'Takes milk.',
        'colors.md  revision 1',
        'Blue.',
    ]
    history = invoke('memory', 'history').stdout.splitlines()
    assert [line for line in history if line.startswith(' ')] == [
        '    Drinks tea.',
        '    Takes milk.',
        '    Drinks tea.',
    ]
    assert [(line[0], ' conversation ' in line, ' run ' in line) for line in history if not line.startswith(' ')] == [
        ('2', True, True),
        ('1', True, True),
    ]
    undone = invoke('memory', 'undo')
    assert undone.stdout == 'MEMORY.md has its earlier content as revision 3. It applies from the next turn on.\n'
    assert 'Takes milk.' not in invoke('memory', 'show').stdout
    assert 'by person' in invoke('memory', 'history').stdout.splitlines()[0]
    assert invoke('memory', 'undo', 'colors.md', '--to', '0').stdout == (
        'colors.md does not exist any more. It applies from the next turn on.\n'
    )
    assert '(deleted)' in invoke('memory', 'history', 'colors.md').stdout
    assert 'colors.md' not in invoke('memory', 'show').stdout


def test_unknown_files_and_revisions_are_wrong_usage(invoke: Invoke) -> None:
    """A file that is not there is named with those that are; a number that is not there with its range."""
    remember(invoke, WRITE)
    nothing = invoke('memory', 'history')
    assert (nothing.exit_code, nothing.stderr) == (2, "There is no memory file 'MEMORY.md'. Files: none yet.\n")
    assert invoke('memory', 'show').stdout == 'Nothing is remembered yet.\n'
    remember(invoke, TEA)
    unknown = invoke('memory', 'undo', 'tea.md')
    assert (unknown.exit_code, unknown.stderr) == (2, "There is no memory file 'tea.md'. Files: MEMORY.md.\n")
    for wanted in (9, 2**70):
        number = invoke('memory', 'undo', '--to', str(wanted))
        assert number.exit_code == 2
        assert number.stderr == f"The memory file 'MEMORY.md' has no revision {wanted}. Use a number from 0 to 1.\n"


def test_chat_shows_and_undoes_the_memory(invoke: Invoke) -> None:
    """`/memory` has the same lines as the shell command; an unknown action says which there are."""
    lines = 'Go\n/memory\n/memory history\n/memory undo\n/memory show\n/memory forget\n'
    result = invoke('chat', '--memory', model=ScriptedModel(TEA, 'done'), stdin=lines)
    assert result.stdout == 'done\n'
    assert 'MEMORY.md  revision 1\nDrinks tea.\n1  20' in result.stderr
    assert 'MEMORY.md does not exist any more. It applies from the next turn on.\nNothing is remembered yet.\n' in (
        result.stderr
    )
    assert '/memory forget is unknown. Use /memory, /memory history or /memory undo.' in result.stderr


def test_paused_turn_resumes_with_the_memory_and_replays(invoke: Invoke) -> None:
    """A version stores that its turn has the memory, so `resume` and `replay` have it without the option."""
    paused = invoke('run', 'Go', '--memory', '--approvals=pause', model=ScriptedModel(WRITE))
    assert paused.exit_code == 5
    model = ScriptedModel(call('search_memory', query='tea'), 'done')
    assert invoke('resume', '--approvals=allow', model=model).exit_code == 0
    assert 'write_memory' in tools_of(model)
    assert invoke('replay', model=ScriptedModel()).exit_code == 0


def test_memory_without_a_store_is_refused(invoke: Invoke) -> None:
    """A memory that ends with the process is wrong usage, with what to omit."""
    result = invoke('run', 'Go', '--memory', '--no-store', model=ScriptedModel())
    assert (result.exit_code, result.stderr) == (
        2,
        'The memory is in the store, and --no-store stores nothing. Add --no-memory.\n',
    )


def test_missing_harness_is_named(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the harness, the option is wrong usage, with what to install."""

    def _find_spec(name: str) -> None:
        return None

    monkeypatch.setattr('pydantic_deep.cli.turn._memory.find_spec', _find_spec)
    result = invoke('run', 'Go', '--memory', model=ScriptedModel())
    assert result.exit_code == 2
    assert 'Install it: `pip install pydantic-ai-harness`.' in result.stderr


@pytest.mark.anyio
async def test_people_never_share_a_memory(store: Store) -> None:
    """Names become different first segments of paths, also if they differ only in signs."""
    people = ['a.b', 'a-b', 'a_b', 'a/b', 'DOMAIN\\ada', 'Ädä', '..']
    namespaces = {(await Memories.open(store, person)).namespace for person in people}
    assert namespaces == {'a-2eb', 'a-2db', 'a_b', 'a-2fb', 'DOMAIN-5cada', '-c3-84d-c3-a4', '-2e-2e'}


def test_case_has_the_memory_before_the_turn(invoke: Invoke, work: Path) -> None:
    """A case of a turn that wrote to the memory is verified, and replayed and run elsewhere by another person."""
    remember(invoke, TEA)
    remember(invoke)
    remember(invoke, MILK, options=('--memory', '--continue'))
    recorded = invoke('evals', 'record', 'HEAD', '--name', 'milk', model=ScriptedModel())
    assert recorded.exit_code == 0, recorded.stderr
    assert (work / 'evals/milk/memory/MEMORY.md').read_text() == 'Drinks tea.\n'
    remember(invoke, call('write_memory', content='Nothing else.'))

    replayed = invoke('evals', 'run', '--replay', model=ScriptedModel(), variables={'USER': 'ben'})
    assert replayed.exit_code == 0, replayed.stdout
    model = ScriptedModel(MILK, 'done')
    run = invoke('evals', 'run', model=model, variables={'USER': 'ben'})
    assert run.exit_code == 0, run.stdout
    assert 'Drinks tea.' in str(model.requests[0].messages)
    assert 'Takes milk.' not in str(model.requests[0].messages)


def test_handwritten_case_has_a_memory(invoke: Invoke, work: Path) -> None:
    folder = work / 'evals/tea'
    (folder / 'memory').mkdir(parents=True)
    (folder / 'case.json').write_text('{"format_version": 1, "prompt": "What do I drink?"}')
    (folder / 'memory/MEMORY.md').write_text('Drinks tea.')
    model = ScriptedModel('Tea.')
    run = invoke('evals', 'run', model=model)
    assert run.exit_code == 0, run.stdout
    assert 'Drinks tea.' in str(model.requests[0].messages)
