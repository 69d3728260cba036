"""The todo list as a capability for any pydantic-ai agent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pydantic_ai import AgentToolset, ModelRequestContext, RunContext
from pydantic_ai.messages import ModelMessage

from pydantic_deep._capabilities.base import BaseCapability
from pydantic_deep._messages.headings import TODOS_HEADING
from pydantic_deep._messages.notice import Notice
from pydantic_deep._messages.summary_metadata import CarriedOver
from pydantic_deep._toolsets.run_toolset import RunToolset

from ._history import ROOM_ID, carried_over, last_known, last_written
from ._render import render_todos
from ._toolset import TodoList, function_toolset
from ._types import HasTodos, Todo

INSTRUCTIONS = 'Do work of one or two steps directly with the file tools. For more, plan with write_todos first.'


@dataclass(kw_only=True)
class Todos(BaseCapability[object]):
    """A todo list that the model replaces with the tool `write_todos`.

    If deps have an attribute `todos`, that list is used, and lives as long as the deps. Otherwise the list is read from
    the message history and lives as long as the conversation: `Agent(model, capabilities=[Todos()])`. When anything
    else changes the list, the new list is appended to the conversation. Earlier messages remain unchanged, and so does
    the prefix that a provider has cached.
    """

    id: str | None = ROOM_ID
    instructions: str = INSTRUCTIONS
    """The instructions to the model about planning."""
    _notice: Notice = field(default_factory=lambda: Notice(heading=TODOS_HEADING, known=''), init=False, repr=False)
    _list: TodoList = field(default_factory=lambda: TodoList([], _nothing), init=False, repr=False)

    async def for_run(self, ctx: RunContext[object]) -> Todos:
        """Return an instance for this run, with the list as the history describes it."""
        run = replace(self)
        run._notice = Notice(heading=TODOS_HEADING, known=last_known(ctx.messages))
        if not isinstance(ctx.deps, HasTodos):
            run._list = run._watched(last_written(ctx.messages))
        return run

    def get_instructions(self) -> str:
        """Return the instructions about planning."""
        return self.instructions

    def get_toolset(self) -> AgentToolset[object]:
        """Return the toolset with `write_todos`."""
        return RunToolset(function_toolset(), self._list_of)

    async def before_model_request(
        self, ctx: RunContext[object], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Notify the model if the list was changed by anything but its own calls."""
        self._notice.enqueue(ctx, render_todos(self._list.todos))
        return request_context

    def carry_over(self, ctx: RunContext[object], replaced: Sequence[ModelMessage]) -> CarriedOver:
        """Return the list, as a summary may replace the calls that wrote it."""
        return carried_over(self._list_of(ctx).todos)

    def _list_of(self, ctx: RunContext[object]) -> TodoList:
        """Return the list of this run: that of its deps if they have one."""
        todos = getattr(ctx.deps, 'todos', None)  # `HasTodos`, but `isinstance` with a protocol is slow
        if todos is not None and todos is not self._list.todos:
            self._list = self._watched(todos)
        return self._list

    def _watched(self, todos: list[Todo]) -> TodoList:
        def on_write() -> None:
            self._notice.known = render_todos(todos)

        return TodoList(todos, on_write)


def _nothing() -> None:
    """Default for `on_write` until a run starts."""
