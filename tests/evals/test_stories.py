"""Turns of the suite's stories as cases: replayed with the same code, and with changed code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent

STORIES = (
    'tests/turn/test_version_stories.py',
    'tests/turn/test_approval_stories.py',
    'tests/versions/comparison/test_replay.py',
    'tests/summarization/test_summaries_in_versions.py',
)

NOT_EXACT = {
    'test_replay_uses_the_backend_of_the_turn_and_not_of_the_conversation': 'request 1, tools',  # its last turn: in a view
    'test_hook_that_runs_commands_raises_in_a_replay': 'A replay runs no commands',
}
"""Stories of turns that no replay repeats, and the reason that `record_case` names."""


@pytest.mark.slow
def test_turns_of_the_stories_replay_exactly_and_changes_are_named(tmp_path: Path):
    """`evals record` of 50 recorded turns of the suite's stories replays exactly on the same code and names the
    difference on changed code.

    The stories run with `story_plugin`, which records every turn when it ends, reads the case from its folder, and
    replays it four times: with the same code, with other instructions, without a tool, and with another result of a
    tool. All turns are checked; those that called no tool on files or todos have no result to change.
    """
    turns_file = tmp_path / 'turns.jsonl'
    done = subprocess.run(
        [sys.executable, '-m', 'pytest', '-q', '-m', 'not slow', '-p', 'tests.evals.story_plugin', *STORIES],
        cwd=ROOT,
        env={**os.environ, 'STORY_TURNS': str(turns_file), 'PYTHONPATH': str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    turns: list[dict[str, Any]] = [json.loads(line) for line in turns_file.read_text().splitlines()]

    for turn in [turn for turn in turns if 'error' in turn]:
        assert NOT_EXACT[turn['test'].partition('::')[2]] in turn['error']
    recorded = [turn for turn in turns if 'error' not in turn]
    assert len(recorded) >= 50
    assert [turn['test'] for turn in recorded if turn['same']] == []
    for turn in recorded:
        assert turn['instructions'][0].startswith('request 1, instructions'), turn
        if 'removed' in turn:
            assert f'"name": "{turn["removed"]}"' in turn['tool'][0], turn
        if 'changed' in turn:
            assert any(f'tool {turn["changed"]} returned: ' in difference for difference in turn['result']), turn
    assert sum('removed' in turn for turn in recorded) >= 50
    assert sum('changed' in turn for turn in recorded) >= 25
