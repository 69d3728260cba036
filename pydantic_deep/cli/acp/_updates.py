"""Events of a turn, and the messages of a conversation, as updates of a session. Pure."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Final, TypeAlias

from acp import helpers
from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    AvailableCommandsUpdate,
    ContentToolCallContent,
    CurrentModeUpdate,
    FileEditToolCallContent,
    ToolCallLocation,
    ToolCallProgress,
    ToolCallStart,
    ToolKind,
    UserMessageChunk,
)
from pydantic import JsonValue
from pydantic_ai.messages import BinaryContent, ModelMessage, ModelRequest, TextContent, UserPromptPart

from pydantic_deep._messages.loaded_skills import typed_prompt
from pydantic_deep.cli.render._event_lines import (
    PLANNING_TOOL,
    main_arguments,
    parse_args,
    render_budget,
    render_retried,
    render_summarized,
)
from pydantic_deep.cli.render._terminal_text import escape_invisible
from pydantic_deep.streaming import (
    ApprovalAnswerEvent,
    ApprovalRequiredEvent,
    BudgetEvent,
    RetriedEvent,
    StreamEvent,
    SummarizedEvent,
    TextEvent,
    ThinkingEvent,
    TodosEvent,
    ToolCallEvent,
    ToolResultEvent,
    project_messages,
)
from pydantic_deep.todos import Todo

Update: TypeAlias = (
    AgentMessageChunk
    | AgentPlanUpdate
    | AgentThoughtChunk
    | AvailableCommandsUpdate
    | CurrentModeUpdate
    | ToolCallProgress
    | ToolCallStart
    | UserMessageChunk
)
"""The content of a `session/update`."""

KINDS: Final[Mapping[str, ToolKind]] = {
    'ls': 'read',
    'read_file': 'read',
    'glob': 'search',
    'grep': 'search',
    'write_file': 'edit',
    'edit_file': 'edit',
    'execute': 'execute',
    'web_search': 'search',
    'web_fetch': 'fetch',
    'task': 'think',
    'propose_plan': 'switch_mode',
}
"""The kinds of our tools, by which editors choose an icon. Other tools, such as those of MCP servers, are `other`."""


@dataclass(frozen=True, kw_only=True)
class Places:
    """Translates paths of the agent to paths of this computer."""

    directory: str
    """The absolute path of the working directory on this computer."""
    working_dir: str = '/'
    """Its path for the agent."""

    def local(self, path: str) -> str | None:
        """Return the path on this computer; `None` for a file that is not in the directory, such as a skill."""
        inside = PurePosixPath(self.working_dir)
        absolute = inside / path
        if not absolute.is_relative_to(inside) or '..' in absolute.parts:
            return None
        return str(PurePosixPath(self.directory) / absolute.relative_to(inside))


@dataclass(frozen=True, kw_only=True)
class UpdateTranslator:
    """Translates the events of a session."""

    places: Places
    """Translates the paths of files."""

    def updates(self, event: StreamEvent) -> Iterator[Update]:
        """Yield the updates for an event. Events without a counterpart in the protocol have none."""
        match event:
            case TextEvent(path=[]):
                yield helpers.update_agent_message_text(event.text)
            case ThinkingEvent(path=[]) if event.text:
                yield helpers.update_agent_thought_text(event.text)
            case ToolCallEvent() if event.name != PLANNING_TOOL:
                yield self._call(event)
            case ApprovalRequiredEvent():
                for pending in event.approvals:
                    yield helpers.update_tool_call(pending.id, status='pending')
            case ApprovalAnswerEvent() if event.decision != 'deny':
                yield helpers.update_tool_call(event.id, status='in_progress')
            case ToolResultEvent() if event.name != PLANNING_TOOL:
                yield self._result(event)
            case TodosEvent():
                yield plan_update(event.todos)
            case RetriedEvent():
                line = f'\n\n{render_retried(event, is_shown=bool(event.void_text)).plain}\n\n'
                is_visible = event.void_text and not event.path
                yield (helpers.update_agent_message_text if is_visible else helpers.update_agent_thought_text)(line)
            case SummarizedEvent():
                yield helpers.update_agent_thought_text(f'\n\n{render_summarized(event).plain}\n\n')
            case BudgetEvent():
                yield helpers.update_agent_thought_text(f'\n\n{render_budget(event).plain}\n\n')
            case _:
                pass

    def history(self, messages: Sequence[ModelMessage], todos: Sequence[Todo]) -> Iterator[Update]:
        """Yield the updates for a conversation: its prompts, answers, thoughts and calls, and the plan.

        Args:
            messages: The messages of the conversation.
            todos: The current plan.
        """
        starts = [place for place, message in enumerate(messages) if _prompts(message)]
        for start, end in pairwise([*starts, len(messages)]):
            for prompt in _prompts(messages[start]):
                yield from _prompt_updates(prompt)
            for event in project_messages(messages[:end], since=start, working_dir=self.places.working_dir):
                if not isinstance(event, TodosEvent):
                    yield from self.updates(event)
        if todos:
            yield plan_update(todos)

    def _call(self, event: ToolCallEvent) -> ToolCallStart:
        args = parse_args(event.args)
        return helpers.start_tool_call(
            event.id,
            call_title(event.path, event.name, args),
            kind=KINDS.get(event.name, 'other'),
            status='in_progress',
            content=self._edits(event.name, args),
            locations=locations(args, self.places),
            raw_input=args,
        )

    def _result(self, event: ToolResultEvent) -> ToolCallProgress:
        is_done = event.outcome == 'success' and not event.exit_code
        status = 'completed' if is_done else 'failed'
        if is_done and KINDS.get(event.name) == 'edit':
            return helpers.update_tool_call(event.id, status=status)  # the editor keeps the diff
        return helpers.update_tool_call(event.id, status=status, content=[text_content(event.content)])

    def _edits(self, name: str, args: Mapping[str, JsonValue]) -> list[FileEditToolCallContent] | None:
        """Return the change that the arguments of a call describe; `None` if they describe none."""
        names = {'write_file': (None, 'content'), 'edit_file': ('old_string', 'new_string')}.get(name)
        path = args.get('path')
        if names is None or not isinstance(path, str):
            return None
        old, new = (None if key is None else args.get(key) for key in names)
        local = self.places.local(path)
        if local is None or not isinstance(new, str):
            return None
        return [helpers.tool_diff_content(local, new, old if isinstance(old, str) else None)]


def call_title(path: Sequence[str], tool: str, args: Mapping[str, JsonValue]) -> str:
    """Return the title of a call on one line: the subagents that lead to it, the tool, and its main arguments."""
    return ' '.join([escape_invisible(' › '.join([*path, tool])), *main_arguments(args)])


def locations(args: Mapping[str, JsonValue], places: Places) -> list[ToolCallLocation] | None:
    """Return the file that a call is about, so that the editor can follow the agent."""
    path, offset = args.get('path'), args.get('offset')
    local = places.local(path) if isinstance(path, str) else None
    if local is None:
        return None
    return [ToolCallLocation(path=local, line=offset if isinstance(offset, int) and offset > 0 else None)]


def plan_update(todos: Sequence[Todo]) -> AgentPlanUpdate:
    """Return the update with the complete plan. Our todos have no priority."""
    return helpers.update_plan([helpers.plan_entry(todo.content, status=todo.status) for todo in todos])


def text_content(text: str) -> ContentToolCallContent:
    """Return a text of a tool as it is: not as Markdown."""
    return helpers.tool_content(helpers.text_block(fenced(text)))


def fenced(text: str) -> str:
    """Return a Markdown code block with a text. Its fence is longer than any that the text contains."""
    longest = max((len(run) for run in re.findall('`+', text)), default=0)
    fence = '`' * max(3, longest + 1)
    return f'{fence}\n{escape_invisible(text.rstrip())}\n{fence}'


def _prompts(message: ModelMessage) -> list[UserPromptPart]:
    """Return the prompts of a person in a message."""
    parts = message.parts if isinstance(message, ModelRequest) else ()
    return [part for part in parts if isinstance(part, UserPromptPart)]


def _prompt_updates(prompt: UserPromptPart) -> Iterator[UserMessageChunk]:
    for item in [prompt.content] if isinstance(prompt.content, str) else prompt.content:
        match item:
            case str() | TextContent():
                yield helpers.update_user_message_text(typed_prompt(item if isinstance(item, str) else item.content))
            case BinaryContent(is_image=True):
                data = base64.b64encode(item.data).decode()
                yield helpers.update_user_message(helpers.image_block(data, item.media_type))
            case _:
                pass
