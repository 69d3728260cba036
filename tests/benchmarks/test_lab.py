"""The lab's pure parts, its verifiers, and its runs against a model that is a script."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any, cast

import pytest
from inline_snapshot import snapshot

from benchmarks.lab.__main__ import main
from benchmarks.lab.failures import Ending, Reason, classify
from benchmarks.lab.recorder import Recorder, apply_settings
from benchmarks.lab.runs import (
    Conditions,
    Launch,
    ModelUnavailableError,
    Run,
    WrongModelError,
    append_run,
    load_runs,
    run_task,
)
from benchmarks.lab.table import render_table, wilson_interval
from benchmarks.lab.tasks import TASKS, Changes, Task, apply_changes
from benchmarks.lab.trace import MAX_RESULT_CHARS, Call, Step, count_calls, trace_of

BY_ID = {task.id: task for task in TASKS}


@pytest.mark.parametrize('task', TASKS, ids=lambda task: task.id)
def test_verifier_accepts_the_right_result_and_refuses_wrong_ones(task: Task) -> None:
    def verify(changes: Changes) -> str | None:
        return task.verify(apply_changes(task.files, changes), task.files)

    assert verify(task.right) is None
    assert verify({**task.right, 'notes-of-an-agent.txt': 'A further file.'}) is None
    assert task.wrong
    assert verify({})
    for changes in task.wrong:
        assert verify(changes), changes


@pytest.mark.parametrize('task', TASKS, ids=lambda task: task.id)
@pytest.mark.parametrize('text', ['[' * 100_000, 'a' * 200_000, '\0"'], ids=['nested', 'long', 'binary'])
def test_verifier_refuses_files_that_cannot_be_parsed(task: Task, text: str) -> None:
    """A verifier that raises would end the lab, and again at each attempt to continue."""
    paths = {*task.files, *task.right, *(path for changes in task.wrong for path in changes)}
    assert task.verify(dict.fromkeys(paths, text), task.files)


def test_tasks_are_of_each_kind() -> None:
    assert len(BY_ID) == len(TASKS) >= 20
    assert list(dict.fromkeys(task.group for task in TASKS)) == snapshot(
        ['edits', 'searches', 'many-files', 'tables', 'delegation', 'skills', 'long-results', 'approvals']
    )
    assert {task.group for task in TASKS if task.has_skills} == {'skills'}
    assert {task.group for task in TASKS if task.denied} == {'approvals'}


def test_task_is_written_and_checked_in_a_directory(tmp_path: Path) -> None:
    task = BY_ID['many-files/notice']
    task.write(tmp_path)
    assert (tmp_path / 'sub/c.py').read_text() == 'C = 3\n'
    assert task.check(tmp_path) == snapshot("a.py is 'A = 1\\n', not '# Copyright 2026 Example\\nA = 1\\n'")

    replace(task, files=cast('Mapping[str, str]', task.right)).write(tmp_path)
    assert task.check(tmp_path) is None


def call(tool: str, **arguments: object) -> Call:
    return {'tool': tool, 'arguments': arguments, 'result': ''}


def steps(*calls: Call) -> list[Step]:
    return [*({'text': '', 'calls': [each]} for each in calls), {'text': 'Done.', 'calls': []}]


READ = call('read_file', path='a.txt')
PLAN = call('write_todos', todos=[])
LOOP = steps(*[READ] * 3)


@pytest.mark.parametrize(
    ('trace', 'ending', 'changed', 'reason'),
    [
        (steps(), 'finished', [], 'gave up'),
        (steps(READ, READ), 'finished', [], 'gave up'),
        (steps(PLAN, READ), 'finished', [], 'gave up'),
        (steps(PLAN), 'finished', [], 'planned only'),
        (steps(READ, PLAN), 'finished', [], 'planned only'),
        (steps(PLAN), 'finished', ['a.txt'], 'wrong edit'),
        (steps(READ), 'timed out', [], 'timed out'),
        (steps(READ), 'request limit', ['a.txt'], 'request limit'),
        (steps(READ), 'error', [], 'error'),
        (LOOP, 'finished', ['a.txt'], 'looped'),
        (LOOP, 'error', [], 'looped'),
        (LOOP, 'request limit', [], 'looped'),
        (steps(call('f', a=1, b=2), call('f', b=2, a=1), READ, call('f', a=1, b=2)), 'finished', [], 'looped'),
        (steps(call('f', a=1), call('f', a=2), call('g', a=1)), 'finished', [], 'gave up'),
    ],
)
def test_failure_has_a_reason(trace: list[Step], ending: Ending, changed: list[str], reason: Reason) -> None:
    assert classify(trace, ending=ending, changed_files=changed) == reason


def tool_call(id: str, name: str, arguments: str) -> dict[str, object]:
    return {'id': id, 'type': 'function', 'function': {'name': name, 'arguments': arguments}}


def test_trace_joins_calls_with_the_results_of_later_requests() -> None:
    first: dict[str, Any] = {
        'role': 'assistant',
        'content': None,
        'tool_calls': [tool_call('1', 'ls', '{"path": "."}')],
    }
    result = {'role': 'tool', 'tool_call_id': '1', 'content': [{'type': 'text', 'text': 'x' * (MAX_RESULT_CHARS + 1)}]}
    second = {'role': 'assistant', 'content': 'So.', 'tool_calls': [tool_call('2', 'ls', '{"path')]}
    prompt = {'role': 'user', 'content': 'Go.'}

    trace = trace_of([([prompt], first), ([prompt, first, result], second)])

    assert trace == [
        {
            'text': '',
            'calls': [{'tool': 'ls', 'arguments': {'path': '.'}, 'result': 'x' * MAX_RESULT_CHARS}],
        },
        {'text': 'So.', 'calls': [{'tool': 'ls', 'arguments': '{"path', 'result': None}]},
    ]
    assert count_calls(trace) == {'ls': 2}


def test_settings_replace_and_remove_fields_of_a_request() -> None:
    body = {'model': 'a', 'temperature': 1, 'seed': 3}
    assert apply_settings(body, {'temperature': 0, 'seed': None}) == {'model': 'a', 'temperature': 0}


# The bounds of 4 of 10 are in R: prop.test(4, 10, correct=FALSE).
@pytest.mark.parametrize(
    ('successes', 'total', 'low', 'high'),
    [(4, 10, 0.1682, 0.6873), (0, 12, 0, 0.2425), (12, 12, 0.7575, 1), (0, 0, 0, 1)],
)
def test_interval_is_that_of_wilson(successes: int, total: int, low: float, high: float) -> None:
    assert wilson_interval(successes, total) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


RUN = Run(
    contestant='ours',
    task='edits/bug',
    seed=0,
    model='local',
    solved=True,
    ending='finished',
    reason=None,
    message='',
    requests=3,
    input_tokens=1500,
    output_tokens=80,
    calls={'edit_file': 1},
    changed_files=['stats.py'],
    seconds=12.0,
    answer='Done.',
    trace=steps(READ),
)


def test_table_has_intervals_means_and_reasons() -> None:
    failed = replace(RUN, seed=1, solved=False, reason='looped', input_tokens=2500)
    cut_off = replace(RUN, task='tables/sum', ending='request limit')
    bare = replace(RUN, contestant='bare', solved=False, reason='gave up')
    assert render_table([RUN, failed, cut_off, bare]) == snapshot("""\
| contestant | solved | 95% | requests | input tokens | output tokens | seconds | why not solved |
| --- | --- | --- | --- | --- | --- | --- | --- |
| ours | 2 of 3 | 21% to 94% | 3.0 | 1,833 | 80 | 12 | 1 looped, (1 solved, then cut off) |
| bare | 0 of 1 | 0% to 79% | 3.0 | 1,500 | 80 | 12 | 1 gave up |

| task | ours | bare |
| --- | --- | --- |
| edits/bug | 1 of 2: looped | gave up |
| tables/sum | solved |  |\
""")


def test_runs_survive_a_line_that_a_crash_cut_off(tmp_path: Path) -> None:
    path = tmp_path / 'results' / 'runs.jsonl'
    assert load_runs(path) == []
    append_run(path, RUN)
    line = path.read_text()
    path.write_text(line + line[:100])
    assert load_runs(path, 'local') == [RUN]

    append_run(path, replace(RUN, seed=1))
    assert load_runs(path) == [RUN, replace(RUN, seed=1)]


@pytest.mark.parametrize('text', ['a\u2028b', 'a\x85b', 'a\x0cb', '\ud83d', 'задача'])
def test_runs_have_any_text_of_a_model(tmp_path: Path, text: str) -> None:
    path = tmp_path / 'runs.jsonl'
    append_run(path, replace(RUN, answer=text))
    append_run(path, replace(RUN, seed=1))
    assert load_runs(path) == [replace(RUN, answer=text), replace(RUN, seed=1)]


def test_runs_are_read_from_a_file_with_characters_that_are_not_escaped(tmp_path: Path) -> None:
    path, run = tmp_path / 'runs.jsonl', replace(RUN, answer='a\u2028b')
    path.write_bytes(json.dumps(asdict(run), ensure_ascii=False).encode() + b'\n')
    assert load_runs(path) == [run]


def test_runs_of_another_model_are_refused(tmp_path: Path) -> None:
    append_run(tmp_path / 'runs.jsonl', RUN)
    with pytest.raises(WrongModelError, match=r"has runs of 'local'\. Pass another `--out` for 'other'\."):
        load_runs(tmp_path / 'runs.jsonl', 'other')


Respond = Callable[[Mapping[str, Any]], Mapping[str, Any] | int | None]
"""Returns the message that answers a request, or the status of an error of the server; `None` for 500."""


@pytest.fixture
def serve() -> Iterator[Callable[[Respond], str]]:
    """A function that starts a model on loopback, and returns its base URL."""
    servers: list[ThreadingHTTPServer] = []

    def start(respond: Respond) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
                message = respond({**body, 'key': self.headers['Authorization'], 'path': self.path})
                usage = {'prompt_tokens': 100, 'completion_tokens': 7, 'total_tokens': 107}
                choice = {'index': 0, 'message': message, 'finish_reason': 'stop'}
                reply = {'id': 'r', 'object': 'chat.completion', 'created': 0, 'model': 'm', 'choices': [choice]}
                status = message if isinstance(message, int) else 500 if message is None else 200
                self.send_response(status)
                self.send_header('Content-Type', 'application/json')
                self.end_headers()
                content = json.dumps({**reply, 'usage': usage} if status == 200 else {'error': 'busy'}).encode()
                with suppress(BrokenPipeError):  # of a run that was stopped
                    self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                pass

        servers.append(ThreadingHTTPServer(('127.0.0.1', 0), Handler))
        Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f'http://127.0.0.1:{servers[-1].server_port}/v1'

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


ASK = """
import json, sys, urllib.request, urllib.error
job = json.load(sys.stdin)
def ask(content, path='/chat/completions', **fields):
    body = {'model': 'mine', 'temperature': 1, 'messages': [{'role': 'user', 'content': content}], **fields}
    request = urllib.request.Request(job['url'] + path, json.dumps(body).encode(), {'Content-Type': 'application/json'})
    try:
        with urllib.request.urlopen(request) as response:
            return json.load(response)['choices'][0]['message']['content']
    except urllib.error.HTTPError as error:
        return json.load(error)['error']
def answer(**result):
    print('A line of a library.')
    print(json.dumps(result))
"""
"""A contestant that asks the model itself, without a framework."""

TASK = replace(BY_ID['edits/constant'], request_limit=2)

CONDITIONS = Conditions(model='local', settings={'temperature': 0}, template='{prompt} Then stop.', timeout_seconds=60)


def attempt(url: str, script: str, *, task: Task = TASK, conditions: Conditions = CONDITIONS) -> Run:
    launch = Launch(contestant='script', command=(sys.executable, '-c', ASK + script), environment={})
    with Recorder(url, 'secret').serve() as recorder:
        return run_task(launch, task, 5, conditions, recorder)


EDIT = """
from pathlib import Path
path = Path(job['directory'], 'settings.py')
path.write_text(path.read_text().replace('TIMEOUT = 30', 'TIMEOUT = 45'))
"""


def test_run_records_requests_that_have_the_same_settings(serve: Callable[[Respond], str]) -> None:
    seen: list[Mapping[str, Any]] = []

    def respond(body: Mapping[str, Any]) -> Mapping[str, Any]:
        seen.append(body)
        return {'role': 'assistant', 'content': 'Hello.'}

    run = attempt(serve(respond), EDIT + "answer(answer=ask(job['prompt']))")

    assert seen[0]['messages'] == [{'role': 'user', 'content': f'{TASK.prompt} Then stop.'}]
    assert {key: seen[0][key] for key in ('model', 'temperature', 'seed', 'key', 'path')} == snapshot(
        {'model': 'local', 'temperature': 0, 'seed': 5, 'key': 'Bearer secret', 'path': '/v1/chat/completions'}
    )
    assert {**asdict(run), 'seconds': 0} == snapshot(
        {
            'contestant': 'script',
            'task': 'edits/constant',
            'seed': 5,
            'model': 'local',
            'solved': True,
            'ending': 'finished',
            'reason': None,
            'message': '',
            'requests': 1,
            'input_tokens': 100,
            'output_tokens': 7,
            'calls': {},
            'changed_files': ['settings.py'],
            'seconds': 0,
            'answer': 'Hello.',
            'trace': [{'text': 'Hello.', 'calls': []}],
        }
    )


def hello(body: Mapping[str, Any]) -> Mapping[str, Any]:
    return {'role': 'assistant', 'content': 'Hello.'}


def test_requests_over_the_limit_are_refused(serve: Callable[[Respond], str]) -> None:
    run = attempt(serve(hello), "answer(error=[ask('a'), ask('b'), ask('c')][-1]['message'])")
    assert (run.requests, run.ending, run.reason) == (2, 'request limit', 'request limit')
    assert run.message.endswith('; The limit of 2 requests is reached.')


def test_solved_task_counts_even_if_its_run_was_cut_off(serve: Callable[[Respond], str]) -> None:
    run = attempt(serve(hello), EDIT + "ask('a'), ask('b'), ask('c'), answer(error='limit')")
    assert (run.solved, run.ending, run.reason) == (True, 'request limit', None)


def test_run_that_takes_too_long_is_stopped_with_its_request(serve: Callable[[Respond], str]) -> None:
    stopped = Event()

    def respond(body: Mapping[str, Any]) -> Mapping[str, Any]:
        stopped.wait(60)  # ends when the test does: a model that is slow
        return hello(body)

    run = attempt(serve(respond), "ask('a')", conditions=replace(CONDITIONS, timeout_seconds=1))
    stopped.set()
    assert (run.requests, run.ending, run.reason, run.answer) == (0, 'timed out', 'timed out', '')
    assert 'cannot be reached' not in run.message


def test_crash_of_a_contestant_is_an_error(serve: Callable[[Respond], str]) -> None:
    run = attempt(serve(hello), "raise RuntimeError('no such tool')")
    assert (run.ending, run.reason) == ('error', 'error')
    assert 'RuntimeError: no such tool' in run.message


def test_errors_of_the_model_do_not_count_as_requests(serve: Callable[[Respond], str]) -> None:
    run = attempt(serve(lambda body: None), "answer(error=[ask('a'), ask('b'), ask('c')][-1])")
    assert (run.requests, run.reason) == (0, 'error')
    assert run.message.count('; 500: {"error": "busy"}') == 3


def test_model_that_cannot_be_reached_is_no_failure_of_the_agent() -> None:
    with pytest.raises(ModelUnavailableError, match='The model cannot be reached'):
        attempt('http://127.0.0.1:9/v1', "answer(error=ask('a')['message'])")


def test_run_counts_if_a_later_request_reaches_the_model(serve: Callable[[Respond], str]) -> None:
    replies = iter([429, {'role': 'assistant', 'content': 'Hello'}])
    run = attempt(serve(lambda body: next(replies)), "ask('a'); ask('b'); answer(error='no such tool')")
    assert (run.requests, run.reason) == (1, 'error')


@pytest.mark.slow
@pytest.mark.parametrize('status', [401, 404, 429])
def test_command_stops_without_results_if_the_model_is_unavailable(
    serve: Callable[[Respond], str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    status: int,
) -> None:
    # A contestant without a framework, which would need seconds to start.
    command = (sys.executable, '-c', ASK + "answer(error=str(ask('a')))")

    def launch(name: str, *, is_here: bool) -> Launch:
        return Launch(contestant=name, command=command, environment={})

    monkeypatch.setattr('benchmarks.lab.__main__.launch', launch)
    out, asked = tmp_path / 'runs.jsonl', list[str]()

    def refuse(body: Mapping[str, Any]) -> int:
        asked.append(body['path'])
        return status

    arguments = ['--contestant', 'bare', '--easy', '0', '--model', 'local', '--task', 'edits/*', '--out', str(out)]
    assert main([*arguments, '--url', serve(refuse)]) == 1
    assert len(asked) == 1
    assert load_runs(out) == []
    assert f'{status}: ' in (printed := capsys.readouterr().err)
    assert printed.endswith('Start the command again to make the missing runs.\n')

    assert main([*arguments, '--url', serve(lambda body: None)]) == 0
    assert {run.reason for run in load_runs(out)} == {'error'}


def test_command_refuses_unknown_tasks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ['--here', '--contestant', 'bare', '--easy', '0', '--out', str(tmp_path / 'runs.jsonl')]
    arguments += ['--url', 'http://127.0.0.1:9/v1', '--model', 'local', '--task', 'edits/*', '--task', 'edits/bgu']
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("No task matches 'edits/bgu'. Tasks: edits/constant, ")


def test_streams_and_other_interfaces_are_refused(serve: Callable[[Respond], str]) -> None:
    run = attempt(serve(hello), "answer(answer=ask('a', stream=True)['message'] + ask('b', '/responses')['message'])")
    assert run.answer == snapshot(
        "The lab records complete chat completions only, not '/chat/completions' or streams."
        "The lab records complete chat completions only, not '/responses' or streams."
    )


def work(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Set `LEVEL` in three files with any contestant's `edit_file` or `write_file`, then answer."""
    files = [f'{name}.env' for name in 'abc']
    results = [message for message in body['messages'] if message['role'] == 'tool']
    if len(results) == len(files):
        return {'role': 'assistant', 'content': 'Done.'}
    path = files[len(results)]
    arguments = json.dumps({'path': path, 'content': 'LEVEL=2\n'})
    return {'role': 'assistant', 'content': None, 'tool_calls': [tool_call(path, 'write_file', arguments)]}


@pytest.mark.slow
def test_command_runs_contestants_once_and_prints_the_table(
    serve: Callable[[Respond], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / 'runs.jsonl'
    arguments = ['--here', '--easy', '0', '--model', 'local', '--task', 'approvals/partly', '--out', str(out)]
    arguments += ['--url', serve(work), '--jobs', '2', '--contestant', 'bare', '--contestant', 'ours']

    assert main(arguments) == 0
    printed = capsys.readouterr()
    assert printed.err.count('solved') == 2
    assert sorted(run.calls['write_file'] for run in load_runs(out) if run.solved) == [3, 3], load_runs(out)
    assert '| approvals/partly | solved | solved |' in printed.out

    assert main(arguments) == 0
    assert capsys.readouterr().err == ''
    assert main(['--table', '--out', str(out)]) == 0
    assert capsys.readouterr().out == printed.out


def test_command_needs_a_url_and_the_model_of_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (['--url', 'http://127.0.0.1:9/v1'], ['--url', '127.0.0.1:9/v1', '--model', 'local']):
        assert main(arguments) == 2
        assert 'Pass `--url` and `--model`' in capsys.readouterr().err

    append_run(tmp_path / 'runs.jsonl', RUN)
    arguments = ['--here', '--contestant', 'bare', '--easy', '0', '--out', str(tmp_path / 'runs.jsonl')]
    assert main([*arguments, '--url', 'http://127.0.0.1:9/v1', '--model', 'other']) == 2
    assert "has runs of 'local'" in capsys.readouterr().err
