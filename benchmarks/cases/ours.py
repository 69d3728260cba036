"""Ours: an agent of `create_deep_agent()` on our own backends."""

from __future__ import annotations

import asyncio
import importlib
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

from loop import NO_LIMIT, Run, measure_history, measure_search, measure_steps, measure_surface
from measure import Case, Figures, Sizes, main, measure_creation, measure_memory, stored_bytes
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.models.test import TestModel

from pydantic_deep import DeepAgentDeps, LocalBackend, StateBackend, create_deep_agent
from pydantic_deep_backends import BackendProtocol
from pydantic_deep_backends.snapshots import FileVersion, Tree, digest_of


def runs_on(backend: Callable[[], BackendProtocol]) -> Run:
    """Return runs of one agent, each on a new backend."""
    agent = create_deep_agent()

    async def run(model: Model, history: Sequence[ModelMessage]) -> object:
        deps = DeepAgentDeps(backend=backend())
        return await agent.run('Go on.', model=model, deps=deps, message_history=history, usage_limits=NO_LIMIT)

    return run


def _memory(sizes: Sizes) -> Figures:
    return asyncio.run(measure_memory(sizes, StateBackend().write_bytes))


def _tree(sizes: Sizes) -> Figures:
    """Return the CPU time of one change to a large tree: by itself, and as a write and snapshot of a backend."""
    return {'tree_set_ms': _set_ms(sizes), 'tree_snapshot_ms': asyncio.run(_snapshot_ms(sizes))}


def _set_ms(sizes: Sizes) -> float:
    paths = _tree_paths(sizes)
    tree = Tree.of({path: FileVersion(digest=digest_of(path.encode()), size=len(path)) for path in paths})
    before, taken = tree.digest, list[float]()
    for number, path in enumerate(paths[:: max(len(paths) // 50, 1)]):
        start = time.process_time()
        tree = tree.set(path, FileVersion(digest=digest_of(b'%d' % number), size=number))
        after = tree.digest
        taken.append(time.process_time() - start)
        before = _require_change(before, after)
    return statistics.median(taken) * 1000


async def _snapshot_ms(sizes: Sizes) -> float:
    backend, paths = StateBackend(), _tree_paths(sizes)
    for number, path in enumerate(paths):
        await backend.write_bytes(path, stored_bytes(number, 64))
    before, taken = (await backend.snapshot()).digest, list[float]()
    for number, path in enumerate(paths[:: max(len(paths) // 50, 1)]):
        data = stored_bytes(len(paths) + number, 64)
        start = time.process_time()
        await backend.write_bytes(path, data)
        after = (await backend.snapshot()).digest
        taken.append(time.process_time() - start)
        before = _require_change(before, after)
    return statistics.median(taken) * 1000


def _tree_paths(sizes: Sizes) -> list[str]:
    return [f'/package_{number % 200:03d}/module_{number:05d}.py' for number in range(sizes.files)]


def _require_change(before: str, after: str) -> str:
    if before == after:
        raise RuntimeError('A file changed and the digest of its tree did not.')
    return after


MODULE_BY_CASE = {
    **dict.fromkeys(('whole', 'whole-step', 'whole-create', 'delegate', 'skills', 'approve'), 'ours_everything'),
    **dict.fromkeys(('store-step', 'store-growth', 'store-late'), 'ours_store'),
    **dict.fromkeys(('store-lines', 'store-lists', 'store-gc', 'store-files', 'store-agents'), 'ours_scale'),
    'server-streams': 'ours_server',
    **dict.fromkeys(('context-coding', 'context-research', 'context-support', 'context-todos'), 'ours_context'),
}
"""Cases in other modules, by name."""


def _of(case: str, module: str) -> Case:
    """Return a case of another module, imported only when needed: loaded modules slow down later imports."""

    def run(sizes: Sizes) -> Figures:
        cases: Mapping[str, Case] = importlib.import_module(module).CASES
        return cases[case](sizes)

    return run


if __name__ == '__main__':
    main(
        {
            'create': lambda sizes: measure_creation(lambda: create_deep_agent(TestModel())),
            'step': lambda sizes: measure_steps(runs_on(StateBackend), sizes),
            'history': lambda sizes: measure_history(runs_on(StateBackend), sizes),
            'search': lambda sizes: measure_search(runs_on(lambda: LocalBackend(sizes.tree))),
            'memory': _memory,
            'tree': _tree,
            'surface': lambda sizes: measure_surface(runs_on(StateBackend)),
            **{case: _of(case, module) for case, module in MODULE_BY_CASE.items()},
        }
    )
