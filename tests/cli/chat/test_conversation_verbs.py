"""Verbs of the chat about its conversation and its model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from inline_snapshot import snapshot
from typer.testing import Result

from pydantic_deep.testing import ScriptedModel, call
from tests.cli.conftest import EDIT, WRITE

Invoke = Callable[..., Result]

A, B = 'a' * 99, 'b' * 99
"""Words of a long answer. Each word is one event."""


def test_model_is_shown_and_replaced(invoke: Invoke) -> None:
    """/model shows the model; with a name, later turns use that model and their versions store its name."""
    model = ScriptedModel('One.', 'Two.')
    result = invoke(
        'chat',
        '--model',
        'test',
        '--approvals=allow',
        model=model,
        stdin='/model\nZero\n/model given\nOne\n/model given\nTwo\n',
    )
    assert result.stderr.startswith('The model is test.\n')
    assert 'The model is given.\n' in result.stderr
    assert 'Zero' in str(model.requests[0].messages)
    assert len(model.requests) == 2
    later = ScriptedModel('Three.')
    assert invoke('chat', '-c', model=later, stdin='Three\n').stdout == 'Three.\n'
    metadata = [row['model'] for row in json.loads(invoke('log', '--json').stdout)]
    assert metadata[0] != metadata[-2]


def test_model_before_the_first_turn_and_an_unknown_one(invoke: Invoke) -> None:
    """A model that cannot be used is refused with a sentence, and the chat continues with the one before."""
    model = ScriptedModel('One.')
    result = invoke('chat', '--model', 'test', model=model, stdin='/model nobody:x\n/model given\nOne\n')
    assert result.stdout == 'One.\n'
    assert result.stderr.startswith("'nobody:x' cannot be used.")


def test_a_turn_resumes_with_the_model_that_was_chosen(invoke: Invoke) -> None:
    """A paused turn of another process resumes with the model of the chat."""
    invoke('run', 'Fix it', '--approvals=pause', model=ScriptedModel(EDIT))
    result = invoke(
        'chat', '--model', 'test', '--approvals=allow', model=ScriptedModel('Fixed.'), stdin='/model given\n/resume\n'
    )
    assert result.stdout == 'Fixed.\n'


def test_cost_sums_up_the_conversation(invoke: Invoke) -> None:
    """/cost shows requests, calls and tokens of the whole conversation, and its cost if the price is known."""
    result = invoke('chat', '--approvals=allow', model=ScriptedModel(WRITE, 'One.', 'Two.'), stdin='One\nTwo\n/cost\n')
    assert result.stderr.splitlines()[-2:] == snapshot(
        ['3 requests, 1 tool call, 300 tokens in, 30 out', 'The price of the model is unknown.']
    )


def test_compact_replaces_the_beginning_and_undo_restores_it(invoke: Invoke) -> None:
    """/compact stores a version with a summary of the beginning, and /undo goes back to the whole conversation."""
    model = ScriptedModel(f'{A} ' * 400, f'{B} ' * 200, 'Three.', 'SUMMARY', 'Four.', 'Five.')
    result = invoke('chat', model=model, stdin='One\nTwo\nThree\n/compact\nFour\n/undo\n/undo\nFive\n')
    assert 'Summarized 3 messages: about ' in result.stderr, result.stderr
    assert '/undo restores them.\n' in result.stderr
    summary, four, five = (
        str([getattr(part, 'content', '') for message in request.messages for part in message.parts])
        for request in model.requests[3:]
    )
    assert f'{A} {A}' in summary
    assert (A in four, 'SUMMARY' in four) == (False, True)
    assert (A in five, 'SUMMARY' in five) == (True, False)


def test_compact_on_a_copy_does_not_move_the_head(invoke: Invoke) -> None:
    """In a conversation whose turns work on a copy, /compact leaves HEAD where it is."""
    model = ScriptedModel(f'{A} ' * 400, f'{B} ' * 200, 'Three.', 'Head.')
    invoke('chat', model=model, stdin='One\nTwo\nThree\nHead\n')
    later = ScriptedModel('SUMMARY', 'Copy.')
    result = invoke('chat', '--from', 'HEAD~', model=later, stdin='/compact\nCopy\n')
    assert 'Summarized 3 messages' in result.stderr
    assert 'SUMMARY' in str(later.requests[1].messages)
    assert json.loads(invoke('show', '--json').stdout)['prompt'] == 'Head'


def test_a_short_conversation_is_not_compacted(invoke: Invoke) -> None:
    """A summary that would not shorten the conversation is not stored."""
    result = invoke('chat', model=ScriptedModel('One.', 'S' * 400, 'Two.'), stdin='One\n/compact\n/compact\n')
    assert result.stderr.endswith('The conversation is too short for a summary, or its agent does not summarize.\n')
    assert [row['kind'] for row in json.loads(invoke('log', '--json').stdout)] == ['turn', 'root']


def test_an_empty_conversation_is_not_compacted(invoke: Invoke) -> None:
    """After /undo of the only turn, there is nothing to summarize."""
    result = invoke('chat', model=ScriptedModel('One.'), stdin='One\n/undo\n/compact\n')
    assert result.exit_code == 0
    assert result.stderr.endswith('The conversation is too short for a summary, or its agent does not summarize.\n')


def test_a_paused_turn_is_not_compacted(invoke: Invoke) -> None:
    """The summary of a turn with pending calls would end it."""
    invoke('run', 'Fix it', '--approvals=pause', model=ScriptedModel(EDIT))
    result = invoke('chat', model=ScriptedModel(), stdin='/rewind HEAD\n/compact\n')
    assert result.stderr.endswith(
        'The last turn has not ended: /resume finishes it, another prompt goes on without it.\n'
    )
    assert json.loads(invoke('show', '--json').stdout)['is_pending']


def test_quit_and_exit_end_the_chat(invoke: Invoke) -> None:
    """/exit is a second name of /quit."""
    for verb in ('/quit', '/exit'):
        assert invoke('chat', model=ScriptedModel(), stdin=f'{verb}\nOne\n').stdout == ''


def test_new_drops_a_branch_that_was_to_start(invoke: Invoke) -> None:
    """After /new, a branch that /branch has prepared is not started."""
    invoke('chat', model=ScriptedModel('One.', 'Two.'), stdin='One\n/branch side\n/new\nTwo\n')
    assert {row['branch'] for row in json.loads(invoke('log', '--json').stdout)} == {'main'}


def test_first_prompt_of_a_chat_with_plan_is_planned_and_later_ones_on_request(invoke: Invoke, work: Path) -> None:
    """Until the plan is accepted, writes are refused; `/plan` asks for the next plan."""
    plan = call('propose_plan', plan='1. Write.')
    steps = (WRITE, plan, WRITE, 'One.', WRITE, 'Two.', WRITE, plan, 'Three.')
    model = ScriptedModel(*steps)
    result = invoke('chat', '--plan', '--approvals=allow', model=model, stdin='One\nTwo\n/plan Three\n')
    assert result.stdout == 'One.\nTwo.\nThree.\n'
    refused = ['Plan mode is on' in str(request.messages[-1]) for request in model.requests]
    assert refused == [False, True, False, False, False, False, False, True, False]


@pytest.mark.parametrize('command', [('run', 'Write', '--continue'), ('chat', '--continue')])
def test_plan_mode_does_not_end_with_the_process(invoke: Invoke, work: Path, command: tuple[str, ...]) -> None:
    """A conversation in plan mode stays so without `--plan`, in subagents too, until its plan is accepted."""
    invoke('run', 'Plan it', '--plan', model=ScriptedModel('Which name?'))
    delegate = call('task', subagent='general-purpose', description='Write')
    plan = call('propose_plan', plan='Write new.txt.')
    model = ScriptedModel(WRITE, delegate, WRITE, 'I may not.', 'Nothing was written.')
    result = invoke(*command, '--approvals=allow', model=model, stdin='Write\n')
    assert (result.exit_code, result.stdout) == (0, 'Nothing was written.\n'), result.stderr
    assert result.stderr.count('✗ write_file /new.txt  Plan mode is on') == 2
    assert not (work / 'new.txt').exists()
    result = invoke(*command, '--approvals=allow', model=ScriptedModel(plan, WRITE, 'Written.'), stdin='Go\n')
    assert (result.exit_code, result.stdout) == (0, 'Written.\n'), result.stderr
    assert (work / 'new.txt').exists()
    later = ScriptedModel('Bye.')
    invoke(*command, model=later, stdin='End\n')
    assert 'propose_plan' not in later.requests[0].tool_names


def test_plan_needs_the_option(invoke: Invoke) -> None:
    """A chat whose agent has no plan mode says how to start one, instead of running without a plan."""
    result = invoke('chat', model=ScriptedModel('One.'), stdin='/plan Go\nOne\n')
    assert result.stderr.startswith('This chat has no plan mode. Start it with --plan.')
    assert result.stdout == 'One.\n'


def test_mcp_lists_the_servers_of_the_chat(invoke: Invoke) -> None:
    """/mcp says that there is no server, or shows each with its tools."""
    result = invoke('chat', model=ScriptedModel(), stdin='/mcp\n')
    assert result.stderr.startswith('No MCP servers are configured.')
