"""Every Python block of the README and of the docs runs, and prints what it says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic_ai import models
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pytest_examples import CodeExample, EvalExample, find_examples

ROOT = Path(__file__).parent.parent

Step = str | ToolCallPart


def todos(*pairs: tuple[str, str]) -> ToolCallPart:
    return ToolCallPart('write_todos', {'todos': [{'content': c, 'status': s} for c, s in pairs]})


REPORT = '# Sales\n\nTotal: 200. North leads with 120.\n'

SCRIPTS: dict[str, list[Step]] = {
    'Write three lines on why the sky is blue into sky.md, then read them to me.': [
        ToolCallPart('write_file', {'path': 'sky.md', 'content': 'Sunlight is a mix of colours.\n'}),
        ToolCallPart('read_file', {'path': 'sky.md'}),
        'Sunlight is a mix of colours. Air scatters the blue the most. So the sky is blue.',
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
    'What is 100 CHF in euros?': [ToolCallPart('exchange_rate', {'currency': 'CHF'}), 'I have no rate for CHF.'],
}
"""What the model of the docs does, by the last prompt."""


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Play the script of the last prompt; a prompt without one fails the example."""
    last = max(i for i, m in enumerate(messages) if any(isinstance(p, UserPromptPart) for p in m.parts))
    prompt = next(str(p.content) for p in messages[last].parts if isinstance(p, UserPromptPart))
    done = sum(isinstance(m, ModelResponse) for m in messages[last:])
    step = SCRIPTS[prompt][done]
    return ModelResponse(parts=[TextPart(step) if isinstance(step, str) else step])


@pytest.fixture
def played_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Replace the models that the docs name by a played one, and run in an empty directory."""
    monkeypatch.setattr(models, 'infer_model', lambda model, *args, **kwargs: FunctionModel(answer))
    before = Path.cwd()
    os.chdir(tmp_path)
    yield
    os.chdir(before)


@pytest.mark.parametrize(
    'example', find_examples(str(ROOT / 'README.md'), str(ROOT / 'docs'), str(ROOT / 'backends/README.md')), ids=str
)
@pytest.mark.usefixtures('played_model')
def test_a_block_runs_and_prints_what_it_says(example: CodeExample, eval_example: EvalExample) -> None:
    eval_example.set_config(quotes='single', line_length=120)
    if eval_example.update_examples:
        eval_example.run_print_update(example)
    else:
        eval_example.run_print_check(example)
