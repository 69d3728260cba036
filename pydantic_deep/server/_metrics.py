"""Prometheus metrics, in a registry of the application's own. The values of labels are bounded."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from pydantic_ai.usage import RunUsage
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pydantic_deep.streaming import RunStatus

UNMATCHED = 'unmatched'
"""The route of a request that none takes: what a client made up is no label."""

_METHODS = frozenset({'GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'})


class ServerMetrics:
    """Counters and gauges of one application.

    Agents are labels: there are as many as the operator serves.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        """Holds all of them, and nothing of the process."""
        self.requests = Counter(
            'pydantic_deep_requests',
            'Requests that were answered.',
            ('method', 'route', 'status'),
            registry=self.registry,
        )
        """By method, template of the route, and status."""
        self.runs = Counter(
            'pydantic_deep_runs', 'Runs that ended, by what became of them.', ('agent', 'state'), registry=self.registry
        )
        """By agent and state."""
        self.tokens = Counter(
            'pydantic_deep_tokens', 'Tokens that runs have used.', ('agent', 'kind'), registry=self.registry
        )
        """By agent and kind: `input` and `output`."""
        self.running = Gauge('pydantic_deep_runs_running', 'Runs that work now.', registry=self.registry)
        """The number of running runs."""
        self.log_bytes = Gauge(
            'pydantic_deep_log_bytes', 'Bytes of logs of runs that are kept.', registry=self.registry
        )
        """The size of all logs, in bytes."""
        self.log_memory_bytes = Gauge(
            'pydantic_deep_log_memory_bytes', 'Bytes of those logs that are in memory.', registry=self.registry
        )
        """The part of the logs that is in memory, in bytes."""

    def run_ended(self, agent: str, state: RunStatus, usage: RunUsage) -> None:
        """Count a run that ended.

        Args:
            agent: The agent.
            state: What became of it.
            usage: What the run has used by itself, not the conversation.
        """
        self.runs.labels(agent, state).inc()
        self.tokens.labels(agent, 'input').inc(usage.input_tokens)
        self.tokens.labels(agent, 'output').inc(usage.output_tokens)

    def render(self) -> bytes:
        """Return all of them as Prometheus reads it."""
        return generate_latest(self.registry)


class RequestCounter:
    """An ASGI layer that counts requests by the route that took them."""

    def __init__(self, app: ASGIApp, metrics: ServerMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope['type'] != 'http':
            await self._app(scope, receive, send)
            return
        status = 500  # what Starlette answers outside of all layers, where something raised

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
