"""`AgentHandler`: the operations of A2A for one agent and one caller, as `a2a-sdk` defines them."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from datetime import UTC
from functools import partial
from typing import Any, NoReturn

from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    Role,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
)
from a2a.utils.constants import DEFAULT_LIST_TASKS_PAGE_SIZE
from a2a.utils.errors import (
    A2AError,
    ExtendedAgentCardNotConfiguredError,
    InternalError,
    InvalidParamsError,
    InvalidRequestError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from a2a.utils.task import (
    HistoryLengthConfig,
    apply_history_length,
    validate_history_length,
    validate_page_size,
)
from typing_extensions import override

from pydantic_deep._checks import check_prompt
from pydantic_deep.server._run_start import start_run
from pydantic_deep.server._turn_task import TurnTask, changed_at, find_first_run, load_task
from pydantic_deep.server.access._ownership import Access
from pydantic_deep.server.compat._dialogue import prompt_of
from pydantic_deep.server.compat._linked_files import fetch_content
from pydantic_deep.server.http._errors import FAILED, ErrorType, ServerError, not_found, refusal_of
from pydantic_deep.server.routes import _turns
from pydantic_deep.server.runs._repetitions import RequestIdentity
from pydantic_deep.server.runs._server_run import ServerRun
from pydantic_deep.versions import TurnOptions

from ._history import load_history
from ._messages import is_resumption, parse_answers, prompt_content
from ._tasks import STATES, to_proto
from ._updates import Update, follow_task

_LOGGER = logging.getLogger('pydantic_deep')

MAX_RUNS = 1000
"""The number of runs, newest first, whose tasks are listed: each is looked up for the number of tasks."""

_ERRORS: Mapping[ErrorType, type[A2AError]] = {
    'not_found': TaskNotFoundError,
    'invalid': InvalidParamsError,
    'conflict': UnsupportedOperationError,  # what it asks for is not possible in this state
    'forbidden': InvalidRequestError,
}
"""The errors for refusals; `InternalError` for others, such as too many runs: the request is right, and may be repeated."""


@contextmanager
def explained() -> Generator[None]:
    """Raise refusals, and defects without their text, as errors of A2A."""
    try:
        yield
    except A2AError:
        raise
    except Exception as error:  # outermost boundary: JSON-RPC has errors of its own
        refusal = refusal_of(error)
        if refusal is None:
            _LOGGER.exception('A request of A2A failed')
            raise InternalError(FAILED) from None
        raise _ERRORS.get(refusal.type, InternalError)(refusal.message, {'type': refusal.type}) from None


class AgentHandler(RequestHandler):
    """The operations of an agent that a caller may use."""

    def __init__(self, access: Access, agent: str) -> None:
        """Create a handler.

        Args:
            access: The access of the caller.
            agent: The name of the agent.
        """
        self._access = access
        self._agent = agent

    @override
    async def on_message_send(self, params: SendMessageRequest, context: ServerCallContext) -> Task:
        with explained():
            task = await self._begin(params)
            runs = self._access.state.runs
            while task.is_active and not (params.configuration.return_immediately or runs.is_stopped):
                local = task.own.local
                await (runs.pause(_turns.POLL_SECONDS) if local is None else local.wait())
                task = await load_task(self._access, task.id, agent=self._agent, run_id=task.run.id)
            return await self._shown(task, params.configuration)

    @override
    async def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Update]:
        with explained():
            task = await self._begin(params)
            first = await self._shown(task, params.configuration)
            async with aclosing(follow_task(self._access, self._agent, task, first)) as updates:
                async for update in updates:
                    yield update

    @override
    async def on_subscribe_to_task(
        self, params: SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Update]:
        with explained():
            task = await self._load(params.id)
            if task.run.state in ('complete', 'failed', 'interrupted'):
                raise UnsupportedOperationError(f'The task {task.id} has ended: {task.run.state}. Get it instead.')
            async with aclosing(follow_task(self._access, self._agent, task, to_proto(task))) as updates:
                async for update in updates:
                    yield update

    @override
    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> Task:
        with explained():
            validate_history_length(params)
            return await self._shown(await self._load(params.id), params)

    @override
    async def on_cancel_task(self, params: CancelTaskRequest, context: ServerCallContext) -> Task:
        with explained():
            task = await self._load(params.id)
            await _turns.cancel_own_run(self._access, task.run.id)
            task = await self._load(params.id)
            if task.run.state == 'awaiting_approval':
                raise TaskNotCancelableError(f'The task {task.id} has stored its pending calls. Deny them instead.')
            if task.run.state != 'interrupted':
                raise TaskNotCancelableError(f'The task {task.id} has ended already: {task.run.state}.')
            return to_proto(task)

    @override
    async def on_list_tasks(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        """List tasks, the last change first: all of a context, otherwise the active and recently ended ones.

        The token of a page is the last task of the page before.
        """
        with explained():
            validate_history_length(params)
            if params.HasField('page_size'):
                validate_page_size(params.page_size)
            limit = params.page_size or DEFAULT_LIST_TASKS_PAGE_SIZE
            runs: Sequence[str] = ()
            with suppress(ServerError):  # a context that does not exist has no tasks
                context_id = params.context_id or None
                runs = await _turns.list_run_ids(self._access, context_id, limit=MAX_RUNS, agent=self._agent)
            newest: dict[str, str] = {}
            for run in runs:
                newest.setdefault(await find_first_run(self._access.state, run), run)
            changed = {id: await changed_at(self._access.state, run) for id, run in newest.items()}
            ids = sorted(newest, key=lambda id: (changed[id], id), reverse=True)
            if params.status or params.HasField('status_timestamp_after'):
                since = params.status_timestamp_after.ToDatetime(tzinfo=UTC)
                tasks = await self._load_all(ids)
                wanted = [task for task in tasks if params.status in (0, STATES[task.run.state])]
                ids = [task.id for task in wanted if task.changed_at >= since]
            if params.page_token and params.page_token not in ids:
                raise ServerError(
                    'invalid', '`pageToken` is not the token of a page of this list. Omit it to start over.'
                )
            start = ids.index(params.page_token) + 1 if params.page_token else 0
            page = ids[start : start + limit]
            tasks = await self._load_all(page)
            return ListTasksResponse(
                tasks=[await self._shown(task, params) if params.history_length else to_proto(task) for task in tasks],
                next_page_token=page[-1] if start + limit < len(ids) else '',
                page_size=limit,
                total_size=len(ids),
            )

    async def _shown(self, task: TurnTask, config: HistoryLengthConfig) -> Task:
        """Return a task with as much of its history as the client wants; all of it by default."""
        shown = to_proto(task)
        if config.history_length or not config.HasField('history_length'):
            shown.history.extend(await load_history(self._access.state.store, task))
        return apply_history_length(shown, config)

    async def _load_all(self, ids: Iterable[str]) -> list[TurnTask]:
        """Return tasks, without those whose conversation was deleted while the log of the run is still cached."""
        tasks: list[TurnTask] = []
        for id in ids:
            with suppress(ServerError):
                tasks.append(await self._load(id))
        return tasks

    async def _refuse_push(self, params: Any, context: ServerCallContext) -> NoReturn:
        raise PushNotificationNotSupportedError('This server sends no push notifications. It has webhooks.')

    on_create_task_push_notification_config = _refuse_push
    on_get_task_push_notification_config = _refuse_push
    on_list_task_push_notification_configs = _refuse_push
    on_delete_task_push_notification_config = _refuse_push

    @override
    async def on_get_extended_agent_card(self, params: object, context: ServerCallContext) -> NoReturn:
        raise ExtendedAgentCardNotConfiguredError('The card of this agent is complete. There is no extended one.')

    async def _load(self, id: str) -> TurnTask:
        return await load_task(self._access, id, agent=self._agent)

    async def _begin(self, params: SendMessageRequest) -> TurnTask:
        """Start the run that a message asks for, or join that of the same message, and return its task."""
        message = params.message
        validate_history_length(params.configuration)
        if params.configuration.HasField('task_push_notification_config'):
            await self._refuse_push(params, ServerCallContext())
        if not message.message_id:
            raise ServerError('invalid', 'The message has no `messageId`. Choose a new one for each message.')
        if message.role != Role.ROLE_USER:
            raise ServerError(
                'invalid', 'The `role` of the message is not `ROLE_USER`. Clients send messages of the user.'
            )
        digest = hashlib.sha256(b'a2a\n' + message.SerializeToString(deterministic=True)).hexdigest()
        identity = RequestIdentity(digest=digest, content=digest, has_key=True)
        if message.task_id and is_resumption(message.parts):
            task = await self._load(message.task_id)
            if task.run.state == 'suspended':
                await _turns.resume_run(task.run.id, self._access)
                return await load_task(self._access, task.id, agent=self._agent, run_id=task.run.id)
        repetitions = self._access.state.repetitions
        run = await repetitions.start(self._access.owner, self._agent, identity, partial(self._start, message))
        return await load_task(self._access, message.task_id or run.id, agent=self._agent, run_id=run.id)

    async def _start(self, message: Message, run_id: str | None) -> ServerRun:
        access = self._access
        if message.task_id:
            return await self._answer(message, run_id)
        own = await access.conversation(message.context_id) if message.context_id else None
        if own is not None and own.record.agent_name != self._agent:
            raise not_found()
        # Before files are fetched and a conversation is created.
        await access.state.runs.check_capacity(access.caller.account)
        prompt = prompt_of(await fetch_content(access.state.settings, prompt_content(message.parts)))
        check_prompt('message', prompt)
        version = await (access.create_conversation(self._agent) if own is None else access.version_in(own))
        return await start_run(access, version, TurnOptions(prompt=prompt, run_id=run_id))

    async def _answer(self, message: Message, run_id: str | None) -> ServerRun:
        """Start the run that resumes a paused task."""
        access, task = self._access, await self._load(message.task_id)
        run = task.run
        if message.context_id not in ('', run.conversation_id):
            raise ServerError(
                'invalid', f'The task {task.id} belongs to the context {run.conversation_id}. Omit `contextId`.'
            )
        if run.state != 'awaiting_approval' or run.version_id is None:
            raise ServerError(
                'conflict',
                f'The task {task.id} has no pending calls: its run is {run.state}. To continue its conversation, send '
                'the message with `contextId` and without `taskId`.',
            )
        if not access.has('approve'):
            raise ServerError('forbidden', 'Answering approvals requires a key with the scope `approve`.')
        given = parse_answers(message.parts, run.approvals)
        version = await access.version(run.version_id)
        options = TurnOptions(answers=given.answers, reason=given.reason, run_id=run_id)
        return await start_run(access, version, options)
