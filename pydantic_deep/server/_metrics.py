"""Prometheus metrics of servers and workers, in registries of their own. The number of label values is bounded."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager

import anyio
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pydantic_deep.dispatch import WorkerEvent
from pydantic_deep.store import SqlStore, now
from pydantic_deep.streaming import RunStatus, UsageEvent

UNMATCHED = 'unmatched'
"""The route label of requests without a matching route: paths that clients invent are not labels."""

STORE_SECONDS = 5
"""Minimum time between two reads of the metrics of the store."""

_ALL = 1_000_000

_COMMIT_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
"""Upper limits of commit durations, in seconds."""

_METHODS = frozenset({'GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'})


class ServerMetrics:
    """Counters and gauges of one application.

    Agent names are labels: their number is bounded by the served agents.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        """The registry of these metrics, without process metrics."""
        self.requests = Counter(
            'pydantic_deep_requests',
            'Requests that were answered.',
            ('method', 'route', 'status'),
            registry=self.registry,
        )
        """Requests by method, route template and status."""
        self.runs = Counter(
            'pydantic_deep_runs', 'Runs that ended, by what became of them.', ('agent', 'state'), registry=self.registry
        )
        """Ended runs by agent and state."""
        self.tokens = Counter(
            'pydantic_deep_tokens', 'Tokens that runs have used.', ('agent', 'kind'), registry=self.registry
        )
        """Used tokens by agent and kind: `input` and `output`."""
        self.running = Gauge('pydantic_deep_runs_running', 'Runs that work now.', registry=self.registry)
        """The number of running runs."""
        self.log_bytes = Gauge('pydantic_deep_log_bytes', 'Bytes of the logs of runs.', registry=self.registry)
        """The size of all logs, in bytes."""
        self.log_memory_bytes = Gauge(
            'pydantic_deep_log_memory_bytes', 'Bytes of those logs that are in memory.', registry=self.registry
        )
        """The part of the logs that is in memory, in bytes."""
        self.queued = Gauge(
            'pydantic_deep_queue_runs', 'Runs in the queue of the store.', ('state',), registry=self.registry
        )
        """The number of runs in the queue by state: `queued` and `running`."""
        self.queue_age = Gauge(
            'pydantic_deep_queue_oldest_seconds', 'Age of the oldest queued run.', registry=self.registry
        )
        """The age of the oldest queued run in seconds; 0 if there is none."""
        self.suspended = Gauge(
            'pydantic_deep_runs_suspended', 'Runs of crashed processes, which nobody works on.', registry=self.registry
        )
        """The number of suspended runs."""
        self.pending_approvals = Gauge('pydantic_deep_approvals_pending', 'Pending approvals.', registry=self.registry)
        """The number of pending approvals."""
        self.approval_age = Gauge(
            'pydantic_deep_approvals_oldest_seconds', 'Age of the oldest pending approval.', registry=self.registry
        )
        """The age of the oldest pending approval in seconds; 0 if there is none."""
        self.commits = commit_histogram(self.registry)
        """The durations of commits, in seconds."""
        self._store_read_at = -math.inf

    def run_ended(self, agent: str, state: RunStatus, usage: UsageEvent) -> None:
        """Count an ended run.

        Args:
            agent: The name of the agent.
            state: How the run ended.
            usage: The usage of the run alone, not of the conversation.
        """
        self.runs.labels(agent, state).inc()
        self.tokens.labels(agent, 'input').inc(usage.input_tokens)
        self.tokens.labels(agent, 'output').inc(usage.output_tokens)

    async def read_store(self, store: SqlStore) -> None:
        """Read the metrics of a store, unless they were read in the last seconds. They count runs of all processes."""
        if anyio.current_time() - self._store_read_at < STORE_SECONDS:
            return
        queue, suspended = await store.queue.measures(), await store.orphans(_ALL)
        pending, oldest_pending = await store.count_pending_approvals()
        self.queued.labels('queued').set(queue['queued'])
        self.queued.labels('running').set(queue['running'])
        self.queue_age.set(_age(queue['oldest_queued_at']))
        self.suspended.set(sum(run.parent_run_id is None for run in suspended))
        self.pending_approvals.set(pending)
        self.approval_age.set(_age(oldest_pending))
        self._store_read_at = anyio.current_time()

    def render(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self.registry)


class WorkerMetrics:
    """Counters and gauges of one worker process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        """The registry of these metrics, without process metrics."""
        self.events = Counter(
            'pydantic_deep_worker_runs',
            'Runs of this worker, by what happened to them.',
            ('agent', 'event', 'state'),
            registry=self.registry,
        )
        """Events of runs by agent, `WorkerEvent.kind` and `WorkerEvent.state`."""
        self.running = Gauge(
            'pydantic_deep_worker_runs_running', 'Runs that this worker executes now.', registry=self.registry
        )
        """The number of running runs."""
        self.commits = commit_histogram(self.registry)
        """The durations of commits, in seconds."""

    def count(self, event: WorkerEvent) -> None:
        """Count an event."""
        self.events.labels(event.agent_name, event.kind, event.state).inc()


def commit_histogram(registry: CollectorRegistry) -> Histogram:
    """Return the histogram of commit durations, which servers and workers have under the same name."""
    return Histogram(
        'pydantic_deep_store_commit_seconds',
        'Seconds that commits of this process took.',
        registry=registry,
        buckets=_COMMIT_BUCKETS,
    )


@contextmanager
def listening_to_commits(store: SqlStore, commits: Histogram) -> Generator[None]:
    """Observe the durations of a store's commits."""
    store.commit_listeners.append(commits.observe)
    try:
        yield
    finally:
        store.commit_listeners.remove(commits.observe)


def _age(since: int) -> float:
    """Return the seconds since a time of the store; 0 for none, or if the clock of the other process is ahead."""
    return max(0, now() - since) / 1_000_000 if since else 0


class RequestCounter:
    """ASGI middleware that counts requests by matched route."""

    def __init__(self, app: ASGIApp, metrics: ServerMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope['type'] != 'http':
            await self._app(scope, receive, send)
            return
        status = 500  # the response of Starlette, outside of all middleware, to an exception

        async def send_with_status(message: Message) -> None:
            nonlocal status
            if message['type'] == 'http.response.start':
                status = message['status']
            await send(message)

        try:
            await self._app(scope, receive, send_with_status)
        finally:
            method = scope['method'] if scope['method'] in _METHODS else 'other'
            self._metrics.requests.labels(method, getattr(scope.get('route'), 'path', UNMATCHED), status).inc()
