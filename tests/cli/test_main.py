"""`main`, the entry point of the command line."""

from __future__ import annotations

import gc
import io
import json
import os
import subprocess
import sys
from collections.abc import Generator
from importlib.abc import MetaPathFinder
from io import StringIO
from pathlib import Path
from typing import IO, TypeAlias

import pytest
from pydantic_ai.messages import UserPromptPart

from pydantic_deep.cli import main
from pydantic_deep.testing import ScriptedModel

Done: TypeAlias = subprocess.CompletedProcess[str]


def test_main_accepts_custom_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(['run', 'Hello', '--dir', str(tmp_path), '--model', 'house'], models={'house': ScriptedModel('Hi.')})
    assert (code, capsys.readouterr().out) == (0, 'Hi.\n')


def test_main_defaults_to_the_arguments_of_the_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, 'argv', ['pydantic-deep', '--version'])
    assert main() == 0
    assert capsys.readouterr().out.startswith('pydantic-deep 0.')


@pytest.mark.parametrize(('is_terminal', 'advice'), [(True, 'describe a task, or pipe it'), (False, 'it is empty')])
def test_main_returns_2_on_usage_errors(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, is_terminal: bool, advice: str
) -> None:
    stdin = io.StringIO('')
    monkeypatch.setattr(stdin, 'isatty', lambda: is_terminal)
    monkeypatch.setattr(sys, 'stdin', stdin)
    assert main(['run']) == 2
    assert advice in capsys.readouterr().err


def test_closed_streams_are_the_null_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller such as a daemon may close standard input and output: `run` then has an empty task, and prints nothing."""
    for name in ('stdin', 'stdout', 'stderr'):
        monkeypatch.setattr(sys, name, None)
    assert main(['run']) == 2
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        stream.close()


@pytest.mark.parametrize('command', ['run', 'chat'])
def test_invalid_bytes_of_the_input_are_escapes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str) -> None:
    """A pipe may have texts in another encoding, such as a diff of a file in Latin-1."""
    monkeypatch.setattr(sys, 'stdin', io.TextIOWrapper(io.BytesIO(b'caf\xe9'), encoding='utf-8'))
    model = ScriptedModel('One.')
    assert main([command, '--no-store', '--model', 'given', '--dir', str(tmp_path)], models={'given': model}) == 0
    prompt = next(part for part in model.requests[0].messages[0].parts if isinstance(part, UserPromptPart))
    assert prompt.content == r'caf\xe9'


def test_main_returns_130_on_an_interrupt_outside_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr('pydantic_deep.cli._app.app', interrupt)
    assert main(['models']) == 130


@pytest.mark.parametrize('is_program', [True, False])
def test_garbage_is_searched_rarely_and_not_in_imported_modules_of_the_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_program: bool
) -> None:
    """The objects of another program, which calls `main` with arguments, stay as they are, and so does its threshold."""
    frozen: list[bool] = []
    thresholds: list[int] = []
    monkeypatch.setattr('gc.freeze', lambda: frozen.append(gc.isenabled()))
    monkeypatch.setattr('gc.set_threshold', thresholds.append)
    monkeypatch.setattr(sys, 'argv', ['pydantic-deep', '--version'])
    assert main(None if is_program else ['--version']) == 0
    assert frozen == [False] * is_program
    assert thresholds == [20_000] * is_program
    assert gc.isenabled()


PROGRAM_WITHOUT_PACKAGE = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == {package!r}:
            raise ModuleNotFoundError(f'No module named {{name!r}}', name=name)
sys.meta_path.insert(0, Missing())
from pydantic_deep.cli import main
sys.exit(main(['models']))
"""


def test_interrupt_while_the_command_line_is_imported_prints_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    class Interrupted(MetaPathFinder):
        def find_spec(self, fullname: str, path: object, target: object = None) -> None:
            if fullname == 'pydantic_deep.cli._app':
                raise KeyboardInterrupt

    monkeypatch.setattr(sys, 'meta_path', [Interrupted(), *sys.meta_path])
    monkeypatch.delitem(sys.modules, 'pydantic_deep.cli._app')
    assert main(['models']) == 130
    assert capfd.readouterr() == ('', '')


INTERRUPTED_PROGRAM = """
import signal, sys
class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == 'pydantic_ai':
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupted())
from pydantic_deep.cli import main
sys.exit(main(['models']))
"""


@pytest.mark.slow
def test_interrupt_while_pydantic_ai_is_imported_prints_nothing() -> None:
    """Its import is most of the start, so importing `main` does not include it."""
    done = subprocess.run([sys.executable, '-c', INTERRUPTED_PROGRAM], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, '', '')


@pytest.mark.slow
@pytest.mark.parametrize('package', ['typer', 'rich', 'prompt_toolkit'])
def test_main_without_the_extra_names_the_package_to_install(package: str) -> None:
    done = subprocess.run(
        [sys.executable, '-c', PROGRAM_WITHOUT_PACKAGE.format(package=package)], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.endswith(
        f"The command line needs '{package}', which is not installed. Install the extra: pip install 'versioned-deep-agents[cli]'\n"
    )


@pytest.mark.parametrize('package', ['typer', 'pydantic_ai'])
def test_main_handles_a_missing_package_in_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], package: str
) -> None:
    class Missing(MetaPathFinder):
        def find_spec(self, fullname: str, path: object, target: object = None) -> None:
            if fullname == 'pydantic_deep.cli._app':
                raise ModuleNotFoundError(f'No module named {package!r}', name=package)

    monkeypatch.setattr(sys, 'meta_path', [Missing(), *sys.meta_path])
    monkeypatch.delitem(sys.modules, 'pydantic_deep.cli._app')
    if package == 'typer':
        assert main(['models']) == 2
        assert capsys.readouterr().err.startswith("The command line needs 'typer', which is not installed.")
    else:
        with pytest.raises(ModuleNotFoundError, match='pydantic_ai'):
            main(['models'])


@pytest.mark.slow
def test_another_missing_module_raises() -> None:
    done = subprocess.run(
        [sys.executable, '-c', PROGRAM_WITHOUT_PACKAGE.format(package='rich.live')], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.endswith("ModuleNotFoundError: No module named 'rich.live'\n")


@pytest.mark.slow
def test_package_does_not_import_the_cli() -> None:
    code = "import sys, pydantic_deep; sys.exit(any(name.startswith('pydantic_deep.cli') for name in sys.modules))"
    assert subprocess.run([sys.executable, '-c', code]).returncode == 0


def test_main_writes_to_any_text_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = StringIO()
    monkeypatch.setattr(sys, 'stdout', stream)
    assert main(['models', 'anthropic']) == 0
    assert 'anthropic:claude-opus-5-5' in stream.getvalue()


PROGRAM = """
import os, sys
from pydantic_deep.cli import main
from pydantic_deep.testing import ScriptedModel, call
def answer(messages, info):
    os.read(0, 1)  # waits for the parent process
    return 'na\u00efve \u2713'
sys.exit(main(models={'given': ScriptedModel(call('ls', path='/'), answer)}))
"""
RUN = ('run', 'Go', '--model', 'given')


@pytest.fixture
def variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: Path) -> dict[str, str]:
    """Environment variables with a separate store. The test runs in the `work` directory."""
    monkeypatch.chdir(work)
    return {**os.environ, 'XDG_STATE_HOME': str(tmp_path / 'state'), 'PYTHONUNBUFFERED': ''}


def run_program(variables: dict[str, str], *arguments: str, stdout: IO[bytes] | int = subprocess.PIPE) -> Done:
    return subprocess.run(
        [sys.executable, '-c', PROGRAM, *arguments],
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_unencodable_output_is_escaped(variables: dict[str, str]) -> None:
    done = run_program({**variables, 'PYTHONIOENCODING': 'ascii', 'PYTHONUTF8': '0'}, *RUN)
    assert (done.returncode, done.stdout) == (0, 'na\\xefve \\u2713\n')
    assert '\\u2713 ls /' in done.stderr


@pytest.fixture
def closed_pipe() -> Generator[IO[bytes]]:
    """A pipe with a closed read end."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, 'wb') as pipe:
        yield pipe


@pytest.mark.slow
@pytest.mark.parametrize('command', [('log',), ('sql', 'SELECT 1 AS n', '--csv'), (*RUN, '--json')])
@pytest.mark.usefixtures('measured_processes')
def test_closed_stdout_prints_no_error(
    variables: dict[str, str], closed_pipe: IO[bytes], command: tuple[str, ...]
) -> None:
    assert run_program(variables, *RUN).returncode == 0
    done = run_program(variables, *command, stdout=closed_pipe)
    assert (done.returncode, done.stderr) == (1, '')


@pytest.mark.slow
def test_turn_with_closed_event_stream_is_stored_as_interrupted(variables: dict[str, str]) -> None:
    pipe, argv = subprocess.PIPE, [sys.executable, '-c', PROGRAM, *RUN, '--json']
    with subprocess.Popen(argv, env=variables, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        assert running.stderr is not None
        assert any('"tool_result"' in line for line in running.stdout)
        running.stdout.close()
        running.stdin.write('\n')
        running.stdin.close()
        assert running.stderr.read() == ''
    assert running.returncode == 1
    assert run_program(variables, *RUN, '--continue').returncode == 0
    rows = json.loads(run_program(variables, 'log', '--json').stdout)
    assert [row['state'] for row in rows] == ['complete', 'interrupted', 'complete']


@pytest.mark.slow
@pytest.mark.usefixtures('measured_processes')
@pytest.mark.skipif(not Path('/dev/full').exists(), reason='/dev/full exists only on Linux')
def test_full_output_device_prints_one_sentence(variables: dict[str, str]) -> None:
    with Path('/dev/full').open('wb') as full:
        done = run_program(variables, 'models', stdout=full)
        assert (done.returncode, done.stderr) == (1, 'The output cannot be written: No space left on device.\n')
        done = run_program(variables, *RUN, '--json', stdout=full)
        assert (done.returncode, done.stderr) == (1, 'standard output: No space left on device.\n')
        done = run_program(variables, *RUN, stdout=full)
        assert (done.returncode, done.stderr.splitlines()[-1]) == (1, 'standard output: No space left on device.')
