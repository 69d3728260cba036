"""The agent of the command line: `create_deep_agent` in a directory, with a budget."""

from __future__ import annotations

from pathlib import Path

from pydantic_ai.usage import UsageLimits

from pydantic_deep.agent import create_deep_agent
from pydantic_deep.deps import DeepAgentDeps

from ._models import choose_model, open_model
from ._run import Worker
from ._surroundings import Surroundings
from ._watched import WatchedBackend

INSTRUCTIONS = "You work on the files of the user's directory. When the task is done, answer briefly, in Markdown."
"""What the agent is for; the rooms add their own."""

MAX_TOKENS = 2_000_000
"""What a turn may use unless told otherwise, sent and written together.

pydantic-ai's own default stops at 50 requests, which says little: a long task makes many small ones. Tokens are what
is paid for. Two million are some hundred requests with a history of 20,000 tokens: more than a task should need, and
a loop that never ends is stopped.
"""


def open_worker(surroundings: Surroundings, *, directory: Path, model: str | None, max_tokens: int) -> Worker:
    """Return the agent in a directory.

    Args:
        surroundings: What it is given from outside.
        directory: Where it works; it cannot leave it.
        model: What `--model` said.
        max_tokens: The budget of a turn.

    Raises:
        UnusableModelError: There is no model to work with.
    """
    name = choose_model(model, surroundings.environment)
    opened = open_model(name, surroundings.models)
    backend = WatchedBackend(str(directory))
    limits = UsageLimits(request_limit=None, total_tokens_limit=max_tokens)
    return Worker(
        agent=create_deep_agent(opened, instructions=INSTRUCTIONS),
        backend=backend,
        deps=DeepAgentDeps(backend=backend, usage_limits=limits),
        directory=str(directory),
        model=name,
        clock=surroundings.clock,
    )
