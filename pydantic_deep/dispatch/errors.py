"""Errors of dispatchers and of queued runs."""

from __future__ import annotations

from pydantic_deep.errors import DeepAgentError


class DispatcherUnavailableError(DeepAgentError):
    """The engine of a dispatcher is down or unreachable. Runs stay queued in the store.

    Args:
        engine: The engine and its address, without a password.
        problem: What went wrong.
    """

    def __init__(self, engine: str, problem: str) -> None:
        super().__init__(
            f'{engine} is unavailable: {problem} Submitted runs stay queued in the store, and workers will find them.'
        )
        self.engine = engine


class UnknownAgentError(DeepAgentError, LookupError):
    """No worker here has the agent of a run. The run stays queued.

    Args:
        run_id: The run.
        agent_name: Its agent.
        known: The agents of this worker.
    """

    def __init__(self, run_id: str, agent_name: str, known: list[str]) -> None:
        super().__init__(
            f'The run {run_id} needs the agent {agent_name!r}, and this worker has {", ".join(map(repr, known))}. Start '
            f'a worker with that agent. The run stays queued.'
        )
