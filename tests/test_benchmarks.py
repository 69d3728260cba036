"""The benchmarks run at tiny sizes and say what they should; never how fast."""

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
    'lineage': 12,
    'listed': 400,
    'listed_history': 5,
    'live_messages': 80,
    'workspace_files': 10,
    'workspace_steps': 2,
    'agents': 8,
    'commits': 16,
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
"""The figures that the bare library has too."""

WHOLE = {
    'whole_step_ms',
    'whole_create_first_ms',
    'whole_create_ms',
    'whole_first_run_ms',
    'delegate_ms',
    'approve_ms',
}
"""Those that it has of an agent with everything on."""

SKILLS = {'skills_first_s', 'skills_again_s', 'skills_run_ms'}
"""Those of many skills, which the bare library does not have."""


STORE = {
    *('stored_step_ms', 'growth_ratio', 'growth_text_ratio', 'late_bytes_ratio', 'late_turn_ratio', 'early_turn_ms'),
    *('late_turn_ms', 'lineage_ms', 'fork_ms', 'fork_ratio', 'page_ms', 'page_far_ms', 'page_metadata_ms'),
    *('history_list_ms', 'gc_s', 'files_mb', 'files_allowed_ratio', 'checkout_s', 'steps_alone', 'steps_some'),
    *('steps_many', 'steps_some_ratio', 'steps_many_ratio'),
}
"""Those of a store, without the PostgreSQL that only the command starts."""


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
    """All figures of ours, by one process."""
    tree = make_tree(tmp_path_factory.mktemp('tree'))
    return run_cases('ours.py', 'create,step,history,search,memory,tree,surface', tree)


@pytest.fixture(scope='module')
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """The figures of ours with everything on, by one process."""
    root = tmp_path_factory.mktemp('whole')
    make_skills(root / 'skills', 3)
    return run_cases('ours.py', 'whole,whole-step,whole-create,delegate,skills,approve', root)


def test_the_cases_of_ours_give_all_figures(ours: dict[str, float]) -> None:
    assert ours.keys() == SHARED | {'tree_set_ms', 'tree_snapshot_ms', 'surface_tools', 'surface_chars'}
    assert all(value > 0 for value in ours.values())


def test_the_floor_gives_the_figures_that_ours_is_compared_by(tmp_path: Path) -> None:
    assert run_cases('bare.py', 'create,step,history,search,memory', make_tree(tmp_path)).keys() == SHARED


def test_the_cases_with_everything_on_give_all_figures(whole: dict[str, float]) -> None:
    assert whole.keys() == WHOLE | SKILLS | {'whole_tools', 'whole_chars'}
    # Few skills cost a run less than what two runs differ by.
    assert all(value > 0 for key, value in whole.items() if key != 'skills_run_ms')


def test_the_floor_gives_the_figures_with_everything_on(tmp_path: Path) -> None:
    assert run_cases('bare.py', 'whole-step,whole-create,delegate,approve', tmp_path).keys() == WHOLE


def test_the_floor_in_capabilities_gives_its_step_with_everything_on(tmp_path: Path) -> None:
    assert run_cases('bare_rooms.py', 'whole-step', tmp_path).keys() == {'whole_step_ms'}


def test_the_cases_of_a_store_give_all_figures(tmp_path: Path) -> None:
    names = ('step', 'growth', 'late', 'lines', 'lists', 'gc', 'files', 'agents')
    found = run_cases('ours.py', ','.join(f'store-{name}' for name in names), tmp_path)
    assert found.keys() == STORE
    assert run_cases('bare.py', 'store-step', tmp_path).keys() == {'stored_step_ms'}


def test_skills_that_are_not_found_are_refused(tmp_path: Path) -> None:
    make_skills(tmp_path / 'skills', 2)
    with pytest.raises(AssertionError, match='2 skills were found, not 3'):
        run_cases('ours.py', 'skills', tmp_path)


def test_the_floor_with_a_list_gives_what_depends_on_the_list(tmp_path: Path) -> None:
    assert run_cases('bare_rooms.py', 'step,history', tmp_path).keys() == {'step_ms', 'history_ms'}


def test_what_is_sent_by_default_stays_small(ours: dict[str, float]) -> None:
    assert ours['surface_tools'] <= 11
    assert ours['surface_chars'] <= 6_000


def test_what_is_sent_with_everything_on_stays_small(whole: dict[str, float]) -> None:
    assert whole['whole_tools'] <= 11
    assert whole['whole_chars'] <= 6_000


def test_files_in_memory_take_little_more_than_their_bytes(ours: dict[str, float]) -> None:
    assert ours['memory_ratio'] <= 1.2


def test_a_case_that_finds_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match='The case did not do its work'):
        run_cases('ours.py', 'search', tmp_path)


def test_the_tables_are_printed() -> None:
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


def test_a_target_is_judged_round_by_round_against_the_floor() -> None:
    # The medians differ by 2; in each round ours is 0.4 above the floor.
    samples = {'bare': {'step_ms': [1.0, 9.0, 3.0]}, 'ours': {'step_ms': [1.4, 9.4, 3.4]}}
    assert judge(samples)[1] == []
    samples = {'bare': {'step_ms': [1.0, 9.0, 3.0]}, 'ours': {'step_ms': [1.6, 9.6, 3.6]}}
    assert judge(samples)[1] == ['tool step, CPU ms: 0.60, target ≤ floor + 0.5']


def test_a_target_that_is_missed_is_printed_as_missed() -> None:
    tables, missed, _ = judge({'bare': {}, 'ours': {'grep_ms': [151.0], 'glob_ms': [150.0]}})
    by_title = {line.split('|')[1].strip(): line.split('|')[-2].strip() for line in tables.splitlines() if '|' in line}
    assert by_title['grep, 10,000 files, CPU ms'] == '**missed**'
    assert by_title['glob, 10,000 files, CPU ms'] == 'yes'
    assert missed == ['grep, 10,000 files, CPU ms: 151.00, target ≤ 150']


def test_the_tables_replace_what_was_between_the_marks() -> None:
    assert judge({})[2] == 'a<!-- figures: begin -->\n\nnew\n\n<!-- figures: end -->b'
