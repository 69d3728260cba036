"""Approval prompts of the `run` and `chat` commands."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot
from pydantic_ai import DeferredToolRequests
from pydantic_ai.messages import ModelMessage, ToolCallPart
from pydantic_ai.models.function import AgentInfo
from typer.testing import Result

from pydantic_deep import Respond, pending_approvals
from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.approvals import _prompter
from pydantic_deep.cli.terminal._editor import EditingFailedError
from pydantic_deep.testing import ScriptedModel, call

Invoke = Callable[..., Result]
Steady = Callable[[str], str]
MakeTerminal = Callable[..., Any]

EDIT = call('edit_file', path='/poem.txt', old_string='violet', new_string='lily')
WRITE = call('write_file', path='/new.txt', content='new\n')


def echo_results(messages: list[ModelMessage], info: AgentInfo) -> str:
    """Answer with the last tool results."""
    return '\n'.join(
        f'{part.tool_name}: {part.content}' for part in messages[-1].parts if part.part_kind == 'tool-return'
    )


def events(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_approved_call_runs(invoke: Invoke, make_terminal: MakeTerminal, work: Path, steady: Steady) -> None:
    terminal = make_terminal('y')
    result = invoke('run', 'Go', model=ScriptedModel(EDIT, echo_results), terminal=terminal)
    assert (result.exit_code, result.stdout) == (0, 'edit_file: Replaced 1 match at line 2.\n')
    assert (work / 'poem.txt').read_text() == 'rose\nlily\n'
    assert terminal.shown == snapshot("""\

? edit_file
  path: /poem.txt
  old_string: violet
  new_string: lily
  │ --- a/poem.txt
  │ +++ b/poem.txt
  │ @@ -1,2 +1,2 @@
  │  rose
  │ -violet
  │ +lily
[y]es  [n]o  [e]dit  [a]lways edit_file in this conversation  [?]
""")
    assert steady(result.stderr) == snapshot("""\
given in /tmp/work
✓ edit_file /poem.txt  Replaced 1 match at line 2.
changed /poem.txt +1 -1
2 requests, 1 tool call, 200 tokens in, 20 out, 0 s
version 01234567 in /tmp/state/pydantic-deep/agents.db
""")


def test_denied_call_returns_the_reason_to_the_model(invoke: Invoke, make_terminal: MakeTerminal, work: Path) -> None:
    terminal = make_terminal('no', ' Use an  oak. ')
    result = invoke('run', 'Go', model=ScriptedModel(EDIT, echo_results), terminal=terminal)
    assert result.stdout == 'edit_file: A person denied this call: Use an oak.\n'
    assert (work / 'poem.txt').read_text() == 'rose\nviolet\n'


def test_denial_reason_is_optional(invoke: Invoke, make_terminal: MakeTerminal) -> None:
    result = invoke('run', 'Go', model=ScriptedModel(EDIT, echo_results), terminal=make_terminal('N', ''))
    assert result.stdout == 'edit_file: A person denied this call.\n'


def test_unknown_answer_and_question_mark_show_help(invoke: Invoke, make_terminal: MakeTerminal) -> None:
    terminal = make_terminal('', 'sure', '?', 'y')
    invoke('run', 'Go', model=ScriptedModel(WRITE, echo_results), terminal=terminal)
    assert terminal.shown.count('[y]es') == 4
    assert terminal.shown[terminal.shown.rindex('yes  ') :] == snapshot("""\
yes     the call runs as shown
no      the call does not run; the model gets the reason if you give one
edit    change the arguments first, in the editor that VISUAL or EDITOR names
always  yes, and do not ask again until the conversation ends or pauses, \n\
subagents included
?       show this help
Ctrl-C stops the turn; no pending call has run.
[y]es  [n]o  [e]dit  [a]lways write_file in this conversation  [?]
""")


def test_parallel_calls_run_after_all_are_answered(invoke: Invoke, make_terminal: MakeTerminal, work: Path) -> None:
    seen: list[bool] = []
    terminal = make_terminal('y', 'n', '')
    ask = terminal.ask

    async def ask_and_look(prompt: str, **options: Any) -> str:
        seen.append((work / 'new.txt').exists())
        return await ask(prompt, **options)

    terminal.ask = ask_and_look
    result = invoke('run', 'Go', model=ScriptedModel([WRITE, EDIT], echo_results), terminal=terminal)
    assert seen == [False, False, False]
    assert result.stdout == 'write_file: Created /new.txt: 1 line, 4 bytes.\nedit_file: A person denied this call.\n'
    assert ('1 of 2' in terminal.shown, '2 of 2' in terminal.shown) == (True, True)


@pytest.mark.parametrize('key', [KeyboardInterrupt(), EOFError()], ids=['Ctrl-C', 'Ctrl-D'])
def test_interrupt_at_a_prompt_discards_all_answers(
    invoke: Invoke, make_terminal: MakeTerminal, work: Path, key: BaseException, steady: Steady
) -> None:
    result = invoke('run', 'Go', model=ScriptedModel([WRITE, EDIT]), terminal=make_terminal('a', key))
    assert (result.exit_code, result.stdout) == (130, '')
    assert not (work / 'new.txt').exists()
    assert steady(result.stderr).splitlines()[-1] == snapshot(
        'Interrupted. Completed work is not undone. The version 01234567 is still pending: answer with `pydantic-deep resume 01234567`, in a chat with `/resume`, or continue in a chat with another prompt.'
    )


def test_interrupt_without_store_does_not_report_a_pending_version(invoke: Invoke, make_terminal: MakeTerminal) -> None:
    terminal = make_terminal(KeyboardInterrupt())
    result = invoke('run', 'Go', '--no-store', model=ScriptedModel(WRITE), terminal=terminal)
    assert result.stderr.endswith('Interrupted. Completed work is not undone.\n')


def test_call_is_asked_again_after_its_file_changed(invoke: Invoke, make_terminal: MakeTerminal, work: Path) -> None:
    terminal = make_terminal('y', 'y')

    async def ask_and_change(prompt: str, *, default: str = '', multiline: bool = False) -> str:
        if len(terminal.typed) == 2:
            (work / 'poem.txt').write_text('violet\nrose\n')
        return terminal.typed.pop(0)

    terminal.ask = ask_and_change
    again = call('write_file', path='/poem.txt', content='oak\n')
    model = ScriptedModel(call('read_file', path='/poem.txt'), again, echo_results)
    result = invoke('run', 'Go', model=model, terminal=terminal)
    assert terminal.shown.count('? write_file') == 2
    assert result.stderr.count('a file has changed since') == 1
    assert 'Asked again: a file has changed since this call of write_file was answered.\n' in result.stderr


def test_always_applies_only_to_the_same_tool(invoke: Invoke, make_terminal: MakeTerminal, work: Path) -> None:
    again = call('write_file', path='/more.txt', content='')
    terminal = make_terminal('a', 'y')
    result = invoke('run', 'Go', model=ScriptedModel([WRITE, again], WRITE, EDIT, echo_results), terminal=terminal)
    assert result.exit_code == 0
    assert (work / 'more.txt').exists()
    assert terminal.shown.count('? write_file') == 1
    assert terminal.shown.count('? edit_file') == 1
    assert '[a]lways write_file in this conversation' in ' '.join(terminal.shown.split())


def test_edited_arguments_run_and_reach_the_model(invoke: Invoke, make_terminal: MakeTerminal, work: Path) -> None:
    terminal = make_terminal('e', 'path: /other.txt\ncontent: |\n  other\n')
    result = invoke('run', 'Go', model=ScriptedModel(WRITE, echo_results), terminal=terminal)
    assert (work / 'other.txt').read_text() == 'other\n'
    assert not (work / 'new.txt').exists()
    assert '/other.txt' in result.stdout
    assert '✓ write_file /other.txt' in result.stderr
    assert terminal.prompts[1] == ('', 'path: /new.txt\ncontent: |2\n  new\n', True)
    assert 'Neither VISUAL nor EDITOR names an editor.' in terminal.shown


def test_editor_failure_is_reported_and_prompt_repeated(
    invoke: Invoke, make_terminal: MakeTerminal, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*args: object, **options: object) -> str:
        raise EditingFailedError('The editor exited with code 1; nothing was changed.')

    monkeypatch.setattr(_prompter, 'edit_text', fail)
    terminal = make_terminal('e', 'y')
    invoke('run', 'Go', model=ScriptedModel(WRITE, echo_results), terminal=terminal)
    assert 'The editor exited with code 1; nothing was changed.' in terminal.shown
    assert terminal.shown.count('[y]es') == 2
    assert (work / 'new.txt').read_text() == 'new\n'


@pytest.mark.parametrize(
    ('typed', 'sentence'),
    [
        ('path: /new.txt\ncontent: |\n  new\n', 'Nothing was changed.'),
        ('path: [', 'This is not YAML: line 1:'),
        ('- a', 'These are not arguments.'),
    ],
)
def test_unchanged_or_invalid_edit_is_reported_and_prompt_repeated(
    invoke: Invoke, make_terminal: MakeTerminal, work: Path, typed: str, sentence: str
) -> None:
    terminal = make_terminal('e', typed, 'n', '')
    invoke('run', 'Go', model=ScriptedModel(WRITE, echo_results), terminal=terminal)
    assert sentence in terminal.shown
    assert terminal.shown.count('[y]es') == 2
    assert not (work / 'new.txt').exists()


def test_unparsable_edit_is_offered_again_for_correction(invoke: Invoke, make_terminal: MakeTerminal) -> None:
    terminal = make_terminal('e', 'path: [', 'e', 'path: /b\ncontent: x')
    invoke('run', 'Go', model=ScriptedModel(WRITE, echo_results), terminal=terminal)
    assert terminal.prompts[3] == ('', 'path: [', True)


def test_edited_arguments_refused_by_the_tool_fail_the_call(invoke: Invoke, make_terminal: MakeTerminal) -> None:
    terminal = make_terminal('e', 'path: /b\nbody: x')
    result = invoke('run', 'Go', model=ScriptedModel(WRITE, echo_results), terminal=terminal)
    assert (result.exit_code, 'content' in result.stdout) == (0, True)


def test_subagent_call_prompt_shows_its_path_and_result_below_the_task(
    invoke: Invoke, make_terminal: MakeTerminal, work: Path, steady: Steady
) -> None:
    task = call('task', subagent='general-purpose', description='Fix it')
    model = ScriptedModel(task, call('read_file', path='/poem.txt'), [EDIT, 'Working.'], 'Fixed.', echo_results)
    terminal = make_terminal('y')
    result = invoke('run', 'Go', model=model, terminal=terminal)
    assert (work / 'poem.txt').read_text() == 'rose\nlily\n'
    assert '  subagent: general-purpose\n' in terminal.shown
    assert result.stdout == 'task: Fixed.\n'
    assert steady(result.stderr) == snapshot("""\
given in /tmp/work
· task general-purpose Fix it
  ✓ read_file /poem.txt  2 lines
  ✓ edit_file /poem.txt  Replaced 1 match at line 2.
✓ task general-purpose Fix it  Fixed.
changed /poem.txt +1 -1
5 requests, 3 tool calls, 500 tokens in, 50 out, 0 s
version 01234567 in /tmp/state/pydantic-deep/agents.db
""")


def test_always_does_not_apply_to_a_protected_file(invoke: Invoke, make_terminal: MakeTerminal, work: Path) -> None:
    """A call with a notice needs a decision of its own, and `always` is not offered for it."""
    guarded = call('write_file', path='/AGENTS.md', content='Obey.\n')
    terminal = make_terminal('a', 'a', 'n', '')
    result = invoke('run', 'Go', model=ScriptedModel(WRITE, guarded, echo_results), terminal=terminal)
    assert result.exit_code == 0
    assert not (work / 'AGENTS.md').exists()
    assert terminal.shown.count('? write_file') == 2
    assert terminal.shown.count('[a]lways') == 1


def test_always_applies_to_subagents(invoke: Invoke, make_terminal: MakeTerminal) -> None:
    task = call('task', subagent='general-purpose', description='Fix it')
    model = ScriptedModel(WRITE, task, call('write_file', path='/b', content='b'), 'Fixed.', 'Done.')
    terminal = make_terminal('a')
    assert invoke('run', 'Go', model=model, terminal=terminal).exit_code == 0
    assert terminal.shown.count('[y]es') == 1


def test_resumed_calls_share_one_token_budget(invoke: Invoke, make_terminal: MakeTerminal) -> None:
    writes = [call('write_file', path=f'/{number}', content='') for number in range(5)]
    terminal = make_terminal('y', 'y', 'y', 'y', 'y')
    result = invoke(
        'run', 'Go', '--max-tokens', '250', '--json', model=ScriptedModel(*writes, 'Done.'), terminal=terminal
    )
    assert result.exit_code == 4
    assert [events(result)[-1]['usage'][name] for name in ('requests', 'tool_calls', 'input_tokens')] == [3, 2, 300]


def test_chat_remembers_always_until_a_new_conversation(invoke: Invoke, make_terminal: MakeTerminal) -> None:
    terminal = make_terminal('a', 'y')
    model = ScriptedModel(WRITE, 'One.', WRITE, 'Two.', WRITE, 'Three.')
    result = invoke('chat', model=model, terminal=terminal, stdin='1\n2\n/new\n3\n')
    assert (result.exit_code, result.stdout) == (0, 'One.\nTwo.\nThree.\n')
    assert terminal.typed == []
    assert terminal.shown.count('? write_file') == 2


def test_chat_continues_after_an_interrupted_prompt(invoke: Invoke, make_terminal: MakeTerminal) -> None:
    model = ScriptedModel(['Writing.', WRITE], 'Here I am.')
    result = invoke('chat', model=model, terminal=make_terminal(KeyboardInterrupt()), stdin='1\n2\n')
    assert (result.exit_code, result.stdout) == (0, 'Here I am.\n')
    (closed,) = model.requests[1].tool_returns
    assert (closed.tool_name, closed.outcome) == ('write_file', 'interrupted')


@pytest.mark.skipif(shutil.which('bwrap') is None, reason='bubblewrap is not installed')
def test_sandbox_command_prompts_and_always_matches_the_exact_command(
    invoke: Invoke, make_terminal: MakeTerminal, work: Path
) -> None:
    run = call('execute', command='echo a >> made.txt; ls /skills')
    other = call('execute', command='echo b >> made.txt')
    terminal = make_terminal('a', 'n', '')
    result = invoke('run', 'Go', '--sandbox', model=ScriptedModel(run, run, other, 'Done.'), terminal=terminal)
    assert (result.exit_code, (work / 'made.txt').read_text()) == (0, 'a\na\n')
    assert terminal.typed == []
    assert '  │ $ echo a >> made.txt; ls /skills\n' in terminal.shown
    assert '[a]lways this very command in this conversation' in terminal.shown
    assert 'created /workspace/made.txt +2 -0\n' in result.stderr


@pytest.mark.skipif(shutil.which('bwrap') is None, reason='bubblewrap is not installed')
def test_always_for_a_skill_grant_applies_only_to_its_commands(
    invoke: Invoke, make_terminal: MakeTerminal, tmp_path: Path
) -> None:
    """Loading a skill with `allowed-tools` prompts and shows the commands; `always` does not apply to another skill."""
    for name, command in (('one', 'ls:*'), ('two', 'rm:*')):
        (tmp_path / 'mine' / name).mkdir(parents=True)
        text = f'---\nname: {name}\ndescription: x\nallowed-tools: Bash Bash({command})\n---\nDo it.'
        (tmp_path / 'mine' / name / 'SKILL.md').write_text(text)
    terminal = make_terminal('a', 'n', '')
    model = ScriptedModel(call('load_skill', name='one'), call('load_skill', name='two'), echo_results)
    result = invoke('run', 'Go', '--sandbox', '--skills', str(tmp_path / 'mine'), model=model, terminal=terminal)
    assert (result.exit_code, terminal.typed) == (0, [])
    assert ('  │     ls *\n' in terminal.shown, '  │     rm *\n' in terminal.shown) == (True, True)
    assert '[a]lways this very call in this conversation' in terminal.shown


ASK = call('ask_user', question='Which flower?', choices=['rose', 'lily'])


@pytest.mark.parametrize(
    ('typed', 'result'),
    [
        ('2', 'lily'),
        ('3', '3'),
        (' an oak ', 'an oak'),
        ('', 'The user declined to answer.'),
    ],
)
def test_question_is_answered_by_number_or_text_and_declined_by_an_empty_line(
    invoke: Invoke, make_terminal: MakeTerminal, typed: str, result: str
) -> None:
    """A number chooses, other text is the answer, and Enter alone declines."""
    terminal = make_terminal(typed)
    ran = invoke('run', 'Go', '--ask-user', model=ScriptedModel(ASK, echo_results), terminal=terminal)
    assert (ran.exit_code, ran.stdout) == (0, f'ask_user: {result}\n')


def test_question_shows_its_choices_with_numbers(invoke: Invoke, make_terminal: MakeTerminal) -> None:
    """The prompt has the question, its numbered choices, and how to answer."""
    terminal = make_terminal('1')
    invoke('run', 'Go', '--ask-user', model=ScriptedModel(ASK, echo_results), terminal=terminal)
    assert terminal.shown == snapshot("""\

? ask_user
  │   Which flower?
  │  1 rose
  │  2 lily
A number from 1 to 2, or your answer; Enter alone declines.
""")


def test_question_without_choices_takes_text(invoke: Invoke, make_terminal: MakeTerminal) -> None:
    """A number is an ordinary answer if there are no choices."""
    terminal, ask = make_terminal('1'), call('ask_user', question='How many?')
    ran = invoke('run', 'Go', '--ask-user', model=ScriptedModel(ask, echo_results), terminal=terminal)
    assert ran.stdout == 'ask_user: 1\n'
    assert 'Your answer; Enter alone declines.' in terminal.shown


@pytest.mark.parametrize(
    ('mode', 'result'),
    [
        ('allow', 'Nobody can answer here. Decide yourself, and say what you assumed.'),
        ('deny', 'Nobody lets this call run: approvals are switched off. Go on without it.'),
    ],
)
def test_question_is_declined_where_nobody_answers(invoke: Invoke, mode: str, result: str) -> None:
    """Without a person, a question is declined instead of ending the turn with an error."""
    ran = invoke('run', 'Go', '--ask-user', f'--approvals={mode}', model=ScriptedModel(ASK, echo_results))
    assert (ran.exit_code, ran.stdout) == (0, f'ask_user: {result}\n')


def test_question_waits_in_the_inbox(invoke: Invoke) -> None:
    """With `--approvals=pause`, the question is stored, and `approvals answer --respond` answers it later."""
    assert invoke('run', 'Go', '--ask-user', '--approvals=pause', model=ScriptedModel(ASK)).exit_code == 5
    [item] = json.loads(invoke('approvals', 'list', '--json').stdout)
    assert item['view']['preview']['choices'] == [['rose'], ['lily']]
    assert invoke('approvals', 'answer', item['id'], '--respond', 'oak').exit_code == 0
    resumed = invoke('resume', item['version_id'], model=ScriptedModel(echo_results))
    assert (resumed.exit_code, resumed.stdout) == (0, 'ask_user: oak\n')


@pytest.mark.anyio
async def test_call_of_an_external_tool_takes_json_at_the_terminal(make_terminal: MakeTerminal) -> None:
    """The result of a call may be any JSON. What is not JSON is asked for again."""
    terminal = make_terminal('j', '{"degrees": NaN}', '{"degrees": 12.0}')
    requests = DeferredToolRequests(calls=[ToolCallPart('weather', {'city': 'Rome'}, 'c1')])
    prompter = _prompter.ApprovalPrompter(environment=Environment(open_terminal=lambda: nullcontext(terminal)))
    screen = _prompter.PromptScreen(suspended=nullcontext, notify=print)
    answers = await prompter.decide(pending_approvals(requests), screen=screen)
    assert [answer.decision for answer in answers.values()] == [Respond({'degrees': 12.0})]
    assert 'This is not JSON: expected value' in terminal.shown


@pytest.mark.anyio
async def test_call_of_an_external_tool_takes_a_result_at_the_terminal(make_terminal: MakeTerminal) -> None:
    """A call that cannot be approved, because it runs elsewhere, is answered with its result."""
    terminal = make_terminal('?', 'r', 'sunny')
    requests = DeferredToolRequests(calls=[ToolCallPart('weather', {'city': 'Rome'}, 'c1')])
    prompter = _prompter.ApprovalPrompter(environment=Environment(open_terminal=lambda: nullcontext(terminal)))
    screen = _prompter.PromptScreen(suspended=nullcontext, notify=print)
    answers = await prompter.decide(pending_approvals(requests), screen=screen)
    assert [answer.decision for answer in answers.values()] == [Respond('sunny')]
    assert terminal.shown == snapshot("""\

? weather
  city: Rome
[n]o  [r]espond  [j]son  [?]
no      the call does not run; the model gets the reason if you give one
respond the call does not run; the model gets your text as its result
json    the call does not run; the model gets your JSON as its result
?       show this help
Ctrl-C stops the turn; no pending call has run.
[n]o  [r]espond  [j]son  [?]
""")


@pytest.fixture
def mcp_file(tmp_path: Path) -> Path:
    """A file with the fixture server."""
    program = Path(__file__).parents[2] / 'mcp/fixture_server.py'
    server = {'command': sys.executable, 'args': [str(program)], 'env': {'CALLS': str(tmp_path / 'calls')}}
    path = tmp_path / 'servers.json'
    path.write_text(json.dumps({'mcpServers': {'shop': server}}))
    return path


def test_question_of_a_server_is_asked_field_by_field(
    invoke: Invoke, make_terminal: MakeTerminal, mcp_file: Path
) -> None:
    """Each field has a prompt, which repeats until the value fits. Enter skips fields with a default or without need."""
    terminal = make_terminal('9', '2', '2', 'milk, sugar', '', '')
    model = ScriptedModel(call('shop_form'), echo_results)
    ran = invoke('run', 'Go', '--mcp-config', str(mcp_file), model=model, terminal=terminal)
    assert [prompt for prompt, _, _ in terminal.prompts] == [
        'Cups: ',
        'Cups: ',
        'kind: ',
        'extras: ',
        'gift: ',
        'note: ',
    ]
    assert "'content': {'cups': 2, 'kind': 'b', 'extras': ['milk', 'sugar'], 'gift': False}" in ran.stdout
    assert terminal.shown == snapshot("""\

? shop_form
  │   The MCP server 'shop' asks:
  │   Which tea?
  │ cups: Cups. integer, from 1 to 5
  │ kind: Green | Black
  │ extras: several are possible, optional. milk | sugar
  │ gift: yes or no, default false
  │ note: optional
Enter alone skips a field that has a default or is optional, and declines at any
other.
The field 'cups' does not accept '9': Input should be less than or equal to 5.
""")


def test_question_in_an_approved_call_is_not_the_approval_again(
    invoke: Invoke, make_terminal: MakeTerminal, mcp_file: Path
) -> None:
    """A call that was approved asks: no file has changed, and nothing is approved twice."""
    terminal = make_terminal('y', '2', '')
    model = ScriptedModel(call('shop_repeat'), echo_results)
    ran = invoke('run', 'Go', '--mcp-config', str(mcp_file), model=model, terminal=terminal)
    assert (ran.exit_code, terminal.typed) == (0, []), ran.stderr
    assert 'Asked again' not in ran.stderr


def test_a_number_that_is_a_choice_is_that_choice_and_not_its_place(
    invoke: Invoke, make_terminal: MakeTerminal, mcp_file: Path
) -> None:
    """The choices of a form have no numbers on the screen, so a number means what is written there."""
    model = ScriptedModel(call('shop_repeat'), echo_results)
    ran = invoke('run', 'Go', '--mcp-config', str(mcp_file), model=model, terminal=make_terminal('y', '1', ''))
    assert "'content': {'times': '1'}" in ran.stdout


def test_empty_required_field_declines_a_question(invoke: Invoke, make_terminal: MakeTerminal, mcp_file: Path) -> None:
    """A field without a default that an answer needs is the one to decline at."""
    model = ScriptedModel(call('shop_form'), echo_results)
    ran = invoke('run', 'Go', '--mcp-config', str(mcp_file), model=model, terminal=make_terminal('2', ''))
    assert "'action': 'decline'" in ran.stdout


def test_question_of_a_server_with_one_field_repeats_until_the_answer_fits(
    invoke: Invoke, make_terminal: MakeTerminal, mcp_file: Path
) -> None:
    """A wrong answer is explained and asked again. A question with an address shows the link."""
    terminal = make_terminal('y', 'many', '2', 'no', '1')
    model = ScriptedModel(call('shop_book'), echo_results)
    ran = invoke('run', 'Go', '--mcp-config', str(mcp_file), model=model, terminal=terminal)
    assert "'content': {'count': 2}" in ran.stdout
    assert "The field 'count' does not accept 'many'" in terminal.shown
    assert 'link: https://pay.example/1' in terminal.shown
    assert "Answer 'Continue' to agree, or decline." in terminal.shown
