"""The prompt of `--approvals=ask`, one for each pending call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from pydantic import JsonValue
from pydantic_ai import RunCancelled
from rich.text import Text

from pydantic_deep._messages.form_fields import FormField, read_answer
from pydantic_deep._text.escapes import visible
from pydantic_deep.approvals import Approve, Decision, Deny, Edit, PendingApproval, Preview, Respond
from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.render._terminal_text import rich_text
from pydantic_deep.cli.terminal._editor import EditingFailedError, NoEditorError, edit_text
from pydantic_deep.cli.terminal._terminal import Terminal
from pydantic_deep.streaming import Approval, approval_of
from pydantic_deep.views import Repeat, repeat_of

from ._call_view import CallView
from ._policy import NO_TERMINAL_NOTICE, NO_TERMINAL_REASON, CallAnswer, deny_all
from ._yaml_arguments import InvalidArgumentsError, parse_arguments, parse_json, render_arguments

Choice: TypeAlias = Literal['yes', 'no', 'edit', 'always', 'respond', 'json', '?']
"""The choices of a prompt. Each can be shortened to its first letter."""

HELP: Mapping[Choice, str] = {
    'yes': 'the call runs as shown',
    'no': 'the call does not run; the model gets the reason if you give one',
    'edit': 'change the arguments first, in the editor that VISUAL or EDITOR names',
    'always': 'yes, and do not ask again until the conversation ends or pauses, subagents included',
    'respond': 'the call does not run; the model gets your text as its result',
    'json': 'the call does not run; the model gets your JSON as its result',
    '?': 'show this help',
}
"""The help text of each choice. Ctrl-C stops the turn, and no pending call runs."""


DECLINED_REASON = 'The user declined to answer.'
"""The tool result for a question that the user did not answer."""


@dataclass(frozen=True, kw_only=True)
class PromptScreen:
    """The screen of a running turn, as far as prompts use it."""

    suspended: Callable[[], AbstractContextManager[object]]
    """Pauses the live display and the handling of Ctrl-C while a prompt is open."""
    notify: Callable[[str], None]
    """Prints a notice above the live display."""


@dataclass(kw_only=True)
class ApprovalPrompter:
    """Prompts at the terminal, and remembers the answers `always` of one conversation."""

    environment: Environment
    _always_allowed: set[Repeat] = field(default_factory=set[Repeat])
    _is_notified: bool = False

    async def decide(self, pending: Sequence[PendingApproval], *, screen: PromptScreen) -> Mapping[str, CallAnswer]:
        """Prompt for a decision about each call, or deny all if there is no terminal.

        Raises:
            RunCancelled: The user interrupted a prompt.
        """
        with self.environment.open_terminal() as terminal:
            if terminal is None:
                return await self._deny(pending, screen)
            with screen.suspended():
                return await self._ask_all([approval_of(call) for call in pending], pending, terminal)

    def reset(self) -> None:
        """Forget the answers `always`. Call this when a new conversation starts."""
        self._always_allowed.clear()

    async def _deny(self, pending: Sequence[PendingApproval], screen: PromptScreen) -> Mapping[str, CallAnswer]:
        if not self._is_notified:
            self._is_notified = True
            screen.notify(NO_TERMINAL_NOTICE)
        return await deny_all(pending, NO_TERMINAL_REASON)

    async def _ask_all(
        self, approvals: Sequence[Approval], pending: Sequence[PendingApproval], terminal: Terminal
    ) -> Mapping[str, CallAnswer]:
        answers: dict[str, CallAnswer] = {}
        always = set(self._always_allowed)
        for number, (approval, call) in enumerate(zip(approvals, pending, strict=True), start=1):
            repeat = repeat_of(approval.tool, approval.args, approval.view)
            if repeat in always and 'approve' in call.decisions:
                decision: Decision = Approve()
            else:
                question = CallView(view=approval.view, number=number, count=len(approvals))
                prompt = _CallPrompt(question, approval, call, repeat, terminal, self.environment.variables)
                decision = await _cancel_on_interrupt(prompt.ask())
                if repeat is not None and prompt.is_always:
                    always.add(repeat)
            answers[call.id] = CallAnswer(decision=replace(decision, digest=approval.view.digest), by='person')
        self._always_allowed = always  # only now, because an interrupted prompt voids all answers
        return answers


class _CallPrompt:
    """The prompt for one call, which repeats until there is a decision."""

    def __init__(
        self,
        question: CallView,
        approval: Approval,
        call: PendingApproval,
        repeat: Repeat | None,
        terminal: Terminal,
        variables: Mapping[str, str],
    ) -> None:
        self.is_always = False
        self._approval = approval
        self._repeat = repeat
        self._preview = call.preview
        self._question = question
        self._terminal = terminal
        self._variables = variables
        can_approve = 'approve' in call.decisions
        self._keys: list[Choice] = [
            *(('yes',) if can_approve else ()),
            *(('no',) if 'deny' in call.decisions else ()),
            *(('edit',) if 'edit' in call.decisions else ()),
            *(('always',) if can_approve and repeat is not None else ()),
            *(('respond', 'json') if 'respond' in call.decisions and not can_approve else ()),
            '?',
        ]
        self._draft = render_arguments(self._approval.args)

    async def ask(self) -> Decision:
        """Show the call, and prompt until there is a decision."""
        self._terminal.console.print('\n', self._question.title, sep='')
        self._terminal.console.print(self._question, end='')
        if self._preview is not None and self._preview.kind == 'question':
            return await self._answer(self._preview)
        while True:
            self._print(_choice_line(self._keys, self._approval, self._repeat))
            match self._key(await self._terminal.ask('> ')):
                case 'yes':
                    return Approve()
                case 'always':
                    self.is_always = True
                    return Approve()
                case 'no':
                    reason = ' '.join((await self._terminal.ask('Why? (Enter for no reason) ')).split())
                    return Deny.because(reason)
                case 'respond':
                    return Respond(await self._terminal.ask('Result: '))
                case 'json':
                    return Respond(await self._json_result())
                case 'edit':
                    edited = await self._edit()
                    if edited is not None:
                        return Edit(edited)
                case _:
                    self._help()

    async def _json_result(self) -> JsonValue:
        """Prompt for the result of a call, again if it is not JSON."""
        while True:
            try:
                return parse_json(await self._terminal.ask('Result as JSON: '))
            except InvalidArgumentsError as error:
                self._print(Text(visible(str(error)), 'yellow'))

    async def _answer(self, preview: Preview) -> Decision:
        """Prompt for the answer to a question, again if it does not fit the form of the question."""
        if len(preview.fields) > 1:
            return await self._fill_in(preview.fields)
        choices = preview.choices
        number = f'A number from 1 to {len(choices)}, or your' if choices else 'Your'
        while True:
            self._print(Text(f'{number} answer; Enter alone declines.', 'dim'))
            typed = (await self._terminal.ask('> ')).strip()
            if not typed:
                return Deny(DECLINED_REASON)
            answer = _chosen(typed, choices)
            if not preview.has_form or self._read(preview.fields, answer) is not None:
                return Respond(answer)

    async def _fill_in(self, fields: Sequence[FormField]) -> Decision:
        """Prompt for the value of each field."""
        self._print(
            Text('Enter alone skips a field that has a default or is optional, and declines at any other.', 'dim')
        )
        values: dict[str, JsonValue] = {}
        for each in fields:
            while True:
                typed = (await self._terminal.ask(f'{visible(each.label, one_line=True)}: ')).strip()
                if not typed and each.is_required and each.default is None:
                    return Deny(DECLINED_REASON)
                # The choices have no numbers here, so a number may be one of them.
                is_choice = typed in each.shown_choices
                value = self._read([each], {each.name: typed if is_choice else _chosen(typed, each.shown_choices)})
                if value is not None:
                    values |= value
                    break
        return Respond(values)

    def _read(self, fields: Sequence[FormField], answer: JsonValue) -> dict[str, JsonValue] | None:
        """Return the values of an answer. Print a message and return `None` if they do not fit."""
        try:
            return read_answer(fields, answer)
        except ValueError as error:
            self._print(Text(visible(str(error)), 'yellow'))
            return None

    def _key(self, typed: str) -> Choice | None:
        """Return the choice for an input; `None` if it is not available."""
        word = typed.strip().casefold()
        return next((key for key in self._keys if word in (key, key[0])), None)

    async def _edit(self) -> dict[str, JsonValue] | None:
        """Return the edited arguments. Print a message and return `None` if they are invalid or unchanged."""
        try:
            text = await self._edit_text()
        except EditingFailedError as error:
            self._print(Text(visible(str(error)), 'yellow'))
            return None
        try:
            args = parse_arguments(text)
        except InvalidArgumentsError as error:
            self._draft = text
            self._print(Text(f'{visible(str(error))} Press e to edit it again.', 'yellow'))
            return None
        if args == self._approval.args:
            self._print(Text('Nothing was changed.', 'yellow'))
            return None
        return args

    async def _edit_text(self) -> str:
        try:
            return await edit_text(
                self._draft, name='arguments.yaml', terminal=self._terminal, variables=self._variables
            )
        except NoEditorError as error:
            self._print(
                Text(f'{visible(str(error))} Edit the arguments here; Escape, then Enter ends the input.', 'yellow')
            )
            return await self._terminal.ask('', default=self._draft, multiline=True)

    def _help(self) -> None:
        for key in self._keys:
            self._print(Text.assemble((f'{key:8}', 'bold'), HELP[key]))
        self._print(Text('Ctrl-C stops the turn; no pending call has run.'))

    def _print(self, text: Text) -> None:
        self._terminal.console.print(text)


async def _cancel_on_interrupt(decision: Awaitable[Decision]) -> Decision:
    try:
        return await decision
    except (KeyboardInterrupt, EOFError) as error:
        raise RunCancelled('The person stopped the turn at a question.') from error


def _chosen(typed: str, choices: Sequence[str]) -> str:
    """Return the choice with a number, or what was typed."""
    is_number = typed.isascii() and typed.isdigit() and 0 < int(typed) <= len(choices)
    return choices[int(typed) - 1] if is_number else typed


def _choice_line(keys: Sequence[Choice], approval: Approval, repeat: Repeat | None) -> Text:
    """Return the line of choices, with the scope of `always` for this call."""
    always = rich_text(approval.view.tool)
    if repeat is not None and repeat.kind != 'tool':
        always = Text(f'this very {repeat.kind}')
    words = {'always': Text.assemble('lways ', always, ' in this conversation'), '?': ''}
    return Text('  ').join(Text.assemble('[', (key[0], 'bold'), ']', words.get(key, key[1:])) for key in keys)
