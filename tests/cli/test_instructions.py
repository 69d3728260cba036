"""The `--instructions` option, and the warning about changed instructions of the agent."""

from __future__ import annotations

import pytest
from pydantic_ai.messages import ModelRequest

from pydantic_deep.cli.turn import _runtime
from pydantic_deep.testing import ScriptedModel

from .conftest import Invoke


def has_instructions(model: ScriptedModel) -> list[bool]:
    """Return for each request whether its instructions end with those of the conversation."""
    last = [request.messages[-1] for request in model.requests]
    texts = [message.instructions or '' for message in last if isinstance(message, ModelRequest)]
    return [text.endswith('\n\nSpeak like a pirate.') for text in texts]


def test_instructions_apply_to_all_turns_of_a_conversation(invoke: Invoke) -> None:
    """`run --instructions TEXT` adds instructions to all turns of the conversation, including continued ones."""
    model = ScriptedModel('one', 'two', 'three', 'four')
    assert invoke('run', 'Go', '--instructions', 'Speak like a pirate.', model=model).exit_code == 0
    assert invoke('run', 'On', '--continue', '--max-tokens', '1000000', model=model).exit_code == 0
    assert invoke('chat', '--from', 'HEAD~1', model=model, stdin='On\n').exit_code == 0
    assert invoke('run', 'Go', model=model).exit_code == 0
    assert has_instructions(model) == [True, True, True, False]


@pytest.mark.parametrize('options', [(), ('--no-store',)])
def test_chat_instructions_apply_to_new_conversations(invoke: Invoke, options: tuple[str, ...]) -> None:
    model = ScriptedModel('one', 'two', 'three')
    result = invoke(
        'chat', '--instructions=Speak like a pirate.', *options, model=model, stdin='One\nTwo\n/new\nThree\n'
    )
    assert (result.exit_code, has_instructions(model)) == (0, [True, True, True])
    assert len(model.requests[2].messages) == 1


@pytest.mark.parametrize('command', [('run', 'Go'), ('chat',)])
@pytest.mark.parametrize(
    ('options', 'sentence'),
    [
        (('--instructions', ''), "Invalid value for '--instructions': it is empty. Omit it, or pass a text."),
        (('--instructions= \n',), "Invalid value for '--instructions': it is empty. Omit it, or pass a text."),
        (
            ('--continue', '--instructions', 'A.'),
            '--instructions are for a new conversation, and --continue continues one that has its own. Choose one of '
            '--continue and --instructions.',
        ),
        (('--from=HEAD', '--instructions', ''), 'Choose one of --from and --instructions.'),
        (('--instructions', 'a\udcff'), 'is not valid UTF-8'),
    ],
)
def test_invalid_instructions_are_usage_errors(
    invoke: Invoke, command: tuple[str, ...], options: tuple[str, ...], sentence: str
) -> None:
    model = ScriptedModel()
    result = invoke(*command, *options, model=model, stdin='Go\n')
    assert (result.exit_code, model.requests) == (2, [])
    assert sentence in ' '.join(result.stderr.replace('│', '').split())


@pytest.mark.filterwarnings('always::pydantic_deep.versions.InstructionsWarning')
@pytest.mark.parametrize('command', [('run', 'On', '--continue'), ('chat', '--continue'), ('chat', '--from', 'HEAD')])
def test_changed_agent_instructions_print_one_warning(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """When a later release changes the agent's instructions, a continued conversation prints one warning, without a
    source line."""
    model = ScriptedModel('one', 'two', 'three')
    monkeypatch.setattr(_runtime, 'INSTRUCTIONS', 'Be\nbrief.')
    assert invoke('run', 'Go', model=model).exit_code == 0
    monkeypatch.setattr(_runtime, 'INSTRUCTIONS', 'Be long.')
    result = invoke(*command, model=model, stdin='On\nOn\n')
    assert result.exit_code == 0
    [line] = [line for line in result.stderr.splitlines() if 'warn' in line.lower()]
    assert line.startswith('warning: The version ')
    assert "was created with the instructions 'Be\\nbrief.', but this agent has 'Be long.'." in line
    assert '.py' not in result.stderr
    assert 'warning' not in invoke('run', 'On', '--continue', model=ScriptedModel('four')).stderr
