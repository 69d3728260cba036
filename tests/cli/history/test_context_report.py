"""The `/context` chat command and the `context` command: token usage of a conversation by part."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from io import StringIO
from typing import Any

import pytest
from inline_snapshot import snapshot
from pydantic_ai.usage import RequestUsage, RunUsage
from rich.console import Console
from typer.testing import Result

from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.approvals._policy import ApprovalMode
from pydantic_deep.cli.approvals._prompter import ApprovalPrompter
from pydantic_deep.cli.chat._chat import VERBS
from pydantic_deep.cli.chat._session import ChatScreen, ChatSession
from pydantic_deep.cli.history._context_report import context_usage, load_context_usage, render_context
from pydantic_deep.cli.turn._conversation import Conversation
from pydantic_deep.cli.turn._turn_presenter import decider_for
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.usage import UsageReport

Invoke = Callable[..., Result]
MakeConversation = Callable[..., Conversation]

USAGE = UsageReport(
    system=2_000,
    tools=8_000,
    skills=None,
    files=30_000,
    summary=0,
    history=10_000,
    counted=50_000,
    context_window=200_000,
    last=RequestUsage(input_tokens=48_000, cache_read_tokens=45_000, output_tokens=700),
    total=RunUsage(requests=5),
    cost=Decimal('0.12345'),
    unpriced_requests=2,
)


def lines_of(usage: UsageReport, *, width: int | None, is_exact: bool = False) -> list[str]:
    return [line.plain for line in render_context(context_usage('v', usage, is_exact=is_exact), width=width)]


def test_context_on_a_terminal_shows_a_bar_and_a_legend() -> None:
    assert '\n'.join(lines_of(USAGE, width=40)) == snapshot("""\
██████████░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░
█ system      2,000    1%  instructions
█ tools       8,000    4%  schemas of t…
█ skills        not known  catalogue an…
█ files      30,000   15%  file tools a…
█ summary         0    0%  summaries of…
█ history    10,000    5%  all other me…
50,000 of 200,000 tokens (25%), estimated.
The last request, as the provider counts: 48,000 sent, 45,000 of them cached, 700 written.
Cost so far: $0.1234, without 2 requests.\
""")


def test_context_bar_has_one_color_per_part() -> None:
    bar = render_context(context_usage('v', USAGE, is_exact=False), width=40)[0]

    assert [(str(span.style), span.end - span.start) for span in bar.spans] == [
        ('cyan', 2),
        ('green', 6),
        ('red', 2),
        ('dim', 30),
    ]


def test_context_without_a_terminal_has_no_bar() -> None:
    assert '\n'.join(lines_of(USAGE, width=None, is_exact=True)) == snapshot("""\
system      2,000    1%  instructions
tools       8,000    4%  schemas of tools
skills        not known  catalogue and loaded skills
files      30,000   15%  file tools and uploads
summary         0    0%  summaries of earlier messages
history    10,000    5%  all other messages
50,000 of 200,000 tokens (25%), counted by the tokenizer of the model.
The last request, as the provider counts: 48,000 sent, 45,000 of them cached, 700 written.
Cost so far: $0.1234, without 2 requests.\
""")


def test_context_bar_is_limited_to_the_terminal_width() -> None:
    assert lines_of(replace(USAGE, context_window=20_000), width=30)[0] == '█' * 30
    assert len(lines_of(USAGE, width=500)[0]) == 72


def test_shares_without_a_context_window_refer_to_the_counted_tokens() -> None:
    lines = lines_of(replace(USAGE, context_window=None, last=None, cost=None), width=30)

    assert lines[0] == '█' * 30
    assert '60%' in lines[4]
    assert lines[-1] == '50,000 tokens, estimated. The context window of the model is unknown.'


def test_context_of_an_empty_conversation_is_rendered() -> None:
    nothing = replace(USAGE, tools=None, system=None, files=0, history=0, counted=0, context_window=None)

    assert lines_of(nothing, width=10)[0] == '░' * 10


def test_complete_cost_does_not_mention_unpriced_requests() -> None:
    assert lines_of(replace(USAGE, unpriced_requests=0), width=None)[-1] == 'Cost so far: $0.1234.'


def test_context_in_a_chat_without_a_terminal_is_plain_text(invoke: Invoke) -> None:
    model = ScriptedModel(call('ls'), 'First.')
    result = invoke('chat', model=model, stdin='/context\nOne\n/context\n')
    before, _, after = result.stderr.partition('One') if 'One' in result.stderr else result.stderr.partition('\n')

    assert before.startswith('The conversation has no turn yet.')
    assert 'file tools and uploads' in after
    assert 'The context window of the model is unknown.' in after
    assert '█' not in after


async def test_context_in_a_chat_on_a_terminal_shows_the_bar(make_conversation: MakeConversation) -> None:
    output = StringIO()
    console = Console(file=output, force_terminal=True, width=60, color_system=None)
    environment = Environment()
    prompter = ApprovalPrompter(environment=environment)
    conversation = make_conversation(ScriptedModel('First.'))
    prompts = iter(['One', '/context', '/quit'])

    async def read_line(message: str) -> str:
        return next(prompts)

    screen = ChatScreen(console=console, read_line=read_line, ask=read_line, prints_answers=True)
    chat = ChatSession(conversation, environment, screen, VERBS, prompter, decider_for(ApprovalMode.deny, prompter))
    await chat.run()

    assert '█' in output.getvalue()


def test_context_json_contains_tokens_by_part(invoke: Invoke) -> None:
    invoke('run', 'Look', model=ScriptedModel(call('ls'), 'Done.'))
    found: dict[str, Any] = json.loads(invoke('context', '--json').stdout)

    kinds = [found[kind] for kind in ('system', 'tools', 'skills', 'files', 'summary', 'history')]
    assert found['counted'] == sum(kinds)
    assert found['files'] > 0
    assert found['tools'] > 500
    assert (found['is_exact'], found['context_window'], found['cost']) == (False, None, None)
    assert found['last_request']['output_tokens'] == 10


def test_context_of_a_version_is_printed(invoke: Invoke) -> None:
    invoke('run', 'Look', model=ScriptedModel('Done.'))
    result = invoke('context')

    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 8)
    assert invoke('context', 'HEAD~').stdout.startswith('system        not known')


def test_context_json_has_null_for_unknown_values() -> None:
    usage = replace(USAGE, last=None, cost=None)

    document = context_usage('v', usage, is_exact=False)

    assert (document.last_request, document.cost, document.skills) == (None, None, None)


@pytest.mark.parametrize(('model', 'is_exact'), [('gpt-5', True), ('claude-opus-5-5', False), (None, False)])
async def test_context_uses_the_tokenizer_of_the_model_if_available(model: str | None, is_exact: bool) -> None:
    assert (await load_context_usage(version_of(model))).is_exact is is_exact


async def test_context_without_the_tokenizer_extra_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, 'pydantic_deep.tokenizers', None)

    assert (await load_context_usage(version_of('gpt-5'))).is_exact is False


def version_of(model: str | None) -> Any:
    """Return an empty version whose last response came from `model`."""

    class Empty:
        id = 'v'
        usage = RunUsage()

        def __init__(self) -> None:
            self.model = model

        async def messages(self) -> list[Any]:
            return []

        async def request_parameters(self) -> None:
            return None

    return Empty()
