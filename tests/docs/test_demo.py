"""The demo: its first line, its output files, and that its figures match the files."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import re
import subprocess
import sys
import tokenize
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parent.parent.parent / 'examples'
CONSTRAINTS = EXAMPLES.parent / 'constraints.txt'
KEYS = ('PYDANTIC_DEEP_MODEL', 'ANTHROPIC_API_KEY', 'OPENAI_API_KEY', 'GOOGLE_API_KEY', 'GEMINI_API_KEY')


@dataclass
class Survey:
    """The figures computed by Python's tokenizer over the installed package, independently of the demo's tools."""

    file_count: int = 0
    by_file: Counter[str] = field(default_factory=Counter[str])
    by_code: Counter[str] = field(default_factory=Counter[str])
    private: Counter[str] = field(default_factory=Counter[str])
    """Lines with `attr-defined` that name something private, by file."""
    task_internals: int = 0


@pytest.fixture(scope='module')
def survey() -> Survey:
    found = Survey()
    for file in importlib.metadata.files('anyio') or []:
        if file.suffix != '.py':
            continue
        found.file_count += 1
        name = file.relative_to('anyio').as_posix()
        with Path(str(file.locate())).open('rb') as source:
            for token in tokenize.tokenize(source.readline):
                ignored = re.match(r'# type: ignore\[(.*?)\]', token.string)
                if token.type != tokenize.COMMENT or not ignored:
                    continue
                found.by_file[name] += 1
                found.by_code.update(ignored[1].split(', '))
                code = token.line[: token.start[1]]
                if ignored[1] == 'attr-defined' and re.search(r'(?<![a-zA-Z0-9_])_[a-z]', code):
                    found.private[name] += 1
                    found.task_internals += bool(re.search(r'\b_(fut_waiter|must_cancel)\b', code))
    return found


@dataclass(frozen=True)
class Demo:
    code: int
    stdout: str
    stderr: str
    directory: Path

    @property
    def report(self) -> str:
        return (self.directory / 'demo-output' / 'report.md').read_text()


@pytest.fixture(scope='module')
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """Run the demo without API keys, like a new user."""
    directory = tmp_path_factory.mktemp('demo')
    environment = {name: value for name, value in os.environ.items() if name not in KEYS}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / 'demo.py')], cwd=directory, env=environment, capture_output=True, text=True
    )
    return Demo(done.returncode, done.stdout, done.stderr, directory)


def tables(report: str) -> list[dict[str, int]]:
    """Return the tables of a report, with a name and a number in each row."""
    parts = report.split('## ')[1:]
    rows = [re.findall(r'^\| `(.+?)` \| (\d+) \|$', part, re.MULTILINE) for part in parts]
    return [{name: int(number) for name, number in part} for part in rows if part]


@pytest.mark.slow
def test_first_line_says_that_answers_are_hand_written(demo: Demo) -> None:
    assert demo.stdout.splitlines()[0] == (
        'No API key is set: the answers were written by hand. Tools and files are real.'
    )
    assert demo.code == 0


@pytest.mark.slow
def test_demo_plans_searches_reads_writes_and_edits(demo: Demo) -> None:
    called = Counter(re.findall(r'^✓ (\w+)', demo.stderr, re.MULTILINE))
    assert called == {'write_todos': 4, 'ls': 1, 'glob': 1, 'grep': 5, 'read_file': 2, 'write_file': 1, 'edit_file': 1}
    assert '● Write /report.md and check it' in demo.stderr


@pytest.mark.slow
def test_demo_ends_with_the_report(demo: Demo) -> None:
    assert demo.stdout.endswith(f'demo-output/report.md:\n\n{demo.report}')


def test_report_tables_match_the_files(demo: Demo, survey: Survey) -> None:
    by_file, by_code = tables(demo.report)
    assert by_file == survey.by_file
    assert by_code == survey.by_code


def test_report_sentences_match_the_files(demo: Demo, survey: Survey) -> None:
    text = ' '.join(demo.report.split())
    assert f'has {survey.file_count} Python files. {len(survey.by_file)} of them hold {survey.by_file.total()} ' in text
    code, count = survey.by_code.most_common(1)[0]
    assert f'## What `{code}` hides {survey.private.total()} of its {count} lines reach for a private name' in text
    assert f'; {survey.private["_backends/_asyncio.py"]} of these are in `_backends/_asyncio.py`.' in text
    assert f' {survey.task_internals} of these use `_fut_waiter` and `_must_cancel`' in text


def test_answer_has_the_figures_of_the_files(demo: Demo, survey: Survey) -> None:
    answer = demo.stdout.split('\n', 1)[1].split('demo-output/report.md')[0]
    figures = {int(number) for number in re.findall(r'\b(?<!\.)\d+\b(?!\.)', answer.replace('4.16.0', ''))}
    assert figures == {
        survey.file_count,
        len(survey.by_file),
        survey.by_file.total(),
        survey.by_code['attr-defined'],
        survey.private.total(),
        survey.task_internals,
    }


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The demo as a module, in a temporary working directory."""
    monkeypatch.setattr(sys, 'path', [str(EXAMPLES), *sys.path])
    monkeypatch.chdir(tmp_path)
    return importlib.import_module('demo')


def test_recording_is_made_with_the_pinned_version(script: ModuleType) -> None:
    assert f'\nanyio=={script.RECORDED_VERSION}\n' in CONSTRAINTS.read_text()


def test_another_version_is_refused(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, 'RECORDED_VERSION', '1.0')
    assert script.run_demo([], {}) == 1
    assert 'its figures would be wrong. Install anyio==1.0, or name a model' in capsys.readouterr().err
    assert not Path('demo-output').exists()


def test_changed_files_stop_the_demo(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = script.copy_source

    def copy_and_add(directory: Path) -> None:
        copy(directory)
        (directory / 'anyio' / 'new.py').write_text('x = 1  # type: ignore[misc]\n')

    monkeypatch.setattr(script, 'copy_source', copy_and_add)
    assert script.run_demo([], {}) == 1
    assert 'has no response to this request' in capsys.readouterr().err
    assert not Path('demo-output/report.md').exists()


@pytest.mark.parametrize(
    ('argv', 'environment', 'options'),
    [
        (['--model', 'anthropic:x'], {}, ['--model', 'anthropic:x']),
        ([], {'ANTHROPIC_API_KEY': 'k'}, []),
        ([], {'OPENAI_API_KEY': 'k'}, []),
    ],
)
def test_demo_runs_live_with_a_key_or_a_model(
    script: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    argv: list[str],
    environment: dict[str, str],
    options: list[str],
) -> None:
    calls: list[tuple[list[str], object]] = []

    def main(args: list[str], *, models: object) -> int:
        calls.append((args, models))
        return 0

    monkeypatch.setattr(script, 'main', main)
    assert script.run_demo(argv, environment) == 0
    assert capsys.readouterr().out.startswith('Live: ')
    ((args, models),) = calls
    assert args == ['run', script.TASK, '--dir', 'demo-output', '--approvals=allow', '--no-user-skills', *options]
    assert models == {}


def test_demo_pauses_before_each_answer_on_a_terminal(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    wait = script.anyio.sleep

    async def sleep(seconds: float) -> None:
        if seconds != script.PAUSE_SECONDS:  # of the command line
            await wait(seconds)
            return
        waits.append(seconds)

    monkeypatch.setattr(script.anyio, 'sleep', sleep)
    monkeypatch.setattr(sys.stderr, 'isatty', lambda: True, raising=False)
    monkeypatch.setenv('TERM', 'dumb')
    assert script.run_demo([], {}) == 0
    assert waits == [script.PAUSE_SECONDS] * 10


def test_recording_again_changes_nothing(script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    again = importlib.import_module('record_demo_again')
    recording = tmp_path / 'recording.json'
    recording.write_bytes(script.RECORDING.read_bytes())
    monkeypatch.setattr(again, 'RECORDING', recording)
    assert again.record_again() == 0
    assert recording.read_bytes() == script.RECORDING.read_bytes()
