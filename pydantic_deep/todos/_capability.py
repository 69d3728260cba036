"""What the agent plugs in: the todo list as one capability, for any pydantic-ai agent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pydantic_ai import AgentToolset, ModelRequestContext, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelMessage

from pydantic_deep._messages.headings import TODOS_HEADING
from pydantic_deep._messages.notice import Notice
from pydantic_deep._messages.summary_metadata import CarriedOver
from pydantic_deep._toolsets.run_toolset import RunToolset

from ._history import ROOM_ID, carried_over, last_known, last_written
from ._render import render_todos
from ._toolset import TodoList, function_toolset
from ._types import HasTodos, Todo

INSTRUCTIONS = 'For work of three or more steps, plan with write_todos; keep one todo in_progress and update as you go.'


@dataclass(kw_only=True)
class Todos(AbstractCapability[object]):
    """A plan that the model keeps: one list of todos, replaced by `write_todos`.

    The list is `deps.todos` where deps have that attribute, and lives as long as deps. Else it is read back from
    the message history, and lives as long as the conversation: `Agent(model, capabilities=[Todos()])`.
    The model knows what it has written itself. When somebody else changes the list, the new one is appended to the
    conversation, so the prefix that a provider has cached stays as it is.
    """

    id: str | None = ROOM_ID
    instructions: str = INSTRUCTIONS
    """What the model is told about planning."""
    _notice: Notice = field(default_factory=lambda: Notice(heading=TODOS_HEADING, known=''), init=False, repr=False)
    _list: TodoList = field(default_factory=lambda: TodoList([], _nothing), init=False, repr=False)

    async def for_run(self, ctx: RunContext[object]) -> Todos:
        """Return this run's instance, which knows what the history says of the list."""
        run = replace(self)
        run._notice = Notice(heading=TODOS_HEADING, known=last_known(ctx.messages))
        if not isinstance(ctx.deps, HasTodos):
            run._list = run._watched(last_written(ctx.messages))
        return run

    def get_instructions(self) -> str:
        """Return what the model is told about planning."""
        return self.instructions

    def get_toolset(self) -> AgentToolset[object]:
        """Return the toolset with `write_todos`."""
        return RunToolset(function_toolset(), self._list_of)

    async def before_model_request(
        self, ctx: RunContext[object], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Tell the model of a list that it has not written itself."""
        self._notice.tell(ctx, render_todos(self._list.todos))
        return request_context

    def carry_over(self, ctx: RunContext[object], replaced: Sequence[ModelMessage]) -> CarriedOver:
        """Return the list: a summary takes the place of the calls that wrote it."""
        return carried_over(self._list_of(ctx).todos)

    def _list_of(self, ctx: RunContext[object]) -> TodoList:
        """Return the list of this run: that of the deps which its tools see, if they have one."""
        todos = getattr(ctx.deps, 'todos', None)  # `HasTodos`; `isinstance` of a protocol costs every step
        if todos is not None and todos is not self._list.todos:
            self._list = self._watched(todos)
        return self._list

    def _watched(self, todos: list[Todo]) -> TodoList:
        def on_write() -> None:
            self._notice.known = render_todos(todos)

        return TodoList(todos, on_write)


def _nothing() -> None:
    """Stand in the place of a run's `on_write` until there is a run."""
