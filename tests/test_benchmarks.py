"""The benchmarks run at tiny sizes and return all figures. Their speed is not tested."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / 'benchmarks'

ROOT = BENCHMARKS.parent

SIZES = {
    'steps': 4,
    'messages': 20,
    'files': 60,
    'repeats': 1,
    'skills': 3,
    'delegations': 2,
    'approvals': 2,
    'starts': 2,
    'turns': 2,
    'late': 12,
    'late_repeats': 4,
    'lineage': 12,
    'listed': 400,
    'listed_history': 5,
    'live_messages': 80,
    'workspace_files': 10,
    'workspace_steps': 2,
    'agents': 8,
    'commits': 16,
    'streams': 10,
    'stream_words': 20,
    'session_turns': 3,
    'four_skills': str(ROOT / 'skills'),
}

SHARED = {
    'create_first_ms',
    'create_ms',
    'step_ms',
    'history_ms',
    'glob_ms',
    'grep_ms',
    'grep_regex_ms',
    'memory_ratio',
}
"""Figures that the bare library has too."""

WHOLE = {
    'whole_step_ms',
    'whole_create_first_ms',
    'whole_create_ms',
    'whole_first_run_ms',
    'delegate_ms',
    'approve_ms',
}
"""Figures of an agent with all features enabled, in the bare library too."""

SKILLS = {'skills_first_s', 'skills_again_s', 'skills_run_ms'}
"""Figures of many skills, without a counterpart in the bare library."""


STORE = {
    *('stored_step_ms', 'stored_bare_step_ms', 'growth_ratio', 'growth_text_ratio', 'late_bytes_ratio'),
    *(
        'late_turn_ratio',
        'early_turn_ms',
        'late_turn_ms',
        'lineage_ms',
        'fork_ms',
        'fork_ratio',
        'page_ms',
        'page_far_ms',
        'page_metadata_ms',
    ),
    *('history_list_ms', 'gc_s', 'files_mb', 'files_allowed_ratio', 'checkout_s', 'steps_alone', 'steps_some'),
    *('steps_many', 'steps_some_ratio', 'steps_many_ratio'),
}
"""Figures of a store, without those of PostgreSQL, which only the command starts."""

SERVER = {
    *('server_events_s', 'server_event_us', 'server_stream_kib', 'server_first_ms', 'server_first_late_ms'),
    *('server_log_mib', 'server_log_memory_mib'),
}
"""Figures of a server."""

SESSIONS = ('coding', 'research', 'support', 'todos')

SESSION = {
    *('cost', 'input', 'output', 'largest', 'cached_percent', 'requests', 'summaries', 'cuts', 'broken'),
    *(f'cost_{part}' for part in ('head', 'said', 'calls', 'results', 'summary', 'output', 'summarizer')),
}
"""Figures of a session. One with a cut history has an additional figure."""


def run_cases(script: str, cases: str, tree: Path) -> dict[str, float]:
    sizes = {**SIZES, 'tree': str(tree), 'many_skills': str(tree / 'skills')}
    command = [sys.executable, str(BENCHMARKS / 'cases' / script), cases, json.dumps(sizes)]
    finished = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


def make_tree(root: Path) -> Path:
    for name in ('module_00000.toml', 'module_00050.toml'):
        (root / name).write_text('needle_value = 1\n')
    return root


def make_skills(root: Path, count: int) -> None:
    for number in range(count):
        folder = root / f'skill-{number}'
        folder.mkdir(parents=True)
        (folder / 'SKILL.md').write_text(f'---\nname: {folder.name}\ndescription: Does {number}.\n---\nDo it.\n')


@pytest.fixture(scope='module')
def ours(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """All figures of this project, from one process."""
    tree = make_tree(tmp_path_factory.mktemp('tree'))
    return run_cases('ours.py', 'create,step,history,search,memory,tree,surface', tree)


@pytest.fixture(scope='module')
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """The figures of this project with all features enabled, from one process."""
    root = tmp_path_factory.mktemp('whole')
    make_skills(root / 'skills', 3)
    return run_cases('ours.py', 'whole,whole-step,whole-create,delegate,skills,approve', root)


@pytest.mark.slow
def test_own_cases_return_all_figures(ours: dict[str, float]) -> None:
    assert ours.keys() == SHARED | {'tree_set_ms', 'tree_snapshot_ms', 'surface_tools', 'surface_chars'}
    assert all(value > 0 for value in ours.values())


@pytest.mark.slow
def test_bare_cases_return_the_compared_figures(tmp_path: Path) -> None:
    assert run_cases('bare.py', 'create,step,history,search,memory', make_tree(tmp_path)).keys() == SHARED


@pytest.mark.slow
def test_own_cases_with_all_features_return_all_figures(whole: dict[str, float]) -> None:
    assert whole.keys() == WHOLE | SKILLS | {'whole_tools', 'whole_chars'}
    # A few skills cost less than the difference between two runs.
    assert all(value > 0 for key, value in whole.items() if key != 'skills_run_ms')


@pytest.mark.slow
def test_bare_cases_with_all_features_return_the_compared_figures(tmp_path: Path) -> None:
    assert run_cases('bare.py', 'whole-step,whole-create,delegate,approve', tmp_path).keys() == WHOLE


@pytest.mark.slow
def test_bare_capabilities_return_the_step_with_all_features(tmp_path: Path) -> None:
    assert run_cases('bare_capabilities.py', 'whole-step', tmp_path).keys() == {'whole_step_ms'}


@pytest.mark.slow
def test_store_cases_return_all_figures(tmp_path: Path) -> None:
    names = ('step', 'growth', 'late', 'lines', 'lists', 'gc', 'files', 'agents')
    found = run_cases('ours.py', ','.join(f'store-{name}' for name in names), tmp_path)
    assert found.keys() == STORE
    assert run_cases('bare.py', 'store-step', tmp_path).keys() == {'stored_step_ms', 'stored_bare_step_ms'}


@pytest.mark.slow
def test_server_case_returns_all_figures_and_loses_nothing(tmp_path: Path) -> None:
    found = run_cases('ours.py', 'server-streams', tmp_path)
    assert found.keys() == SERVER
    # A few streams may take less memory than the server allocated and released at startup.
    assert all(value > 0 or (key, value) == ('server_stream_kib', 0) for key, value in found.items())


@pytest.fixture(scope='module')
def sessions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """The figures of short sessions, from one process."""
    return run_cases('ours.py', ','.join(f'context-{name}' for name in SESSIONS), tmp_path_factory.mktemp('sessions'))


@pytest.mark.slow
def test_session_cases_return_all_figures(sessions: dict[str, float]) -> None:
    cut = {f'{name}_summaries_per_cut' for name in SESSIONS if sessions[f'{name}_cuts']}
    assert sessions.keys() == cut | {f'{name}_{key}' for name in SESSIONS for key in SESSION}
    for name in SESSIONS:
        parts = sum(value for key, value in sessions.items() if key.startswith(f'{name}_cost_'))
        assert parts == pytest.approx(sessions[f'{name}_cost'])


@pytest.mark.slow
def test_short_sessions_break_no_prefix(sessions: dict[str, float]) -> None:
    assert {sessions[f'{name}_broken'] for name in SESSIONS} == {0}


LEDGER = """
import json, sys
from ledger import Ledger
from player import Player, Request
from sessions import Ask, Session, Turn, lookup, page

a, b, c, d = (('said', letter * 400) for letter in 'abcd')
ledger = Ledger()
told = [
    ledger.record(segments, 'r' * 40, is_summary=is_summary)
    for segments, is_summary in [((a,), False), ((a, b, c), False), ((a, b, d), True), ((a, d), False), ((b, d), False)]
]

played = Session(name='research', turns=(), files={})
player = Player(played, lambda action: (type(action).__name__, {}))
asks = tuple(Ask(tool='fetch', key=url, needs_all=bool(number)) for number, url in enumerate(sys.argv[1:]))
player.start(Turn(prompt='?', steps=(asks,), answer='!'))
shown = 'Left out. All are in /offload/call-1.'
def respond(*results):
    first = player._calls_made - len(results) + 1
    by_id = {f'call-{first + place}': result for place, result in enumerate(results)}
    reply = player.respond(Request(segments=[], is_summary=False, result_by_id=by_id))
    return [call.name for call in reply.calls] or reply.text
whole = [page(url) for url in sys.argv[1:]]
lines = whole[1].split('\\n')
passage = whole[0]
answers = [respond(), respond(shown, shown), respond(passage, lines[0] + lines[1]), respond(passage, whole[1])]
try:
    failing = Player(played, lambda action: ('lookup', {}))
    failing.start(Turn(prompt='?', steps=((Ask(tool='lookup', key='k'),),), answer='!'))
    failing.respond(Request(segments=[], is_summary=False, result_by_id={}))
    failing.respond(Request(segments=[], is_summary=False, result_by_id={'call-1': 'Error: no such tool'}))
except RuntimeError as error:
    refused = str(error)
print(json.dumps([[[each.input, each.cached, each.output] for each in told], ledger.figures('x'), answers, refused]))
"""


@pytest.fixture(scope='module')
def counted() -> tuple[list[list[int]], dict[str, float], list[object], str]:
    """The ledger of five requests, and a model's reaction to truncated results."""
    command = [sys.executable, '-c', LEDGER, 'https://example.com/a', 'https://example.com/b']
    finished = subprocess.run(command, cwd=BENCHMARKS / 'cases', capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    told, figures, answers, refused = json.loads(finished.stdout)
    return told, figures, answers, refused


Counted = tuple[list[list[int]], dict[str, float], list[object], str]


def test_common_prefix_of_earlier_requests_is_cached(counted: Counted) -> None:
    # Request 3 summarizes and shares its beginning with request 2. Request 4 shares its beginning with both, request 5
    # with none.
    assert counted[0] == [[100, 0, 10], [300, 100, 10], [300, 200, 10], [200, 100, 10], [200, 0, 10]]


def test_cost_of_a_session_is_that_of_all_requests(counted: Counted) -> None:
    figures = counted[1]
    # 700 tokens at full price, 400 from the cache, 50 of output.
    assert figures['x_cost'] == pytest.approx((700 + 40 + 250) / 1000)
    assert figures['x_cost_summarizer'] == pytest.approx((100 + 20 + 50) / 1000)
    assert figures['x_input'] == pytest.approx(1.1)
    assert figures['x_cached_percent'] == pytest.approx(100 * 400 / 1100)


def test_broken_prefix_is_counted_only_without_a_summary(counted: Counted) -> None:
    figures = counted[1]
    assert (figures['x_broken'], figures['x_cuts'], figures['x_summaries']) == (1, 1, 1)
    assert figures['x_summaries_per_cut'] == 1


def test_truncated_pages_are_read_as_far_as_needed(counted: Counted) -> None:
    # The first page needs one passage: a search and a read. The second is needed completely: two reads, since each
    # returns half.
    assert counted[2] == [['Ask', 'Ask'], ['Grep', 'Read'], ['Read', 'Read'], '!']


def test_failed_tool_ends_the_session(counted: Counted) -> None:
    assert "came back with 'Error: no such tool'" in counted[3]


@pytest.mark.slow
def test_missing_skills_are_refused(tmp_path: Path) -> None:
    make_skills(tmp_path / 'skills', 2)
    with pytest.raises(AssertionError, match='2 skills were found, not 3'):
        run_cases('ours.py', 'skills', tmp_path)


@pytest.mark.slow
def test_bare_capabilities_return_figures_that_depend_on_the_list(tmp_path: Path) -> None:
    assert run_cases('bare_capabilities.py', 'step,history', tmp_path).keys() == {'step_ms', 'history_ms'}


@pytest.mark.slow
def test_default_request_stays_small(ours: dict[str, float]) -> None:
    assert ours['surface_tools'] <= 11
    assert ours['surface_chars'] <= 6_000


@pytest.mark.slow
def test_request_with_all_features_stays_small(whole: dict[str, float]) -> None:
    assert whole['whole_tools'] <= 11
    assert whole['whole_chars'] <= 6_000


@pytest.mark.slow
def test_files_in_memory_take_little_more_than_their_size(ours: dict[str, float]) -> None:
    assert ours['memory_ratio'] <= 1.2


@pytest.mark.slow
def test_case_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match='The case did not do its work'):
        run_cases('ours.py', 'search', tmp_path)


@pytest.mark.slow
def test_tables_are_printed() -> None:
    command = [sys.executable, str(BENCHMARKS / 'run.py'), '--tiny', '--only', 'memory']
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert '| bare pydantic-ai | bare, in capabilities | ours | target | holds |' in ' '.join(finished.stdout.split())
    assert '100 files of 10 KiB in memory' in finished.stdout
    assert 'The sizes were tiny' in finished.stdout


JUDGE = """
import json, sys
from figures import FIGURES
from report import BEGIN, END, missed, render_tables, replace_tables
samples = json.loads(sys.argv[1])
tables = render_tables(FIGURES, [('bare', 'bare'), ('ours', 'ours')], samples)
print(json.dumps([tables, missed(FIGURES, samples), replace_tables(f'a{BEGIN}old{END}b', 'new')]))
"""


def judge(samples: dict[str, dict[str, list[float]]]) -> tuple[str, list[str], str]:
    command = [sys.executable, '-c', JUDGE, json.dumps(samples)]
    finished = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, check=True)
    tables, missed, page = json.loads(finished.stdout)
    return tables, missed, page


def test_target_is_compared_with_the_floor_round_by_round() -> None:
    # The medians differ by 2. In each round this project is 0.4 above the floor.
    samples = {'bare': {'step_ms': [1.0, 9.0, 3.0]}, 'ours': {'step_ms': [1.4, 9.4, 3.4]}}
    assert judge(samples)[1] == []
    samples = {'bare': {'step_ms': [1.0, 9.0, 3.0]}, 'ours': {'step_ms': [1.6, 9.6, 3.6]}}
    assert judge(samples)[1] == ['tool step, CPU ms: 0.60, target ≤ floor + 0.5']


def test_target_relative_to_the_best_peer_uses_the_cheapest_peer() -> None:
    samples = {'ours': {'coding_cost': [2.0]}, 'peer-a': {'coding_cost': [4.0]}, 'peer-b': {'coding_cost': [9.0]}}
    assert judge(samples)[1] == []
    samples['ours']['coding_cost'] = [2.1]
    title = 'session of coding: cost, thousand tokens'
    assert judge(samples)[1] == [f'{title}: 0.53, target ≤ best peer × 0.5']
    assert judge({'ours': samples['ours']})[1] == []


def test_figure_that_is_no_cost_has_no_ratio() -> None:
    samples = {'bare': {'coding_cached_percent': [50.0]}, 'ours': {'coding_cached_percent': [90.0]}}
    ratios, _, medians = judge(samples)[0].partition('Medians:')
    assert 'cached' not in ratios
    assert 'cached' in medians


def test_missed_target_is_printed_as_missed() -> None:
    tables, missed, _ = judge({'bare': {}, 'ours': {'grep_ms': [151.0], 'glob_ms': [150.0]}})
    by_title = {line.split('|')[1].strip(): line.split('|')[-2].strip() for line in tables.splitlines() if '|' in line}
    assert by_title['grep, 10,000 files, CPU ms'] == '**missed**'
    assert by_title['glob, 10,000 files, CPU ms'] == 'yes'
    assert missed == ['grep, 10,000 files, CPU ms: 151.00, target ≤ 150']


def test_tables_replace_the_text_between_the_markers() -> None:
    assert judge({})[2] == 'a<!-- figures: begin -->\n\nnew\n\n<!-- figures: end -->b'
