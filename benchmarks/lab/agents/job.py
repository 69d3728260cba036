"""The input and output of a contestant's script. It needs the standard library only."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Job:
    """A run to make."""

    prompt: str
    directory: str
    """The directory of the task."""
    model: str
    url: str
    """The base URL of the model, without a key."""
    denied: list[str]
    """A person denies calls whose arguments contain one of these texts; if empty, no call needs an approval."""
    has_skills: bool
    """Whether `skills` in the directory has skills."""

    def denies(self, arguments: object) -> bool:
        """Return whether the person denies a call with these arguments."""
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        return any(denied in text for denied in self.denied)


def main(solve: Callable[[Job], Awaitable[str]]) -> None:
    """Read a job from stdin, let an agent solve it, and print its answer, or the exception."""
    job = Job(**json.load(sys.stdin))

    async def answer() -> dict[str, str]:
        try:
            return {'answer': await solve(job)}
        except Exception as error:
            return {'error': f'{type(error).__name__}: {error}'}

    print(json.dumps(asyncio.run(answer())))
