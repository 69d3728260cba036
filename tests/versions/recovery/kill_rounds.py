"""A program that kills agents at random moments, has others recover their runs, and checks the result.

    python tests/versions/recovery/kill_rounds.py URL --rounds 10 --seed 1 --files DIRECTORY

Three processes run turns at once on one store, two in a directory each and one on files in memory. Each dies by SIGKILL,
at a random moment or right before or after a random write. Then two recover at once, and may die as well; then one that
does not. The last line of the output is a JSON object with the counts; `wrong` lists violations.

Processes are forked from one that has imported everything and has neither a loop nor a thread.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kill_agent import Agent, Journal, MortalStore, answer_and_resume, make_agent, may_have_run, prompt_of
from kill_checks import Checks

from pydantic_deep import LocalBackend, StateBackend
from pydantic_deep.store import open_engine
from pydantic_deep.versions import ApprovalInbox

WORKERS = 3
RECOVERERS = 2

Program = Callable[[Callable[[str], None]], Coroutine[Any, Any, None]]
"""The work of a process, which sends lines to its parent."""


@dataclass(kw_only=True)
class Process:
    """A process that runs a program."""

    pid: int
    pipe: int
    status: int | None = None

    @classmethod
    def start(cls, program: Program) -> Process:
        reads, writes = os.pipe()
        pid = os.fork()
        if pid:
            os.close(writes)
            return cls(pid=pid, pipe=reads)
        status = 1
        try:
            os.close(reads)
            asyncio.run(program(lambda line: _tell(writes, line)))
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> list[str]:
        """Wait for the end of the process, and return the lines it sent."""
        told = b''
        while piece := os.read(self.pipe, 65_536):
            told += piece
        os.close(self.pipe)
        self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return told.decode().split('\n')[:-1]


def _tell(pipe: int, line: str) -> None:
    os.write(pipe, f'{line}\n'.encode())


@dataclass(frozen=True, kw_only=True)
class Death:
    """When and how a process is killed."""

    seconds: float | None = None
    """Killed from outside after this time."""
    at_write: int | None = None
    after: bool = False

    @classmethod
    def draw(cls, dice: random.Random, seconds: float, writes: int) -> Death:
        if dice.random() < 0.5:
            return cls(seconds=dice.uniform(0, seconds))
        return cls(at_write=dice.randint(1, writes), after=dice.random() < 0.5)


NEVER = Death()


@dataclass(kw_only=True)
class Arena:
    """The store and the directories of a session."""

    url: str
    files: Path
    turns: int = 2
    """Number of turns per conversation."""
    counts: Counter[str] = field(default_factory=Counter[str])

    def directory(self, name: str) -> Path | None:
        """Return the directory of a conversation; `None` for one whose files are in memory."""
        return None if name.endswith('-1') else self.files / name

    async def open(self, tell: Callable[[str], None], death: Death) -> tuple[MortalStore, Agent, Journal]:
        engine = await open_engine(self.url)
        store = MortalStore(engine, acknowledge=tell, dies_at=death.at_write, dies_after=death.after)
        journal = Journal(self.files / 'journal')
        return store, make_agent(store, journal), journal

    async def work(self, name: str, death: Death, tell: Callable[[str], None]) -> None:
        """Run the turns of a conversation from start to end."""
        store, agent, journal = await self.open(tell, death)
        async with store:
            directory = self.directory(name)
            if directory is not None:
                directory.mkdir()
            backend = StateBackend() if directory is None else LocalBackend(directory)
            version = await agent.create(name=name, backend=backend, conversation_id=name)
            for turn in range(self.turns):
                version = await version.advance(prompt_of(name, turn))
                while version.state == 'awaiting_approval':
                    after = await answer_and_resume(agent, version, journal)
                    assert after is not None
                    version = after
                tell(f'version {version.id}')
        tell(f'writes {store.writes}')

    async def mend(self, names: list[str], death: Death, tell: Callable[[str], None]) -> None:
        """Recover everything and answer pending calls."""
        store, agent, journal = await self.open(tell, death)
        async with store:
            for _ in range(40):
                recovered = await agent.recover()
                tell(f'recovered {len(recovered)}')
                asked = sum(may_have_run(item) for item in await ApprovalInbox(store).list(limit=10_000))
                tell(f'asked {asked}')
                is_quiet = True
                for name in names:
                    newest = await agent.list(conversation_id=name, limit=1)
                    if newest and newest[0].state == 'awaiting_approval':
                        is_quiet = False
                        after = await answer_and_resume(agent, newest[0], journal)
                        if after is not None:
                            tell(f'version {after.id}')
                        else:
                            await asyncio.sleep(0.01)  # another process is resuming it
                if is_quiet:
                    break

    async def check(self, names: list[str], acknowledged: list[str], tell: Callable[[str], None]) -> None:
        store, agent, journal = await self.open(lambda line: None, NEVER)
        async with store:
            checks = Checks(agent, journal, self.turns)
            await checks.check({name: self.directory(name) for name in names}, acknowledged)
            for each in checks.wrong:
                tell(f'wrong {each}')
            tell(f'checked {checks.versions}')
            tell(f'apart {checks.apart}')
            tell(f'unknown {checks.unknown}')
            tell(f'superseded {checks.superseded}')

    def run_round(self, seed: int, number: int, scale: Scale) -> list[str]:
        """Kill, recover and check; return the violations."""
        dice = random.Random(f'{seed}/{number}')
        names = [f's{seed}r{number}-{index}' for index in range(WORKERS)]
        deaths = [Death.draw(dice, scale.seconds, scale.writes) for _ in names]
        lines = self.run_all({death: self.worker(name, death) for name, death in zip(names, deaths, strict=True)})
        deaths = [Death.draw(dice, scale.seconds, scale.writes) for _ in range(RECOVERERS)]
        lines += self.run_all({death: self.mender(names, death) for death in deaths})
        lines += self.run_all({NEVER: self.mender(names, NEVER)})
        lines += self.run_all({NEVER: self.checker(names, lines)})
        for line in lines:
            kind, _, value = line.partition(' ')
            if kind in ('recovered', 'asked', 'checked', 'apart', 'unknown', 'superseded'):
                self.counts[kind] += int(value)
        return [line for line in lines if line.startswith('wrong ')]

    def worker(self, name: str, death: Death) -> Program:
        return lambda tell: self.work(name, death, tell)

    def mender(self, names: list[str], death: Death) -> Program:
        return lambda tell: self.mend(names, death, tell)

    def checker(self, names: list[str], lines: list[str]) -> Program:
        known = [line for line in lines if line.startswith(('version ', 'call '))]
        self.counts['acknowledged'] += len(known)
        return lambda tell: self.check(names, known, tell)

    def run_all(self, programs: Mapping[Death, Program]) -> list[str]:
        """Run programs concurrently, each until its death or end, and return the lines they sent."""
        begun = time.monotonic()
        processes = [(Process.start(program), death) for death, program in programs.items()]
        for process, death in sorted(processes, key=lambda each: each[1].seconds or 0):
            if death.seconds is not None:
                time.sleep(max(0.0, begun + death.seconds - time.monotonic()))
                process.kill()
        lines: list[str] = []
        for process, _ in processes:
            lines += process.wait()
            self.counts['processes'] += 1
            self.counts['killed'] += process.status == -signal.SIGKILL
            if process.status not in (0, -signal.SIGKILL):
                lines.append(f'wrong a process ended with {process.status}')
        return lines


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The duration and number of writes of an undisturbed process: the range of random kills."""

    seconds: float
    writes: int

    @classmethod
    def measure(cls, arena: Arena) -> Scale:
        begun = time.monotonic()
        programs = {Death(after=bool(index), at_write=-index): f'calm{begun}-{index}' for index in range(WORKERS)}
        lines = arena.run_all({death: _calm(arena, name) for death, name in programs.items()})
        seconds = time.monotonic() - begun
        assert not [line for line in lines if line.startswith('wrong ')], lines
        return cls(seconds=seconds, writes=max(int(line[7:]) for line in lines if line.startswith('writes ')))


def _calm(arena: Arena, name: str) -> Program:
    return lambda tell: arena.work(name, NEVER, tell)


def warm_up(arena: Arena) -> None:
    """Run everything once on a store in memory, so that forked processes need not; no thread remains."""
    if arena.url.startswith('postgres'):
        importlib.import_module('pydantic_deep.store.postgres')
    with tempfile.TemporaryDirectory() as directory:
        warm = Arena(url='memory:', files=Path(directory), turns=1)
        asyncio.run(warm.work('warm', NEVER, lambda line: None))
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(60)  # it was asked to stop when its loop ended
    assert threading.active_count() == 1


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description='Kill agents, recover, check.')
    parser.add_argument('url')
    parser.add_argument('--rounds', type=int, default=10)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--files', type=Path, required=True)
    options = parser.parse_args(arguments)
    warnings.simplefilter('error')
    arena = Arena(url=options.url, files=options.files)
    warm_up(arena)
    scale = Scale.measure(arena)
    wrong: list[str] = []
    known: set[str] = set()
    gc.freeze()
    begun = time.monotonic()
    for number in range(options.rounds):
        found = [line for line in arena.run_round(options.seed, number, scale) if line not in known]
        known.update(found)
        wrong += [f'round {number} of seed {options.seed}: {line}' for line in found]
        for line in found:
            print(f'round {number}: {line}', file=sys.stderr, flush=True)
        print(
            f'round {number}: {arena.counts["killed"]} killed so far, {len(wrong)} wrong', file=sys.stderr, flush=True
        )
    counts = dict(arena.counts)
    report = {'rounds': options.rounds, 'seed': options.seed, **counts, 'wrong': wrong}
    report |= {'seconds': round(time.monotonic() - begun, 1), 'turn_seconds': round(scale.seconds, 2)}
    print(json.dumps(report | {'writes': scale.writes}), flush=True)
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
