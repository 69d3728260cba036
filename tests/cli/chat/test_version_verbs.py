"""Verbs of the chat about versions: each does what the command of the same name does."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from inline_snapshot import snapshot
from typer.testing import Result

from pydantic_deep.testing import ScriptedModel, call
from tests.cli.conftest import EDIT, UNDO, WRITE

Invoke = Callable[..., Result]

CONFLICT = call('edit_file', path='/poem.txt', old_string='violet', new_string='oak')


def talk(invoke: Invoke, model: ScriptedModel, *lines: str, options: tuple[str, ...] = ()) -> str:
    """Run a chat without approvals, and return what it prints besides the answers, with ids replaced."""
    result = invoke('chat', '--approvals=allow', *options, model=model, stdin='\n'.join([*lines, '']))
    assert result.exit_code == 0, result.stderr
    assert model.remaining == 0
    text = re.sub(r'[0-9a-f]{8}-[0-9a-f-]{27}', 'LONG-ID', result.stderr)
    return re.sub(r'\b[0-9a-f]{8}\b', '01234567', text)


def versions(invoke: Invoke) -> list[dict[str, Any]]:
    return json.loads(invoke('log', '--json').stdout)


def test_verbs_need_a_turn(invoke: Invoke) -> None:
    """Before the first turn, verbs about the conversation say that there is none, and /log and /switch too."""
    shown = talk(
        invoke, ScriptedModel(), '/diff', '/undo', '/branch a', '/context', '/cost', '/compact', '/log', '/switch'
    )
    assert shown == 'The conversation has no turn yet.\n' * 6 + (
        'There is no version of this directory.\nThis directory has no conversation yet.\n'
    )


def test_arguments_are_counted(invoke: Invoke) -> None:
    """A verb with too few or too many arguments prints its usage."""
    shown = talk(invoke, ScriptedModel(), '/rewind', '/undo now', '/diff a b c', '/branch')
    assert shown == 'Usage: /rewind VERSION\nUsage: /undo\nUsage: /diff [A] [B]\nUsage: /branch NAME [PROMPT…]\n'


def test_undo_restores_files_and_dialogue(invoke: Invoke, work: Path) -> None:
    """/undo goes back to the version before the last turn: its files, and the history of the next prompt."""
    model = ScriptedModel(EDIT, 'First.', 'Second.')
    shown = talk(invoke, model, 'One', '/undo', 'Two')
    assert 'HEAD is 01234567: a conversation begins\n1 version after it stays in the store: 01234567\n' in shown
    assert (work / 'poem.txt').read_text() == 'rose\nviolet\n'
    assert 'One' not in str(model.requests[-1].messages)
    root, first, second = reversed(versions(invoke))
    assert [first['parent_id'], second['parent_id']] == [root['id'], root['id']]


def test_undo_and_diff_at_the_beginning_of_a_conversation_say_so(invoke: Invoke) -> None:
    """After /undo of the only turn, there is no turn to go back from, or to compare with."""
    shown = talk(invoke, ScriptedModel('One.'), 'One', '/undo', '/undo', '/diff')
    assert shown.endswith('The chat is at the beginning of the conversation. /log shows its turns.\n' * 2)


def test_rewind_goes_back_to_a_version_and_stores_edits(invoke: Invoke, work: Path) -> None:
    """/rewind restores the files of a version; edits that no version has are stored first."""

    def edit(messages: object, info: object) -> str:
        (work / 'poem.txt').write_text('mine\n')
        return 'First.'

    shown = talk(invoke, ScriptedModel('Zero.', edit), 'Zero', 'One', '/rewind HEAD~')
    assert 'HEAD is 01234567: Zero\n' in shown
    assert (work / 'poem.txt').read_text() == 'rose\nviolet\n'
    unknown = talk(invoke, ScriptedModel(), '/rewind nothing')
    assert unknown == "There is no version 'nothing'. Branches: 'main'. `pydantic-deep log` shows ids and branches.\n"


def test_log_and_diff_show_what_the_commands_show(invoke: Invoke) -> None:
    """/log and /diff print the same lines as `log` and `diff`."""
    talk(invoke, ScriptedModel(EDIT, 'First.', 'Second.'), 'One', 'Two')
    result = invoke(
        'chat', '--continue', model=ScriptedModel(), stdin='/log\n/log HEAD~\n/diff HEAD~\n/diff HEAD~2 HEAD\n/diff\n'
    )
    commands = (('log',), ('log', 'HEAD~'), ('diff', 'HEAD~'), ('diff', 'HEAD~2', 'HEAD'), ('diff',))
    assert result.stderr == ''.join(invoke(*command).stdout for command in commands)


def test_a_branch_starts_with_its_prompt_or_the_next_one(invoke: Invoke) -> None:
    """/branch NAME PROMPT runs a turn on a branch; without a prompt, the next one does. A name is used once."""
    model = ScriptedModel('One.', 'Two.', 'Three.', 'Four.')
    shown = talk(invoke, model, 'One', '/branch side  Two  words', '/branch other', 'Three', '/branch side', 'Four')
    assert 'The next prompt starts the branch other.\n' in shown
    assert "a branch 'side'" in shown or "'side'" in shown
    rows = [(row['prompt'], row['branch']) for row in reversed(versions(invoke))]
    assert rows == [(None, 'main'), ('One', 'main'), ('Two  words', 'side'), ('Three', 'other'), ('Four', 'other')]


def test_switch_restores_the_files_of_another_branch(invoke: Invoke, work: Path) -> None:
    """/switch continues a branch with its files in the directory, and the next turn works there."""
    model = ScriptedModel(EDIT, 'Lily.', 'Still.', WRITE, 'New.', 'Where.')
    shown = talk(invoke, model, 'Lily', '/branch side Still', 'Write', '/switch main', 'Where am I', '/switch side')
    assert 'HEAD is 01234567: Lily\n' in shown
    assert shown.endswith('HEAD is 01234567: Write\n> Lily\n> Still\n> Write\n\nNew.\n')
    assert (work / 'new.txt').exists()
    where = next(row for row in versions(invoke) if row['prompt'] == 'Where am I')
    assert where['branch'] == 'main'
    assert 'Still' not in str(model.requests[-1].messages)


def test_switch_searches_the_texts_of_conversations(invoke: Invoke) -> None:
    """A text instead of a number lists the conversations that contain it in a prompt or an answer, in any case."""
    model = ScriptedModel('It grows in Assam.', 'Other.', 'Again.')
    shown = talk(invoke, model, 'Tea', '/new', 'Coffee', '/switch', 'ASSAM', '1', 'Where', '/switch', 'rhubarb')
    assert shown.count('  Coffee') == 2  # in the lists before the search
    assert 'HEAD is 01234567: Tea\n' in shown
    assert shown.endswith("No conversation of this directory contains 'rhubarb'.\n")
    assert 'Coffee' not in str(model.requests[-1].messages)


def test_switch_does_not_overwrite_edits(invoke: Invoke, work: Path) -> None:
    """/switch refuses to lose edits that no version has, and names the verb that stores them."""
    talk(invoke, ScriptedModel(EDIT, 'One.'), 'One')
    (work / 'poem.txt').write_text('mine\n')
    shown = talk(invoke, ScriptedModel(), '/switch HEAD~')
    assert shown == (
        'The changes of /poem.txt are in no version, and the checkout would lose them. '
        '/rewind 01234567 stores them as a version first.\n'
    )
    assert (work / 'poem.txt').read_text() == 'mine\n'


def test_switch_without_a_version_offers_a_list(invoke: Invoke) -> None:
    """/switch lists branches and conversations by number; an empty line chooses none, a wrong number is refused."""
    model = ScriptedModel('One.', 'Two.', 'Other.', 'Again.')
    shown = talk(
        invoke,
        model,
        'One',
        '/branch side Two',
        '/new',
        'Other',
        '/switch',
        '',
        '/switch',
        '9',
        '/switch',
        '2',
        'Again',
    )
    entries = [line for line in shown.splitlines() if line.startswith((' 1', ' 2', ' 3'))][:3]
    assert entries == snapshot(
        [
            ' 1  01234567 now (main)  Other',
            ' 2  01234567 now (side of “One”)  Two',
            ' 3  01234567 now (main)  One',
        ]
    )
    assert "'9' is not a number from 1 to 3.\n" in shown
    assert '> One\n> Two\n' in shown
    assert 'Two' in str(model.requests[-1].messages)


def test_chat_can_begin_with_the_list(invoke: Invoke) -> None:
    """`chat --pick` asks for the conversation to continue; without an input, it starts a new one."""
    talk(invoke, ScriptedModel('One.'), 'One')
    model = ScriptedModel('Two.')
    talk(invoke, model, '1', 'Two', options=('--pick',))
    assert 'One' in str(model.requests[0].messages)
    assert invoke('chat', '--pick', model=ScriptedModel(), stdin='').exit_code == 0


def test_merge_continues_with_the_files_of_both(invoke: Invoke, work: Path) -> None:
    """/merge creates a version with the changes of both, and checks it out where the turn works in the directory."""
    model = ScriptedModel(EDIT, 'Lily.', WRITE, 'New.', 'After.')
    shown = talk(invoke, model, 'Lily', '/rewind HEAD~', '/branch side New', '/merge main', '/merge main', 'After')
    assert 'version 01234567 has the changes of both: 1 file merged in.\nHEAD is 01234567: with 01234567\n' in shown
    assert 'Already up to date.\n' in shown
    assert (work / 'poem.txt').read_text() == 'rose\nlily\n'
    assert (work / 'new.txt').exists()
    after, merge = versions(invoke)[:2]
    assert (after['parent_id'], merge['kind']) == (merge['id'], 'merge')


def test_merge_of_conflicting_changes_creates_nothing(invoke: Invoke, work: Path) -> None:
    """A conflict is printed, and the conversation and the files stay as they are."""
    model = ScriptedModel(EDIT, 'Lily.', CONFLICT, 'Oak.')
    shown = talk(invoke, model, 'Lily', '/rewind HEAD~', '/branch side Oak', '/merge main')
    assert 'conflict /poem.txt: ' in shown
    assert '  /merge main --theirs\n  /merge main /poem.txt=theirs\n' in shown
    assert (work / 'poem.txt').read_text() == 'rose\noak\n'


def test_merge_decides_conflicts_by_the_chosen_side(invoke: Invoke, work: Path) -> None:
    """/merge takes `--ours`, `--theirs` and sides of single files, and creates nothing for other words."""
    model = ScriptedModel(EDIT, 'Lily.', CONFLICT, 'Oak.')
    lines = ('/merge main x', "/merge main '", '/merge main "/poem.txt=theirs"', '/undo', '/merge main --ours')
    shown = talk(invoke, model, 'Lily', '/rewind HEAD~', '/branch side Oak', *lines)
    assert "'x' chooses no side. Write PATH=ours or PATH=theirs.\n" in shown
    assert 'The sides cannot be read: No closing quotation.\n' in shown
    assert 'kept theirs: /poem.txt\n' in shown
    assert 'kept ours: /poem.txt\n' in shown


def test_verbs_of_a_turn_on_a_copy_leave_the_directory(invoke: Invoke, work: Path) -> None:
    """In a conversation whose turns work on a copy, /undo and /merge choose a version and change no file."""
    talk(invoke, ScriptedModel(EDIT, 'Lily.', UNDO, 'Violet.'), 'Lily', 'Violet')
    model = ScriptedModel(WRITE, 'New.', 'After.')
    shown = talk(invoke, model, 'New', '/merge HEAD', '/undo', 'After', options=('--from', 'HEAD~'))
    assert shown.count('The directory is unchanged.') == 2
    assert (work / 'poem.txt').read_text() == 'rose\nviolet\n'
    assert not (work / 'new.txt').exists()


def test_versions_without_files_are_switched_in_the_dialogue_only(invoke: Invoke, work: Path) -> None:
    """Without a store, versions have no files: /undo and /switch change the dialogue."""
    model = ScriptedModel(EDIT, 'Lily.', 'Two.', 'Three.')
    shown = talk(invoke, model, 'Lily', 'Two', '/undo', '/switch HEAD', 'Three', options=('--no-store',))
    assert 'The version has no files; the directory is unchanged.\n' in shown
    assert 'The next prompt continues from version 01234567. The directory is unchanged.\n' in shown
    assert (work / 'poem.txt').read_text() == 'rose\nlily\n'
    assert 'Two' not in str(model.requests[-1].messages)


def test_resume_answers_the_pending_calls_of_a_version(
    invoke: Invoke, work: Path, make_terminal: Callable[..., Any]
) -> None:
    """/resume asks about the pending calls of the newest version that has some, and continues its turn."""
    invoke('run', 'Fix it', '--approvals=pause', model=ScriptedModel(EDIT))
    model = ScriptedModel('Fixed.', 'Next.')
    terminal = make_terminal('y')
    result = invoke('chat', model=model, stdin='/resume\nMore\n/resume HEAD\n/resume\n', terminal=terminal)
    assert result.stdout == 'Fixed.\nNext.\n'
    assert (work / 'poem.txt').read_text() == 'rose\nlily\n'
    assert 'Fix it' in str(model.requests[-1].messages)
    assert re.search(r'The version \w{8} has no pending approvals: it is complete\.\n', result.stderr)
    assert result.stderr.endswith(f'No version of {work} has pending approvals.\n')


def test_switch_shows_pending_calls(invoke: Invoke) -> None:
    """A prompt would abandon them."""
    invoke('run', 'Fix it', '--approvals=pause', model=ScriptedModel(EDIT))
    result = invoke('chat', model=ScriptedModel(), stdin='/switch HEAD\n')
    pending = 'Pending calls: edit_file /poem.txt. /resume asks about them; another prompt continues without them.\n'
    assert result.stderr.endswith(f'> Fix it\n{pending}')


def test_continued_chat_without_a_terminal_abandons_no_calls(invoke: Invoke, work: Path) -> None:
    invoke('run', 'Fix it', '--approvals=pause', model=ScriptedModel(EDIT))
    result = invoke('chat', '-c', model=ScriptedModel('Next.'), stdin='Next\n')
    assert (result.exit_code, result.stdout) == (2, '')
    assert 'has pending approvals. Answer them with `pydantic-deep resume' in result.stderr


def test_resume_refuses_calls_of_another_agent(invoke: Invoke, tmp_path: Path, work: Path) -> None:
    """/resume refuses a version whose turn has another directory: its calls would run in the wrong one."""
    other = tmp_path / 'other'
    other.mkdir()
    (other / 'poem.txt').write_text('violet\n')
    invoke('run', 'Fix it', '--approvals=pause', '--dir', str(other), model=ScriptedModel(EDIT))
    version = json.loads(invoke('show', '--json', '--dir', str(other)).stdout)['id'][-8:]
    result = invoke('chat', '--approvals=allow', model=ScriptedModel(), stdin=f'/resume {version}\n')
    assert result.stderr == (
        f'The turn of the version {version} has another directory than this conversation. '
        f'Resume it with `pydantic-deep resume {version} --dir {other}`.\n'
    )
    assert (other / 'poem.txt').read_text() == 'violet\n'


def test_resume_names_the_agent_of_the_turn(invoke: Invoke, work: Path) -> None:
    """The suggested command has the agent with which the turn ran, not that of the chat."""
    invoke('run', 'Fix it', '--approvals=pause', model=ScriptedModel(EDIT))
    (work / 'mine.py').write_text('from pydantic_deep import create_deep_agent\nagent = create_deep_agent("test")\n')
    result = invoke('chat', '--agent', 'mine:agent', model=ScriptedModel(), stdin='/resume\n')
    version = json.loads(invoke('show', '--json').stdout)['id'][-8:]
    assert (
        f'has another agent than this conversation. Resume it with `pydantic-deep resume {version}`.\n' in result.stderr
    )


def test_rewind_to_a_pending_version_keeps_its_calls_for_resume(
    invoke: Invoke, work: Path, make_terminal: Callable[..., Any]
) -> None:
    """After /rewind to a version with pending calls, /resume answers them."""
    invoke('run', 'Fix it', '--approvals=pause', model=ScriptedModel(EDIT))
    model = ScriptedModel('Fixed.')
    result = invoke('chat', model=model, stdin='/rewind HEAD\n/resume\n', terminal=make_terminal('y'))
    assert (result.exit_code, result.stdout) == (0, 'Fixed.\n')
    assert (work / 'poem.txt').read_text() == 'rose\nlily\n'
