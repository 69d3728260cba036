"""One run of one task by one contestant, and the file of finished runs."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from .failures import Ending, Reason, classify
from .harness import HarnessTask
from .recorder import Journal, Recorder
from .tasks import Task
from .trace import Step, count_calls


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A contestant that is ready to run: its name and the command that reads a job from stdin."""

    contestant: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    """Its environment variables, without any key."""


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """The options of all runs."""

    model: str
    settings: Mapping[str, Any]
    """Fields of each request to the model, such as `temperature`."""
    template: str
    """The text that the agents receive, with `{prompt}` for the prompt of the task."""
    timeout_seconds: float
    """Maximum duration of a run."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A line of the results."""

    contestant: str
    task: str
    seed: int
    model: str
    solved: bool
    """Whether the verifier accepts the files at the end, even if the run was cut off."""
    ending: Ending
    reason: Reason | None
    """Why the task is not solved."""
    message: str
    """The message of the verifier or of the exception."""
    requests: int
    """Number of requests that the model answered, subagents included."""
    input_tokens: int
    output_tokens: int
    calls: dict[str, int]
    """Number of calls by tool."""
    changed_files: list[str]
    seconds: float
    answer: str
    trace: list[Step]

    @property
    def key(self) -> tuple[str, str, int]:
        """Identifies the run within a file."""
        return self.contestant, self.task, self.seed


def run_task(launch: Launch, task: Task | HarnessTask, seed: int, conditions: Conditions, recorder: Recorder) -> Run:
    """Let a contestant work on a task in a temporary directory, and return what came of it.

    Raises:
        ModelUnavailableError: The run failed because of the server, not of the agent.
    """
    settings = {'model': conditions.model, 'seed': seed, **conditions.settings}
    journal = Journal(request_limit=task.request_limit, settings=settings)
    with TemporaryDirectory(prefix='lab-') as temporary:
        directory, home = Path(temporary, 'task'), Path(temporary, 'home')
        directory.mkdir()
        home.mkdir()
        task.write(directory)
        before = _read_files(directory)
        job = {
            'prompt': conditions.template.replace('{prompt}', task.prompt),
            'directory': str(directory),
            'model': conditions.model,
            'denied': list(task.denied),
            'has_skills': task.has_skills,
        }
        started = time.monotonic()
        with recorder.record(f'{launch.contestant}-{home.parent.name}', journal) as url:
            environment = {**launch.environment, 'HOME': str(home)}
            answer, error = _call(launch.command, {**job, 'url': url}, environment, home, conditions.timeout_seconds)
        seconds = time.monotonic() - started
        after = _read_files(directory)
        problem = task.check(directory)
    ending = _ending(journal, answer, error)
    if ending == 'error' and journal.is_unavailable:
        raise ModelUnavailableError(journal.errors[-1])
    changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    return Run(
        contestant=launch.contestant,
        task=task.id,
        seed=seed,
        model=conditions.model,
        solved=problem is None,
        ending=ending,
        reason=None if problem is None else classify(journal.trace, ending=ending, changed_files=changed),
        message='; '.join(text for text in (problem, error, *journal.errors) if text),
        requests=len(journal.exchanges),
        input_tokens=journal.tokens('prompt_tokens'),
        output_tokens=journal.tokens('completion_tokens'),
        calls=count_calls(journal.trace),
        changed_files=changed,
        seconds=round(seconds, 1),
        answer=answer or '',
        trace=journal.trace,
    )


def _call(
    command: Iterable[str], job: Mapping[str, Any], environment: Mapping[str, str], start: Path, timeout_seconds: float
) -> tuple[str | None, str | None]:
    """Return the answer and the error of a contestant's process: neither if it was stopped after the timeout."""
    try:
        done = subprocess.run(
            list(command),
            input=json.dumps(job),
            env=environment,
            cwd=start,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_seconds,
        )
    except subprocess.TimeoutExpired:
        return None, None
    try:
        result = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return None, f'exit {done.returncode}: {done.stderr[-2_000:]}'
    return result.get('answer'), result.get('error')


def _ending(journal: Journal, answer: str | None, error: str | None) -> Ending:
    if answer is None and error is None:
        return 'timed out'
    if journal.was_limited:
        return 'request limit'
    return 'finished' if error is None else 'error'


def _read_files(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob('*')
        if path.is_file() and '__pycache__' not in path.parts
    }


class ModelUnavailableError(Exception):
    """The server cannot be reached, or refuses requests whatever they contain."""


class WrongModelError(Exception):
    """The file of results has runs of another model."""


def load_runs(path: Path, model: str | None = None) -> list[Run]:
    """Return the runs of a file, without an incomplete last line, which is left after a crash.

    Raises:
        WrongModelError: A run is of another model than `model`.
    """
    if not path.exists():
        return []
    *lines, _incomplete = path.read_bytes().split(b'\n')  # a text of a model may contain other line separators
    runs = [Run(**json.loads(line)) for line in lines]
    for run in runs:
        if model is not None and run.model != model:
            raise WrongModelError(f'{path} has runs of {run.model!r}. Pass another `--out` for {model!r}.')
    return runs


def append_run(path: Path, run: Run) -> None:
    """Append a run as one line, after removing an incomplete last line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open('ab+') as file:
        file.seek(0)
        content = file.read()
        file.truncate(content.rfind(b'\n') + 1)
        file.write(json.dumps(asdict(run)).encode() + b'\n')  # ASCII, as a model may write half a surrogate pair
