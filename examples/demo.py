"""What does a deep agent do? Watch one survey the source of a third-party package.

It gets a copy of the installed source of anyio, plans, searches, reads, writes `report.md` with figures, and edits it
once. With ANTHROPIC_API_KEY, OPENAI_API_KEY or `--model`, a live model does this. Otherwise a recorded conversation is
replayed, with tools that work on the real files. If a tool returns another result than the recorded one, the demo stops
and reports that.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from rich.console import Console
from rich.markdown import Markdown

from pydantic_deep.cli import main
from pydantic_deep.testing import RecordedModel

PACKAGE = 'anyio'
RECORDED_VERSION = '4.16.0'
"""The version of the package to which the recorded figures apply; `constraints.txt` pins it."""

RECORDING = Path(__file__).with_name('demo-recording.json')

DIRECTORY = Path('demo-output')

TASK = (
    'In /anyio is the source of the package anyio. Where does it tell its type checker to look away? Count the '
    '`type: ignore` comments by file and by code, find out what the most frequent code hides, and write it to '
    '/report.md with the figures. Plan first, and check the report when it is written.'
)

UNATTENDED = ['--approvals=allow', '--no-user-skills']
"""No approvals, since all files are a copy in a separate directory, and the same skills for every user."""

LIVE_VARIABLES = ('PYDANTIC_DEEP_MODEL', 'ANTHROPIC_API_KEY', 'OPENAI_API_KEY', 'GOOGLE_API_KEY', 'GEMINI_API_KEY')

PAUSE_SECONDS = 0.8
"""Delay of the recorded model at a terminal, so that a person can follow."""


class PacedModel(RecordedModel):
    """Replays a recording at the pace of a reader."""

    async def answer(
        self, messages: list[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> ModelResponse:
        """Return the recorded response after a delay."""
        await anyio.sleep(PAUSE_SECONDS)
        return await super().answer(messages, settings, parameters)


def run_demo(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the demo and return its exit code."""
    parser = argparse.ArgumentParser(description='Watch a deep agent survey a package and write a report.')
    parser.add_argument('--model', help='model to use, such as anthropic:claude-opus-5-5; see `pydantic-deep models`')
    options = parser.parse_args(argv)

    if options.model or any(environment.get(name) for name in LIVE_VARIABLES):
        print(f'Live: a model answers, and writes in {DIRECTORY}/ without asking (--approvals=allow).', flush=True)
        return work(['--model', options.model] if options.model else [], {})

    print('No API key is set: the answers were written by hand. Tools and files are real.', flush=True)
    if (installed := importlib.metadata.version(PACKAGE)) != RECORDED_VERSION:
        print(
            f'The recording is about {PACKAGE} {RECORDED_VERSION}, and {installed} is installed: its figures would be '
            f'wrong. Install {PACKAGE}=={RECORDED_VERSION}, or name a model with --model.',
            file=sys.stderr,
        )
        return 1
    model = PacedModel(RECORDING) if sys.stderr.isatty() else RecordedModel(RECORDING)
    return work(['--model', 'recorded'], {'recorded': model})


def work(options: list[str], models: Mapping[str, Model]) -> int:
    """Run the task with the command line in a fresh directory, and show the report."""
    copy_source(DIRECTORY)
    code = main(['run', TASK, '--dir', str(DIRECTORY), *UNATTENDED, *options], models=models)
    report = DIRECTORY / 'report.md'
    if report.exists():
        show(report)
    return code


def show(report: Path) -> None:
    """Print the report, rendered if the output is a terminal."""
    console = Console()
    if console.is_terminal:
        console.rule(str(report))
        console.print(Markdown(report.read_text()))
    else:
        print(f'\n{report}:\n\n{report.read_text()}', end='')


def copy_source(directory: Path) -> None:
    """Copy the Python files of the package into a new directory."""
    files = importlib.metadata.files(PACKAGE) or []
    shutil.rmtree(directory, ignore_errors=True)
    for file in files:
        if file.suffix == '.py' and file.parts[0] == PACKAGE:
            target = directory / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(str(file.locate()), target)


if __name__ == '__main__':
    sys.exit(run_demo(sys.argv[1:], os.environ))
