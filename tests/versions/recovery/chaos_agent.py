"""The agent of `chaos_rounds`, and the processes that execute it.

It is that of `kill_agent`, and its turns end with `grow`, which writes a file that is stored in object storage. The
beginning of each call with an effect is recorded too: a call that begins twice without an approval is noticed even if its
process died before the effect.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from kill_agent import DeepAgent, Journal, make_deep_agent, state_of
from pydantic_ai import RunContext
from pydantic_ai.messages import ModelMessage, ToolCallPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import DeepAgentDeps
from pydantic_deep.cli import main
from pydantic_deep.testing import Answer

_STEPS = 5
"""Number of responses of a turn of `kill_agent` before its last one."""

_PAUSE_SECONDS = 0.1

agents: dict[str, DeepAgent] = {}
"""The agents of this process, which servers and workers import."""


class ChaosJournal(Journal):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._begun = path.with_suffix('.begun')

    def plan(self, messages: list[ModelMessage], info: AgentInfo) -> Answer:
        said, count = state_of(messages)
        role, _, place = said.partition(' ')
        answer = super().plan(messages, info)
        if role == 'turn' and count == _STEPS:
            return [ToolCallPart('grow', {'key': f'{place}/g'}, tool_call_id=f'{place}:{count}:grow')]
        return answer

    def begin(self, key: str) -> None:
        """Record that a call begins."""
        with self._begun.open('a') as begun:
            begun.write(f'{key} {os.getpid()}\n')

    def begun(self) -> Counter[str]:
        """Return how often each call began."""
        return Counter(line.partition(' ')[0] for line in self._begun.read_text().split('\n')[:-1])

    async def note(self, key: str) -> str:
        """Note a key, slowly: a fault often hits a call, before or after its effect."""
        self.begin(key)
        await asyncio.sleep(_PAUSE_SECONDS)
        answer = await super().note(key)
        await asyncio.sleep(_PAUSE_SECONDS)
        return answer


def make_chaos_agent(journal: ChaosJournal) -> DeepAgent:
    agent = make_deep_agent(journal)

    @agent.tool
    async def grow(ctx: RunContext[DeepAgentDeps], key: str) -> str:
        """Write a file that is too large for the database."""
        journal.begin(key)
        await asyncio.sleep(_PAUSE_SECONDS)
        _, turn, _ = key.split('/')
        await ctx.deps.backend.write_bytes(f'/{turn}/g.bin', large_file(key))
        return f'grown {key}'

    return agent


def large_file(key: str) -> bytes:
    """Return the contents of the large file of a call."""
    return f'{key}\n'.encode() * 2500


def run_command(arguments: Sequence[str], environment: Mapping[str, str], journal: Path, log: Path) -> None:
    """Run a command of `pydantic-deep` in this process, which serves the agent."""
    os.environ.update(environment)
    descriptor = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    agents['killed'] = make_chaos_agent(ChaosJournal(journal))
    sys.exit(main([*arguments, '--agents', f'{__name__}:agents']))
