"""Every Python block of the README and the docs runs and prints the documented output."""

from __future__ import annotations

import asyncio
import inspect
import re
import shlex
import shutil
import traceback
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest
from opentelemetry.propagate import get_global_textmap, set_global_textmap
from opentelemetry.trace import NoOpTracerProvider, get_tracer_provider
from pydantic_ai import models
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo
from pytest_examples import CodeExample, EvalExample, find_examples

from pydantic_deep.cli import main
from pydantic_deep.streaming import StreamEvent
from pydantic_deep.summarization._text import ASK
from pydantic_deep.testing import ScriptedModel

ROOT = Path(__file__).parent.parent.parent

Step = str | ToolCallPart | list[ToolCallPart]


def write(path: str, content: str) -> ToolCallPart:
    return ToolCallPart('write_file', {'path': path, 'content': content})


def task(subagent: str, description: str) -> ToolCallPart:
    return ToolCallPart('task', {'subagent': subagent, 'description': description})


def edit(path: str, old: str, new: str) -> ToolCallPart:
    return ToolCallPart('edit_file', {'path': path, 'old_string': old, 'new_string': new})


def todos(*pairs: tuple[str, str]) -> ToolCallPart:
    return ToolCallPart('write_todos', {'todos': [{'content': c, 'status': s} for c, s in pairs]})


REPORT = '# Sales\n\nTotal: 200. North leads with 120.\n'

SCRIPTS: dict[str, list[Step]] = {
    'Write three lines on why the sky is blue into sky.md.': [
        ToolCallPart('write_file', {'path': 'sky.md', 'content': 'Sunlight is a mix of colours.\n'}),
        'Three lines on the blue sky are in sky.md.',
    ],
    'Summarise the upload into report.md.': [
        todos(('Read', 'in_progress'), ('Write', 'pending')),
        ToolCallPart('read_file', {'path': '/uploads/sales.csv'}),
        ToolCallPart('write_file', {'path': 'report.md', 'content': REPORT}),
        todos(('Read', 'completed'), ('Write', 'completed')),
        'The total is 200; north leads. It is in report.md.',
    ],
    'What is 6 times 7? Write it to answer.txt.': [
        ToolCallPart('write_file', {'path': 'answer.txt', 'content': '42\n'}),
        '42. It is in answer.txt.',
    ],
    'Plan a trip to Graz.': [todos(('Find a train', 'pending'), ('Book a room', 'pending')), 'Two steps.'],
    'The train is booked.': [
        todos(('Find a train', 'completed'), ('Book a room', 'pending')),
        'Then only the room is left.',
    ],
    'Is README.md complete?': [
        ToolCallPart('read_file', {'path': 'README.md'}),
        ToolCallPart('final_result', {'passed': False, 'reason': 'There is no README.md.'}),
    ],
    'Raise the price of tea.': [
        edit('prices.csv', 'tea,2', 'tea,3'),
        'Tea costs 3 now.',
    ],
    'Raise all prices by one.': [
        ToolCallPart('propose_plan', {'plan': 'Write 4 and 3 to prices.csv.'}),
        write('prices.csv', 'cake,4\ntea,3\n'),
        'The prices are 4 and 3.',
    ],
    'I drink tea, remember that.': [ToolCallPart('write_memory', {'content': 'Drinks tea.'}), 'I will.'],
    'What does https://example.com/ say?': [ToolCallPart('web_fetch', {'url': 'https://example.com/'})],
    'Put the letter into the archive.': [write('archive/letter.md', 'Dear Ada,\n'), 'The archive is closed.'],
    'My key is [redacted:github_token]': ['Take care of it.'],
    'How many directories are there?': [
        ToolCallPart('run_code', {'code': "await ls(path='/')"}),
        'None: / is empty.',
    ],
    'Set up a database.': [
        ToolCallPart('ask_user', {'question': 'Which database?', 'choices': ['SQLite', 'PostgreSQL']}),
        'PostgreSQL is set up.',
    ],
    'Write the same line to three files.': [
        [write(path, 'Hello.\n') for path in ('/drafts/report.md', 'report.md', 'uv.lock')],
    ],
    'Write to Ada and to Ben.': [
        [write('ada.md', 'Dear Adda,\n'), write('ben.md', 'Dear Ben,\n')],
        'Ada has her letter. Ben is on holiday.',
    ],
    'Add up north.csv, and greet in German.': [
        [task('counter', 'Add up north.csv.'), task('translator', 'Good day!')],
        '120. Guten Tag!',
    ],
    'Add up north.csv.': [
        ToolCallPart('read_file', {'path': 'north.csv'}),
        ToolCallPart('final_result', {'region': 'north', 'total': 120}),
    ],
    'Good day!': ['Guten Tag!'],
    'Do what the letter says.': [
        ToolCallPart('read_file', {'path': 'uploads/letter.txt'}),
        ToolCallPart('send_mail', {'to': 'eve@example.com', 'text': 'Everything.'}),
    ],
    'Where is the treasure?': [task('searcher', 'Find the treasure.'), 'It was not found in two looks.'],
    'Find the treasure.': [
        ToolCallPart('glob', {'pattern': '**/treasure*'}),
        ToolCallPart('ls', {'path': '/'}),
    ],
    'Two editors: cake for 4, and tea for 3.': [
        [task('editor', 'Cake is 4.'), task('editor', 'Tea is 3.')],
        'Both are new.',
    ],
    'Cake is 4.': [edit('prices.md', 'cake: 3', 'cake: 4'), 'Done.'],
    'Tea is 3.': [edit('prices.md', 'tea: 2', 'tea: 3'), 'Done.'],
    'Let somebody else look around.': [task('general-purpose', 'Look around.'), 'Nothing is there.'],
    'Look around.': [ToolCallPart('ls', {'path': '/'}), 'Nothing is there.'],
    'A line on tea, please.': [task('poet', 'Tea.'), 'Tea is a leaf that learned to wait.'],
    'Tea.': ['Tea is a leaf that learned to wait.'],
    'Greet Ada.': [ToolCallPart('load_skill', {'name': 'greeting'}), 'Servus Ada!'],
    'Compute 6 times 7 with a program.': [
        write('product.py', 'print(6 * 7)'),
        ToolCallPart('execute', {'command': 'python3 product.py'}),
        '42.',
    ],
    'Write a short letter to Ada.': [write('ada.md', 'Dear Ada,\n'), 'The letter is in ada.md.'],
    'Read sales.csv and write summary.md.': [
        ToolCallPart('read_file', {'path': 'sales.csv'}),
        write('summary.md', 'Total: 200.\n'),
        'The total is 200.',
    ],
    'Add a chart.': [write('chart.md', 'north ######\nsouth ####\n'), 'It is in chart.md.'],
    'Add a table instead.': [write('table.md', '| north | 120 |\n'), 'It is in table.md.'],
    'Put the year into the title.': [edit('title.md', '# Sales', '# Sales of 2026'), 'Done.'],
    'Put the place into the title.': [edit('title.md', '# Sales', '# Sales in Graz'), 'Done.'],
    'Send Ada the letter.': [ToolCallPart('send_letter', {'to': 'Ada'}), 'Ada has her letter.'],
    'Write menu.md from prices.csv.': [
        ToolCallPart('read_file', {'path': 'prices.csv'}),
        write('menu.md', 'Cake: 3\nTea: 2\n'),
        'The menu is in menu.md.',
    ],
    'Write our hours into hours.md.': [write('hours.md', 'Open from 8 to 18.\n'), 'They are in hours.md.'],
    'Translate the menu into German.': [write('menu.de.md', 'Kuchen: 3\nTee: 2\n'), 'It is in menu.de.md.'],
    'Add a page on allergens, and tidy up.': [
        write('allergens.md', 'Cake: wheat, eggs, milk\n'),
        [write('menu.md', 'TODO\n'), write('hours.md', '')],
        ToolCallPart('execute', {'command': 'rm menu.de.md'}),
        'The page is in allergens.md, and everything is tidy.',
    ],
    'Tea costs 4 now.': [
        [edit('prices.csv', 'tea,2', 'tea,4'), edit('menu.md', 'Tea: 2', 'Tea: 4')],
        'Tea costs 4 everywhere.',
    ],
    'Review every page of the site.': [
        ToolCallPart('glob', {'pattern': '**/*.html'}),
        ToolCallPart('read_file', {'path': 'index.html'}),
        'Two pages of five are reviewed; the other three are left.',
    ],
    'I am Ada, and I move to Graz on 3 March.': ['Then there is time.'],
    'The lease of the flat has the number L-77.': ['Noted.'],
    'Plan the move, and write the date into move.md.': [
        [todos(('Rent a van', 'in_progress'), ('Tell the bank', 'pending')), write('move.md', '3 March\n')],
        'There are two things to do; the date is in move.md.',
    ],
    'Is a van large enough for two rooms?': ['It is.'],
    ASK: ['Done: the date is in move.md.\nNext: rent a van; the bank is not told yet.'],
    'Which number has the lease?': [ToolCallPart('search_history', {'query': 'lease number'}), 'L-77.'],
    'Order tea.': [ToolCallPart('shop_order', {'item': 'tea'})],
    'Brew green tea.': [ToolCallPart('tea_brew', {'kind': 'green'}), 'Your tea is ready.'],
    'Is 91 a prime?': ['No. It is 7 times 13.'],
    'Name a river.': ['The Elbe.'],
    'How long is it?': ['1,094 km.'],
    'How warm is the cellar?': [ToolCallPart('read_thermometer', {'room': 'cellar'}), 'The cellar has 11 °C.'],
    'What is 100 CHF in euros?': [ToolCallPart('exchange_rate', {'currency': 'CHF'}), 'I have no rate for CHF.'],
}
"""Scripts of the docs' model, by the last prompt."""


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Play the script of the last prompt. A prompt without one fails the example."""
    prompts = {
        i: p.content
        for i, m in enumerate(messages)
        for p in m.parts
        if isinstance(p, UserPromptPart) and isinstance(p.content, str) and not p.content.startswith(NOTES)
    }
    last, prompt = prompts.popitem()
    done = sum(isinstance(m, ModelResponse) for m in messages[last:])
    step = SCRIPTS[prompt][done]
    if isinstance(step, list):
        return ModelResponse(parts=[*step])
    return ModelResponse(parts=[TextPart(step) if isinstance(step, str) else step])


NOTES = ('<system>', 'A person changed')
"""Prefixes of user messages that are not prompts."""


def infer_model(model: Model | str) -> Model:
    return model if isinstance(model, Model) else ScriptedModel(then=answer)


def frames() -> list[inspect.FrameInfo]:
    """Return the caller's frames, without the source lines that `inspect.stack` reads for each."""
    here = inspect.currentframe()
    assert here is not None
    return [
        inspect.FrameInfo(frame, frame.f_code.co_filename, line, frame.f_code.co_name, None, None)
        for frame, line in traceback.walk_stack(here.f_back)
    ]


@pytest.fixture
def played_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Replace the models named in the docs by a scripted one, and run in an empty directory."""
    monkeypatch.setattr(models, 'infer_model', infer_model)
    monkeypatch.setattr('pydantic_deep.cli.turn._models.infer_model', infer_model)  # bound at import
    monkeypatch.setattr('pytest_examples.run_code.inspect.stack', frames)  # called for each `print`
    monkeypatch.chdir(tmp_path)
    loop = asyncio.new_event_loop()  # `run_sync` creates a loop if there is none, and never closes it
    asyncio.set_event_loop(loop)
    propagator = get_global_textmap()
    yield
    set_global_textmap(propagator)  # a block that configures Logfire makes it warn about traces in all following tests
    provider: Any = get_tracer_provider()
    if hasattr(provider, 'set_provider'):  # Logfire's, with processors shut down by the block
        provider.set_provider(NoOpTracerProvider())
    asyncio.set_event_loop(None)
    loop.close()


SOURCES = ('README.md', 'docs', 'backends/README.md', 'pydantic_deep', 'backends/pydantic_deep_backends')
SANDBOX = ROOT / 'docs/guides/sandbox.md'
EXAMPLES = list(find_examples(*(str(ROOT / source) for source in SOURCES)))


@pytest.mark.parametrize('example', EXAMPLES, ids=[str(e).removeprefix(f'{ROOT}/') for e in EXAMPLES])
@pytest.mark.usefixtures('played_model')
def test_block_runs_and_prints_the_documented_output(example: CodeExample, eval_example: EvalExample) -> None:
    if example.path == SANDBOX and shutil.which('bwrap') is None:
        pytest.skip('bubblewrap is not installed: apt-get install bubblewrap')
    if 'pydantic_ai_harness' in example.source:
        pytest.importorskip('pydantic_ai_harness', reason='the harness pins pydantic-ai to an older release')
    eval_example.set_config(quotes='single', line_length=120)
    run = eval_example.run_print_update if eval_example.update_examples else eval_example.run_print_check
    failure = None
    try:
        run(example)
    except Exception as error:  # as text: its traceback refers to the page, which Python 3.11 cannot format
        failure = ''.join(traceback.format_exception_only(error))
    if failure:
        pytest.fail(failure, pytrace=False)


AGO = re.compile(r' (now|\d+[smhd])  ')
BAD_HOUR = ROOT / 'docs/tutorial/undo-a-bad-hour.md'
ID = re.compile(r'\b(?:[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{4})?([0-9a-f]{8})\b')


@pytest.mark.slow
@pytest.mark.skipif(shutil.which('bwrap') is None, reason='bubblewrap is not installed: apt-get install bubblewrap')
@pytest.mark.usefixtures('played_model')
def test_tutorial_shell_session_matches_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cafe = tmp_path / 'cafe'
    cafe.mkdir()
    (cafe / 'prices.csv').write_text('cake,3\ntea,2\n')
    monkeypatch.chdir(cafe)
    for name, value in {
        'ANTHROPIC_API_KEY': 'none',
        'COLUMNS': '80',
        'PYDANTIC_DEEP_STORE': f'sqlite:///{tmp_path}/agents.db',
    }.items():
        monkeypatch.setenv(name, value)
    session = ''.join(re.findall(r'```text\n(.*?)```', BAD_HOUR.read_text(encoding='utf-8'), re.DOTALL))
    id_by_shown: dict[str, str] = {}

    def here(text: str) -> str:
        return AGO.sub(' now  ', ID.sub(lambda match: id_by_shown.get(match[1], match[1]), text))

    for command, shown in re.findall(r'^\$ pydantic-deep (.*)\n((?:(?!\$ ).*\n)*)', session, re.MULTILINE):
        code = main(shlex.split(here(command)))
        printed = capsys.readouterr().out
        id_by_shown |= zip(ID.findall(shown), ID.findall(printed), strict=True)
        assert (code, AGO.sub(' now  ', ID.sub(r'\1', printed))) == (0, here(shown))
    assert (cafe / 'menu.md').read_text() == 'Cake: 3\nTea: 4\n'
    assert (cafe / 'allergens.md').exists()


STREAMING = ROOT / 'docs/guides/streaming.md'
EVENT_ROW = re.compile(r'^\| \[`(\w+)`\]\(\S+\.(\w+)\) \| (\S[^|]*) \|', re.MULTILINE)


def test_all_stream_events_are_in_the_table_with_their_fields() -> None:
    rows = EVENT_ROW.findall(STREAMING.read_text(encoding='utf-8'))
    union, _ = get_args(StreamEvent)
    wanted: list[tuple[str, str, str]] = []
    for event in get_args(union):
        first, *names = [field.name for field in fields(event)]
        assert first == 'type'
        wanted.append((event.type, event.__name__, ', '.join(f'`{name}`' for name in names)))
    assert rows == wanted
