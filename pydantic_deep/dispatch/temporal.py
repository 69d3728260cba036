"""`TemporalDispatcher`: delivers runs by Temporal. Importing this module requires the extra `temporal`.

A run is an activity with heartbeats, and the runs of a conversation are executed one after another by a workflow. The
workflow contains ids only: prompts, messages and results are in the store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from datetime import timedelta
from typing import Final, Self, TypeVar
from urllib.parse import unquote, urlsplit

import anyio

try:
    from temporalio import activity
    from temporalio.client import Client
    from temporalio.common import WorkflowIDConflictPolicy
    from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
    from temporalio.service import RPCError, RPCStatusCode
    from temporalio.worker import Worker
    from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(
        f'Temporal needs `{_error.name}`, which is not installed. Install the extra: '
        "`pip install 'versioned-deep-agents[temporal]'`.",
        name=_error.name,
    ) from _error

from ._conversation_workflow import ACTIVITY, ConversationWorkflow, SubmittedRun
from ._protocol import DispatcherHealth, ExecuteRun
from .errors import DispatcherUnavailableError

__all__ = ('TemporalDispatcher',)

T = TypeVar('T')

_LOGGER = logging.getLogger('pydantic_deep')

_RPC_TIMEOUT: Final = timedelta(seconds=5)

_RECONNECT_SECONDS: Final = 1.0

_AT_ONCE: Final = timedelta(milliseconds=1)

_BENIGN: Final = ApplicationErrorCategory.BENIGN
"""Temporal does not log these errors, which we have logged or which are none."""

SANDBOX: Final = SandboxedWorkflowRunner(
    restrictions=SandboxRestrictions.default.with_passthrough_modules('pydantic_deep', 'pydantic_ai')
)
"""The modules that importing the workflow imports too, and that it does not use."""


class TemporalDispatcher:
    """A `Dispatcher` on Temporal. Open it with `open_dispatcher(url)`, or create it with a client of your own, for
    example with TLS and an API key.

    Each agent has a task queue, so a worker receives only the runs of its agents. A conversation has a workflow while
    it has runs. A worker that crashed is detected by its missing heartbeat, and its run is executed by another one. A
    worker that has several agents accepts `concurrency` runs of each, and executes that many of all at the same time.

    Args:
        client: The client.
        heartbeat_seconds: The time without a heartbeat after which a run is executed by another worker.
    """

    def __init__(self, client: Client, *, heartbeat_seconds: float = 30) -> None:
        self._client = client
        self._heartbeat_seconds = heartbeat_seconds
        self._name = _name(client.service_client.config.target_host, client.namespace)

    @classmethod
    async def open(cls, url: str, *, heartbeat_seconds: float = 30) -> Self:
        """Connect without TLS.

        Args:
            url: `temporal://host:port/namespace`; the default port is 7233, the default namespace `default`.
            heartbeat_seconds: The time without a heartbeat after which a run is executed by another worker.

        Raises:
            DispatcherUnavailableError: The server cannot be reached.
            ValueError: The URL has another form.
        """
        parts = urlsplit(url)
        namespace = unquote(parts.path.strip('/')) or 'default'
        if parts.scheme != 'temporal' or not parts.hostname or parts.username or parts.query or '/' in namespace:
            raise ValueError(
                'The URL of Temporal has the form `temporal://host:port/namespace`. For TLS or an API key, create a '
                '`TemporalDispatcher` with a client of your own.'
            )
        host = f'[{parts.hostname}]' if ':' in parts.hostname else parts.hostname
        address = f'{host}:{parts.port or 7233}'
        client = await _call(lambda: Client.connect(address, namespace=namespace), _name(address, namespace))
        return cls(client, heartbeat_seconds=heartbeat_seconds)

    async def submit(self, run_id: str, *, agent_name: str, conversation_id: str, priority: int = 0) -> None:
        """Add a run to those of its conversation. Of the priorities of different conversations, those from -2 to 2 are
        distinguished.
        """
        task_queue = _task_queue(agent_name)
        run = SubmittedRun(run_id, task_queue, priority, self._heartbeat_seconds)
        await _call(
            lambda: self._client.start_workflow(
                ConversationWorkflow.run,
                list[SubmittedRun](),
                id=_workflow_id(conversation_id),
                task_queue=task_queue,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                start_signal='submit',
                start_signal_args=[run],
                rpc_timeout=_RPC_TIMEOUT,
            ),
            self._name,
        )

    async def cancel(self, run_id: str, *, conversation_id: str) -> None:
        """Withdraw a run that no worker has started."""
        handle = self._client.get_workflow_handle(_workflow_id(conversation_id))
        try:
            await _call(
                lambda: handle.signal(ConversationWorkflow.cancel, run_id, rpc_timeout=_RPC_TIMEOUT), self._name
            )
        except DispatcherUnavailableError as error:
            cause = error.__cause__
            if not isinstance(cause, RPCError) or cause.status is not RPCStatusCode.NOT_FOUND:
                raise

    async def work(self, execute: ExecuteRun, *, agent_names: Collection[str], concurrency: int) -> None:
        """Execute the runs of these agents until the task is cancelled. Unfinished ones are executed by others."""
        activities = _Activities(execute, concurrency, self._heartbeat_seconds / 3)
        async with anyio.create_task_group() as group:
            for name in agent_names:
                group.start_soon(self._work, activities, name, concurrency)

    async def _work(self, activities: _Activities, agent_name: str, concurrency: int) -> None:
        while True:
            try:
                worker = Worker(
                    self._client,
                    task_queue=_task_queue(agent_name),
                    activities=[activities.execute],
                    workflows=[ConversationWorkflow],
                    workflow_runner=SANDBOX,
                    max_concurrent_activities=concurrency,
                    max_heartbeat_throttle_interval=timedelta(seconds=self._heartbeat_seconds / 3),
                )
                await _run(worker)
            except (RPCError, RuntimeError) as error:  # pragma: no cover - temporalio may wait by itself
                _LOGGER.warning('The worker waits for Temporal: %s', error)
            await anyio.sleep(_RECONNECT_SECONDS)

    async def health(self) -> DispatcherHealth:
        """Return whether the server answers."""
        try:
            await _call(lambda: self._client.service_client.check_health(timeout=_RPC_TIMEOUT), self._name)
        except DispatcherUnavailableError as error:
            return DispatcherHealth(is_up=False, detail=str(error))
        return DispatcherHealth(is_up=True, detail=f'{self._name} is up.')

    async def aclose(self) -> None:
        """Do nothing: a client of Temporal closes its connection when it is no longer referenced."""


class _Activities:
    """The activity of a worker, which is the same for all its agents."""

    def __init__(self, execute: ExecuteRun, concurrency: int, heartbeat_seconds: float) -> None:
        self._execute = execute
        self._limit = anyio.Semaphore(concurrency)
        self._heartbeat_seconds = heartbeat_seconds

    @activity.defn(name=ACTIVITY)
    async def execute(self, run_id: str) -> None:
        """Execute a run. Only the end of the worker interrupts it: a request to cancel it is in the store."""
        task = asyncio.create_task(self._run(run_id))
        stopping = asyncio.create_task(activity.wait_for_worker_shutdown())
        watched = {task, stopping}
        while not task.done():
            activity.heartbeat()
            with suppress(asyncio.CancelledError):
                await asyncio.wait(watched, timeout=self._heartbeat_seconds, return_when=asyncio.FIRST_COMPLETED)
                if stopping in watched and stopping.done():
                    watched = {task}
                    task.cancel()
        stopping.cancel()
        if task.cancelled():
            raise ApplicationError('The worker was stopped.', next_retry_delay=_AT_ONCE, category=_BENIGN)
        task.result()

    async def _run(self, run_id: str) -> None:
        try:
            async with self._limit:
                await self._execute(run_id)
        except Exception as error:  # outermost boundary: a run ends neither the worker nor other runs
            _LOGGER.exception('The run %s could not be executed, and is delivered again', run_id)
            raise ApplicationError(type(error).__name__, category=_BENIGN) from None  # the text may contain secrets


async def _call(operation: Callable[[], Awaitable[T]], name: str) -> T:
    try:
        return await operation()
    except (RPCError, RuntimeError) as error:  # RuntimeError: it cannot connect
        raise DispatcherUnavailableError(name, f'{str(error).strip().rstrip(".")}.') from error


def _name(address: str, namespace: str) -> str:
    return f'Temporal at {address}, namespace {namespace!r},'


async def _run(worker: Worker) -> None:
    """Run a worker in a task of its own: anyio repeats cancellations, which would interrupt its shutdown."""
    task = asyncio.create_task(worker.run())
    try:
        await asyncio.wait([task])
    finally:
        if not task.done():
            with anyio.CancelScope(shield=True):
                await worker.shutdown()  # pragma: no cover - coverage loses the line after the library's threads
    task.result()


def _task_queue(agent_name: str) -> str:
    return f'pydantic-deep-{agent_name}'


def _workflow_id(conversation_id: str) -> str:
    return f'pydantic-deep-conversation-{conversation_id}'
