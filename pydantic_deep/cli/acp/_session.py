"""One session of an editor: a chat whose input are prompts of the editor, and whose output are updates for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from io import StringIO
from typing import Any, Final, TypeVar, cast

import anyio
from acp import helpers
from acp.schema import (
    AvailableCommand,
    AvailableCommandInput,
    SessionMode,
    SessionModeState,
    StopReason,
    ToolCallProgress,
    ToolCallStart,
    UnstructuredCommandInput,
)
from anyio.abc import TaskStatus
from pydantic_ai import RunCancelled, UserError
from pydantic_ai.messages import BinaryContent, ModelRequest, UserPromptPart
from rich.console import Console

from pydantic_deep._messages.form_fields import read_answer
from pydantic_deep.approvals import Approve, Decision, PendingApproval, Respond
from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.approvals._policy import CallAnswer
from pydantic_deep.cli.approvals._prompter import ApprovalPrompter
from pydantic_deep.cli.chat._conversation_verbs import CONVERSATION_VERBS
from pydantic_deep.cli.chat._session import ChatScreen, ChatSession
from pydantic_deep.cli.chat._verbs import VerbTable, split_command
from pydantic_deep.cli.chat._version_verbs import VERSION_VERBS
from pydantic_deep.cli.render._event_lines import WORKED_ON_COPY
from pydantic_deep.cli.render._ids import short_id
from pydantic_deep.cli.turn._agent_start import describe_missing
from pydantic_deep.cli.turn._conversation import Conversation
from pydantic_deep.cli.turn._runner import TurnObserver, TurnReport, recover_turn, resume_turn
from pydantic_deep.cli.turn._turn_presenter import Work
from pydantic_deep.errors import DeepAgentError, ValidationError
from pydantic_deep.plan_mode import has_plan_mode, is_planning
from pydantic_deep.streaming import EndEvent, ErrorEvent, StreamEvent, ToolResultEvent, approval_of
from pydantic_deep.versions import SuspendedRun
from pydantic_deep.views import Repeat, repeat_of

from ._cancellation import Cancellation
from ._client import FAILURES, Client, describe_refusal
from ._permissions import InvalidPermissionError, PermissionRequest, permission_request
from ._prompts import EditorPrompt
from ._updates import Places, Update, UpdateTranslator, fenced

T = TypeVar('T')

WIDTH: Final = 100
"""The number of columns of tables and graphs that commands print."""

VERBS: Final = VerbTable((*VERSION_VERBS, *CONVERSATION_VERBS))
"""The commands of a session. Those of the chat about itself, such as `/new` and `/quit`, are functions of an editor."""

ASK: Final = SessionMode(id='ask', name='Ask', description='Asks before it changes files or runs commands.')
PLAN: Final = SessionMode(id='plan', name='Plan', description='Changes nothing until you accept a plan.')
AUTO: Final = SessionMode(id='auto', name='Auto', description='Changes files and runs commands without asking.')

ANSWER_NEXT: Final = 'Write the answer as your next message.\n\n'
"""The message while a question is pending."""

AUTO_WITH_TERMINAL: Final = 'Changes files without asking, and asks before it runs commands.'
"""The description of `AUTO` if commands are not isolated."""


class SessionError(DeepAgentError):
    """A session cannot do what the editor asks now."""


class TurnFailedError(DeepAgentError):
    """A turn failed. The message is that of its error event."""


class EditorSession(ChatSession):
    """A session. `serve` runs as long as it is open, and `answer` handles one prompt at a time."""

    def __init__(
        self,
        id: str,
        conversation: Conversation,
        environment: Environment,
        client: Client,
        *,
        has_terminal: bool = False,
    ) -> None:
        """Create a session.

        Args:
            id: The id for the editor.
            conversation: The agent, its directory, and the version to continue.
            environment: Models and variables.
            client: The editor.
            has_terminal: Whether commands run in the editor without isolation, so that every mode asks before them.
        """
        self._printed = StringIO()
        screen = ChatScreen(
            console=Console(file=self._printed, width=WIDTH, color_system=None),
            read_line=_read_nothing,
            ask=_read_nothing,
            prints_answers=False,
        )
        prompter = ApprovalPrompter(environment=environment)
        super().__init__(conversation, environment, screen, VERBS, prompter, lambda screen: self._decide)
        self.id = id
        self.mode = ASK.id
        """The id of the mode."""
        self._client = client
        self._has_terminal = has_terminal
        self._outbox, self._inbox = anyio.create_memory_object_stream[Update | anyio.Event](float('inf'))
        self._translator = UpdateTranslator(places=Places(directory=conversation.settings.directory))
        self._always_allowed: set[Repeat] = set()
        self._images: Sequence[BinaryContent] = ()
        self._commands: dict[str, object] = {}
        self._question: PendingApproval | None = None
        self._given: dict[str, CallAnswer] = {}
        self._cancellation: Cancellation | None = None
        self._idle = anyio.Event()
        self._idle.set()
        self._report: TurnReport | None = None

    @property
    def modes(self) -> SessionModeState:
        """The modes, and the current one."""
        has_plan = self.conversation.settings.plan_mode or has_plan_mode(self.runtime.agent)
        auto = AUTO.model_copy(update={'description': AUTO_WITH_TERMINAL}) if self._has_terminal else AUTO
        available = [ASK, *([PLAN] if has_plan else []), auto]
        return SessionModeState(current_mode_id=self.mode, available_modes=available)

    async def serve(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Keep the agent and its MCP servers open, and send updates in their order, until `close`."""
        async with self.runtime.agent, self._inbox:
            working_dir = await self.runtime.backend.working_dir()
            self._translator = UpdateTranslator(places=replace(self._translator.places, working_dir=working_dir))
            task_status.started()
            async for item in self._inbox:
                if isinstance(item, anyio.Event):
                    item.set()
                else:
                    with suppress(ConnectionError):  # the editor has gone; the turn ends by itself
                        await self._client.session_update(self.id, item)

    async def close(self) -> None:
        """Stop the prompt that is being handled, wait for its end, and end `serve`."""
        self.cancel()
        await self._idle.wait()
        self._outbox.close()

    def cancel(self) -> None:
        """Stop the prompt that is being handled, if any. Its completed steps remain in a version."""
        if self._cancellation is not None:
            self._cancellation.cancel()

    def set_mode(self, mode: str) -> None:
        """Use a mode from the next call or prompt on.

        Raises:
            ValidationError: There is no such mode.
        """
        known = [available.id for available in self.modes.available_modes]
        if mode not in known:
            raise ValidationError('mode_id', f'There is no mode {mode!r}. Choose one of: {", ".join(known)}.')
        self.mode = mode

    async def commands(self) -> list[AvailableCommand]:
        """Return the verbs and skills, as the editor offers them after a slash."""
        verbs = [(verb.name, verb.summary, verb.arguments) for verb in self.verbs.listed]
        skills = [(name, text, 'PROMPT…') for name, text in (await self._skills()).items() if not self.verbs.find(name)]
        return [
            AvailableCommand(
                name=name,
                description=text,
                input=AvailableCommandInput(UnstructuredCommandInput(hint=hint)) if hint else None,
            )
            for name, text, hint in [*verbs, *skills]
        ]

    async def announce(self) -> None:
        """Send the commands and what the agent is missing, after the response to the request that is being handled."""
        commands, missing = await self.commands(), await describe_missing(self.runtime)
        # No await from here on: the updates would be sent before the response, when the editor does not know the session.
        self._emit([helpers.update_available_commands(commands)])
        self._emit([helpers.update_agent_message_text(f'{sentence}\n\n') for sentence in missing])

    async def restore_mode(self) -> None:
        """Use the mode in which the conversation is: the first prompt would end its plan mode otherwise."""
        tip = self.conversation.tip
        if tip is not None and PLAN in self.modes.available_modes and is_planning(await tip.messages()):
            self.mode = PLAN.id

    async def replay(self, suspended: SuspendedRun | None = None) -> None:
        """Send the whole conversation to the editor, with the prompt of the suspended run that continues it."""
        if self.conversation.tip is not None:
            messages = await self.conversation.tip.messages()
            if suspended is not None and suspended.prompt is not None:
                messages = [*messages, ModelRequest([UserPromptPart(suspended.prompt)])]
            self._emit(self._translator.history(messages, self.runtime.deps.todos))
        await self._flush()

    async def restore_pending(self) -> None:
        """Show that calls of a loaded session are pending. The next prompt answers a question among them; without one, it
        continues the session without these calls.
        """
        pending = [] if self.conversation.tip is None else self.conversation.tip.pending
        self._emit(helpers.update_tool_call(call.id, status='pending') for call in pending)
        self._question = next((call for call in pending if 'approve' not in call.decisions), None)
        if self._question is not None:
            self._emit([helpers.update_agent_message_text(ANSWER_NEXT)])
        await self._flush()

    async def answer(self, prompt: EditorPrompt) -> StopReason:
        """Run a turn or a command, and return the reason for its end. All its updates are sent then.

        Raises:
            SessionError: Another prompt is being handled.
            TurnFailedError: The turn failed.
        """
        return await self._perform(partial(self._handle_prompt, prompt))

    async def finish(self, run_id: str) -> None:
        """Finish the turn of a crashed process, as far as it succeeds: a failure is shown, and the session continues.

        Args:
            run_id: The run of the turn.
        """
        try:
            await self._perform(partial(self.present, partial(recover_turn, self.conversation, run_id)))
        except TurnFailedError as error:
            self.warn(str(error))
            self._emit_printed()
            await self._flush()

    async def _perform(self, work: Callable[[], Awaitable[None]]) -> StopReason:
        if self._cancellation is not None:
            raise SessionError('The session is handling a prompt. Cancel it, or wait for its end.')
        self._cancellation, self._idle, self._report = Cancellation(), anyio.Event(), None
        try:
            await work()
            return self._stop_reason()
        except RunCancelled:
            return 'cancelled'
        finally:
            self._emit_printed()
            await self._flush()
            self._cancellation = None
            self._idle.set()

    async def prompt(self, text: str, *, plan: bool | None = None) -> None:
        """Run a turn with the prompt of a command, and the images beside it. Files are attached by the editor."""
        images, self._images = self._images, ()
        await self.send(text, images, plan=plan)

    async def send(self, text: str, images: Sequence[BinaryContent] = (), *, plan: bool | None = None) -> None:
        """Run a turn in the mode of the session, which `/plan` switches, or answer the pending question."""
        question, self._question = self._question, None
        tip = self.conversation.tip
        if question is not None and tip is not None and question.id in [call.id for call in tip.pending]:
            if images:
                self.warn('An answer to a question is a text. The images were not sent.')
            if not text:
                self._question = question
                return
            if question.preview is not None and question.preview.has_form:
                try:
                    read_answer(question.preview.fields, text)
                except ValueError as error:
                    self._question = question
                    self.warn(f'{error} Write the answer as your next message.')
                    return
            self._given[question.id] = CallAnswer(decision=Respond(text, digest=question.digest), by='person')
            await self.present(partial(resume_turn, self.conversation, text))
            return
        self._given = {}
        if tip is not None:  # the turn continues without them
            self._emit(helpers.update_tool_call(call.id, status='failed') for call in tip.pending)
        if plan:
            self._switch_mode(PLAN.id)
        elif PLAN in self.modes.available_modes:
            plan = self.mode == PLAN.id
            text = text or 'See the image.'  # a text carries the mode
        await super().send(text, images, plan=plan)

    async def present(self, work: Work) -> None:
        """Run a turn, and send its events to the editor."""
        self._emit_printed()
        observer = TurnObserver(show=self._show, decide=self._decide)
        self._report = await work(stop=self._current.token, observer=observer)

    async def interruptible(self, work: Coroutine[Any, Any, T]) -> T:
        """Await something that the editor can cancel.

        Raises:
            RunCancelled: The editor cancelled it.
        """
        results: list[T] = []
        with self._current.stops():
            results.append(await work)
        return results[0]

    @property
    def _current(self) -> Cancellation:
        assert self._cancellation is not None  # noqa: S101 - only `answer` runs turns and verbs
        return self._cancellation

    async def _handle_prompt(self, prompt: EditorPrompt) -> None:
        name, _ = split_command(prompt.text)
        if self.verbs.find(name) is None and name not in await self._skills():
            await self.send(prompt.text, prompt.images)
            return
        self._images = prompt.images
        try:
            await self.run_verb(prompt.text)
        except DeepAgentError as error:
            self.warn(str(error))
        if self._images:
            self.warn('The command has run no prompt, so the images were not sent.')

    async def _skills(self) -> dict[str, str]:
        """Return the descriptions of the skills by name. `/skills` reports an invalid directory."""
        try:
            catalog = await self.runtime.skills.catalog()
        except UserError:
            return {}
        return {name: skill.description for name, skill in catalog.skills.items()}

    async def _decide(self, pending: Sequence[PendingApproval]) -> Mapping[str, CallAnswer] | None:
        """Ask the person about each call, in their order, unless the mode or an earlier answer decides it.

        Returns:
            The answers. `None` if the next prompt answers a question: all calls stay pending until then.

        Raises:
            RunCancelled: The editor cancelled the turn. No call has run.
        """
        given, self._given = self._given, {}
        answers = {call.id: given[call.id] for call in pending if call.id in given}
        always = set(self._always_allowed)
        for call in [call for call in pending if call.id not in answers]:
            approval = approval_of(call)
            is_auto = self.mode == AUTO.id and not (approval.tool == 'execute' and self._has_terminal)
            repeat = repeat_of(approval.tool, approval.args, approval.view)
            if 'approve' in call.decisions and (is_auto or repeat in always):
                by = 'option' if is_auto else 'person'
                answers[call.id] = CallAnswer(decision=Approve(digest=call.digest), by=by)
                continue
            decision, is_always = await self._ask(permission_request(call, self._translator.places))
            if decision is None:
                self._question, self._given = call, answers
                self._emit([helpers.update_agent_message_text(ANSWER_NEXT)])
                return None
            answers[call.id] = CallAnswer(decision=decision, by='person')
            if is_always and repeat is not None:
                always.add(repeat)
        self._always_allowed = always  # only now, because a cancelled request voids all answers
        return answers

    async def _ask(self, request: PermissionRequest) -> tuple[Decision | None, bool]:
        """Return the decision of the person, `None` for a text that follows, and whether it applies to later calls.

        Raises:
            InvalidPermissionError: The editor did not ask, or answered with another option.
            RunCancelled: The editor cancelled the turn, or closed the connection.
        """
        await self._flush()
        try:
            with self._current.stops():
                response = await self._client.request_permission(self.id, request.tool_call, request.options)
        except ConnectionError:
            raise RunCancelled('The editor closed the connection.') from None
        except FAILURES as error:
            raise InvalidPermissionError(f'The editor did not ask for permission: {describe_refusal(error)}') from error
        decided = request.decision(response)
        if decided is None:
            raise RunCancelled('The editor cancelled the turn.')
        return decided

    def _show(self, event: StreamEvent) -> None:
        self._emit(self._translator.updates(event))
        if isinstance(event, ToolResultEvent) and event.name == 'propose_plan' and event.outcome == 'success':
            self._switch_mode(ASK.id)

    def _switch_mode(self, mode: str) -> None:
        if self.mode != mode:
            self.set_mode(mode)
            self._emit([helpers.update_current_mode(mode)])

    def _stop_reason(self) -> StopReason:
        """Return the reason for the end of the prompt.

        Raises:
            TurnFailedError: The turn failed.
        """
        if self._report is None:  # a command that runs no turn
            return 'end_turn'
        end, error = self._report.end, self._report.error
        workspace = end.workspace
        if workspace is not None and not workspace.is_in_directory and end.version_id is not None:
            self.warn(f'{WORKED_ON_COPY} /rewind {short_id(end.version_id)}')
        # The protocol requires this reason for a cancelled prompt, whatever its abort raises.
        reason = stop_reason(end, error) or ('cancelled' if self._current.token.cancelled else None)
        if error is not None and reason != 'cancelled':
            if reason is None:
                raise TurnFailedError(error.message)
            self.warn(error.message)
        return reason or 'end_turn'

    def _emit_printed(self) -> None:
        """Send what a verb has printed: a sentence as it is, and several lines as a block."""
        text = self._printed.getvalue().rstrip()
        self._printed.seek(0)
        self._printed.truncate()
        if text:
            shown = fenced(text) if '\n' in text else text
            self._emit([helpers.update_agent_message_text(f'{shown}\n\n')])

    def show_terminal(self, command: str, terminal_id: str) -> None:
        """Add a terminal to the call that runs a command, so that the editor can show its output as it comes."""
        id = next((id for id, waiting in self._commands.items() if waiting == command), None)
        if id is not None:
            del self._commands[id]  # another call may run the same command
            self._emit([helpers.update_tool_call(id, content=[helpers.tool_terminal_ref(terminal_id)])])

    def _emit(self, updates: Iterable[Update]) -> None:
        for update in updates:
            match update:
                case ToolCallStart(kind='execute'):
                    args = cast('Mapping[str, object]', update.raw_input or {})
                    self._commands[update.tool_call_id] = args.get('command')
                case ToolCallProgress(status='completed' | 'failed'):
                    self._commands.pop(update.tool_call_id, None)
                case _:
                    pass
            self._outbox.send_nowait(update)

    async def _flush(self) -> None:
        """Wait until all updates are sent."""
        sent = anyio.Event()
        self._outbox.send_nowait(sent)
        await sent.wait()


def stop_reason(end: EndEvent, error: ErrorEvent | None) -> StopReason | None:
    """Return the reason for the end of a turn; `None` for a failure."""
    if end.status == 'interrupted':
        return 'cancelled'
    if error is not None:
        reasons: dict[str, StopReason] = {'budget_exceeded': 'max_tokens', 'limit_exceeded': 'max_turn_requests'}
        return reasons.get(error.kind)
    finished: dict[str, StopReason] = {'length': 'max_tokens', 'content_filter': 'refusal'}
    return finished.get(end.finish_reason, 'end_turn')


async def _read_nothing(message: str) -> str:
    raise EOFError
