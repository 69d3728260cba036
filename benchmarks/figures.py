"""The figures that are measured, and their targets. Targets apply to ours only; `report` writes the verdicts."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Samples: TypeAlias = Mapping[str, Mapping[str, Sequence[float]]]
"""The values of all rounds, by the key of the contestant and the key of the figure, in the same order of rounds."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A measurement that runs in one process and yields figures."""

    name: str
    """The name of the case in the scripts in `cases/`."""
    rounds: int | None = None
    """A fixed number of rounds; `None` for the number on the command line."""


CASES = (
    Case(name='import', rounds=7),
    Case(name='create'),
    Case(name='step'),
    Case(name='history'),
    Case(name='search'),
    Case(name='memory', rounds=1),
    Case(name='tree'),
    Case(name='surface', rounds=1),
    Case(name='whole', rounds=1),
    Case(name='whole-step'),
    Case(name='whole-create'),
    Case(name='delegate'),
    Case(name='skills', rounds=3),
    Case(name='approve'),
    Case(name='store-step'),
    Case(name='store-growth', rounds=1),
    Case(name='store-late', rounds=3),
    Case(name='store-lines', rounds=3),
    Case(name='store-lists', rounds=1),
    Case(name='store-gc', rounds=1),
    Case(name='store-files', rounds=1),
    Case(name='store-agents', rounds=3),
    Case(name='server-streams', rounds=1),
    Case(name='context-coding', rounds=1),
    Case(name='context-research', rounds=1),
    Case(name='context-support', rounds=1),
    Case(name='context-todos', rounds=1),
)
"""Memory, surfaces and sessions are counted, not timed, so one round is enough. Skills take the peers long, and a large
store takes long to fill."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A limit for a figure of ours."""

    limit: float
    """The limit in the unit of the figure, or a factor."""
    against: Literal['nothing', 'floor plus', 'floor times', 'best peer times'] = 'nothing'
    """Whether the limit is absolute, added to the bare library, or a factor of the bare library or of the best peer."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One row of the report."""

    key: str
    """The key of the value in the output of a case."""
    case: str
    """The case that measures it."""
    title: str
    """The title of the row, including the unit."""
    digits: int
    """Digits after the decimal point."""
    target: Target | None = None
    """The target for ours, if there is one."""
    is_cost: bool = True
    """Whether less is better, so that a ratio is meaningful."""


def _session_figures(name: str, what: str) -> tuple[Figure, ...]:
    """Return the rows of one session."""
    case, title = f'context-{name}', f'session of {what}'
    half = Target(limit=0.5, against='best peer times')
    return (
        Figure(key=f'{name}_cost', case=case, title=f'{title}: cost, thousand tokens', digits=0, target=half),
        Figure(key=f'{name}_input', case=case, title=f'{title}: input, thousand tokens', digits=0),
        Figure(key=f'{name}_cached_percent', case=case, title=f'{title}: cached, %', digits=1, is_cost=False),
        Figure(key=f'{name}_summaries', case=case, title=f'{title}: requests to summarize', digits=0, is_cost=False),
        Figure(
            key=f'{name}_summaries_per_cut',
            case=case,
            title=f'{title}: summaries per cut of the history',
            digits=2,
            target=Target(limit=1),
        ),
        Figure(
            key=f'{name}_broken',
            case=case,
            title=f'{title}: prefixes broken without a summary',
            digits=0,
            target=Target(limit=0),
            is_cost=False,
        ),
    )


_STREAMS = '500 concurrent streams'

_SERVER_FIGURES = (
    Figure(
        key='server_events_s', case='server-streams', title=f'{_STREAMS}: events per second', digits=0, is_cost=False
    ),
    Figure(key='server_event_us', case='server-streams', title=f'{_STREAMS}: CPU µs per event', digits=0),
    Figure(key='server_stream_kib', case='server-streams', title=f'{_STREAMS}: KiB of memory per stream', digits=0),
    Figure(key='server_first_ms', case='server-streams', title=f'{_STREAMS}: time to first words, ms', digits=0),
    Figure(key='server_first_late_ms', case='server-streams', title='the same, 95th percentile, ms', digits=0),
    Figure(key='server_log_mib', case='server-streams', title=f'{_STREAMS}: all logs, MiB', digits=1),
    Figure(key='server_log_memory_mib', case='server-streams', title='the same, in memory, MiB', digits=1),
)

FIGURES = (
    Figure(
        key='import_more_s',
        case='import',
        title='import, CPU s beyond pydantic-ai',
        digits=3,
        target=Target(limit=0.08),
    ),
    Figure(key='create_first_ms', case='create', title='first agent of a process, CPU ms', digits=2),
    Figure(key='create_ms', case='create', title='later agents, CPU ms', digits=2, target=Target(limit=3)),
    Figure(
        key='step_ms',
        case='step',
        title='tool step, CPU ms',
        digits=2,
        target=Target(limit=0.5, against='floor plus'),
    ),
    Figure(
        key='history_ms',
        case='history',
        title='request after 10,000 messages, CPU ms',
        digits=0,
        target=Target(limit=1.05, against='floor times'),
    ),
    Figure(key='glob_ms', case='search', title='glob, 10,000 files, CPU ms', digits=0, target=Target(limit=150)),
    Figure(key='grep_ms', case='search', title='grep, 10,000 files, CPU ms', digits=0, target=Target(limit=150)),
    Figure(
        key='grep_regex_ms',
        case='search',
        title='grep by regex, 10,000 files, CPU ms',
        digits=0,
        target=Target(limit=150),
    ),
    Figure(key='shell_glob_ms', case='search', title='glob by shelling out, CPU ms', digits=0),
    Figure(key='shell_grep_ms', case='search', title='grep by shelling out, CPU ms', digits=0),
    Figure(
        key='memory_ratio',
        case='memory',
        title='100 files of 10 KiB in memory, × payload',
        digits=2,
        target=Target(limit=1.2),
    ),
    Figure(
        key='tree_set_ms',
        case='tree',
        title='one change to a `Tree` of 10,000, CPU ms',
        digits=3,
        target=Target(limit=2),
    ),
    Figure(
        key='tree_snapshot_ms',
        case='tree',
        title='write and snapshot among 10,000, CPU ms',
        digits=3,
        target=Target(limit=2),
    ),
    Figure(key='surface_tools', case='surface', title='tools sent by default', digits=0, target=Target(limit=11)),
    Figure(
        key='surface_chars',
        case='surface',
        title='characters of schema and prompt',
        digits=0,
        target=Target(limit=6000),
    ),
    Figure(key='whole_tools', case='whole', title='everything on: tools', digits=0, target=Target(limit=11)),
    Figure(key='whole_chars', case='whole', title='everything on: characters', digits=0, target=Target(limit=6000)),
    Figure(key='whole_step_ms', case='whole-step', title='everything on: tool step, CPU ms', digits=2),
    Figure(key='whole_create_first_ms', case='whole-create', title='everything on: first agent, CPU ms', digits=2),
    Figure(key='whole_create_ms', case='whole-create', title='everything on: later agents, CPU ms', digits=2),
    Figure(
        key='whole_first_run_ms',
        case='whole-create',
        title='everything on: first run of the first agent, CPU ms',
        digits=2,
    ),
    Figure(key='delegate_ms', case='delegate', title='everything on: call of `task`, CPU ms', digits=2),
    Figure(
        key='skills_first_s',
        case='skills',
        title='5,000 skills: discovery, CPU s',
        digits=3,
        target=Target(limit=0.6),
    ),
    Figure(
        key='skills_again_s',
        case='skills',
        title='5,000 skills: second discovery, CPU s',
        digits=3,
        target=Target(limit=0.1),
    ),
    Figure(
        key='skills_run_ms',
        case='skills',
        title='5,000 skills: run minus one without skills, CPU ms',
        digits=2,
        target=Target(limit=5),
    ),
    Figure(key='approve_ms', case='approve', title='write that pauses and resumes, CPU ms', digits=2),
    Figure(
        key='stored_step_ms',
        case='store-step',
        title='tool step stored in SQLite, CPU ms',
        digits=2,
        target=Target(limit=1.5, against='floor plus'),
    ),
    Figure(
        key='stored_bare_step_ms',
        case='store-step',
        title='the same, bare agent without declared effects, CPU ms',
        digits=2,
        target=Target(limit=1.5, against='floor plus'),
    ),
    Figure(key='stored_step_postgres_ms', case='store-step', title='tool step stored in PostgreSQL, CPU ms', digits=2),
    Figure(
        key='growth_ratio',
        case='store-growth',
        title='chat of 200 turns with a file each: database, × raw',
        digits=2,
        target=Target(limit=2),
    ),
    Figure(key='growth_text_ratio', case='store-growth', title='the same without files: database, × raw', digits=2),
    Figure(
        key='late_bytes_ratio',
        case='store-late',
        title='bytes of turn 1,000, × turn 10',
        digits=2,
        target=Target(limit=1.2),
    ),
    Figure(
        key='late_turn_ratio',
        case='store-late',
        title='cost of storing turn 1,000, × turn 10',
        digits=2,
        target=Target(limit=1.2),
    ),
    Figure(key='early_turn_ms', case='store-late', title='cost of storing turn 10, CPU ms', digits=2),
    Figure(key='lineage_ms', case='store-lines', title='lineage of 10,000, CPU ms', digits=0, target=Target(limit=60)),
    Figure(
        key='fork_ratio',
        case='store-lines',
        title='fork at turn 10,000, × at turn 10',
        digits=2,
        target=Target(limit=1.2),
    ),
    Figure(
        key='page_ms',
        case='store-lists',
        title='page of 100 from 100,000 versions, CPU ms',
        digits=1,
        target=Target(limit=20),
    ),
    Figure(
        key='page_metadata_ms',
        case='store-lists',
        title='the same by metadata, CPU ms',
        digits=1,
        target=Target(limit=20),
    ),
    Figure(
        key='page_far_ms',
        case='store-lists',
        title='the same from the middle, CPU ms',
        digits=1,
        target=Target(limit=20),
    ),
    Figure(
        key='history_list_ms',
        case='store-lists',
        title='history of 1,400 versions, CPU ms',
        digits=1,
        target=Target(limit=50),
    ),
    Figure(key='gc_s', case='store-gc', title='gc of 80,000 live messages, CPU s', digits=2, target=Target(limit=2)),
    Figure(
        key='files_allowed_ratio',
        case='store-files',
        title='1,000 changes among 10,000 files: database, × (3 × changed + 20 MB)',
        digits=2,
        target=Target(limit=1),
    ),
    Figure(
        key='checkout_s',
        case='store-files',
        title='checkout among 10,000 files, CPU s',
        digits=2,
        target=Target(limit=3),
    ),
    Figure(key='steps_alone', case='store-agents', title='steps stored per second, 1 agent', digits=0),
    Figure(key='steps_some_ratio', case='store-agents', title='the same with 16 agents, × 1 agent', digits=1),
    Figure(key='steps_many_ratio', case='store-agents', title='the same with 128 agents, × 1 agent', digits=1),
    *_SERVER_FIGURES,
    *_session_figures('coding', 'coding'),
    *_session_figures('research', 'research'),
    *_session_figures('support', 'support'),
    *_session_figures('todos', 'support with todos'),
)
"""All rows, in the order of the report."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The comparison of a figure of ours with its target."""

    target: str
    """The target as text."""
    value: float
    """The value that is compared with the limit: the figure, its difference to the floor, or its ratio to the floor or
    best peer."""
    holds: bool


def judge(figure: Figure, samples: Samples) -> Verdict | None:
    """Return whether ours meets the target of a figure; `None` if there is no target or not enough values.

    A target relative to the floor is judged per round, against the floor of the same round, so that differences in load
    between rounds do not matter.
    """
    target, ours = figure.target, samples.get('ours', {}).get(figure.key, ())
    floor = samples.get('bare', {}).get(figure.key, ())
    peers = [
        statistics.median(values[figure.key])
        for key, values in samples.items()
        if key.startswith('peer-') and values.get(figure.key)
    ]
    if target is None or not ours:
        return None
    if (target.against.startswith('floor') and not floor) or (target.against == 'best peer times' and not peers):
        return None
    limit = f'{target.limit:g}'
    if target.against == 'floor plus':
        value, text = statistics.median(o - f for o, f in zip(ours, floor, strict=True)), f'floor + {limit}'
    elif target.against == 'floor times':
        value, text = statistics.median(o / f for o, f in zip(ours, floor, strict=True)), f'floor × {limit}'
    elif target.against == 'best peer times':
        value, text = statistics.median(ours) / min(peers), f'best peer × {limit}'
    else:
        value, text = statistics.median(ours), limit
    return Verdict(target=f'≤ {text}', value=value, holds=value <= target.limit)


def add_import_over_floor(samples: Mapping[str, dict[str, list[float]]]) -> None:
    """Make the import of a contestant without pydantic-ai comparable: its total, minus the floor of the same round."""
    floor = samples.get('bare', {}).get('import_s', [])
    peer = samples.get('peer-deepagents', {})
    if floor and peer.get('import_s'):
        peer['import_more_s'] = [p - f for p, f in zip(peer['import_s'], floor, strict=True)]
